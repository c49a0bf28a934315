"""Unpacks and names endpoints, which are 16 bytes of address (IPv4 mapped into IPv6) and 2 of port, big-endian."""

from ipaddress import IPv6Address
from typing import Any


def unpack_endpoint(packed: bytes) -> tuple[str, int]:
    """Returns address and port of an endpoint of 18 bytes."""
    return unpack_address(packed[:16]), int.from_bytes(packed[16:], "big")


def unpack_address(packed: bytes) -> str:
    """Returns an address of 16 bytes as text."""
    address = IPv6Address(packed)
    return str(address.ipv4_mapped or address)


def stream_names(endpoints: bytes, *, from_b: bool, instance: int) -> dict[str, Any]:
    """Returns the columns of `streams` that name a stream; `endpoints`: 36 bytes, the lower one first."""
    a, b = (unpack_endpoint(endpoints[at : at + 18]) for at in (0, 18))
    (src, src_port), (dst, dst_port) = (b, a) if from_b else (a, b)
    low, high = endpoint_text(*a), endpoint_text(*b)
    source, target = (high, low) if from_b else (low, high)
    return {
        "stream_id": f"{source}>{target}#{instance}",
        "connection_id": f"{low}-{high}#{instance}",
        "src_ip": src,
        "src_port": src_port,
        "dst_ip": dst,
        "dst_port": dst_port,
    }


def endpoint_text(ip: str, port: int) -> str:
    """Returns address and port as text."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
