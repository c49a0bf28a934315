"""UDP pings among captured frames, [MS-MQQB] 2.2.7: rows of `schemas.pings`, by the rank of their capture."""

from ipaddress import IPv6Address
from typing import Any

from schemas import wire
from udfs.capture.reader import NO_TIME, Records
from udfs.msmq.header_types import CLASSES, columns
from udfs.network.dissect import find_datagrams

_SIZE = wire.PING.size
_SIGNATURE = wire.PING_SIGNATURE.to_bytes(2, "little")
_SIGNATURE_AT = 2


def find_pings(records: Records) -> list[dict[str, Any]]:
    """The pings among the frames: whole ones only, from or to UDP port 3527."""
    found = find_datagrams(records, _SIZE, _SIGNATURE_AT, _SIGNATURE)
    return [
        row
        for frame, time_ns, endpoints, payload in zip(
            found.frame.tolist(), found.time_ns.tolist(), found.endpoints, found.payload, strict=True
        )
        if wire.PING_PORT in ((row := _row(frame, time_ns, endpoints.tobytes(), payload))["src_port"], row["dst_port"])
    ]


def _row(frame: int, time_ns: int, endpoints: bytes, payload: bytes) -> dict[str, Any]:
    source, target = endpoints[:18], endpoints[18:]
    return {
        "frame_number": frame,
        "captured_ns": None if time_ns == NO_TIME else time_ns,
        "src_ip": _address(source[:16]),
        "src_port": int.from_bytes(source[16:]),
        "dst_ip": _address(target[:16]),
        "dst_port": int.from_bytes(target[16:]),
        "is_response": int.from_bytes(source[16:]) == wire.PING_PORT,
    } | columns(wire.PING, CLASSES["Ping"](payload))


def _address(packed: bytes) -> str:
    address = IPv6Address(packed)
    return str(address.ipv4_mapped or address)
