"""Simulates TCP connections, with the faults of a network, past the tap of a capture.

The tap is next to the acceptors: what has passed it, they have received. Ethernet, IPv4 [RFC 791], IPv6 [RFC 8200],
TCP [RFC 9293].
"""

import struct
from collections import deque
from enum import Enum, auto
from ipaddress import IPv4Address, IPv6Address
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from jobs.simulator.answers import Wire
from jobs.simulator.capture import Held, Seen, Tap
from jobs.simulator.events import MICROSECOND, MILLISECOND, Action, Events, Faults, nothing
from udfs.network.dissect import ACK, FIN, RST, SYN

PSH = 0x08
_SEQUENCE_MASK = 0xFFFFFFFF
_TCP = 6
_TCP_HEADER = 20
_SMALLEST_FRAME = 60  # Ethernet pads what is shorter
_MTU = 1500
_NS_PER_BYTE = 8  # 1 Gbit/s
_DELAYED_ACK_NS = 40 * MILLISECOND
_ACK_EVERY = 2  # segments, RFC 9293 3.8.6.3
_RETRANSMISSION_NS = 200 * MILLISECOND
_RETRANSMISSIONS_MS = 300, 600, 1_200, 2_400, 4_800  # of a segment that is never acknowledged, one after the other
_GIVEN_UP_NS = 9_600 * MILLISECOND  # after the last one
_OVERTAKING_NS = 200 * MICROSECOND
_QUIET_NS = 50 * MILLISECOND  # longer than a delayed ACK and than the segments of one retransmission
NOBODY = UUID(int=0)
_WORD = 4  # all segments hold a multiple of 4 bytes, so that nothing else in a stream ends where a segment does


class Endpoint(NamedTuple):
    """Holds an address and a TCP port."""

    address: IPv4Address | IPv6Address
    port: int


def _words(data: bytes) -> int:
    """Returns the sum of the data's 16-bit words modulo 2^16 - 1, [RFC 1071]; modulo that, a number equals that sum."""
    number = int.from_bytes(data, "big")
    return (number << 8 if len(data) & 1 else number) % 0xFFFF


class FrameBuilder:
    """Builds frames from one endpoint to another; the constant part of the checksums is computed once."""

    _V4 = struct.Struct(">14sBBHHHBBH4s4sHHIIHHHH").pack
    _V6 = struct.Struct(">14sIHBB16s16sHHIIHHHH").pack
    _WINDOW = 0xFAF0
    _HOPS = 64

    def __init__(self, source: Endpoint, target: Endpoint) -> None:
        """Takes two endpoints of one IP version."""
        self._is_v4 = source.address.version == 4  # noqa: PLR2004 - the version
        self._addresses = source.address.packed, target.address.packed
        self._ports = source.port, target.port
        macs = (b"\x02\x00" + endpoint.address.packed[-4:] for endpoint in (target, source))  # locally administered
        self._ethernet = b"".join(macs) + (b"\x08\x00" if self._is_v4 else b"\x86\xdd")
        addresses = _words(b"".join(self._addresses))
        self._tcp_sum = addresses + _TCP + source.port + target.port
        self.window = self._WINDOW
        self._ip_sum = addresses + 0x4500 + 0x4000 + (self._HOPS << 8 | _TCP)
        self._identification = 0
        self.segment_size = _MTU - (20 if self._is_v4 else 40) - _TCP_HEADER

    def shut(self, *, is_open: bool) -> None:
        """Makes all frames from now on announce a window of 0, or the ordinary one again."""
        self.window = self._WINDOW if is_open else 0

    def frame(self, seq: int, ack: int, flags: int, payload: bytes = b"", options: bytes = b"") -> bytes:
        """Returns one TCP segment in one frame with both checksums right; `options` are padded to a multiple of 4."""
        content = options + payload
        length = _TCP_HEADER + len(content)
        control = (_TCP_HEADER + len(options)) << 10 | flags  # the data offset counts 32-bit words
        checksum = -(self._tcp_sum + self.window + length + seq + ack + control + _words(content)) % 0xFFFF
        segment = (*self._addresses, *self._ports, seq, ack, control, self.window, checksum, 0)
        if self._is_v4:
            self._identification = identification = (self._identification + 1) & 0xFFFF
            ip_checksum = -(self._ip_sum + 20 + length + identification) % 0xFFFF
            fixed = (0x45, 0, 20 + length, identification, 0x4000, self._HOPS, _TCP, ip_checksum)
            header = self._V4(self._ethernet, *fixed, *segment)
        else:
            header = self._V6(self._ethernet, 6 << 28, length, _TCP, self._HOPS, *segment)
        return (header + content).ljust(_SMALLEST_FRAME, b"\0")


