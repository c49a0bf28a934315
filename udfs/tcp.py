"""TCP connections and the byte streams of their two directions, out of captured segments [RFC 9293].

Segments come in file order (capture, record number), never in order of the clock. Sequence numbers are unwrapped into
positions that only grow, so a stream may be longer than 4 GiB.
"""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from schemas.ingest import TcpReason
from udfs.frames import ACK, FIN, RST, SYN

_MODULUS = 1 << 32
_HALF = 1 << 31
_NEAR = 1 << 28
"""Positions further than this from what a direction has sent are another connection's, or no one's."""
_LATE_SYN = 1 << 16
_RECENT = 16
"""Connections on one pair of endpoints that a delayed segment may still belong to."""
_CONFIRMED = 3
"""Segments in a row, far from where a direction was, that show the capture (not the segment) is missing something."""


class Overlap(StrEnum):
    """Whose bytes win where segments overlap with different data."""

    FIRST = "first"
    WINDOWS = "windows"
    LINUX = "linux"
    LAST = "last"


class Segment(NamedTuple):
    """One captured segment of a connection. `from_b`: sent by the endpoint that sorts second."""

    from_b: bool
    seq: int
    ack: int
    flags: int
    length: int
    payload: bytes | memoryview


@dataclass(slots=True)
class Direction:
    """What is known of one direction; positions are unwrapped sequence numbers."""

    isn: int | None = None
    low: int | None = None
    """Lowest position that this direction sent from."""
    end: int | None = None
    """Position behind the highest byte that was sent."""
    held: int | None = None
    """Position behind the highest byte that was captured."""
    fin: int | None = None
    acked: int | None = None
    data: list[tuple[int, int, int]] = field(default_factory=list)
    """Segments with payload: position, index, position acknowledged before (at least 0)."""

    def place(self, seq: int) -> int:
        """The position of this sequence number nearest to what was sent before."""
        reference = self.end if self.end is not None else self.acked
        if reference is None:
            return seq + _MODULUS  # room to find, later, that the stream began lower
        return reference + (seq - reference + _HALF) % _MODULUS - _HALF

    def near(self, position: int) -> bool:
        """Whether a segment there fits what this direction has sent."""
        reference = self.end if self.end is not None else self.acked
        return reference is None or abs(position - reference) < _NEAR


class Connection:
    """One TCP connection: the directions from endpoint a and from endpoint b."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.sides = (Direction(), Direction())
        self.closed = False
        self.opened_by_b: bool | None = None

    def opens_with(self, segment: Segment) -> bool:
        """Whether this SYN may be this connection's: the same again, or the first to be seen, late."""
        side, other = self.sides[segment.from_b], self.sides[not segment.from_b]
        if side.isn is not None:
            return (side.isn - segment.seq) % _MODULUS == 0
        if segment.flags & ACK and other.isn is not None:
            return (other.isn + 1 - segment.ack) % _MODULUS == 0
        seen = side.low if side.low is not None else side.acked
        return seen is None or (seen - segment.seq - 1) % _MODULUS < _LATE_SYN

    def accepts(self, segment: Segment) -> bool:
        """Whether the sequence number fits what this direction has sent or, before that is known, what it answers."""
        side, other = self.sides[segment.from_b], self.sides[not segment.from_b]
        if side.end is None and side.acked is None and segment.flags & ACK:
            acked = other.place(segment.ack)
            return other.near(acked) and (other.isn is None or acked > other.isn)
        position = side.place(segment.seq)
        return side.near(position) and (side.isn is None or position >= side.isn)

    def precedes(self, segment: Segment) -> bool:
        """Whether the sequence number lies shortly before the first of this direction."""
        side = self.sides[segment.from_b]
        position = side.place(segment.seq)
        return side.isn is not None and side.near(position) and position < side.isn

    def take(self, segment: Segment, index: int) -> None:
        """Learn from a segment that this connection accepts."""
        side, other = self.sides[segment.from_b], self.sides[not segment.from_b]
        position = side.place(segment.seq)
        if segment.flags & SYN:
            if side.isn is None:
                side.isn = position
            self.opened_by_b = segment.from_b is not bool(segment.flags & ACK)
            position += 1
        if segment.flags & RST:
            self.closed = True
            return
        end = position + segment.length
        first = None if side.isn is None else side.isn + 1
        keep_alive = segment.length == 1 and end in (side.held, first)  # it repeats the last byte, or makes one up
        if segment.length and not keep_alive:
            side.data.append((position, index, side.acked or 0))
        if segment.payload:
            held = position + len(segment.payload)
            side.held = held if side.held is None else max(side.held, held)
        side.low = position if side.low is None else min(side.low, position)
        side.end = end if side.end is None else max(side.end, end)
        if segment.flags & FIN:
            side.fin = end if side.fin is None else max(side.fin, end)
        if segment.flags & ACK:
            acked = other.place(segment.ack)
            if other.near(acked):
                other.acked = acked if other.acked is None else max(other.acked, acked)
        self.closed = self.closed or None not in (side.fin, other.fin)


