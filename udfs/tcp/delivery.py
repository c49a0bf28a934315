"""Delivers the bytes of a direction: which count where captured segments overlap, and which are missing for good."""

import heapq
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import accumulate, compress, pairwise
from typing import NamedTuple

import numpy as np

from schemas.ingest import Attempt, TcpReason
from udfs.tcp.connections import Connection
from udfs.tcp.direction import Direction, NeedsPayload, Segment

FILE_OFFSETS = np.dtype([("run_offset", "<u4"), ("file_offset", "<u8")])
"""Where a capture holds the bytes of a framed run: from each offset in the run on, at which byte of the file."""
PART_SUM = -2
"""The `header_sum` of a part of a segment."""
_COPIES = 64
"""So many segments over one byte, the earliest ones, are compared. This bounds the time."""
Fetch = Callable[[int, int, int], bytes]
"""Reads bytes of a capture again: rank of the capture, byte of the file, number of bytes."""


class Overlap(StrEnum):
    """Lists the policies that decide which bytes win where segments overlap with different data."""

    FIRST = "first"
    WINDOWS = "windows"
    LINUX = "linux"
    LAST = "last"


class Piece(NamedTuple):
    """Stream bytes from offset `start` to `end`: the segment's payload from its byte `skip` on.

    `acked`: the offset up to which bytes were acknowledged before the segment came.
    """

    start: int
    end: int
    segment: Segment
    skip: int = 0
    acked: int = 0


def deliver(
    side: Direction, overlap: Overlap, before: int | None = None, *, final: bool = True, fetch: Fetch | None = None
) -> list[Piece]:
    """Returns the stream's next bytes, in order, up to offset `before` (all, when it is None).

    Where segments overlap with different data, `side.conflict` is set and `overlap` decides; a segment with a right
    checksum wins over one with a wrong checksum, and a longer segment over one of a single byte, which may be a
    keep-alive. Missing bytes go to `side.gaps`, segments that are not on the stream
    to `side.rejected`.

    Raises:
        NeedsPayload: bytes are needed that no segment holds; never if `final` is true and no segment is a framed run.
    """
    base = side.base
    offered = [
        _part(side, position - base, segment, acked - base, overlap, final=final)
        for position, segment, acked in side.pending
    ]
    parts = list(_without_copies(_without_keep_alives([part for part in offered if part is not None]), fetch))
    ordered = sorted(parts, key=lambda part: part.start)
    if all(one.end <= other.start for one, other in pairwise(ordered)):
        pieces = ordered
    else:
        pieces, conflict = merge(parts, overlap)
        side.conflict |= conflict
    if before is not None:
        pieces = pieces[: bisect_right(pieces, before, key=lambda piece: piece.end)]
    if pieces:
        side.fixed = base
    for piece in pieces:
        if piece.start > side.done:
            side.gaps.append((side.done, piece.start - side.done))
        side.done = piece.end
    if before is None:
        _reject_rest(side)
    else:
        waiting = [part is None or part.end > side.done for part in offered]
        side.pending = list(compress(side.pending, waiting))
    return pieces


def acked_bytes(side: Direction) -> int | None:
    """Returns how many bytes from the stream's start its receiver acknowledged, None without an acknowledgment.

    The sequence number of a FIN, which an acknowledgment covers too, is no byte.
    """
    if side.acked is None:
        return None
    return max(0, min(side.acked - side.base, side.done + missing_at_end(side)))


def missing_at_end(side: Direction) -> int:
    """Counts the bytes that were sent after the last delivered one, as FIN, lengths and acknowledgments show."""
    limit = side.fin
    ends = [side.sent, side.fin]
    if side.isn is not None or side.first is not None:
        ends.append(side.acked)
    end = max((end if limit is None else min(end, limit) for end in ends if end is not None), default=side.base)
    return max(end - side.base - side.done, 0)


def _part(side: Direction, start: int, segment: Segment, acked: int, overlap: Overlap, *, final: bool) -> Piece | None:
    """Returns the part of a segment after the delivered bytes; None when it is rejected or repeats delivered bytes."""
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
    return Piece(start + skip, end, segment, skip, acked)


def _reject_rest(side: Direction) -> None:
    """Rejects the segments that are not wholly on the stream, and drops those that only repeat it."""
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


def _in_gap(side: Direction, start: int, end: int) -> bool:
    """Tells whether missing bytes lie between these offsets."""
    at = bisect_right(side.gaps, start, key=lambda gap: gap[0] + gap[1])
    return at < len(side.gaps) and side.gaps[at][0] < end


def _without_keep_alives(parts: list[Piece]) -> list[Piece]:
    """Returns the parts without the segments of one byte that a longer segment holds, too.

    A capture that missed the longer one cannot tell a keep-alive, whose byte may be garbage, from data.
    """
    if all(part.segment.length != 1 for part in parts):
        return parts
    longer = sorted((part.start, part.end) for part in parts if part.segment.length != 1)
    starts, ends = [start for start, _ in longer], list(accumulate((end for _, end in longer), max))

    def is_held(part: Piece) -> bool:
        before = bisect_right(starts, part.start)
        return part.segment.length == 1 and before > 0 and ends[before - 1] > part.start

    return [part for part in parts if not is_held(part)]


# --- framed runs ------------------------------------------------------------------------------------------------------


