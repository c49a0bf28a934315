"""MSMQ packets out of the bytes of a stream ([MS-MQMQ] 2.2.19.1, [MS-MQQB] 3.1.5.1.2).

In step (at a stream's start, and right after a packet) the announced PacketSize is trusted. Out of step the next packet
begins at the first header that is *plausible* (version, signature, PacketSize, whole inside the run of recovered bytes)
and *trustworthy*: it ends where another plausible header begins or where the run ends, or no plausible header begins
inside it. Every byte ends in a packet or in an `Unframed` run. Time is linear in the bytes, however hostile they are.
"""

import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from schemas.ingest import FramingReason

HEADER = 16
LARGEST = 0x400000
_SIGNATURE = b"LIOR"
_VERSION = 0x10
_INTERNAL, _SESSION_HEADER = 0x08, 0x10
_SESSION_HEADER_SIZE = 16
_BARE_SESSION_ACK = 20
_LOOKAHEAD = 2 * (LARGEST + _SESSION_HEADER_SIZE) + HEADER
_WINDOW = 32 << 20
_fields = struct.Struct("<BxH4sI").unpack_from


class Unframed(NamedTuple):
    """Stream bytes in no packet: where, how many, why, and the first of them."""

    offset: int
    length: int
    reason: FramingReason
    raw: bytes


class Framed(NamedTuple):
    """Packets that lie in one buffer whose first byte is at stream offset `base`."""

    data: bytes
    base: int
    starts: list[int]
    sizes: list[int]
    unframed: list[Unframed]


class _Lost(NamedTuple):
    """Out of step since `offset`: why, and the bytes there."""

    offset: int
    reason: FramingReason
    raw: bytes


class Framer:
    """Frames one stream, a run of recovered bytes at a time, in stream order."""

    def __init__(self, *, mid_stream: bool, raw_kept: int) -> None:
        """Begin at stream offset 0; `raw_kept` bounds the bytes an `Unframed` holds."""
        self._raw_kept = raw_kept
        self._mid_stream = mid_stream
        self._next = 0
        self._due: int | None = None
        """Where the packet ends that its run could not complete."""
        self._lost: _Lost | None = None

    def run(self, start: int, parts: Iterable[bytes | memoryview]) -> Iterator[Framed]:
        """Frame the run that begins at stream offset `start`; memory is a window of 32 MiB and twice a packet."""
        window = _Window(start, parts)
        if self._due is not None and self._due < start:
            self._due = None
        if start > self._next:
            self._lose(window, start, FramingReason.AFTER_GAP)
        elif self._mid_stream and start == 0:
            self._lose(window, start, FramingReason.MID_STREAM)
        at = start
        while True:
            found = Framed(window.data, window.base, [], [], [])
            at = self._frame(window, at, found)
            if window.ended and self._lost is not None:
                self._regain(found, window.end)
                if self._due is not None and self._due < window.end:
                    self._due = None
            yield found
            if window.ended:
                break
            window.advance(at)
        self._next = window.end

    def _frame(self, window: "_Window", at: int, found: Framed) -> int:
        """Frame as far as the window can tell, and return where to go on."""
        while at < window.end:
            if not window.decides(at):
                break
            if self._lost is not None:
                place, in_step = self._search(window, at)
                if not in_step:
                    return place
                self._regain(found, place)
                self._due = None
                at = place
                continue
            reason = window.fault(at)
            size = window.extent(at) if reason is None else 0
            if reason is None and at + size <= window.end:
                found.starts.append(at - window.base)
                found.sizes.append(size)
                at += size
                continue
            if reason is None:
                reason = FramingReason.INCOMPLETE_FRAME
                self._due = at + size
            self._lose(window, at, reason)
            at += 1
        return at

    def _search(self, window: "_Window", at: int) -> tuple[int, bool]:
        """Where from `at` on the stream is in step again, and True; or the place before which it is not, and False."""
        due = self._due if self._due is not None else at
        if self._due is not None and at <= due < window.end:
            if not window.decides(due):
                return at, False
            if window.start == at and window.plausible(due):
                return due, True
        for header in window.headers(at):
            if not window.decides(header):
                return header, False
            if window.trustworthy(header, chained=header < due):
                return header, True
        # What begins further on may end behind what is in memory, and was not in `headers`.
        return (window.end if window.ended else max(at, window.end - _LOOKAHEAD + 1)), False

    def _lose(self, window: "_Window", at: int, reason: FramingReason) -> None:
        index = at - window.base
        self._lost = _Lost(at, reason, bytes(window.data[index : index + self._raw_kept]))

    def _regain(self, found: Framed, at: int) -> None:
        """In step again at `at`, or at the end of the run: what lies before it is in no packet."""
        lost = self._lost
        assert lost is not None  # noqa: S101 - the callers looked
        length = at - lost.offset
        inside_cut = self._due is not None and self._due >= at
        reason = FramingReason.INCOMPLETE_FRAME if inside_cut else lost.reason
        if length:
            found.unframed.append(Unframed(lost.offset, length, reason, lost.raw[:length]))
        self._lost = None