def connections(segments: Sequence[Segment]) -> tuple[list[Connection], list[int]]:
    """The connections on one pair of endpoints in the order they were first seen, and the segments of none of them.

    A SYN with a new initial sequence number opens a connection; a known one leads back to its connection, so that
    captures from two vantage points fall together. A lone segment far from what its direction has sent is in no
    connection; several in a row are another connection whose SYN was not captured.
    """
    found: list[Connection] = []
    by_syn: dict[tuple[bool, int, int | None], Connection] = {}
    current: Connection | None = None
    far: list[int] = []
    outside: list[int] = []

    def another() -> Connection:
        found.append(Connection())
        return found[-1]

    for index, segment in enumerate(segments):
        if segment.flags & SYN:
            syn = segment.from_b, segment.seq, segment.ack if segment.flags & ACK else None
            current = by_syn.get(syn) or current
            if current is None or not current.opens_with(segment):
                current = another()
            by_syn[syn] = current
        elif current is None:
            current = another()
        elif not current.accepts(segment):
            fitting = next((c for c in reversed(found[-_RECENT:]) if c.accepts(segment)), None)
            if fitting is None and current.precedes(segment):
                fitting = current
            if fitting is not None:
                fitting.take(segment, index)
            elif segment.length:
                far.append(index)
                if len(far) == _CONFIRMED or current.closed:
                    current = another()
                    for i in far:
                        if current.accepts(segments[i]):
                            current.take(segments[i], i)
                        else:
                            outside.append(i)
                    far = []
            continue
        elif segment.length:
            outside += far
            far = []
        current.take(segment, index)
    return found, outside + far


class Piece(NamedTuple):
    """Stream bytes from offset `start` to `end`: those of `segment` (its index) from its payload's byte `skip` on."""

    start: int
    end: int
    segment: int
    skip: int


class Stream(NamedTuple):
    """One direction, put together. Offsets count from the byte after the SYN or, mid-stream, from the lowest byte seen.

    `gaps`: offset and length of what is missing. `rejected`: segments that are not part of the stream, and why.
    """

    initial_seq: int | None
    pieces: list[Piece]
    gaps: list[tuple[int, int]]
    conflict: bool
    rejected: list[tuple[int, TcpReason]]