def _without_copies(parts: list[Piece], fetch: Fetch | None) -> Iterator[Piece]:
    """Yields the parts without the bytes that an earlier framed run holds too."""
    runs: list[Piece] = []  # by offset
    for part in parts:
        at = max(bisect_right(runs, part.start, key=lambda run: run.start) - 1, 0)
        rest = part
        for run in map(runs.__getitem__, range(at, len(runs))):
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
            insort(runs, part, key=lambda run: run.start)


def _run_bytes(run: Piece, low: int, high: int, fetch: Fetch | None) -> bytes:
    """Reads the bytes of a framed run between two stream offsets from its capture again."""
    offsets = np.frombuffer(run.segment.file_offsets or b"", FILE_OFFSETS)
    if fetch is None or not len(offsets):
        raise NeedsPayload
    starts = offsets["run_offset"].astype(np.int64) + run.start
    data = b""
    for i in range(int(np.searchsorted(starts, low, "right")) - 1, int(np.searchsorted(starts, high, "left"))):
        begin, end = max(low, int(starts[i])), min(high, int(starts[i + 1]) if i + 1 < len(starts) else run.end)
        data += fetch(run.segment.capture, int(offsets["file_offset"][i]) + begin - int(starts[i]), end - begin)
    return data


# --- which segment wins -----------------------------------------------------------------------------------------------


def merge(parts: list[Piece], overlap: Overlap) -> tuple[list[Piece], bool]:
    """Returns the stream of overlapping parts, given in order of arrival, and whether any bytes differ."""
    pieces = list(_winners(parts, overlap))
    if not _conflict(parts, pieces):
        return pieces, False
    if any(part.segment.intact for part in parts):
        pieces = list(_winners(parts, overlap, by_checksum=True))
    return pieces, True


def _winners(parts: list[Piece], overlap: Overlap, *, by_checksum: bool = False) -> Iterator[Piece]:
    """Yields the stream in offset order, each byte from the segment that wins it; `parts` are in order of arrival.

    Time: n log n for `first`; the other policies also compare the segments over one byte, at most `_COPIES`.
    """
    sound = [by_checksum and part.segment.intact for part in parts]
    edges = sorted({edge for part in parts for edge in _edges(part, overlap)})
    order = sorted(range(len(parts)), key=lambda rank: parts[rank].start)
    most = 1 if overlap is Overlap.FIRST and not by_checksum else _COPIES
    compared: list[tuple[int, int]] = []  # rank and end of the parts over this byte that arrived first, in order
    others: list[tuple[int, int]] = []  # a heap of the others, and of parts that have ended
    upcoming = 0
    for start, end in pairwise(edges):
        compared = [part for part in compared if part[1] > start]
        while upcoming < len(order) and parts[order[upcoming]].start <= start:
            heapq.heappush(others, (order[upcoming], parts[order[upcoming]].end))
            upcoming += 1
        while others and (len(compared) < most or others[0] < compared[-1]):
            if (part := heapq.heappop(others))[1] > start:
                insort(compared, part)
                if len(compared) > most:
                    heapq.heappush(others, compared.pop())
        if compared:
            best = compared[0][0]
            for rank, _ in compared[1:]:
                if sound[rank] is sound[best]:
                    better = _replaces(parts[rank], parts[best], start, overlap)
                else:
                    better = sound[rank] and _bytes(parts[rank], start, end) != _bytes(parts[best], start, end)
                best = rank if better else best
            winner = parts[best]
            yield Piece(start, end, winner.segment, winner.skip + start - winner.start)


def _edges(part: Piece, overlap: Overlap) -> tuple[int, ...]:
    """Returns where the winner may change: the ends of a segment, and what was acknowledged when it came."""
    start, end, acked = part.start, part.end, part.acked
    return (start, end) if overlap is Overlap.FIRST or not start < acked < end else (start, acked, end)


def _replaces(later: Piece, earlier: Piece, offset: int, overlap: Overlap) -> bool:
    """Tells whether the later segment's byte at `offset` replaces the earlier one's while it is not yet acknowledged.

    The policies are those of Novak and Sturges, Target-Based TCP Stream Reassembly (2007).
    """
    if offset < later.acked:
        return False
    if overlap is Overlap.WINDOWS:
        return later.start < earlier.start and later.end > earlier.end
    if overlap is Overlap.LINUX:
        return later.start < earlier.start or (later.start == earlier.start and later.end > earlier.end)
    return overlap is Overlap.LAST


def _bytes(part: Piece, start: int, end: int) -> bytes | memoryview:
    """Returns the part's bytes between two stream offsets."""
    at = part.skip - part.start
    return part.segment.payload[start + at : end + at]


def _conflict(parts: list[Piece], pieces: list[Piece]) -> bool:
    """Tells whether any segment holds other bytes than the stream has there."""
    conflict = False
    for part in parts:
        first = bisect_right(pieces, part.start, key=lambda piece: piece.start) - 1
        for piece in map(pieces.__getitem__, range(first, len(pieces))):
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


def find_attempt(connection: Connection) -> Attempt | None:
    """Returns how a connection went on which neither side sent a byte; None if one did, or if no SYN was captured."""
    if connection.opened_by_b is None or any(
        side.first is not None or side.done or missing_at_end(side) for side in connection.sides
    ):
        return None
    answer = connection.sides[not connection.opened_by_b]
    if answer.isn is None and answer.low is None:
        return Attempt.REFUSED if connection.closed else Attempt.NO_ANSWER
    return Attempt.SILENT
