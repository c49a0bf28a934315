"""MSMQ packets out of the bytes of a stream ([MS-MQMQ] 2.2.19.1, [MS-MQQB] 3.1.5.1.2).

In step (at a stream's start, and right after a packet) the announced PacketSize is trusted. Out of step the next packet
begins at the first header that is *plausible* (version, signature, PacketSize, whole inside the run of recovered bytes)
and *trustworthy*: it ends where another plausible header begins or where the run ends, or no plausible header begins
inside it. Every byte ends in a packet or in an `Unframed` run. Time is linear in the bytes, however hostile they are.
"""

import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, NamedTuple, Self

from schemas.ingest import FramingReason
from udfs.tcp.connections import NeedsPayload

HEADER_SIZE = 16
LARGEST_PACKET = 0x400000
_SIGNATURE = b"LIOR"
_VERSION = 0x10
_INTERNAL, _SESSION_HEADER = 0x08, 0x10
_SESSION_HEADER_SIZE = 16
_BARE_SESSION_ACK = 20
_LOOKAHEAD = 2 * (LARGEST_PACKET + _SESSION_HEADER_SIZE) + HEADER_SIZE
_WINDOW = 32 << 20
_fields = struct.Struct("<BxH4sI").unpack_from


class Unframed(NamedTuple):
    """Stream bytes in no packet: where, how many, why, and the first of them."""

    offset: int
    length: int
    reason: FramingReason
    raw: bytes


class FramedPackets(NamedTuple):
    """Packets that lie in one buffer whose first byte is at stream offset `base`."""

    data: bytes
    base: int
    starts: list[int]
    sizes: list[int]
    unframed: list[Unframed]


def _fault(data: bytes, at: int, end: int) -> FramingReason | None:
    """What is wrong with the header at this index of the data, which are known to `end`."""
    if at + HEADER_SIZE > end:
        return FramingReason.INCOMPLETE_FRAME
    version, _, signature, size = _fields(data, at)
    if signature != _SIGNATURE:
        return FramingReason.BAD_SIGNATURE
    if version != _VERSION:
        return FramingReason.BAD_VERSION
    return None if HEADER_SIZE <= size <= LARGEST_PACKET else FramingReason.BAD_PACKET_SIZE


def _extent(data: bytes, at: int, end: int) -> int:
    """Bytes on the stream of the packet whose good header is at this index.

    PacketSize leaves out a SessionHeader behind a UserMessage and counts it in a SessionAck. The other length is
    taken when a header follows there and none where it should.
    """
    size: int
    _, flags, _, size = _fields(data, at)
    if not flags & _SESSION_HEADER:
        return size
    longer = size + _SESSION_HEADER_SIZE
    outside = not flags & _INTERNAL or size == _BARE_SESSION_ACK
    expected, other = (longer, size) if outside else (size, longer)
    if at + expected + HEADER_SIZE <= end and not _like_header(data, at + expected) and _like_header(data, at + other):
        return other
    return expected


def _settled_extent(data: bytes, at: int, end: int) -> int:
    """The same when no byte behind `end` can change it and the packet ends there at the latest; else 0."""
    _, flags, _, size = _fields(data, at)
    lookahead: int = _SESSION_HEADER_SIZE + HEADER_SIZE if flags & _SESSION_HEADER else 0
    return _extent(data, at, end) if at + size + lookahead <= end else 0


def _like_header(data: bytes, at: int) -> bool:
    return data[at : at + 1] == b"\x10" and data[at + 4 : at + 8] == _SIGNATURE


def frame_chain(data: bytes, begin: int, end: int) -> tuple[int, list[int]]:
    """The first header between two indices whose packet is whole, and the sizes of it and the packets that follow it.

    They are what the framer finds if it is in step there, whatever lies behind `end`. No sizes when there is none.
    """
    sizes: list[int] = []
    place = at = begin
    while at + HEADER_SIZE <= end:
        version, flags, signature, size = _fields(data, at)
        plain = signature == _SIGNATURE and version == _VERSION and HEADER_SIZE <= size <= LARGEST_PACKET
        if not plain or flags & _SESSION_HEADER or at + size > end:
            size = _settled_extent(data, at, end) if _fault(data, at, end) is None else 0
        if size:
            sizes.append(size)
            at += size
        elif sizes:
            break
        else:
            found = data.find(_SIGNATURE, at + 5, end)
            place = at = found - 4 if found >= 0 else end
    return place, sizes


class _Lost(NamedTuple):
    """Out of step since `offset`: why, and the bytes there."""

    offset: int
    reason: FramingReason
    raw: bytes


