"""Leaves message bodies out of the stream bytes that wait for the next run, so that no state holds them.

Where packets begin depends on headers alone, and what is stored of a packet on the bytes before and after its body and
on the CRC-32 of its body. So these are kept: of everything that begins like a packet the bytes before and after its
body, of other headers the version, flags, signature and size, and at the end what may be a header's beginning.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from schemas import wire
from schemas.violations import Fault
from schemas.wire import MessageClass
from udfs.msmq.dropped import Dropped, Run
from udfs.msmq.frame_size import HAS_SESSION_HEADER
from udfs.msmq.reference import ParsedPacket
from udfs.msmq.stream_window import (
    HEADER_SIZE,
    SIGNATURE,
    SIGNATURE_OFFSET,
    VERSION,
    header_fault,
    header_fields,
)

_DECIDING = 12
"""Bytes of a header up to its PacketSize."""


def drop_bodies(data: bytes, dropped: Sequence[Dropped], *, synchronized: bool) -> list[Run]:
    """Returns the data as runs without the bodies. `synchronized`: a packet begins at its first byte.

    `dropped`: what was dropped before, by offset in the data. Time and memory are linear in the data.
    """
    marks = _Marks()
    for match in re.finditer(SIGNATURE, data):
        at = match.start() - SIGNATURE_OFFSET
        if at >= 0 and data.startswith(VERSION, at):
            marks.keep(at, min(at + _DECIDING, len(data)))
            if header_fault(data, at, len(data)) is None:
                _keep_around_body(data, at, marks, whole_end=synchronized and at == 0)
        else:
            marks.keep(match.start(), match.end())
    _keep_beginning(data, marks, synchronized=synchronized)
    return list(_runs(data, marks, dropped))


class _Marks:
    """Ranges to keep, which may overlap, and the offsets where bodies begin and end."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.edges: list[int] = []

    def keep(self, start: int, end: int) -> None:
        """Adds a range, if there is a byte in it."""
        if start < end:
            self.ranges.append((start, end))


def _keep_around_body(data: bytes, at: int, marks: _Marks, *, whole_end: bool) -> None:
    """Marks what is kept of the packet whose valid header is at an offset; with `whole_end`, all that follows it too.

    A SessionHeader may be inside PacketSize or after it: what either reading may need is kept.
    """
    _, flags, _, size = header_fields(data, at)
    session = wire.SESSION_HEADER.size if flags & HAS_SESSION_HEADER else 0
    end = min(at + size + session, len(data))
    for after in (at + size, at + size + session):
        if whole_end or after + HEADER_SIZE > len(data):
            marks.keep(after, len(data))
    packet = ParsedPacket.outline(memoryview(data)[at:end], size + session)
    base, user = packet.headers["BaseHeader"], packet.headers.get("UserHeader")
    properties = packet.headers.get("MessagePropertiesHeader")
    if base.internal or user is None or properties is None or "label" not in packet.columns:
        undecodable = packet.error is not None and packet.error.fault is not Fault.BYTES_MISSING
        marks.keep(at, at + packet.seen if undecodable and not base.internal else end)
        return
    label = packet.offsets["MessagePropertiesHeader"] + wire.MESSAGE_PROPERTIES_HEADER.size
    body = at + label + 2 * properties.label_length + properties.extension_size
    largest = max(properties.body_size, properties.allocation_body_size)
    headers_follow = base.has_debug_header or user.has_soap_header or user.has_multi_queue_format
    if headers_follow or body + largest > at + size - session:
        largest = properties.body_size  # where the body ends, the headers after it say
    body_end = body if _acknowledges(properties, packet.columns["label"]) else body + largest
    marks.keep(at, min(body, end))
    marks.keep(body_end, end)
    marks.edges += [body, body_end]


def _acknowledges(properties: Any, label: str | None) -> bool:
    """Tells whether the packet may be an OrderAck or FinalAck, whose body is stored."""
    code = properties.message_class
    ordering = code == MessageClass.MQMSG_CLASS_ORDER_ACK or code >= MessageClass.MQMSG_CLASS_ACK_RECEIVE
    return bool(ordering and properties.body_size == wire.ACK_BODY_SIZE and label == wire.ORDER_ACK_LABEL)


def _keep_beginning(data: bytes, marks: _Marks, *, synchronized: bool) -> None:
    """Marks the bytes at the end that may be the beginning of a header."""
    end = len(data)
    if synchronized and end < HEADER_SIZE:
        marks.keep(0, end)
    for at in range(max(end - HEADER_SIZE + 1, 0), end):
        if data.startswith(VERSION, at) and SIGNATURE.startswith(data[at + SIGNATURE_OFFSET :][: len(SIGNATURE)]):
            marks.keep(at, end)
            return


def _runs(data: bytes, marks: _Marks, dropped: Sequence[Dropped]) -> Iterator[Run]:
    """Yields the runs between the edges of what is kept, of bodies, and of what was dropped before."""
    depth = np.zeros(len(data) + 1, np.int32)
    for start, end in marks.ranges:
        depth[start] += 1
        depth[end] -= 1
    kept = np.cumsum(depth[:-1]) > 0
    known = {run.start: run for run in dropped}
    inside = np.zeros(len(data) + 1, np.bool_)
    for run in dropped:
        kept[run.start : run.end] = False
        inside[run.start + 1 : run.end] = True
    edges = {0, len(data), *(np.flatnonzero(kept[1:] != kept[:-1]) + 1).tolist(), *known, *(r.end for r in dropped)}
    edges |= {edge for edge in marks.edges if edge < len(data) and not inside[edge]}
    bounds = sorted(edges)
    start = 0
    for low, high in pairwise(bounds):
        if kept[low]:
            continue
        if start < low:
            yield data[start:low]
        yield high - low, known[low].crc32 if low in known else zlib.crc32(data[low:high])
        start = high
    if start < len(data):
        yield data[start:]