class _Window:
    """The part of a run that is in memory: `data`, from stream offset `base` to `end`."""

    def __init__(self, start: int, parts: Iterable[bytes | memoryview]) -> None:
        self.start = self.base = self.end = start
        self.data = b""
        self.ended = False
        self._parts = iter(parts)
        self._marks: tuple[list[int], dict[int, int]] | None = None
        self.advance(start)

    def advance(self, at: int) -> None:
        """Let go of what lies before `at` and take in up to 32 MiB more."""
        parts: list[bytes | memoryview] = [memoryview(self.data)[at - self.base :]]
        size = self.end - at
        wanted = size + _WINDOW
        for part in self._parts:
            parts.append(part)
            size += len(part)
            if size >= wanted:
                break
        else:
            self.ended = True
        self.data = b"".join(parts)
        self.base, self.end = at, at + size
        self._marks = None

    def decides(self, at: int) -> bool:
        """Whether everything that a judgement of the header at `at` may look at is in memory."""
        return self.ended or self.end - at >= _LOOKAHEAD

    def fault(self, at: int) -> FramingReason | None:
        """What is wrong with the header at `at`."""
        if at + HEADER > self.end:
            return FramingReason.INCOMPLETE_FRAME
        version, _, signature, size = _fields(self.data, at - self.base)
        if signature != _SIGNATURE:
            return FramingReason.BAD_SIGNATURE
        if version != _VERSION:
            return FramingReason.BAD_VERSION
        return None if HEADER <= size <= LARGEST else FramingReason.BAD_PACKET_SIZE

    def extent(self, at: int) -> int:
        """Bytes on the stream of the packet whose good header is at `at`.

        PacketSize leaves out a SessionHeader behind a UserMessage and counts it in a SessionAck. The other length is
        taken when a header follows there and none where it should.
        """
        size: int
        _, flags, _, size = _fields(self.data, at - self.base)
        if not flags & _SESSION_HEADER:
            return size
        longer = size + _SESSION_HEADER_SIZE
        outside = not flags & _INTERNAL or size == _BARE_SESSION_ACK
        expected, other = (longer, size) if outside else (size, longer)
        if (
            at + expected + HEADER <= self.end
            and not self._like_header(at + expected)
            and self._like_header(at + other)
        ):
            return other
        return expected

    def plausible(self, at: int) -> bool:
        """A good header whose packet lies whole inside the run."""
        return self.fault(at) is None and at + self.extent(at) <= self.end

    def headers(self, at: int) -> Iterator[int]:
        """The plausible headers from `at` on."""
        marks = self._plausible()[0]
        for index in range(bisect_left(marks, at), len(marks)):
            yield marks[index]

    def trustworthy(self, at: int, *, chained: bool) -> bool:
        """Whether the plausible header at `at` is to be believed; `chained`: only by what follows its packet."""
        marks, ends = self._plausible()
        end = ends[at]
        if end in ends or (self.ended and end == self.end):
            return True
        following = bisect_right(marks, at)
        return not chained and (following == len(marks) or marks[following] >= end)

    def _like_header(self, at: int) -> bool:
        index = at - self.base
        return self.data[index : index + 1] == b"\x10" and self.data[index + 4 : index + 8] == _SIGNATURE

    def _plausible(self) -> tuple[list[int], dict[int, int]]:
        """The plausible headers in memory, in order, and where the packet of each ends."""
        if self._marks is None:
            found = (self.base + match.start() - 4 for match in re.finditer(_SIGNATURE, self.data))
            marks = [at for at in found if at >= self.base and self.plausible(at)]
            self._marks = marks, {at: at + self.extent(at) for at in marks}
        return self._marks