class Framer:
    """Frames one stream in stream order: the bytes of a run, a gap, the bytes of the next run.

    What comes out does not depend on how the bytes are divided. `offset` is where the bytes begin that are not decided
    yet: everything before it is in a packet, or told, or `lost` since some offset.
    """

    def __init__(self, *, mid_stream: bool, raw_kept: int) -> None:
        """Begin at stream offset 0; `raw_kept` bounds the bytes an `Unframed` holds."""
        self._raw_kept = raw_kept
        self._window = _Window(0)
        self._due: int | None = None
        """Where the packet ends that its run could not complete."""
        self._lost: _Lost | None = None
        if mid_stream:
            self._lost = _Lost(0, FramingReason.MID_STREAM, b"")

    @property
    def offset(self) -> int:
        """Where the bytes begin that no packet and no run in quarantine holds yet."""
        return self._window.base if self._lost is None else self._lost.offset

    @property
    def end(self) -> int:
        """Where the bytes go on."""
        return self._window.end

    def feed(self, data: bytes | memoryview) -> Iterator[FramedPackets]:
        """Frame the bytes that follow; memory is a window of 32 MiB and twice a packet."""
        self._window.add(data)
        if self._window.waiting >= _WINDOW:
            yield self.frame_decided()

    def gap(self, length: int) -> Iterator[FramedPackets]:
        """So many bytes are missing: what is left of the run is decided."""
        if self._window.end > self._window.start or self._lost is not None:
            yield self.close()
        window = self._window = _Window(self._window.end + length)
        if self._due is not None and self._due < window.start:
            self._due = None
        self._lost = _Lost(window.start, FramingReason.AFTER_GAP, b"")

    def take_run(self, length: int, head: bytes) -> Iterator[FramedPackets]:
        """Packets follow that were framed where they were read, in step from their first byte on; `head` begins them.

        A search for step finds the first good header if packets lead from it to there: each ends where another begins.

        Raises:
            NeedsPayload: whether the stream is in step there cannot be told without all their bytes.
        """
        begin = self._window.end
        found = self.frame_decided()
        window = self._window
        yield found
        window.add(head)
        window.advance(window.base)
        found = FramedPackets(window.data, window.base, [], [], [])
        at = window.base
        regained = False
        while at < begin or self._lost is not None:
            if self._lost is not None:
                at = window.good(at, begin)
                if regained or (self._due is not None and self._due > at):
                    raise NeedsPayload
                self._regain(window, found, at)
                self._due = None
                regained = True
            elif (reason := window.fault(at)) is not None:
                self._lost = _Lost(at, reason, b"")
                at += 1
            elif at + window.extent(at) > begin:
                raise NeedsPayload
            else:
                at = self._accept(window, at, found)
        yield found
        self._window = _Window(begin + length, run=window.start)

    def frame_rest(self) -> Iterator[FramedPackets]:
        """What the bytes that wait become if nothing follows them. The framer can still go on."""
        yield copy(self).close()

    def close(self) -> FramedPackets:
        """Frame to the end of the run, which is known."""
        window = copy(self._window)
        window.advance(window.base)
        window.ended = True
        found = FramedPackets(window.data, window.base, [], [], [])
        self._frame(window, window.base, found)
        if self._lost is not None:
            self._regain(window, found, window.end)
            if self._due is not None and self._due < window.end:
                self._due = None
        return found

    def state(self) -> dict[str, Any]:
        """Everything that is needed to go on, for `Framer.resume`."""
        window = self._window
        window.advance(window.base)
        return {
            "start": window.start,
            "base": window.base,
            "data": window.data,
            "due": self._due,
            "lost": self._lost,
        }

    @classmethod
    def resume(cls, state: Mapping[str, Any], *, raw_kept: int) -> Self:
        """The framer that had this state."""
        framer = cls(mid_stream=False, raw_kept=raw_kept)
        framer._window = _Window(state["base"], run=state["start"])
        framer._window.add(state["data"])
        framer._due = state["due"]
        if state["lost"] is not None:
            offset, reason, raw = state["lost"]
            framer._lost = _Lost(offset, FramingReason(reason), raw)
        return framer

    def frame_decided(self) -> FramedPackets:
        """Frame as far as the bytes so far can tell."""
        window = self._window
        window.advance(window.base)
        found = FramedPackets(window.data, window.base, [], [], [])
        at = self._frame(window, window.base, found)
        self._remember(window, at)
        window.advance(at)
        return found

    def _accept(self, window: "_Window", at: int, found: FramedPackets) -> int:
        """The packet at `at` is one; returns where it ends."""
        size = window.extent(at)
        found.starts.append(at - window.base)
        found.sizes.append(size)
        return at + size

    def _frame(self, window: "_Window", at: int, found: FramedPackets) -> int:
        """Frame as far as the window can tell, and return where to go on."""
        while at < window.end:
            if self._lost is not None:
                if not window.decides(at):
                    break
                place, in_step = self._search(window, at)
                if not in_step:
                    return place
                self._regain(window, found, place)
                self._due = None
                at = place
                continue
            if not window.ready(at):
                break
            reason = window.fault(at)
            if reason is None and at + window.extent(at) <= window.end:
                at = self._accept(window, at, found)
                continue
            if reason is None:
                reason = FramingReason.INCOMPLETE_FRAME
                self._due = at + window.extent(at)
            self._lost = _Lost(at, reason, b"")
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

    def _remember(self, window: "_Window", at: int) -> None:
        """Keep the first bytes in no packet, before the window lets go of what lies before `at`."""
        if self._lost is not None:
            begin = self._lost.offset + len(self._lost.raw)
            more = window.data[begin - window.base : max(at, begin) - window.base]
            self._lost = self._lost._replace(raw=(self._lost.raw + more)[: self._raw_kept])

    def _regain(self, window: "_Window", found: FramedPackets, at: int) -> None:
        """In step again at `at`, or at the end of the run: what lies before it is in no packet."""
        self._remember(window, at)
        lost = self._lost
        assert lost is not None  # noqa: S101 - the callers looked
        inside_cut = self._due is not None and self._due >= at
        reason = FramingReason.INCOMPLETE_FRAME if inside_cut else lost.reason
        if at > lost.offset:
            found.unframed.append(Unframed(lost.offset, at - lost.offset, reason, lost.raw))
        self._lost = None


