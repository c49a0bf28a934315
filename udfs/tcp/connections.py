"""TCP connections and the byte streams of their two directions, out of captured segments [RFC 9293].

Segments come in file order (capture, record number), never in order of the clock. Sequence numbers are unwrapped into
positions that only grow, so a stream may be longer than 4 GiB. What a segment does to its connection depends on the
segments before it alone: a stream may be handed on piece by piece, and a connection be put away and taken up again.
"""

import heapq
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import compress, pairwise
from typing import NamedTuple

import numpy as np

from schemas.ingest import TcpReason
from udfs.capture.reader import NO_TIME
from udfs.network.checksum import intact
from udfs.network.dissect import ACK, FIN, RST, SYN

FILE_OFFSETS = np.dtype([("run_offset", "<u4"), ("file_offset", "<u8")])
Fetch = Callable[[int, int, int], bytes]
"""Bytes of a capture: of which (rank), from which byte of the file on, how many."""
_MODULUS = 1 << 32
_HALF = 1 << 31
_BEHIND = 1 << 28
"""Positions further behind are another connection's, too; those nearer, but behind the window, bring nothing."""
_LATE_SYN = 1 << 16
_QUIET_NS = 240_000_000_000
"""Twice the maximum segment lifetime [RFC 9293] 3.4.2: after it, nothing of a connection is under way."""
_RECENT = 16
"""Connections on one pair of endpoints that a delayed segment may still belong to."""
_CONFIRMED = 3
"""Segments in a row, far from where a direction was, that show the capture (not the segment) is missing something."""
WINDOW_BYTES = 64 << 20
"""Positions further ahead of what a direction has sent are another connection's, or no one's."""


class Overlap(StrEnum):
    """Whose bytes win where segments overlap with different data."""

    FIRST = "first"
    WINDOWS = "windows"
    LINUX = "linux"
    LAST = "last"


class NeedsPayload(Exception):  # noqa: N818 - not an error: the connection is to be looked at with all its bytes
    """What was taken for orderly is not or, `back`, bytes came that belong before what was carried over."""

    def __init__(self, *, rewind: bool = False) -> None:
        """Say whether what was carried over is in question."""
        super().__init__()
        self.rewind = rewind


class Segment(NamedTuple):
    """One captured segment of a connection, or a framed run: one row for several segments that follow one another.

    `from_b`: sent by the endpoint that sorts second. `time_ns`, `last_ns`: time of the first and the last record.
    `header_sum`: see `udfs.network.checksum`; `PART_SUM` for a part of a segment. `framed_run`: the packets were framed
    where they were read, and `payload` holds only their first bytes. `file_offsets` (dtype `FILE_OFFSETS`): where
    an uncompressed capture holds the run's bytes.
    """

    from_b: bool
    seq: int
    ack: int
    flags: int
    length: int
    payload: bytes | memoryview
    capture: int = 0
    frame: int = 0
    time_ns: int = NO_TIME
    last_ns: int = NO_TIME
    header_sum: int | None = None
    framed_run: bool = False
    file_offsets: bytes | None = None

    @property
    def captured(self) -> int:
        """Payload bytes in the capture."""
        return self.length if self.framed_run else len(self.payload)

    @property
    def intact(self) -> bool:
        """Whether the TCP checksum is right; it is not where the network card was to fill it in."""
        if self.header_sum is None or len(self.payload) != self.length:
            return False
        return intact(self.header_sum, self.payload)


class Piece(NamedTuple):
    """Stream bytes from offset `start` to `end`: those of the segment from its payload's byte `skip` on."""

    start: int
    end: int
    segment: Segment
    skip: int


class _Part(NamedTuple):
    """A segment's captured bytes on the stream, from offset `start` to `end`; `acked`: acknowledged before it came."""

    start: int
    end: int
    segment: Segment
    skip: int
    acked: int