def assemble(side: Direction, segments: Sequence[Segment], overlap: Overlap) -> Stream:
    """Put a direction's segments together; what overlaps with other data is settled by `overlap` and told."""
    lowest = min((position for position, _, _ in side.data), default=side.low or 0)
    base = side.isn + 1 if side.isn is not None else lowest
    limit = side.fin
    rejected: list[tuple[int, TcpReason]] = []
    parts: list[tuple[int, int, int, int, int]] = []  # start, end, index, skip, acknowledged before
    sent = 0
    for position, index, acked in side.data:
        start = position - base
        end = start + len(segments[index].payload)
        skip = max(0, -start)
        if start + skip >= end > start:
            rejected.append((index, TcpReason.BEFORE_START))
            continue
        if limit is not None and end > limit - base:
            if start >= limit - base:
                rejected.append((index, TcpReason.AFTER_FIN))
                continue
            end = limit - base
        sent = max(sent, start + segments[index].length)
        if end > start + skip:
            parts.append((start + skip, end, index, skip, acked - base))
    if limit is not None:
        sent = min(max(sent, limit - base), limit - base)
    if side.acked is not None and (side.isn is not None or side.data):
        sent = max(sent, (side.acked if limit is None else min(side.acked, limit)) - base)
    orderly = all(parts[i][1] == parts[i + 1][0] for i in range(len(parts) - 1))
    pieces = [Piece(*part[:4]) for part in parts] if orderly else list(_settle(parts, overlap))
    conflict = not orderly and _conflict(parts, pieces, segments)
    gaps = []
    at = 0
    for piece in pieces:
        if piece.start > at:
            gaps.append((at, piece.start - at))
        at = piece.end
    if sent > at:
        gaps.append((at, sent - at))
    isn = None if side.isn is None else side.isn % _MODULUS
    return Stream(isn, pieces, gaps, conflict, rejected)


_Part = tuple[int, int, int, int, int]


def _settle(parts: list[_Part], overlap: Overlap) -> Iterator[Piece]:
    """The stream in offset order, each byte from the segment that wins it; `parts` are in order of arrival.

    Time: n log n for `first` and `last`; for the others also the number of segments over one byte.
    """
    edges = sorted({edge for part in parts for edge in _edges(part, overlap)})
    order = sorted(range(len(parts)), key=lambda rank: parts[rank][0])
    active: list[tuple[int, int]] = []  # a heap of (rank, end): first or last arrived on top
    upcoming = 0
    for start, end in pairwise(edges):
        while upcoming < len(order) and parts[order[upcoming]][0] <= start:
            rank = order[upcoming]
            heapq.heappush(active, (-rank if overlap is Overlap.LAST else rank, parts[rank][1]))
            upcoming += 1
        while active and active[0][1] <= start:
            heapq.heappop(active)
        if active:
            ranks = [abs(active[0][0])]
            if overlap is not Overlap.FIRST:
                ranks = sorted(abs(rank) for rank, part_end in active if part_end > start)
            winner = parts[ranks[0]]
            for rank in ranks[1:]:
                if _replaces(parts[rank], winner, start, overlap):
                    winner = parts[rank]
            yield Piece(start, end, winner[2], winner[3] + start - winner[0])


def _edges(part: _Part, overlap: Overlap) -> tuple[int, ...]:
    """Where the winner may change: the ends of a segment, and what had been acknowledged when it came."""
    start, end, _, _, acked = part
    return (start, end) if overlap is Overlap.FIRST or not start < acked < end else (start, acked, end)


def _replaces(later: _Part, earlier: _Part, offset: int, overlap: Overlap) -> bool:
    """Whether the later segment's byte at `offset` replaces the earlier one's, which nobody has read yet.

    The policies are those of Novak and Sturges, Target-Based TCP Stream Reassembly (2007).
    """
    if offset < later[4]:
        return False
    if overlap is Overlap.WINDOWS:
        return later[0] < earlier[0] and later[1] > earlier[1]
    if overlap is Overlap.LINUX:
        return later[0] < earlier[0] or (later[0] == earlier[0] and later[1] > earlier[1])
    return overlap is Overlap.LAST


def _conflict(parts: list[_Part], pieces: list[Piece], segments: Sequence[Segment]) -> bool:
    """Whether any segment holds other bytes than the stream has there."""
    starts = [piece.start for piece in pieces]
    for start, end, index, skip, _ in parts:
        payload = segments[index].payload
        for piece in pieces[bisect_right(starts, start) - 1 :]:
            if piece.start >= end:
                break
            low, high = max(start, piece.start), min(end, piece.end)
            here = payload[skip + low - start : skip + high - start]
            there = segments[piece.segment].payload[piece.skip + low - piece.start : piece.skip + high - piece.start]
            if piece.segment != index and here != there:
                return True
    return False
