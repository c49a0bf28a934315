"""What a capture holds, by code that shares nothing with the project: segments, streams and packets, byte by byte.

It is slow and follows the documents word for word; it takes frames of Ethernet, IPv4 or IPv6 without extension headers.
"""

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from ipaddress import ip_address
from itertools import pairwise
from typing import NamedTuple

from wiretap import ACK, FIN, RST, SYN

PORT = 1801
WRAP = 1 << 32
LARGEST_PACKET = 4 << 20

Key = tuple[str, int, str, int]
"""Source address and port, destination address and port."""


def summed(frame: bytes) -> bytes:
    """The frame with the TCP checksum it should have [RFC 9293 3.1]."""
    v4 = frame[14] >> 4 == 4
    at = 34 if v4 else 54
    segment = frame[at : at + 16] + bytes(2) + frame[at + 18 :]
    addresses = frame[26:34] if v4 else frame[22:54]
    data = addresses + struct.pack(">HH", 6, len(segment)) + segment + bytes(len(segment) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return frame[: at + 16] + struct.pack(">H", total ^ 0xFFFF) + frame[at + 18 :]


class Heard(NamedTuple):
    """A TCP segment as a frame tells it. `length`: of its payload on the wire."""

    key: Key
    seq: int
    ack: int
    flags: int
    length: int
    payload: bytes
    valid: bool


@lru_cache(maxsize=1 << 12)
def heard(frame: bytes) -> Heard | None:
    """The segment in an Ethernet frame, None when there is none from or to the port."""
    kind = frame[12:14]
    if kind == b"\x08\x00":
        if len(frame) < 34 or frame[14] >> 4 != 4:
            return None
        header, total, fragment = (frame[14] & 15) * 4, *struct.unpack_from(">H2xH", frame, 16)
        if header < 20 or fragment & 0x3FFF or frame[23] != 6 or 0 < total < header:
            return None
        at, addresses = 14 + header, (frame[26:30], frame[30:34])
        end = 14 + total if total else len(frame)
    elif kind == b"\x86\xdd":
        if len(frame) < 54 or frame[14] >> 4 != 6 or frame[20] != 6:
            return None
        at, addresses = 54, (frame[22:38], frame[38:54])
        total = struct.unpack_from(">H", frame, 18)[0]
        end = 54 + total if total else len(frame)
    else:
        return None
    if at + 20 > len(frame):
        return None
    source, target, seq, ack, offset, flags = struct.unpack_from(">HHIIBB", frame, at)
    payload = at + (offset >> 4) * 4
    if PORT not in (source, target) or offset >> 4 < 5 or payload > end:
        return None
    hosts = [str(ip_address(address)) for address in addresses]
    valid = end <= len(frame) and at in (34, 54) and summed(frame[:end]) == frame[:end]
    key = (hosts[0], source, hosts[1], target)
    return Heard(key, seq, ack, flags, end - payload, frame[payload:end], valid)


def back(key: Key) -> Key:
    """The other direction."""
    return (*key[2:], *key[:2])


class Side(NamedTuple):
    """One direction as it must come out: runs of bytes by offset, gaps, and packets by offset."""

    runs: list[tuple[int, bytes]]
    gaps: list[tuple[int, int]]
    packets: list[tuple[int, bytes]]


def sides(segments: Sequence[Heard], *, prefer_valid: bool) -> dict[Key, Side]:
    """Each direction's stream: every byte from the first segment, or the first with a right checksum, that holds it."""
    by_key: dict[Key, list[Heard]] = defaultdict(list)
    for segment in segments:
        by_key[segment.key].append(segment)
        by_key[back(segment.key)] += []
    out = {}
    for key, own in by_key.items():
        syn = next((s.seq for s in own if s.flags & SYN), None)
        with_data = [s for s in own if s.length and not s.flags & (SYN | RST)]
        origin = syn + 1 if syn is not None else with_data[0].seq if with_data else None
        if origin is None:
            continue
        acks = [away(s.ack, origin) for s in by_key[back(key)] if s.flags & ACK and not s.flags & RST]
        ends = [away(s.seq, origin) + s.length for s in own if s.flags & FIN]
        with_data = list(without_keep_alives(with_data, origin))
        held: dict[int, int] = {}
        sent = max([*acks, *(away(s.seq, origin) + s.length for s in with_data)], default=0)
        for s in sorted(with_data, key=lambda s: not s.valid) if prefer_valid else with_data:
            at = away(s.seq, origin)
            for offset, byte in enumerate(s.payload, at):
                held.setdefault(offset, byte)
        if syn is None:
            base = min(away(s.seq, origin) for s in with_data)
            held = {offset - base: byte for offset, byte in held.items()}
            sent, ends = sent - base, [end - base for end in ends]
        if ends:
            sent = max(ends)
        held = {offset: byte for offset, byte in held.items() if 0 <= offset < sent}
        runs = contiguous(held)
        spans = [(0, 0), *((at, at + len(data)) for at, data in runs), (sent, sent)]
        gaps = [(end, start - end) for (_, end), (start, _) in pairwise(spans) if start > end]
        out[key] = Side(runs, gaps, list(framed(runs, in_step=syn is not None)))
    return out


def without_keep_alives(segments: Sequence[Heard], origin: int) -> Iterator[Heard]:
    """The segments but for those of one byte at the last place that was captured: garbage, by RFC 9293 3.8.4."""
    top = None
    for s in segments:
        at = away(s.seq, origin)
        if s.length != 1 or at + 1 != top:
            yield s
        if s.payload:
            top = max(at + len(s.payload), at if top is None else top)


def away(seq: int, origin: int) -> int:
    """How far one sequence number lies behind another."""
    return (seq - origin + WRAP // 2) % WRAP - WRAP // 2


def contiguous(held: dict[int, int]) -> list[tuple[int, bytes]]:
    """The bytes in runs without a gap."""
    runs: list[tuple[int, bytearray]] = []
    for offset in sorted(held):
        if runs and runs[-1][0] + len(runs[-1][1]) == offset:
            runs[-1][1].append(held[offset])
        else:
            runs.append((offset, bytearray([held[offset]])))
    return [(at, bytes(data)) for at, data in runs]


def framed(runs: Sequence[tuple[int, bytes]], *, in_step: bool) -> Iterator[tuple[int, bytes]]:
    """The packets of a stream by the contract's Framing section, word for word and without care for time."""
    due = None  # where the packet ends that its run could not complete
    for start, data in runs:
        step = in_step and start == 0
        ends = {at: at + size for at in range(len(data)) if (size := extent(data, at)) and at + size <= len(data)}
        at = 0
        if due is not None and start <= due < start + len(data) and due - start in ends:
            at, step, due = due - start, True, None
        while at < len(data):
            size = extent(data, at)
            if step and size and at + size <= len(data):
                yield start + at, data[at : at + size]
                at += size
                continue
            if step:
                due = start + at + size if size else None
                step = False
                at += 1
            limit = len(data) if due is None or due >= start + len(data) else due - start
            chained_only = 0 if due is None or due < start else limit
            found = next((p for p in sorted(ends) if p >= at and trusted(p, ends, data, p < chained_only)), None)
            if found is None:
                break
            at, step, due = found, True, None
        if due is not None and due <= start + len(data):
            due = None


def extent(data: bytes, at: int) -> int:
    """Bytes that the header there claims on the stream (DECISIONS 2), 0 when it is none."""
    if len(data) < at + 16 or data[at] != 0x10 or data[at + 4 : at + 8] != b"LIOR":
        return 0
    flags, size = struct.unpack_from("<H4xI", data, at + 2)
    if not 16 <= size <= LARGEST_PACKET:
        return 0
    if not flags & 0x10:
        return int(size)
    behind = not flags & 0x08 or size == 20
    expected, other = (size + 16, size) if behind else (size, size + 16)
    if at + expected + 16 <= len(data) and not header_like(data, at + expected) and header_like(data, at + other):
        return int(other)
    return int(expected)


def header_like(data: bytes, at: int) -> bool:
    """Whether version and signature of a header stand there."""
    return data[at : at + 1] == b"\x10" and data[at + 4 : at + 8] == b"LIOR"


def trusted(at: int, ends: dict[int, int], data: bytes, chained: bool) -> bool:
    """Whether a plausible header ends where another begins or the run ends or, if that counts, has none inside it."""
    end = ends[at]
    return end in ends or end == len(data) or (not chained and not any(at < p < end for p in ends))
