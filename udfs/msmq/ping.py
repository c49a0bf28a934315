"""Finds UDP pings among datagrams, [MS-MQQB] 2.2.7, as rows of `schemas.pings`."""

from collections.abc import Iterator
from typing import Any

from schemas import wire
from udfs.capture.records import NO_TIME
from udfs.msmq.header_types import CLASSES, columns
from udfs.network.dissect import Datagrams
from udfs.network.endpoints import unpack_endpoint

_SIGNATURE = wire.PING_SIGNATURE.to_bytes(2, "little")


def find_pings(datagrams: Datagrams) -> Iterator[dict[str, Any]]:
    """Yields the pings among the datagrams from or to UDP port 3527."""
    frames, times = datagrams.frame.tolist(), datagrams.time_ns.tolist()
    for frame, time_ns, endpoints, payload in zip(frames, times, datagrams.endpoints, datagrams.payload, strict=True):
        if len(payload) == wire.PING.size and payload[2:4] == _SIGNATURE:
            yield _row(frame, time_ns, bytes(endpoints), payload)


def _row(frame: int, time_ns: int, endpoints: bytes, payload: bytes) -> dict[str, Any]:
    values = columns(wire.PING, CLASSES["Ping"](payload))
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
    } | {name: values[name] for name in ("queue_manager", "refused", "cookie")}
