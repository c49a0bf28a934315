"""A simulated network: events in time, TCP connections with the faults of a network, and the capture of a tap.

The tap stands beside the acceptors, so what it has seen is what they have received. Frames are written as they
pass it. Ethernet, IPv4 [RFC 791], IPv6 [RFC 8200], TCP [RFC 9293]; draft-ietf-opsawg-pcap.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum, auto
from heapq import heappop, heappush
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

from udfs.frames import ACK, FIN, RST, SYN

PSH = 0x08
MICROSECOND, MILLISECOND, SECOND = 1_000, 1_000_000, 1_000_000_000  # in ns
_SEQUENCE_MASK = 0xFFFFFFFF
_TCP = 6
_TCP_HEADER = 20
_SMALLEST_FRAME = 60  # Ethernet pads what is shorter
_MTU = 1500
_NS_PER_BYTE = 8  # 1 Gbit/s
_DELAYED_ACK_NS = 40 * MILLISECOND
_ACK_EVERY = 2  # segments, RFC 9293 3.8.6.3
_RETRANSMISSION_NS = 200 * MILLISECOND
_OVERTAKING_NS = 200 * MICROSECOND
_QUIET_NS = 50 * MILLISECOND  # longer than a delayed ACK and than the segments of one retransmission

_Kind = TypeVar("_Kind")
Action = Callable[..., None]


class Events:
    """What is to happen, in order of simulated time; `now` is in ns since 1970."""

    def __init__(self, start_ns: int) -> None:
        """Begin at `start_ns` with nothing to do."""
        self.now = start_ns
        self._heap: list[tuple[int, int, Action, tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time_ns: int, action: Action, *arguments: Any) -> None:
        """Do this then; what is due at the same time is done in the order it was asked for."""
        self._count += 1
        heappush(self._heap, (time_ns, self._count, action, arguments))

    def after(self, delay_ns: int, action: Action, *arguments: Any) -> None:
        """Do this when the delay is over."""
        self.at(self.now + delay_ns, action, *arguments)

    def run(self) -> None:
        """Go on until nothing is left to do."""
        heap = self._heap
        while heap:
            self.now, _, action, arguments = heappop(heap)
            action(*arguments)


class Faults(Generic[_Kind]):
    """Strikes a share of all chances; every kind comes up once before any comes up again."""

    def __init__(self, rng: Random, share: float, kinds: Sequence[_Kind]) -> None:
        """Draw from these kinds."""
        self._random = rng.random
        self._share = share
        self._kinds = self._shuffled(rng, kinds)

    @staticmethod
    def _shuffled(rng: Random, kinds: Sequence[_Kind]) -> Iterator[_Kind]:
        while True:
            yield from rng.sample(kinds, len(kinds))

    def strike(self) -> _Kind | None:
        """The fault of this chance, if it has one."""
        return next(self._kinds) if self._random() < self._share else None


class RingBuffer:
    """A capture in pcap files of about `file_bytes`, named as capture tools name them; link type Ethernet.

    Record times strictly increase. Closing ends the last file.
    """

    def __init__(self, folder: Path, prefix: str, file_bytes: int, *, nanoseconds: bool = True) -> None:
        """Write to `folder`, with times in ns or in us."""
        self._folder, self._prefix, self._file_bytes = folder, prefix, file_bytes
        self._unit_ns = 1 if nanoseconds else MICROSECOND
        self._tick = 0
        self._files = 0
        self._file: BinaryIO | None = None
        self._room = 0
        self._record = struct.Struct("<IIII").pack

    def write(self, time_ns: int, frame: bytes) -> None:
        """Append a record."""
        self._tick = tick = max(time_ns // self._unit_ns, self._tick + 1)
        seconds, fraction = divmod(tick, SECOND // self._unit_ns)
        if self._file is None or self._room < len(frame):
            self._file = self._next_file(seconds)
        self._room -= 16 + len(frame)
        self._file.write(self._record(seconds, fraction, len(frame), len(frame)) + frame)

    def close(self) -> None:
        """End the last file."""
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
        file.write(struct.pack("<IHHiIII", magic, 2, 4, 0, 0, 1 << 18, 1))
        return file


class Endpoint(NamedTuple):
    """An address and a TCP port."""

    address: IPv4Address | IPv6Address
    port: int


def _words(data: bytes) -> int:
    """The sum of the data's 16-bit words modulo 2^16 - 1 [RFC 1071]: in that ring a number is the sum of its words."""
    number = int.from_bytes(data, "big")
    return (number << 8 if len(data) & 1 else number) % 0xFFFF


