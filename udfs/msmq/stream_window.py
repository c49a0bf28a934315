"""Finds packet headers in stream bytes, and says how far a conclusion about them can still change."""

import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from schemas import wire
from schemas.ingest import FramingReason
from udfs.msmq.dropped import Dropped
from udfs.msmq.frame_size import HAS_SESSION_HEADER, frame_size

HEADER_SIZE = wire.BASE_HEADER.size
LARGEST_PACKET = wire.MAX_PACKET_SIZE
LOOKAHEAD = 2 * (LARGEST_PACKET + wire.SESSION_HEADER.size) + HEADER_SIZE
SIGNATURE = wire.SIGNATURE.to_bytes(4, "little")
SIGNATURE_OFFSET = 4
VERSION = wire.VERSION.to_bytes(1, "little")
header_fields = struct.Struct("<cxH4sI").unpack_from  # VersionNumber, Flags, Signature, PacketSize


def header_fault(data: bytes, at: int, end: int) -> FramingReason | None:
    """Returns the fault of the header at an index of `data`, of which only the bytes before `end` are known."""
    if at + HEADER_SIZE > end:
        return FramingReason.INCOMPLETE_FRAME
    version, _, signature, size = header_fields(data, at)
    if signature != SIGNATURE:
        return FramingReason.BAD_SIGNATURE
    if version != VERSION:
        return FramingReason.BAD_VERSION
    return None if HEADER_SIZE <= size <= LARGEST_PACKET else FramingReason.BAD_PACKET_SIZE


def _extent(data: bytes, at: int, end: int) -> int:
    """Returns the bytes on the stream of the packet whose valid header is at an index of `data`.

    A SessionHeader is either inside PacketSize or after it, `frame_size`. The less likely reading wins when a header
    follows at its end and none at the end of the other.
    """
    size: int
    _, flags, _, size = header_fields(data, at)
    if not flags & HAS_SESSION_HEADER:
        return size
    expected: int = frame_size(flags, size)
    other = 2 * size + wire.SESSION_HEADER.size - expected
    if at + expected + HEADER_SIZE <= end and not _like_header(data, at + expected) and _like_header(data, at + other):
        return other
    return expected


def _final_extent(data: bytes, at: int, end: int) -> int:
    """Returns the same, or 0 while the packet goes beyond `end` or bytes after `end` could change the answer."""
    _, flags, _, size = header_fields(data, at)
    lookahead: int = wire.SESSION_HEADER.size + HEADER_SIZE if flags & HAS_SESSION_HEADER else 0
    return _extent(data, at, end) if at + size + lookahead <= end else 0


def _like_header(data: bytes, at: int) -> bool:
    return data.startswith(VERSION, at) and data.startswith(SIGNATURE, at + SIGNATURE_OFFSET)


def frame_chain(data: bytes) -> tuple[int, list[int]]:
    """Returns where the first complete packet begins, and the sizes of it and of those that directly follow it.

    A framer that is synchronized there finds these packets too, whatever follows the data. Without a complete packet
    the list is empty.
    """
    sizes: list[int] = []
    place, at, end = 0, 0, len(data)
    while at + HEADER_SIZE <= end:
        version, flags, signature, size = header_fields(data, at)
        plain = signature == SIGNATURE and version == VERSION and HEADER_SIZE <= size <= LARGEST_PACKET
        if not plain or flags & HAS_SESSION_HEADER or at + size > end:
            size = _final_extent(data, at, end) if header_fault(data, at, end) is None else 0
        if size:
            sizes.append(size)
            at += size
        elif sizes:
            break
        else:
            found = data.find(SIGNATURE, at + SIGNATURE_OFFSET + 1, end)
            place = at = found - SIGNATURE_OFFSET if found >= 0 else end
    return place, sizes