@dataclass(slots=True)
class Direction:
    """What is known of one direction; positions are unwrapped sequence numbers, offsets count from `base`."""

    isn: int | None = None
    low: int | None = None
    """Lowest position that this direction sent from."""
    first: int | None = None
    """Lowest position that it sent data from."""
    end: int | None = None
    """Position behind the highest byte that was sent."""
    sent: int | None = None
    """Position behind the highest byte of data."""
    held: int | None = None
    """Position behind the highest byte that was captured."""
    fin: int | None = None
    acked: int | None = None
    fixed: int | None = None
    """Position of offset 0, once bytes were handed on."""
    done: int = 0
    """Offset behind the last byte that was handed on."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Offset and length of what is missing between bytes that were handed on."""
    conflict: bool = False
    rejected: list[tuple[Segment, TcpReason]] = field(default_factory=list)
    pending: list[tuple[int, Segment, int]] = field(default_factory=list)
    """Segments with payload: position, segment, position acknowledged before (at least 0)."""
    late: list[tuple[int, Segment]] = field(default_factory=list)
    """Segments that came further behind the newest byte than the window is wide."""

    @property
    def base(self) -> int:
        """Position of stream offset 0."""
        if self.fixed is not None:
            return self.fixed
        if self.isn is not None:
            return self.isn + 1
        return self.first if self.first is not None else self.low or 0

    def place(self, seq: int) -> int:
        """The position of this sequence number nearest to what was sent before."""
        reference = self.end if self.end is not None else self.acked
        if reference is None:
            return seq + _MODULUS  # room to find, later, that the stream began lower
        return reference + (seq - reference + _HALF) % _MODULUS - _HALF

    def near(self, position: int, window: int) -> bool:
        """Whether a segment there fits what this direction has sent."""
        reference = self.end if self.end is not None else self.acked
        return reference is None or -_BEHIND < position - reference < window

    def take(self, position: int, segment: Segment, window: int) -> None:
        """Keep a segment with data, unless it is further behind the newest byte than the window is wide."""
        if self.end is not None and position < self.end - window:
            if segment.framed_run:
                raise NeedsPayload
            self.late.append((position, segment))
            return
        self.pending.append((position, segment, self.acked or 0))
        self.first = position if self.first is None else min(self.first, position)
        end = position + segment.length
        self.sent = end if self.sent is None else max(self.sent, end)


class Connection:
    """One TCP connection, the k-th (from 0) on its endpoints: the directions from endpoint a and from endpoint b."""

    def __init__(self, instance: int, window: int = WINDOW_BYTES) -> None:
        """Know nothing yet; `window`: bytes that a segment may be away from the newest one of its direction."""
        self.window = window
        self.instance = instance
        self.sides = (Direction(), Direction())
        self.closed = False
        self.opened_by_b: bool | None = None
        self.syns: list[_Syn] = []
        self.last_ns = NO_TIME
        """Time of its latest segment."""

    def opens_with(self, segment: Segment) -> bool:
        """Whether this SYN may be this connection's: the same again, or the first to be seen, late."""
        side, other = self.sides[segment.from_b], self.sides[not segment.from_b]
        if side.isn is not None:
            return (side.isn - segment.seq) % _MODULUS == 0
        if segment.flags & ACK and other.isn is not None:
            return (other.isn + 1 - segment.ack) % _MODULUS == 0
        seen = side.low if side.low is not None else side.acked
        return seen is None or (seen - segment.seq - 1) % _MODULUS < _LATE_SYN

    def over(self, segment: Segment) -> bool:
        """Whether this SYN comes so long after the end that it opens another connection, whatever its number."""
        return self.closed and self.last_ns != NO_TIME and segment.time_ns > self.last_ns + _QUIET_NS

    def accepts(self, segment: Segment) -> bool:
        """Whether the sequence number fits what this direction has sent or, before that is known, what it answers."""
        side, other = self.sides[segment.from_b], self.sides[not segment.from_b]
        if side.end is None and side.acked is None and segment.flags & ACK:
            acked = other.place(segment.ack)
            return other.near(acked, self.window) and (other.isn is None or acked > other.isn)
        position = side.place(segment.seq)
        return side.near(position, self.window) and (side.isn is None or position >= side.isn)

    def precedes(self, segment: Segment) -> bool:
        """Whether the sequence number lies shortly before the first of this direction."""
        side = self.sides[segment.from_b]
        position = side.place(segment.seq)
        return side.isn is not None and side.near(position, self.window) and position < side.isn

    def take(self, segment: Segment) -> None:
        """Learn from a segment that this connection accepts."""
        side, other = self.sides[segment.from_b], self.sides[not segment.from_b]
        position = side.place(segment.seq)
        self.last_ns = max(self.last_ns, segment.time_ns, segment.last_ns)
        if segment.flags & SYN:
            if side.isn is None and side.fixed in (None, position + 1):
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
            side.take(position, segment, self.window)
        if segment.payload:
            held = position + segment.captured
            side.held = held if side.held is None else max(side.held, held)
        side.low = position if side.low is None else min(side.low, position)
        if segment.flags & FIN and (side.end is None or end >= side.end - self.window):
            side.fin = end if side.fin is None else max(side.fin, end)
        side.end = end if side.end is None else max(side.end, end)
        if segment.flags & ACK:
            acked = other.place(segment.ack)
            if other.near(acked, self.window):
                other.acked = acked if other.acked is None else max(other.acked, acked)
        self.closed = self.closed or None not in (side.fin, other.fin)