class FrameBuilder:
    """Frames from one endpoint to another; what does not change from frame to frame is summed up beforehand."""

    _V4 = struct.Struct(">14sBBHHHBBH4s4sHHIIHHHH").pack
    _V6 = struct.Struct(">14sIHBB16s16sHHIIHHHH").pack
    _WINDOW = 0xFAF0
    _HOPS = 64

    def __init__(self, source: Endpoint, target: Endpoint) -> None:
        """Both endpoints are of one IP version."""
        self._is_v4 = source.address.version == 4  # noqa: PLR2004 - the version
        self._addresses = source.address.packed, target.address.packed
        self._ports = source.port, target.port
        macs = (b"\x02\x00" + endpoint.address.packed[-4:] for endpoint in (target, source))  # locally administered
        self._ethernet = b"".join(macs) + (b"\x08\x00" if self._is_v4 else b"\x86\xdd")
        addresses = _words(b"".join(self._addresses))
        self._tcp_sum = addresses + _TCP + source.port + target.port + self._WINDOW
        self._ip_sum = addresses + 0x4500 + 0x4000 + (self._HOPS << 8 | _TCP)
        self._identification = 0
        self.segment_size = _MTU - (20 if self._is_v4 else 40) - _TCP_HEADER

    def frame(self, seq: int, ack: int, flags: int, payload: bytes = b"", options: bytes = b"") -> bytes:
        """One TCP segment in one frame, both checksums right; `options` are padded to a multiple of 4."""
        content = options + payload
        length = _TCP_HEADER + len(content)
        control = (_TCP_HEADER + len(options)) << 10 | flags  # the data offset counts 32-bit words
        checksum = -(self._tcp_sum + length + seq + ack + control + _words(content)) % 0xFFFF
        segment = (*self._addresses, *self._ports, seq, ack, control, self._WINDOW, checksum, 0)
        if self._is_v4:
            self._identification = identification = (self._identification + 1) & 0xFFFF
            ip_checksum = -(self._ip_sum + 20 + length + identification) % 0xFFFF
            fixed = (0x45, 0, 20 + length, identification, 0x4000, self._HOPS, _TCP, ip_checksum)
            header = self._V4(self._ethernet, *fixed, *segment)
        else:
            header = self._V6(self._ethernet, 6 << 28, length, _TCP, self._HOPS, *segment)
        return (header + content).ljust(_SMALLEST_FRAME, b"\0")


class SegmentFault(Enum):
    """What a network does to a segment with data."""

    DUPLICATED = auto()
    OVERTAKEN = auto()
    LOST = auto()  # before the tap: it comes again, in other segments
    REPEATED = auto()  # its acknowledgment is lost: it comes again, in other segments


class Network:
    """The tap, and the faults of what leads to it."""

    def __init__(self, events: Events, rng: Random, capture: RingBuffer, disorder: float) -> None:
        """Strike `disorder` of all segments with data."""
        self.events, self.rng = events, rng
        self.faults = Faults(rng, disorder, tuple(SegmentFault))
        self._capture = capture

    def tap(self, frame: bytes) -> None:
        """A frame passes the tap now."""
        self._capture.write(self.events.now, frame)


