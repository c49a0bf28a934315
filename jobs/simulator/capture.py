"""Writes the ring buffer of a capture, and tracks which bytes of a stream an incomplete capture holds.

Format: draft-ietf-opsawg-pcap. Record times strictly increase.
"""

import struct
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import BinaryIO, Protocol

from jobs.simulator.encapsulations import ENCAPSULATIONS
from jobs.simulator.events import MICROSECOND, MILLISECOND, SECOND, Action, Events, nothing

_BURST_NS = 2 * MILLISECOND  # longest loss of several frames
_BURSTS = 0.2  # share of losses that take several frames
SETTLED_NS = SECOND  # no segment arrives later than this after its first arrival
Seen = Callable[[int], None]
"""Called with the time, in ns, of the record that completed a packet in the capture."""


class RingBuffer:
    """Writes a capture as pcap files of about `file_bytes`, named as capture tools name them.

    Record times strictly increase, unless the clock steps. Closing ends the last file.
    """

    def __init__(
        self,
        folder: Path,
        prefix: str,
        file_bytes: int,
        *,
        nanoseconds: bool = True,
        mirrored: bool = False,
        clock_step: tuple[int, int] = (0, 0),
        encapsulation: str = "plain",
    ) -> None:
        """Writes Ethernet frames, or what an encapsulation makes of them, to `folder`, with times in ns or in us.

        `mirrored`: every frame is there twice. `clock_step`: a time in ns, and the clock's error in ns from then on.
        """
        self._folder, self._prefix, self._file_bytes = folder, prefix, file_bytes
        self._mirrored, self._clock_step, self._encapsulation = mirrored, clock_step, ENCAPSULATIONS[encapsulation]
        self._unit_ns = 1 if nanoseconds else MICROSECOND
        self._tick = 0
        self._files = 0
        self._file: BinaryIO | None = None
        self._room = 0
        self._record = struct.Struct("<IIII").pack

    def write(self, time_ns: int, frame: bytes, kept: int | None = None) -> int:
        """Appends a record, or `kept` bytes of its frame; returns its time in ns, without the clock step."""
        self._tick = tick = max(time_ns // self._unit_ns, self._tick + 1)
        from_ns, off_ns = self._clock_step
        shown = tick + (off_ns // self._unit_ns if off_ns and time_ns >= from_ns else 0)
        seconds, fraction = divmod(shown, SECOND // self._unit_ns)
        if self._file is None or self._room < len(frame):
            self._file = self._next_file(seconds)
        self._room -= 16 + len(frame)
        for one in self._encapsulation.frames(frame):
            record = self._record(seconds, fraction, len(one), len(one)) + one[:kept]
            self._file.write(record * (1 + self._mirrored))
        return tick * self._unit_ns

    def close(self) -> None:
        """Ends the last file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next_file(self, seconds: int) -> BinaryIO:
        self.close()
        name = f"{self._prefix}_{self._files:05}_{datetime.fromtimestamp(seconds, UTC):%Y%m%d%H%M%S}.pcap"
        self._files += 1
        self._room = self._file_bytes
        file = (self._folder / name).open("wb", buffering=1 << 20)
        magic = 0xA1B23C4D if self._unit_ns == 1 else 0xA1B2C3D4
        file.write(struct.pack("<IHHiIII", magic, 2, 4, 0, 0, 1 << 18, self._encapsulation.link_type))
        return file


@dataclass(frozen=True, slots=True)
class Blindness:
    """Says which frames a capture misses."""

    loss: float = 0.0
    """Share of frames that start a loss: of this frame or, at times, of all frames for a while."""
    begins_ns: int = 0
    """The capture begins with the first frame at or after this time."""
    ends_ns: int | None = None
    """The first frame at or after this time is the last, and its record is cut in the middle."""

    @property
    def is_whole(self) -> bool:
        """Returns whether the capture misses nothing."""
        return not self.loss and not self.begins_ns and self.ends_ns is None


class Writer(Protocol):
    """Takes frames."""

    def write(self, time_ns: int, frame: bytes) -> None:
        """Takes a frame that passes at this time."""


class Tap:
    """Takes frames into the capture, except those that the capture misses."""

    def __init__(self, ring: RingBuffer, rng: Random, blindness: Blindness) -> None:
        """Draws losses from `rng`."""
        self.blindness = blindness
        self.is_whole = blindness.is_whole
        self.near_end: Writer | None = None
        """Captures the other end as well."""
        self._ring = ring
        self.at_end: Action = nothing
        """Called when the capture is cut."""
        self._rng = rng
        self._blind_until_ns = 0
        self._cut = False

    def take(self, time_ns: int, frame: bytes, kept: int | None = None) -> int:
        """Takes a frame at a time in ns; returns the time of its record."""
        if self.near_end is not None:
            self.near_end.write(time_ns, frame)
        return self._ring.write(time_ns, frame, kept)

    def look(self, time_ns: int, frame: bytes, *, is_safe: bool) -> int | None:
        """Takes the frame and returns the time of its record, or None if the capture misses it.

        A `is_safe` frame is never drawn as a loss.
        """
        blindness = self.blindness
        if time_ns < blindness.begins_ns or self._cut:
            return None
        if blindness.ends_ns is not None and time_ns >= blindness.ends_ns:
            self.take(time_ns, frame, len(frame) // 2)
            self._cut = True
            self.at_end()
            return None
        if not is_safe and (time_ns < self._blind_until_ns or self._loses(time_ns)):
            return None
        return self.take(time_ns, frame)

    def _loses(self, time_ns: int) -> bool:
        draw = self._rng.random()
        if draw < self.blindness.loss * _BURSTS:
            self._blind_until_ns = time_ns + self._rng.randrange(_BURST_NS)
        return draw < self.blindness.loss


class Held:
    """Tracks what an incomplete capture holds of one direction of a connection, by positions that never wrap.

    A packet is examined once no segment of it can arrive any more. If bytes of it are missing, a reader sees only a run
    of missing bytes: some of the packet was captured, or a later segment, FIN or acknowledgment proves it was sent.
    """

    def __init__(self, events: Events, first: int | None, missing: Callable[[], None]) -> None:
        """Starts at position `first`, or None if unknown; `missing` is called for every run of missing bytes."""
        self._events = events
        self._first = first
        self._missing = missing
        self._parts: list[tuple[int, int, int]] = []
        self._shown = 0  # position up to which bytes are proven to have been sent
        self._unshown: int | None = None  # start of the first missing run that nothing proves yet

    def segment(self, start: int, end: int, time_ns: int, *, is_fin: bool = False) -> None:
        """Notes that the capture has the bytes from `start` to `end`, or a FIN there."""
        if not is_fin:
            self._first = start if self._first is None else min(self._first, start)
        insort(self._parts, (start, end, time_ns))
        self.shown(end)

    def shown(self, position: int) -> None:
        """Notes that the capture proves everything before the position to have been sent."""
        self._shown = max(self._shown, position)
        if self._unshown is not None and self._unshown < self._shown:
            self._unshown = None
            self._missing()

    def packet(self, start: int, end: int, seen: Seen | None) -> None:
        """Notes a packet (or a FIN) at these positions; calls `seen` once the capture certainly has all of it."""
        self._events.after(SETTLED_NS, self._settle, start, end, seen)

    def _settle(self, start: int, end: int, seen: Seen | None) -> None:
        parts = self._parts
        while parts and parts[0][1] <= start:
            del parts[0]
        lacking = [(start, end)]
        for time_ns, low, high in sorted((ns, low, high) for low, high, ns in parts if low < end and high > start):
            cut = ((piece, (low, high)) for piece in lacking)
            lacking = [rest for (a, b), (c, d) in cut for rest in ((a, min(b, c)), (max(a, d), b)) if rest[0] < rest[1]]
            if not lacking:
                if seen is not None:
                    seen(time_ns)
                return
        if self._first is None or end <= self._first:
            return  # before the stream begins, as the capture has it
        if lacking != [(start, end)] or start < self._shown:
            self._missing()
        elif self._unshown is None:
            self._unshown = start