_Syn = tuple[bool, int, int | None]


class Connections:
    """The connections on one pair of endpoints, in the order they were first seen.

    A SYN with a new initial sequence number opens a connection; a known one leads back to its connection, so that
    captures from two vantage points fall together, unless it was long over (`Connection.over`). A lone segment
    far from what its direction has sent is in no connection (`outside`); several in a row are another connection whose
    SYN was not captured.
    """

    def __init__(self, window: int = WINDOW_BYTES) -> None:
        """Know none yet; `window`: see `Connection`."""
        self.found: list[Connection] = []
        self.outside: list[Segment] = []
        self.far: list[Segment] = []
        self.current: Connection | None = None
        self.first_instance = 0
        self.window = window
        self._by_syn: dict[_Syn, Connection] = {}

    def at(self, instance: int) -> Connection:
        """The k-th connection."""
        return self.found[instance - self.first_instance]

    def restore(self, found: list[Connection], current: int | None) -> None:
        """Go on from the connections of an earlier run, the last of those that there were."""
        self.found = found
        self.current = None if current is None else found[current]
        self.first_instance = found[0].instance if found else 0
        self._by_syn = {syn: connection for connection in found for syn in connection.syns}

    def recent(self) -> list[Connection]:
        """Those that may go on."""
        return self.found[-_RECENT:]

    def take(self, segment: Segment) -> None:
        """Give the next segment in file order to its connection.

        Raises:
            NeedsPayload: a framed run does not continue what its direction has sent.
        """
        if segment.flags & SYN:
            self._open(segment)
        elif self.current is None:
            self.current = self._another()
        elif not self.current.accepts(segment):
            self._stray(self.current, segment)
            return
        elif segment.length:
            self.outside += self.far
            self.far = []
        assert self.current is not None  # noqa: S101 - each branch has set it
        self.current.take(segment)

    def rest(self) -> None:
        """No more segments come: those far from a connection that was closed are another's, however few."""
        if self.far and self.current is not None and self.current.closed:
            self._begin_far()
        self.outside += self.far
        self.far = []

    def _another(self) -> Connection:
        self.found.append(Connection(self.first_instance + len(self.found), self.window))
        return self.found[-1]

    def _open(self, segment: Segment) -> None:
        syn = segment.from_b, segment.seq, segment.ack if segment.flags & ACK else None
        known = self._by_syn.get(syn)
        if known is not None and not known.over(segment):
            self.current = known
        if self.current is None or self.current.over(segment) or not self.current.opens_with(segment):
            self.current = self._another()
        if self._by_syn.get(syn) is not self.current:
            self._by_syn[syn] = self.current
            self.current.syns.append(syn)

    def _stray(self, current: Connection, segment: Segment) -> None:
        """A segment that the current connection does not accept."""
        if segment.framed_run:
            raise NeedsPayload
        fitting = next((c for c in reversed(self.found[-_RECENT:]) if c.accepts(segment)), None)
        if fitting is None and current.precedes(segment):
            fitting = current
        if fitting is not None:
            fitting.take(segment)
        elif segment.length:
            self.far.append(segment)
            if len(self.far) == _CONFIRMED:
                self._begin_far()

    def _begin_far(self) -> None:
        """The far segments begin another connection."""
        begun, far = self._another(), self.far
        self.current, self.far = begun, []
        for one in far:
            if begun.accepts(one):
                begun.take(one)
            else:
                self.outside.append(one)


def deliver(
    side: Direction, overlap: Overlap, before: int | None = None, *, final: bool = True, fetch: Fetch | None = None
) -> list[Piece]:
    """Hand on the stream's bytes, in order, as far as they lie before offset `before` (all, when it is None).

    What overlaps with other data is settled by `overlap`, and told in `side.conflict`; a segment whose checksum is
    right wins over one whose is not. Missing bytes go to `side.gaps`, segments that are not part of the stream to
    `side.rejected`.

    Raises:
        NeedsPayload: bytes are needed that are not at hand; never when `final` and no segment is a framed run.
    """
    base = side.base
    offered = [
        _part(side, position - base, segment, acked - base, overlap, final=final)
        for position, segment, acked in side.pending
    ]
    parts = list(_without_copies([part for part in offered if part is not None], fetch))
    ordered = sorted(parts, key=lambda part: part.start)
    if all(one.end <= other.start for one, other in pairwise(ordered)):
        pieces = [Piece(*part[:4]) for part in ordered]
    else:
        pieces, conflict = _overlapping(parts, overlap)
        side.conflict |= conflict
    kept = len(pieces) if before is None else bisect_right(pieces, before, key=lambda piece: piece.end)
    if pieces[:kept]:
        side.fixed = base
    for piece in pieces[:kept]:
        if piece.start > side.done:
            side.gaps.append((side.done, piece.start - side.done))
        side.done = piece.end
    if before is None:
        _refuse(side)
    else:
        waiting = [part is None or part.end > side.done for part in offered]
        side.pending = list(compress(side.pending, waiting))
    return pieces[:kept]