class _Window:
    """The part of a run that is in memory: `data`, from stream offset `base` on, and what waits to `end`."""

    def __init__(self, base: int, run: int | None = None) -> None:
        """Hold nothing yet; `run`: where the run began, if not at `base`."""
        self.start = base if run is None else run
        self.base = self._joined = base
        self.data = b""
        self.ended = False
        self.waiting = 0
        self._parts: list[bytes | memoryview] = []
        self._marks: tuple[list[int], dict[int, int]] | None = None

    @property
    def end(self) -> int:
        """Stream offset behind the last byte."""
        return self._joined + self.waiting

    def add(self, part: bytes | memoryview) -> None:
        """Take in the bytes that follow; `advance` makes them readable."""
        self._parts.append(part)
        self.waiting += len(part)

    def advance(self, at: int) -> None:
        """Let go of what lies before `at`."""
        if at > self.base or self._parts:
            end = self.end
            self.data = b"".join((memoryview(self.data)[at - self.base :], *self._parts))
            self.base, self._joined, self.waiting = at, end, 0
            self._parts = []
            self._marks = None

    def ready(self, at: int) -> bool:
        """Whether what the header at `at` means, in step, no longer depends on bytes to come."""
        if self.ended:
            return True
        if at + HEADER_SIZE > self.end:
            return False
        if self.fault(at) is not None:
            return True
        return _settled_extent(self.data, at - self.base, self.end - self.base) > 0

    def good(self, begin: int, end: int) -> int:
        """Where the first good header begins from `begin` on and before `end`; `end` when there is none."""
        found = (self.base + match.start() - 4 for match in re.finditer(_SIGNATURE, self.data))
        return next((at for at in found if begin <= at < end and self.fault(at) is None), end)

    def decides(self, at: int) -> bool:
        """Whether everything that a judgement of the header at `at` may look at is in memory."""
        return self.ended or self.end - at >= _LOOKAHEAD

    def fault(self, at: int) -> FramingReason | None:
        """What is wrong with the header at `at`."""
        return _fault(self.data, at - self.base, self.end - self.base)

    def extent(self, at: int) -> int:
        """Bytes on the stream of the packet whose good header is at `at`."""
        return _extent(self.data, at - self.base, self.end - self.base)

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

    def _plausible(self) -> tuple[list[int], dict[int, int]]:
        """The plausible headers in memory, in order, and where the packet of each ends."""
        if self._marks is None:
            found = (self.base + match.start() - 4 for match in re.finditer(_SIGNATURE, self.data))
            marks = [at for at in found if at >= self.base and self.plausible(at)]
            self._marks = marks, {at: at + self.extent(at) for at in marks}
        return self._marks
