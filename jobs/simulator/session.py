"""Simulates a protocol session on a TCP connection: set-up, window, SessionAcks ([MS-MQQB] 3.1.1.4, 3.1.1.6.1)."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from jobs.simulator import build
from jobs.simulator.branches import FirstTry
from jobs.simulator.capture import Seen
from jobs.simulator.events import MILLISECOND, SECOND, Action, Events, nothing
from jobs.simulator.network import Connection, Direction
from jobs.simulator.packets import BASE_FLAGS, Message
from udfs.network.dissect import ACK, RST, SYN

_WINDOW = 64  # unacknowledged messages, [MS-MQQB] 3.1.3.2
_ACK_FLAGS = 32  # recoverable messages that one SessionHeader can acknowledge
_RECOVERABLE_ACK_NS = 500 * MILLISECOND
_ACK_TIMEOUT_NS = 20 * SECOND
_HAS_SESSION_HEADER = 0x10
_NEVER_NS = 1 << 63
_SYN_S = 0, 3, 9  # after the first attempt
_OTHER_VERSION = b"\x11"  # the first byte of a BaseHeader; it is 0x10, [MS-MQMQ] 2.2.19.1


class Side:
    """Keeps one queue manager's counts on a session, and sends its SessionAcks ([MS-MQQB] 3.1.1.4, 3.1.6.4)."""

    peer: "Side"

    def __init__(self, session: "Session", direction: Direction) -> None:
        """Counts from 0, as every TCP connection does; `direction` leads to the peer."""
        self.direction = direction
        self.session = session
        self._events = session.events
        self._sent = self._sent_recoverable = 0
        self._received = self._received_recoverable = 0
        self._acknowledged = 0  # packets of this side that the peer has acknowledged
        self._answered_recoverable = 0  # recoverable packets of the peer that this side has acknowledged
        self._ack_since = self._ack_due = 0  # ns; 0 when there is nothing to acknowledge
        self._silent_until_ns = self._first_held_ns = 0

    @property
    def unacknowledged(self) -> int:
        """Returns the number of UserMessage-shaped packets that the peer has not acknowledged."""
        return self._sent - self._acknowledged

    def post(
        self, packet: bytearray, deliver: Action, *arguments: Any, recoverable: bool, seen: Seen | None = None
    ) -> None:
        """Sends a UserMessage-shaped packet; it gets a SessionHeader once 75 % of the ack timer have passed."""
        self._sent += 1
        self._sent_recoverable += recoverable
        acknowledged = None
        is_silent = self._events.now < self._silent_until_ns
        if (
            self._ack_due
            and not is_silent
            and 4 * (self._events.now - self._ack_since) > 3 * (self._ack_due - self._ack_since)
        ):
            packet[BASE_FLAGS] |= _HAS_SESSION_HEADER
            packet += bytes(build.session_header(**self._counts()))
            acknowledged = self._received
        self.direction.write(packet, self.peer.take, acknowledged, recoverable, deliver, arguments, seen=seen)

    def take(self, acknowledged: int | None, recoverable: bool, deliver: Action, arguments: tuple[Any, ...]) -> None:
        """Counts a packet from the peer, and delivers it."""
        if acknowledged is not None:
            self.acknowledged_up_to(acknowledged)
        self._received += 1
        self._first_held_ns = self._first_held_ns or self._events.now
        unanswered = self._received_recoverable - self._answered_recoverable
        self._received_recoverable += recoverable
        if not self._ack_due:
            self._start_timer(_RECOVERABLE_ACK_NS if recoverable else _ACK_TIMEOUT_NS // 2)
        elif recoverable and not unanswered:
            self._start_timer(_RECOVERABLE_ACK_NS)
        if unanswered + recoverable == _ACK_FLAGS:
            self._send_ack()
        deliver(*arguments)

    def acknowledged_up_to(self, count: int) -> None:
        """Notes how many packets the peer has received."""
        self._acknowledged = count
        self.session.pump()

    def hold(self, duration_ns: int, held: Callable[[int], None]) -> None:
        """Sends no SessionAck for a while; then calls `held` with the time since the first packet, if still open."""
        self._silent_until_ns, self._first_held_ns = self._events.now + duration_ns, 0
        self._events.at(self._silent_until_ns, self._release, held)

    def mute(self) -> None:
        """Sends no SessionAck any more."""
        self._silent_until_ns = _NEVER_NS

    def _release(self, held: Callable[[int], None]) -> None:
        if self.session.open and self._first_held_ns:
            held(self._events.now - self._first_held_ns)
            self._send_ack()

    def _start_timer(self, delay_ns: int) -> None:
        self._ack_since, self._ack_due = self._events.now, self._events.now + delay_ns
        self._events.at(self._ack_due, self._ack_timer, self._ack_due)

    def _ack_timer(self, due: int) -> None:
        if due == self._ack_due:
            self._send_ack()

    def _send_ack(self) -> None:
        if self.session.open and self._events.now >= self._silent_until_ns:
            packet = build.session_ack(**self._counts())
            self.direction.write(packet, self.peer.acknowledged_up_to, self._received)
            self.direction.flush()

    def _counts(self) -> dict[str, int]:
        """Returns the fields of a SessionHeader, [MS-MQMQ] 2.2.20.4, and stops the ack timer."""
        unanswered = self._received_recoverable - self._answered_recoverable
        counts = {
            "ack_sequence_number": self._received,
            "recoverable_msg_ack_seq_number": self._answered_recoverable + 1 if unanswered else 0,
            "user_msg_sequence_number": self._sent,
            "recoverable_msg_seq_number": self._sent_recoverable,
        }
        self._answered_recoverable = self._received_recoverable
        self._ack_due = 0
        flags = {"recoverable_msg_ack_flags": (1 << min(unanswered, _ACK_FLAGS)) - 1}
        return {name: count & 0xFFFF for name, count in counts.items()} | flags


class Session:
    """Simulates a session between a queue manager and the next one, which takes its messages."""

    def __init__(self, connection: Connection, take: Action, *, hops: int, is_final: bool) -> None:
        """Starts closed; `hops`: routing servers before it, `is_final`: the next queue manager is the destination."""
        self.events: Events = connection.network.events
        self.open = self._is_shut = False
        self.connection = connection
        self.near, self.far = Side(self, connection.up), Side(self, connection.down)
        self.near.peer, self.far.peer = self.far, self.near
        self._take = take
        self._hops, self._is_final = hops, is_final
        self._backlog: deque[tuple[Message, int]] = deque()
        self._under_way: deque[tuple[Message, int]] = deque()

    @property
    def initiator(self) -> str:
        """Returns the sender's address as the receiver sees it."""
        return str(self.connection.initiator.address)

    def establish(self, client: UUID, server: UUID, booted_ns: int, then: Action, *, is_direct: bool) -> None:
        """Connects, exchanges EstablishConnection and ConnectionParameters, and calls `then`."""
        named = build.NULL if is_direct else server
        time_stamp_ms = (self.events.now - booted_ns) // MILLISECOND & 0xFFFFFFFF
        packets = (
            (self.near, build.establish_connection(client, named, time_stamp_ms=time_stamp_ms)),
            (self.far, build.establish_connection(client, server, time_stamp_ms=time_stamp_ms)),
            (self.near, build.connection_parameters()),
            (self.far, build.connection_parameters()),
        )
        self._exchange(packets, partial(self.begin, then))

    def fail(self, how: FirstTry, client: UUID, server: UUID) -> None:
        """Fails to connect."""
        up, down = self.connection.up, self.connection.down
        if how is FirstTry.NO_ANSWER:
            up.control(SYN, nothing)
        elif how is FirstTry.RESET:
            down.sent = 0  # RFC 9293 3.5.2
            up.control(SYN, partial(down.control, RST | ACK, nothing))
        else:
            answer = build.establish_connection(client, server, refused=how is FirstTry.REFUSED)
            if how is FirstTry.OTHER_VERSION:
                answer = _OTHER_VERSION + answer[len(_OTHER_VERSION) :]
            packets = (self.near, build.establish_connection(client, server)), (self.far, answer)
            self._exchange(packets * (how is not FirstTry.SILENT), partial(self.connection.close, nothing))

    def call(self) -> None:
        """Sends the same SYN several times, without an answer."""
        up, isn = self.connection.up, self.connection.up.sent

        def syn() -> None:
            up.sent = isn
            up.control(SYN, nothing)

        for wait_s in _SYN_S:
            self.events.after(wait_s * SECOND, syn)

    def _exchange(self, packets: Sequence[tuple[Side, bytes]], then: Action) -> None:
        """Connects, sends these packets, each when the one before it has arrived, and calls `then`."""
        left = iter(packets)

        def step() -> None:
            side, packet = next(left, (None, b""))
            if side is None:
                then()
            else:
                side.direction.write(packet, step)
                side.direction.flush()

        self.connection.open(step)

    def begin(self, then: Action) -> None:
        """Opens the session, whether or not the capture saw its set-up, and calls `then`."""
        self.open = True
        self.connection.is_opening = False
        then(self)

    def close(self, then: Action, *, reset: bool = False, by_acceptor: bool = False) -> None:
        """Stops sending; calls `then` when all that was sent has arrived and the connection is closed."""
        self.open = False
        self.connection.close(then, reset=reset, by_acceptor=by_acceptor)

    def cut(self, then: Action) -> None:
        """Drops the connection with everything under way, and calls `then`."""
        self.open = False
        self.connection.cut(then)

    def send(self, message: Message, previous: int) -> None:
        """Queues a message, which the next `pump` sends if the window allows it."""
        self._backlog.append((message, previous))

    def shut(self, duration_ns: int, opened: Action) -> None:
        """Lets the peer's TCP announce a window of 0 for a while; then calls `opened`, if the session is still open."""
        self._is_shut = True
        self.connection.down.announce(is_open=False)
        self.events.after(duration_ns, self._end_shut, opened)

    def _end_shut(self, opened: Action) -> None:
        self._is_shut = False
        if self.open:
            opened()
            self.connection.down.announce(is_open=True)
            self.pump()

    def has_room_for(self, count: int) -> bool:
        """Returns whether the window allows so many more messages."""
        return self.near.unacknowledged + count <= _WINDOW

    def left(self) -> list[tuple[Message, int]]:
        """Returns the messages that the peer has not acknowledged, then those not yet sent."""
        return [*self._under_way, *self._backlog]

    def pump(self) -> None:
        """Sends as many queued messages as the window allows."""
        near, backlog, under_way = self.near, self._backlog, self._under_way
        while len(under_way) > near.unacknowledged:
            under_way.popleft()
        if not self.open or self._is_shut:
            return
        while backlog and near.unacknowledged < _WINDOW:
            message, previous = backlog.popleft()
            under_way.append((message, previous))
            packet = message.template.packet(message, previous, self._hops)
            seen: Seen | None = None
            if self._is_final and message.number:
                seen = partial(message.stream.judge, message, previous, self.connection)
            near.post(packet, self._take, self, message, previous, recoverable=message.number > 0, seen=seen)
        near.direction.flush()
