"""Unpacks endpoints, which are 16 bytes of address (IPv4 mapped into IPv6) and 2 of port, big-endian."""

from ipaddress import IPv6Address


def unpack_endpoint(packed: bytes) -> tuple[str, int]:
    """Returns address and port of an endpoint of 18 bytes."""
    address = IPv6Address(packed[:16])
    return str(address.ipv4_mapped or address), int.from_bytes(packed[16:], "big")