class SegmentFault(Enum):
    """Lists what the network can do to a segment with data."""

    DUPLICATED = auto()
    OVERTAKEN = auto()
    LOST = auto()  # lost before the tap: resent in other segments
    REPEATED = auto()  # its acknowledgment is lost: resent in other segments


class Network:
    """Leads frames to the tap, and draws the faults on the way."""

    def __init__(self, events: Events, rng: Random, tap: Tap, disorder: float) -> None:
        """Lets a fault strike the share `disorder` of all segments with data."""
        self.events, self.rng, self.tap, self.wire = events, rng, tap, Wire()
        self.faults = Faults(rng, disorder, tuple(SegmentFault))


class Direction:
    """Simulates one direction of a TCP connection; positions are sequence numbers that never wrap.

    A packet is delivered once the tap has seen its last byte and every byte before it.
    """

    back: "Direction"
    held: Held | None = None
    """Tracks what the capture holds, if the capture may miss something."""

    def __init__(self, connection: "Connection", frames: FrameBuilder, position: int, latency_ns: int) -> None:
        """Starts with everything before `position` sent and received; a frame takes `latency_ns` to the tap."""
        self._connection = connection
        self._network, self._events = connection.network, connection.network.events
        self._frames = frames
        self._latency_ns = latency_ns
        self.sent = self.received = self.delivered = self.taken = position
        """`delivered`: the end of the last packet that arrived; `taken`: up to where ACKs past the tap acknowledge."""
        self.unacknowledged = 0
        self._written: list[bytes | bytearray] = []
        self._undelivered: deque[tuple[int, Seen | None, Action, tuple[Any, ...]]] = deque()
        self.early: list[tuple[int, int]] = []
        """Ranges received beyond missing bytes."""
        self._ack_is_due = False
        self.largest: int | None = None
        """Bytes of the largest segment that the path takes; it drops others behind the tap."""
        self.dropped: Action = nothing
        """Called with what `deliver` would have got, of each packet behind a segment that was dropped."""
        self.given_up: Action = nothing
        """Called when TCP has retransmitted such a segment several times."""
        self._shown: int | None = None  # position up to which the tap has seen all, if the receiver lacks some of it
        self._line_free_ns = 0
        self.settled_ns = 0
        """Time at which the last frame of this direction will have passed the tap."""

    def write(self, packet: bytes | bytearray, deliver: Action, *arguments: Any, seen: Seen | None = None) -> None:
        """Queues a packet for the next flush; `deliver` is called on arrival, `seen` when the capture has it."""
        self._written.append(packet)
        self.sent += len(packet)
        self._undelivered.append((self.sent, seen, deliver, arguments))

    def flush(self) -> None:
        """Sends the queued packets in segments as full as possible."""
        if not self._written:
            return
        data = b"".join(self._written)
        self._written.clear()
        base = self.sent - len(data)
        size = self._frames.segment_size
        for low in range(0, len(data), size):
            self._send(data, base, low, min(low + size, len(data)))

    def control(self, flags: int, then: Action) -> None:
        """Sends a segment without data (SYN, FIN, RST or the last ACK), and calls `then` on arrival."""
        options = b"\x02\x04" + self._frames.segment_size.to_bytes(2, "big") if flags & SYN else b""
        ack = self.back.received if flags & ACK else 0
        frame = self._frames.frame(self.sent & _SEQUENCE_MASK, ack & _SEQUENCE_MASK, flags, options=options)
        occupied = bool(flags & (SYN | FIN))
        self.sent += occupied
        self._events.at(self._slot(len(frame)), self._arrive_control, frame, flags, 0 if flags & RST else ack, then)

    def acknowledge(self) -> None:
        """Sends an ACK without data for what the other direction has received."""
        ack = self.back.received
        frame = self._frame(b"", self.sent, ack, ACK)
        self._events.at(self._slot(len(frame)), self._arrive_ack, frame, ack)

    def announce(self, *, is_open: bool) -> None:
        """Announces a window of 0 to the other side, or the ordinary one again."""
        self._frames.shut(is_open=is_open)
        self.acknowledge()

    def end(self) -> None:
        """Ends the direction; the capture has only a part of a packet that has partly passed the tap."""
        if self.held is None:
            if self._undelivered and self.received > self.delivered:
                self._connection.missing()
            return
        for end, seen, _, _ in self._undelivered:
            self.held.packet(self.delivered, end, seen)
            self.delivered = end

    def _frame(self, payload: bytes, position: int, ack: int, flags: int) -> bytes:
        self.back.unacknowledged = 0
        return self._frames.frame(position & _SEQUENCE_MASK, ack & _SEQUENCE_MASK, flags, payload)

    def _slot(self, size: int) -> int:
        """Returns when a frame of this size, sent now, passes the tap: after all frames sent before it."""
        time_ns = max(self._events.now + self._latency_ns, self._line_free_ns)
        self._line_free_ns = time_ns + size * _NS_PER_BYTE
        self.settled_ns = max(self.settled_ns, self._line_free_ns)
        return time_ns

    def _send(self, data: bytes, base: int, low: int, high: int) -> None:
        """Sends a segment of the flushed `data`, which begins at position `base`."""
        ack = self.back.received
        frame = self._frame(data[low:high], base + low, ack, ACK | PSH if high == len(data) else ACK)
        time_ns = self._slot(len(frame))
        fault = self._network.faults.strike() if self.largest is None else None
        arrival = frame, base + low, base + high, ack
        if fault is None:
            self._pass(time_ns, *arrival)
            return
        if fault is not SegmentFault.LOST:
            overtaken_ns = _OVERTAKING_NS * (fault is SegmentFault.OVERTAKEN)
            self._pass(time_ns + overtaken_ns, *arrival)
        if fault is SegmentFault.DUPLICATED:
            self._pass(time_ns + _OVERTAKING_NS, *arrival)
        elif fault is not SegmentFault.OVERTAKEN:
            self.settled_ns = max(self.settled_ns, time_ns + _RETRANSMISSION_NS + _QUIET_NS)
            self._events.at(time_ns + _RETRANSMISSION_NS, self._send_again, data, base, low, high)

    def _send_again(self, data: bytes, base: int, low: int, high: int) -> None:
        """Sends the bytes again, in other segments and with some of the bytes around them."""
        rng, size = self._network.rng, self._frames.segment_size
        start = rng.randint(max(0, low - size), low) // _WORD * _WORD
        while start < high:
            end = min(start + rng.randint(size // 4, size) // _WORD * _WORD, len(data))
            ack = self.back.received
            frame = self._frame(data[start:end], base + start, ack, ACK | PSH)
            self._pass(self._slot(len(frame)), frame, base + start, base + end, ack)
            start = end

    def _pass(self, time_ns: int, frame: bytes, start: int, end: int, ack: int) -> None:
        self.settled_ns = max(self.settled_ns, time_ns)
        self._events.at(time_ns, self._arrive, frame, start, end, ack)

    def _pass_tap(self, frame: bytes, ack: int) -> int | None:
        """Lets a frame of this direction pass the tap; returns the time of its record if it is captured."""
        connection = self._connection
        if connection.is_cut:
            return None
        tap, now = self._network.tap, self._events.now
        self._network.wire.heard_ns[connection.guid_of(self)] = now
        self.back.taken = max(self.back.taken, ack)
        if self.held is None:
            return tap.take(now, frame)
        time_ns = tap.look(now, frame, is_safe=connection.is_opening)
        if time_ns is not None and self.back.held is not None:
            self.back.held.shown(ack)
        return time_ns

    def _arrive_ack(self, frame: bytes, ack: int) -> None:
        self._pass_tap(frame, ack)

    def _arrive(self, frame: bytes, start: int, end: int, ack: int) -> None:
        time_ns = self._pass_tap(frame, ack)
        if self._connection.is_cut:
            return
        held = self.held
        if held is not None and time_ns is not None:
            held.segment(start, end, time_ns)
        if self.largest is not None and self._drop(frame, start, end, time_ns):
            return
        if not start <= self.received < end:
            if start > self.received:
                self.early.append((start, end))
            self.back.acknowledge()  # at once, RFC 5681 4.2
            return
        self.received = end
        filled = bool(self.early)
        if filled:
            for early_start, early_end in sorted(self.early):
                if early_start <= self.received:
                    self.received = max(self.received, early_end)
            self.early = [early for early in self.early if early[0] > self.received]
        self.unacknowledged += 1
        undelivered = self._undelivered
        if undelivered and undelivered[0][0] <= self.received:
            self._connection.spoke(self)
        while undelivered and undelivered[0][0] <= self.received:
            at, seen, deliver, arguments = undelivered.popleft()
            if held is not None:
                held.packet(self.delivered, at, seen)
            elif seen is not None and time_ns is not None:
                seen(time_ns)
            self.delivered = at
            deliver(*arguments)
        if filled or self.unacknowledged >= _ACK_EVERY:
            self.back.acknowledge()
        elif self.unacknowledged and not self._ack_is_due:
            self._ack_is_due = True
            self._events.after(_DELAYED_ACK_NS, self._delayed_ack)

    def _drop(self, frame: bytes, start: int, end: int, time_ns: int | None) -> bool:
        """Drops a segment if it is too large, and keeps all later ones from the receiver; returns whether it did."""
        is_too_large = self.largest is not None and end - start > self.largest
        if self._shown is None and not is_too_large:
            return False
        if self._shown is None:
            wait_ns = 0
            for wait_ms in _RETRANSMISSIONS_MS:
                wait_ns += wait_ms * MILLISECOND
                self._events.after(wait_ns, self._retransmit, frame[start - end :], start)
            self._events.after(wait_ns + _GIVEN_UP_NS, self.given_up)
        if not is_too_large:
            self.back.acknowledge()  # at once, RFC 5681 4.2
        self._shown = max(self._shown or end, end)
        while self._undelivered and self._undelivered[0][0] <= self._shown:
            at, seen, _, arguments = self._undelivered.popleft()
            before, self.delivered = self.delivered, at
            if self.held is not None:
                self.held.packet(before, at, seen)
            elif seen is not None and time_ns is not None:
                seen(time_ns)
            self._connection.spoke(self)
            self.dropped(*arguments)
        return True

    def _retransmit(self, data: bytes, start: int) -> None:
        """Sends a segment again."""
        ack = self.back.received
        frame = self._frame(data, start, ack, ACK | PSH)
        self._pass(self._slot(len(frame)), frame, start, start + len(data), ack)

    def _delayed_ack(self) -> None:
        self._ack_is_due = False
        if self.unacknowledged:
            self.back.acknowledge()

    def _arrive_control(self, frame: bytes, flags: int, ack: int, then: Action) -> None:
        time_ns = self._pass_tap(frame, ack)
        if flags & (SYN | FIN):
            self.received += 1
            self.delivered = self.received
        if flags & FIN and self.held is not None:
            self.held.packet(self.received - 1, self.received, None)
            if time_ns is not None:
                self.held.segment(self.received - 1, self.received, time_ns, is_fin=True)
        then()


class Connection:
    """Simulates a TCP connection, from the host that opens it (`up`) to the one next to the tap (`down`) and back."""

    def __init__(
        self,
        network: Network,
        initiator: Endpoint,
        acceptor: Endpoint,
        positions: tuple[int, int],
        latency_ns: int,
        *,
        is_open: bool = False,
    ) -> None:
        """Starts at these sequence numbers, either closed or open with everything before them sent."""
        self.network = network
        self.initiator = initiator
        self.is_opening = not is_open
        """The connection is being set up, of which an incomplete capture loses nothing."""
        self.is_cut = self.has_ended = False
        """`has_ended`: the wire shows its end."""
        self.between: tuple[UUID, UUID] = NOBODY, NOBODY
        """The queue managers that open it, and that take the messages."""
        self.missing: Action = nothing
        """Called when the capture lacks bytes, or part of a packet, of what `up` carried."""
        self._events = network.events
        self.begins_captured = not is_open and self._events.now >= network.tap.blindness.begins_ns
        """The capture holds the connection's set-up."""
        self.up = Direction(self, FrameBuilder(initiator, acceptor), positions[0], latency_ns)
        self.down = Direction(self, FrameBuilder(acceptor, initiator), positions[1], 0)
        self.up.back, self.down.back = self.down, self.up
        if not network.tap.is_whole:
            self.up.held, self.down.held = (
                Held(self._events, position + 1 if self.begins_captured else None, missing)
                for position, missing in zip(positions, (self._missing, nothing), strict=True)
            )

    def open(self, then: Action) -> None:
        """Shakes hands, and calls `then` when the connection is established."""

        def established() -> None:
            self.up.control(ACK, then)

        def answer() -> None:
            self.down.control(SYN | ACK, established)

        self.up.control(SYN, answer)

    def close(self, then: Action, *, reset: bool = False, by_acceptor: bool = False) -> None:
        """Finishes when all that was sent has arrived, then calls `then`; nothing may be written any more."""
        first, second = (self.down, self.up) if by_acceptor else (self.up, self.down)

        def ended() -> None:
            self.has_ended = True
            then()

        def closed() -> None:
            first.control(ACK, ended)

        def answer() -> None:
            second.control(FIN | ACK, closed)

        def finish() -> None:
            if self._quiet_ns() > self._events.now:
                self._events.at(self._quiet_ns(), finish)
            elif reset:
                first.control(RST | ACK, ended)
            else:
                first.control(FIN | ACK, answer)

        finish()

    def cut(self, then: Action) -> None:
        """Drops everything under way and calls `then`; missing bytes are filled first, nothing may be written later."""
        if self.up.early or self.down.early:
            self._events.after(MILLISECOND, self.cut, then)
            return
        self.is_cut = True
        self.up.end()
        self.down.end()
        then()

    def is_taken(self, position: int) -> bool:
        """Returns whether the wire shows that TCP acknowledged what `up` carried up to a position."""
        return self.up.taken >= position

    def guid_of(self, direction: Direction) -> UUID:
        """Returns the queue manager that a direction comes from."""
        return self.between[direction is self.down]

    def spoke(self, direction: Direction) -> None:
        """Notes that a packet of a direction passed."""
        pair = self.between if direction is self.up else self.between[::-1]
        self.network.wire.spoke_ns[pair] = self._events.now

    def _missing(self) -> None:
        self.missing()

    def _quiet_ns(self) -> int:
        return max(self.up.settled_ns, self.down.settled_ns) + _QUIET_NS