class Window:
    """The part of a run of stream bytes that is in memory: `data` from stream offset `base` on, then `waiting` bytes.

    A *plausible* header has the right version, signature and PacketSize, and its packet ends inside the run.
    """

    def __init__(self, base: int, run: int | None = None) -> None:
        """Begins empty at stream offset `base`; `run` is where the run began, by default at `base`."""
        self.start = base if run is None else run
        self.base = self._joined = base
        self.data = b""
        self.ended = False
        self.waiting = 0
        self.dropped: list[Dropped] = []
        """Runs of `data` that the state left out from which this window resumed, by offset in `data`."""
        self._parts: list[bytes | memoryview] = []
        self._headers: tuple[list[int], dict[int, int]] | None = None

    @property
    def end(self) -> int:
        """Stream offset after the last byte."""
        return self._joined + self.waiting

    def add(self, part: bytes | memoryview) -> None:
        """Appends bytes; `advance` makes them readable."""
        self._parts.append(part)
        self.waiting += len(part)

    def advance(self, at: int) -> None:
        """Drops the bytes before `at`, and joins the appended bytes to `data`."""
        if at > self.base or self._parts:
            end = self.end
            gone = at - self.base
            self.data = b"".join((memoryview(self.data)[gone:], *self._parts))
            self.dropped = [run.moved(gone) for run in self.dropped if run.end > gone]
            self.base, self._joined, self.waiting = at, end, 0
            self._parts = []
            self._headers = None

    def is_final(self, at: int) -> bool:
        """Returns whether further bytes cannot change how a synchronized framer reads the header at `at`."""
        if self.ended:
            return True
        if at + HEADER_SIZE > self.end:
            return False
        if self.fault(at) is not None:
            return True
        return _final_extent(self.data, at - self.base, self.end - self.base) > 0

    def can_judge(self, at: int) -> bool:
        """Returns whether all bytes that a search may look at to judge a header at `at` are in memory."""
        return self.ended or self.end - at >= LOOKAHEAD

    def search_end(self, at: int) -> int:
        """Returns the offset before which a search from `at` on has seen every plausible header."""
        return self.end if self.ended else max(at, self.end - LOOKAHEAD + 1)

    def find_valid_header(self, begin: int, end: int) -> int:
        """Returns where the first header without a fault begins, from `begin` on and before `end`; else `end`."""
        return next((at for at in self._signatures() if begin <= at < end and self.fault(at) is None), end)

    def fault(self, at: int) -> FramingReason | None:
        """Returns the fault of the header at `at`, None for a valid one."""
        return header_fault(self.data, at - self.base, self.end - self.base)

    def extent(self, at: int) -> int:
        """Returns the bytes on the stream of the packet whose valid header is at `at`."""
        return _extent(self.data, at - self.base, self.end - self.base)

    def is_plausible(self, at: int) -> bool:
        """Returns whether a plausible header is at `at`."""
        return self.fault(at) is None and at + self.extent(at) <= self.end

    def plausible_headers(self, at: int) -> Iterator[int]:
        """Yields the offsets of the plausible headers from `at` on."""
        starts = self._plausible()[0]
        for index in range(bisect_left(starts, at), len(starts)):
            yield starts[index]

    def is_trustworthy(self, at: int, *, chained: bool) -> bool:
        """Returns whether a plausible header is believed; with `chained`, only another header after it is evidence."""
        starts, ends = self._plausible()
        end = ends[at]
        if end in ends or (self.ended and end == self.end):
            return True
        following = bisect_right(starts, at)
        return not chained and (following == len(starts) or starts[following] >= end)

    def _signatures(self) -> Iterator[int]:
        """Yields where headers would begin, by the signatures in memory."""
        return (self.base + match.start() - SIGNATURE_OFFSET for match in re.finditer(SIGNATURE, self.data))

    def _plausible(self) -> tuple[list[int], dict[int, int]]:
        """Returns the plausible headers in memory, in order, and the end of the packet of each."""
        if self._headers is None:
            starts = [at for at in self._signatures() if at >= self.base and self.is_plausible(at)]
            self._headers = starts, {at: at + self.extent(at) for at in starts}
        return self._headers