def missing_at_end(side: Direction) -> int:
    """Bytes behind the last one handed on that were sent, as far as FIN, lengths and acknowledgments tell."""
    limit = side.fin
    ends = [side.sent, side.fin]
    if side.isn is not None or side.first is not None:
        ends.append(side.acked)
    end = max((end if limit is None else min(end, limit) for end in ends if end is not None), default=side.base)
    return max(end - side.base - side.done, 0)


def _part(side: Direction, start: int, segment: Segment, acked: int, overlap: Overlap, *, final: bool) -> _Part | None:
    """What of a segment lies on the stream behind what was handed on; nothing when it is rejected, or was there."""
    end = start + segment.captured
    skip = max(0, -start)
    if not final and start < side.done:
        replaces = overlap is not Overlap.FIRST and acked < min(end, side.done)
        if replaces or (skip and side.isn is None) or _in_gap(side, start, end):
            raise NeedsPayload(rewind=True)
    if side.fin is not None:
        end = min(end, side.fin - side.base)
    skip = max(skip, side.done - start)
    if segment.framed_run and end - start - skip < segment.captured:
        raise NeedsPayload
    if start + skip >= end:
        return None
    return _Part(start + skip, end, segment, skip, acked)


def _refuse(side: Direction) -> None:
    """Judge the segments that are not, or not wholly, on the stream; what only repeats it is passed over."""
    limit = None if side.fin is None else side.fin - side.base
    for position, segment, _ in side.pending:
        start, end = position - side.base, position - side.base + segment.captured
        if max(start, 0) >= end > start:
            side.rejected.append((segment, TcpReason.BEFORE_START))
        elif limit is not None and end > limit and start >= limit:
            side.rejected.append((segment, TcpReason.AFTER_FIN))
        elif _in_gap(side, start, end):
            side.rejected.append((segment, TcpReason.OUTSIDE_WINDOW))
    for position, segment in side.late:
        start, end = position - side.base, position - side.base + segment.captured
        if start < 0 or end > side.done or _in_gap(side, start, end):
            side.rejected.append((segment, TcpReason.OUTSIDE_WINDOW))
    side.pending, side.late = [], []


def _without_copies(parts: list[_Part], fetch: Fetch | None) -> Iterator[_Part]:
    """The parts but for the bytes that a framed run before them holds as well."""
    held: list[_Part] = []  # framed runs, by their offset
    for part in parts:
        at = max(bisect_right(held, part.start, key=lambda run: run.start) - 1, 0)
        rest = part
        for run in held[at:]:
            low, high = max(rest.start, run.start), min(rest.end, run.end)
            if low >= rest.end:
                break
            if low >= high:
                continue
            if part.segment.framed_run or _run_bytes(run, low, high, fetch) != _bytes(part, low, high):
                raise NeedsPayload
            if rest.start < low:
                yield rest._replace(end=low)
            rest = rest._replace(start=high, skip=rest.skip + high - rest.start)
        if rest.start < rest.end:
            yield rest
        if part.segment.framed_run:
            insort(held, part, key=lambda run: run.start)


def _run_bytes(run: _Part, low: int, high: int, fetch: Fetch | None) -> bytes:
    """The bytes of a framed run between two stream offsets, read again where they were captured."""
    offsets = np.frombuffer(run.segment.file_offsets or b"", FILE_OFFSETS)
    if fetch is None or not len(offsets):
        raise NeedsPayload
    starts = offsets["run_offset"].astype(np.int64) + run.start
    data = b""
    for i in range(int(np.searchsorted(starts, low, "right")) - 1, int(np.searchsorted(starts, high, "left"))):
        begin, end = max(low, int(starts[i])), min(high, int(starts[i + 1]) if i + 1 < len(starts) else run.end)
        data += fetch(run.segment.capture, int(offsets["file_offset"][i]) + begin - int(starts[i]), end - begin)
    return data


