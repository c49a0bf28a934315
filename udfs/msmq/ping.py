"""Finds UDP pings among captured frames, [MS-MQQB] 2.2.7, as rows of `schemas.pings`."""

from typing import Any

from schemas import wire
from udfs.capture.records import NO_TIME, Records
from udfs.msmq.header_types import CLASSES, columns
from udfs.network.dissect import find_datagrams
from udfs.network.endpoints import unpack_endpoint

_SIZE = wire.PING.size
_SIGNATURE = wire.PING_SIGNATURE.to_bytes(2, "little")
_SIGNATURE_AT = 2


def find_pings(records: Records) -> list[dict[str, Any]]:
    """Returns the complete pings among the frames, from or to UDP port 3527."""
    datagrams = find_datagrams(records, _SIZE, _SIGNATURE_AT, _SIGNATURE)
    times = datagrams.time_ns.tolist()
    rows = map(_row, datagrams.frame.tolist(), times, map(bytes, datagrams.endpoints), datagrams.payload)
    return [row for row in rows if wire.PING_PORT in (row["src_port"], row["dst_port"])]


def _row(frame: int, time_ns: int, endpoints: bytes, payload: bytes) -> dict[str, Any]:
    src_ip, src_port = unpack_endpoint(endpoints[:18])
    dst_ip, dst_port = unpack_endpoint(endpoints[18:])
    return {
        "frame_number": frame,
        "captured_ns": None if time_ns == NO_TIME else time_ns,
        "src_ip": src_ip,
        "src_port": src_port,
        "dst_ip": dst_ip,
        "dst_port": dst_port,
        "is_response": src_port == wire.PING_PORT,
    } | columns(wire.PING, CLASSES["Ping"](payload))
