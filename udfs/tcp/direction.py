"""Unwraps the sequence numbers of one direction of a TCP connection, and keeps what is known of it [RFC 9293]."""

from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.ingest import TcpReason
from udfs.capture.records import NO_TIME
from udfs.network.checksums import intact
from udfs.network.dissect import WINDOW_CLOSED

MODULUS = 1 << 32
_HALF = 1 << 31
_BEHIND = 1 << 28
"""A segment that lies this many bytes behind its direction's newest byte belongs to another connection."""
_IDLE_NS = 500_000_000
"""A connection that sends a keep-alive was idle for longer; a segment is captured before or soon after its answer."""
_APART_NS = 10_000_000_000
"""Clocks of captures that were made at the same time differ by less."""


class NeedsPayload(Exception):  # noqa: N818 - not an error: the connection is assembled again from all its bytes
    """A connection needs bytes that its rows do not hold or, with `rewind`, a state before the one that it resumed."""

    def __init__(self, *, rewind: bool = False) -> None:
        """Says what the connection needs."""
        super().__init__()
        self.rewind = rewind


class Segment(NamedTuple):
    """One captured segment of a connection, or a framed run: one row for several segments that follow one another.

    `from_b`: sent by the endpoint that sorts second. `time_ns`, `last_ns`: time of the first and the last record.
    `header_sum`: see `udfs.network.dissect`; `udfs.tcp.delivery.PART_SUM` for a part of a segment. `framed_run`: the
    packets were framed in their split, and `payload` holds only their first bytes. `file_offsets` (dtype
    `udfs.tcp.delivery.FILE_OFFSETS`): where an uncompressed capture holds the run's bytes.
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
        """Returns whether the TCP checksum is right; it is wrong if the network card fills it in after the capture."""
        if self.header_sum is None or len(self.payload) != self.length:
            return False
        return intact(self.header_sum, self.payload)


@dataclass(slots=True)
class Direction:
    """The state of one direction; positions are unwrapped sequence numbers, offsets count from `base`."""

    isn: int | None = None
    low: int | None = None
    """Lowest position that this direction sent from."""
    first: int | None = None
    """Lowest position that it sent data from."""
    end: int | None = None
    """Position after the highest byte sent (SND.NXT without the FIN)."""
    sent: int | None = None
    """Position after the highest byte of data."""
    held: int | None = None
    """Position after the highest captured byte."""
    fin: int | None = None
    acked: int | None = None
    """Highest position that its receiver acknowledged."""
    acked_low: int | None = None
    """Lowest position that its receiver acknowledged."""
    acked_ns: int = NO_TIME
    """Time of the segment that first acknowledged `acked`."""
    acked_in: int = -1
    """Capture of the last segment that acknowledged `acked`; -1: one of an earlier run."""
    fixed: int | None = None
    """Position of offset 0, set once bytes were delivered."""
    done: int = 0
    """Offset after the last delivered byte."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Offset and length of what is missing between delivered bytes."""
    conflict: bool = False
    last_ns: int = NO_TIME
    """Time of the latest segment of any kind that this direction sent."""
    shut_ns: int | None = None
    """Time since which its receiver announces a window of 0."""
    shut_longest_ns: int = 0
    shut_longest_from_ns: int | None = None
    """The longest time for which it did so and then opened its window, and when that began."""
    rejected: list[tuple[Segment, TcpReason]] = field(default_factory=list)
    pending: list[tuple[int, Segment, int]] = field(default_factory=list)
    """Segments with payload: position, segment, position acknowledged before it arrived (at least 0)."""
    late: list[tuple[int, Segment]] = field(default_factory=list)
    """Segments that arrived behind the newest byte by more than the window."""

    @property
    def base(self) -> int:
        """Position of stream offset 0."""
        if self.fixed is not None:
            return self.fixed
        if self.isn is not None:
            return self.isn + 1
        return self.first if self.first is not None else self.low or 0

    def unwrap(self, seq: int) -> int:
        """Returns the position of this sequence number that is nearest to what was sent before."""
        reference = self.end if self.end is not None else self.acked
        if reference is None:
            return seq + MODULUS  # leaves room below, should the stream turn out to begin lower
        return reference + (seq - reference + _HALF) % MODULUS - _HALF

    def see_acknowledged(self, position: int, segment: Segment) -> None:
        """Takes what a segment of the other side acknowledges."""
        if self.acked is None or position > self.acked:
            self.acked, self.acked_ns = position, max(segment.time_ns, segment.last_ns)
        if position == self.acked:
            self.acked_in = segment.capture
        self.acked_low = position if self.acked_low is None else min(self.acked_low, position)

    def is_keep_alive(self, end: int, segment: Segment) -> bool:
        """Tells whether a segment of one byte up to `end` may hold other bytes than the sender's data."""
        if end == self.held or (self.isn is not None and end == self.isn + 1):
            return True
        idle_ns = _IDLE_NS if segment.capture == self.acked_in else _APART_NS
        return end == self.acked and NO_TIME < self.acked_ns < segment.time_ns - idle_ns

    def near(self, position: int, window: int) -> bool:
        """Tells whether a segment at this position fits what this direction has sent."""
        reference = self.end if self.end is not None else self.acked
        return reference is None or -_BEHIND < position - reference < window

    def see_window(self, segment: Segment) -> None:
        """Takes the window that a segment of the other side announces."""
        if segment.time_ns == NO_TIME:
            return
        if not segment.flags & WINDOW_CLOSED:
            self.shut_longest_from_ns, self.shut_longest_ns = self.longest_shut(segment.time_ns)
            self.shut_ns = None
        elif self.shut_ns is None:
            self.shut_ns = segment.time_ns

    def longest_shut(self, now_ns: int) -> tuple[int | None, int]:
        """Returns when the longest time began for which the receiver announced a window of 0, and its length, in ns."""
        if self.shut_ns is not None and now_ns - self.shut_ns > self.shut_longest_ns:
            return self.shut_ns, now_ns - self.shut_ns
        return self.shut_longest_from_ns, self.shut_longest_ns

    def take(self, position: int, segment: Segment, window: int) -> None:
        """Adds a segment with data to `pending`, or to `late` if the newest byte is ahead by more than the window."""
        if self.end is not None and position < self.end - window:
            if segment.framed_run:
                raise NeedsPayload
            self.late.append((position, segment))
            return
        self.pending.append((position, segment, self.acked or 0))
        self.first = position if self.first is None else min(self.first, position)
        self.sent = highest(self.sent, position + segment.length)


def highest(known: int | None, position: int) -> int:
    """Returns the higher position; the other one where one is not known yet."""
    return position if known is None else max(known, position)