class Direction:
    """One direction of a TCP connection; positions are sequence numbers that never wrap.

    What is written is delivered when the tap has seen its last byte and every byte before it.
    """

    back: "Direction"

    def __init__(self, network: Network, frames: FrameBuilder, position: int, latency_ns: int) -> None:
        """Have sent and received everything before `position`; a frame takes `latency_ns` to the tap."""
        self._network, self._events = network, network.events
        self._frames = frames
        self._latency_ns = latency_ns
        self.sent = self.received = position
        self.unacknowledged = 0
        self._written: list[bytes | bytearray] = []
        self._undelivered: deque[tuple[int, Action, tuple[Any, ...]]] = deque()
        self._early: list[tuple[int, int]] = []
        self._ack_is_due = False
        self._line_free_ns = 0
        self.settled_ns = 0
        """When the last frame of this direction will have passed the tap."""

    def write(self, packet: bytes | bytearray, deliver: Action, *arguments: Any) -> None:
        """Send this with the next flush, and call `deliver` when it has arrived."""
        self._written.append(packet)
        self.sent += len(packet)
        self._undelivered.append((self.sent, deliver, arguments))

    def flush(self) -> None:
        """Send what was written in segments as full as can be."""
        if not self._written:
            return
        data = b"".join(self._written)
        self._written.clear()
        base = self.sent - len(data)
        size = self._frames.segment_size
        for low in range(0, len(data), size):
            self._send(data, base, low, min(low + size, len(data)))

    def control(self, flags: int, then: Action) -> None:
        """Send a segment with no data (SYN, FIN, RST, or the last ACK), and do `then` when it has arrived."""
        options = b"\x02\x04" + self._frames.segment_size.to_bytes(2, "big") if flags & SYN else b""
        ack = self.back.received & _SEQUENCE_MASK if flags & ACK else 0
        frame = self._frames.frame(self.sent & _SEQUENCE_MASK, ack, flags, options=options)
        occupied = bool(flags & (SYN | FIN))
        self.sent += occupied
        self._events.at(self._slot(len(frame)), self._arrive_control, frame, occupied, then)

    def acknowledge(self) -> None:
        """Send an ACK, with no data, of what the other direction has received."""
        frame = self._frame(b"", self.sent, ACK)
        self._events.at(self._slot(len(frame)), self._network.tap, frame)

    def _frame(self, payload: bytes, position: int, flags: int) -> bytes:
        self.back.unacknowledged = 0
        return self._frames.frame(position & _SEQUENCE_MASK, self.back.received & _SEQUENCE_MASK, flags, payload)

    def _slot(self, size: int) -> int:
        """When a frame of this size, sent now, passes the tap: behind those sent before it."""
        time_ns = max(self._events.now + self._latency_ns, self._line_free_ns)
        self._line_free_ns = time_ns + size * _NS_PER_BYTE
        self.settled_ns = max(self.settled_ns, self._line_free_ns)
        return time_ns

    def _pass(self, time_ns: int, frame: bytes, start: int, end: int) -> None:
        self.settled_ns = max(self.settled_ns, time_ns)
        self._events.at(time_ns, self._arrive, frame, start, end)

    def _send(self, data: bytes, base: int, low: int, high: int) -> None:
        """Send a segment of what was flushed, `data` from position `base` on."""
        frame = self._frame(data[low:high], base + low, ACK | PSH if high == len(data) else ACK)
        time_ns = self._slot(len(frame))
        fault = self._network.faults.strike()
        if fault is None:
            self._pass(time_ns, frame, base + low, base + high)
            return
        if fault is not SegmentFault.LOST:
            overtaken_ns = _OVERTAKING_NS * (fault is SegmentFault.OVERTAKEN)
            self._pass(time_ns + overtaken_ns, frame, base + low, base + high)
        if fault is SegmentFault.DUPLICATED:
            self._pass(time_ns + _OVERTAKING_NS, frame, base + low, base + high)
        elif fault is not SegmentFault.OVERTAKEN:
            self.settled_ns = max(self.settled_ns, time_ns + _RETRANSMISSION_NS + _QUIET_NS)
            self._events.at(time_ns + _RETRANSMISSION_NS, self._send_again, data, base, low, high)

    def _send_again(self, data: bytes, base: int, low: int, high: int) -> None:
        """Send the bytes again, cut otherwise and with some of those around them."""
        rng, size = self._network.rng, self._frames.segment_size
        start = rng.randint(max(0, low - size), low)
        while start < high:
            end = min(start + rng.randint(size // 4, size), len(data))
            frame = self._frame(data[start:end], base + start, ACK | PSH)
            self._pass(self._slot(len(frame)), frame, base + start, base + end)
            start = end

    def _arrive(self, frame: bytes, start: int, end: int) -> None:
        self._network.tap(frame)
        if not start <= self.received < end:
            if start > self.received:
                self._early.append((start, end))
            self.back.acknowledge()  # at once, RFC 5681 4.2
            return
        self.received = end
        filled = bool(self._early)
        if filled:
            for early_start, early_end in sorted(self._early):
                if early_start <= self.received:
                    self.received = max(self.received, early_end)
            self._early = [early for early in self._early if early[0] > self.received]
        self.unacknowledged += 1
        undelivered = self._undelivered
        while undelivered and undelivered[0][0] <= self.received:
            _, deliver, arguments = undelivered.popleft()
            deliver(*arguments)
        if filled or self.unacknowledged >= _ACK_EVERY:
            self.back.acknowledge()
        elif self.unacknowledged and not self._ack_is_due:
            self._ack_is_due = True
            self._events.after(_DELAYED_ACK_NS, self._delayed_ack)

    def _delayed_ack(self) -> None:
        self._ack_is_due = False
        if self.unacknowledged:
            self.back.acknowledge()

    def _arrive_control(self, frame: bytes, occupied: bool, then: Action) -> None:
        self._network.tap(frame)
        self.received += occupied
        then()


class Connection:
    """A TCP connection, from the host that opens it (`up`) to the one beside the tap (`down`) and back."""

    def __init__(
        self, network: Network, initiator: Endpoint, acceptor: Endpoint, positions: tuple[int, int], latency_ns: int
    ) -> None:
        """Begin at these sequence numbers; without `open`, as one that was opened before the capture began."""
        self.initiator = initiator
        self._events = network.events
        self.up = Direction(network, FrameBuilder(initiator, acceptor), positions[0], latency_ns)
        self.down = Direction(network, FrameBuilder(acceptor, initiator), positions[1], 0)
        self.up.back, self.down.back = self.down, self.up

    def open(self, then: Action) -> None:
        """Shake hands, and do `then` when the connection is established."""

        def established() -> None:
            self.up.control(ACK, then)

        def answer() -> None:
            self.down.control(SYN | ACK, established)

        self.up.control(SYN, answer)

    def close(self, then: Action, *, reset: bool = False) -> None:
        """Finish when all that was sent has arrived, and do `then`; nothing may be written any more."""

        def closed() -> None:
            self.up.control(ACK, then)

        def answer() -> None:
            self.down.control(FIN | ACK, closed)

        def finish() -> None:
            if self._quiet_ns() > self._events.now:
                self._events.at(self._quiet_ns(), finish)
            elif reset:
                self.up.control(RST | ACK, then)
            else:
                self.up.control(FIN | ACK, answer)

        finish()

    def _quiet_ns(self) -> int:
        return max(self.up.settled_ns, self.down.settled_ns) + _QUIET_NS