def _in_gap(side: Direction, start: int, end: int) -> bool:
    """Whether bytes that were found missing lie between these offsets."""
    at = bisect_right(side.gaps, start, key=lambda gap: gap[0] + gap[1])
    return at < len(side.gaps) and side.gaps[at][0] < end


def overlapping(placed: list[tuple[int, Segment]], overlap: Overlap) -> tuple[list[Piece], bool]:
    """The stream of segments at these offsets, in order of arrival, and whether any hold different bytes."""
    return _overlapping([_Part(at, at + len(one.payload), one, 0, 0) for at, one in placed], overlap)


def _overlapping(parts: list[_Part], overlap: Overlap) -> tuple[list[Piece], bool]:
    """The stream where segments overlap, and whether they hold different bytes."""
    pieces = list(_winners(parts, overlap))
    if not _conflict(parts, pieces):
        return pieces, False
    if any(part.segment.intact for part in parts):
        pieces = list(_winners(parts, overlap, by_checksum=True))
    return pieces, True


PART_SUM = -2
"""The `header_sum` of a part of a segment."""
_COPIES = 64
"""Overlapping segments that are compared over one byte, the earliest: time stays bounded."""


def _winners(parts: list[_Part], overlap: Overlap, *, by_checksum: bool = False) -> Iterator[Piece]:
    """The stream in offset order, each byte from the segment that wins it; `parts` are in order of arrival.

    Time: n log n for `first`; for the others times the segments over one byte, of which `_COPIES` are looked at.
    """
    sound = [by_checksum and part.segment.intact for part in parts]
    edges = sorted({edge for part in parts for edge in _edges(part, overlap)})
    order = sorted(range(len(parts)), key=lambda rank: parts[rank].start)
    active: list[tuple[int, int]] = []  # a heap of (rank, end): first or last arrived on top
    upcoming = 0
    for start, end in pairwise(edges):
        while upcoming < len(order) and parts[order[upcoming]].start <= start:
            rank = order[upcoming]
            heapq.heappush(active, (-rank if overlap is Overlap.LAST else rank, parts[rank].end))
            upcoming += 1
        while active and active[0][1] <= start:
            heapq.heappop(active)
        if active:
            ranks = [abs(active[0][0])]
            if overlap is not Overlap.FIRST or by_checksum:
                ranks = sorted(abs(rank) for rank, part_end in active if part_end > start)[:_COPIES]
            best = ranks[0]
            for rank in ranks[1:]:
                if sound[rank] is sound[best]:
                    better = _replaces(parts[rank], parts[best], start, overlap)
                else:
                    better = sound[rank] and _bytes(parts[rank], start, end) != _bytes(parts[best], start, end)
                best = rank if better else best
            winner = parts[best]
            yield Piece(start, end, winner.segment, winner.skip + start - winner.start)


def _edges(part: _Part, overlap: Overlap) -> tuple[int, ...]:
    """Where the winner may change: the ends of a segment, and what had been acknowledged when it came."""
    start, end, acked = part.start, part.end, part.acked
    return (start, end) if overlap is Overlap.FIRST or not start < acked < end else (start, acked, end)


def _replaces(later: _Part, earlier: _Part, offset: int, overlap: Overlap) -> bool:
    """Whether the later segment's byte at `offset` replaces the earlier one's, which nobody has read yet.

    The policies are those of Novak and Sturges, Target-Based TCP Stream Reassembly (2007).
    """
    if offset < later.acked:
        return False
    if overlap is Overlap.WINDOWS:
        return later.start < earlier.start and later.end > earlier.end
    if overlap is Overlap.LINUX:
        return later.start < earlier.start or (later.start == earlier.start and later.end > earlier.end)
    return overlap is Overlap.LAST


def _bytes(part: _Part | Piece, start: int, end: int) -> bytes | memoryview:
    """The part's bytes between two stream offsets."""
    at = part.skip - part.start
    return part.segment.payload[start + at : end + at]


def _conflict(parts: list[_Part], pieces: list[Piece]) -> bool:
    """Whether any segment holds other bytes than the stream has there."""
    conflict = False
    for part in parts:
        for piece in pieces[bisect_right(pieces, part.start, key=lambda piece: piece.start) - 1 :]:
            if piece.start >= part.end:
                break
            low, high = max(part.start, piece.start), min(part.end, piece.end)
            if piece.segment is not part.segment:
                if piece.segment.framed_run or part.segment.framed_run:
                    raise NeedsPayload
                if _bytes(part, low, high) != _bytes(piece, low, high):
                    if PART_SUM in (piece.segment.header_sum, part.segment.header_sum):
                        raise NeedsPayload
                    conflict = True
    return conflict
