"""Cuts the bytes of a stream into MSMQ packets ([MS-MQMQ] 2.2.19.1, [MS-MQQB] 3.1.5.1.2).

At the start of a stream and right after a packet the framer is synchronized and trusts the announced PacketSize. When
it has lost synchronization, the next packet begins at the first header that is *plausible* (version, signature,
PacketSize, complete inside the run of recovered bytes) and *trustworthy*: it ends where another plausible header begins
or where the run ends, or no plausible header begins inside it. Every byte ends in a packet or in an `Unframed` run.
The time is linear in the bytes, even if they were made to slow the search down.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, NamedTuple, Self

from schemas.ingest import FramingReason
from udfs.msmq.dropped import Dropped, Run, restore
from udfs.msmq.stream_window import Window
from udfs.msmq.without_bodies import drop_bodies
from udfs.tcp.direction import NeedsPayload

_WINDOW = 32 << 20


class Unframed(NamedTuple):
    """Stream bytes that are in no packet: stream offset, reason, first bytes, and the length as soon as it is known."""

    offset: int
    reason: FramingReason
    raw: bytes = b""
    length: int = 0


class FramedPackets(NamedTuple):
    """Packets in one buffer, whose first byte has stream offset `base`, and the bytes between them.

    `dropped`: runs of the buffer that an earlier run left out of its state, by offset in the buffer.
    """

    data: bytes
    base: int
    starts: list[int]
    sizes: list[int]
    unframed: list[Unframed]
    dropped: list[Dropped]

    @classmethod
    def none_of(cls, window: Window) -> Self:
        """Returns no packets yet, over the bytes of a window."""
        return cls(window.data, window.base, [], [], [], window.dropped)

    def add(self, at: int, size: int) -> int:
        """Adds the packet at stream offset `at`; returns its end."""
        self.starts.append(at - self.base)
        self.sizes.append(size)
        return at + size


class Framer:
    """Frames one stream in stream order: the bytes of a run, a gap, the bytes of the next run.

    The result does not depend on how the bytes are divided into calls.
    """

    def __init__(self, *, mid_stream: bool, raw_kept: int) -> None:
        """Begins at stream offset 0; an `Unframed` keeps at most `raw_kept` bytes."""
        self._raw_kept = raw_kept
        self._window = Window(0)
        self._due: int | None = None
        """Where the packet would have ended that was incomplete at the end of its run."""
        self._lost: Unframed | None = None
        """Since where the framer is not synchronized."""
        if mid_stream:
            self._lost = Unframed(0, FramingReason.MID_STREAM)

    @property
    def offset(self) -> int:
        """Stream offset of the first byte that is neither in a packet nor in an `Unframed` yet."""
        return self._window.base if self._lost is None else self._lost.offset

    @property
    def end(self) -> int:
        """Stream offset of the next byte to come."""
        return self._window.end

    def feed(self, data: bytes | memoryview) -> Iterator[FramedPackets]:
        """Frames the bytes that follow; memory is a window of 32 MiB and two packets."""
        self._window.add(data)
        if self._window.waiting >= _WINDOW:
            yield self.frame_decided()

    def gap(self, length: int) -> Iterator[FramedPackets]:
        """Ends the run and skips `length` missing bytes."""
        if self._window.end > self._window.start or self._lost is not None:
            yield self.close()
        window = self._window = Window(self._window.end + length)
        if self._due is not None and self._due < window.start:
            self._due = None
        self._lost = Unframed(window.start, FramingReason.AFTER_GAP)

    def take_run(self, length: int, head: bytes) -> Iterator[FramedPackets]:
        """Skips `length` bytes that are framed already and begin with a packet, whose first bytes are `head`.

        A framer that has lost synchronization takes the first valid header, if from there each packet ends where the
        next one begins, up to the framed bytes.

        Raises:
            NeedsPayload: only all bytes of the run show whether the framer is synchronized at its start.
        """
        begin = self._window.end
        packets = self.frame_decided()
        window = self._window
        yield packets
        window.add(head)
        window.advance(window.base)
        packets = FramedPackets.none_of(window)
        at = window.base
        regained = False
        while at < begin or self._lost is not None:
            if self._lost is not None:
                at = window.find_valid_header(at, begin)
                if regained or (self._due is not None and self._due > at):
                    raise NeedsPayload
                self._regain(window, packets, at)
                self._due = None
                regained = True
            elif (reason := window.fault(at)) is not None:
                self._lost = Unframed(at, reason)
                at += 1
            elif at + (size := window.extent(at)) > begin:
                raise NeedsPayload
            else:
                at = packets.add(at, size)
        yield packets
        self._window = Window(begin + length, run=window.start)

    def frame_rest(self) -> Iterator[FramedPackets]:
        """Frames the undecided bytes as if the stream ended here, and leaves the framer as it is."""
        yield copy(self).close()

    def close(self) -> FramedPackets:
        """Frames the rest of the run, which ends here."""
        window = copy(self._window)
        window.advance(window.base)
        window.ended = True
        packets = FramedPackets.none_of(window)
        self._frame(window, window.base, packets)
        if self._lost is not None:
            self._regain(window, packets, window.end)
            if self._due is not None and self._due < window.end:
                self._due = None
        return packets

    def state(self, *, keep_bodies: bool = True) -> dict[str, Any]:
        """Returns what `Framer.resume` needs to continue; without `keep_bodies`, no body is in it."""
        window = self._window
        window.advance(window.base)
        runs: list[Run] = [window.data] if window.data else []
        if window.dropped or not keep_bodies:
            runs = drop_bodies(window.data, window.dropped, synchronized=self._lost is None)
        return {
            "start": window.start,
            "base": window.base,
            "data": runs,
            "due": self._due,
            "lost": self._lost and self._lost[:3],
        }

    @classmethod
    def resume(cls, state: Mapping[str, Any], *, raw_kept: int) -> Self:
        """Returns the framer whose `state` this is."""
        data, dropped = restore(state["data"])
        framer = cls(mid_stream=False, raw_kept=0 if dropped else raw_kept)
        framer._window = Window(state["base"], run=state["start"])
        framer._window.add(data)
        framer._window.dropped = dropped
        framer._due = state["due"]
        if state["lost"] is not None:
            offset, reason, raw = state["lost"]
            framer._lost = Unframed(offset, FramingReason(reason), raw)
        return framer

    def frame_decided(self) -> FramedPackets:
        """Frames as far as no further bytes can change the result."""
        window = self._window
        window.advance(window.base)
        packets = FramedPackets.none_of(window)
        at = self._frame(window, window.base, packets)
        self._remember(window, at)
        window.advance(at)
        return packets

    def _frame(self, window: Window, at: int, packets: FramedPackets) -> int:
        """Frames from `at` as far as the window allows; returns where to continue."""
        while at < window.end:
            if self._lost is not None:
                if not window.can_judge(at):
                    break
                place, synchronized = self._search(window, at)
                if not synchronized:
                    return place
                self._regain(window, packets, place)
                self._due = None
                at = place
                continue
            if not window.is_final(at):
                break
            reason = window.fault(at)
            if reason is None:
                size = window.extent(at)
                if at + size <= window.end:
                    at = packets.add(at, size)
                    continue
                reason = FramingReason.INCOMPLETE_FRAME
                self._due = at + size
            self._lost = Unframed(at, reason)
            at += 1
        return at

    def _search(self, window: Window, at: int) -> tuple[int, bool]:
        """Returns where from `at` on the stream is synchronized, and True; or up to where it is not, and False."""
        due = self._due if self._due is not None else at
        if self._due is not None and at <= due < window.end:
            if not window.can_judge(due):
                return at, False
            if window.start == at and window.is_plausible(due):
                return due, True
        for header in window.plausible_headers(at):
            if not window.can_judge(header):
                return header, False
            if window.is_trustworthy(header, chained=header < due):
                return header, True
        return window.search_end(at), False

    def _remember(self, window: Window, at: int) -> None:
        """Keeps the first bytes since `_lost`, before the window drops the bytes before `at`."""
        if self._lost is not None:
            begin = self._lost.offset + len(self._lost.raw)
            more = window.data[begin - window.base : max(at, begin) - window.base]
            self._lost = self._lost._replace(raw=(self._lost.raw + more)[: self._raw_kept])

    def _regain(self, window: Window, packets: FramedPackets, at: int) -> None:
        """Ends the unframed run at `at`, where the stream is synchronized or the run of bytes ends."""
        self._remember(window, at)
        lost = self._lost
        assert lost is not None  # noqa: S101 - the callers looked
        inside_incomplete = self._due is not None and self._due >= at
        reason = FramingReason.INCOMPLETE_FRAME if inside_incomplete else lost.reason
        if at > lost.offset:
            packets.unframed.append(lost._replace(reason=reason, length=at - lost.offset))
        self._lost = None
