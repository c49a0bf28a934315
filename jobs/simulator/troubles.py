"""Simulates senders whose messages are not acknowledged, or no longer, or not read, and the receivers that cause it."""

from functools import partial
from typing import Any

from jobs.simulator.branches import RANDOM_FAULTS, Branch, Fault, Trouble
from jobs.simulator.events import MILLISECOND, SECOND, Action, Faults, nothing
from jobs.simulator.incoming import Incoming
from jobs.simulator.managers import Receiver, Router, Sender
from jobs.simulator.packets import Message, Template
from jobs.simulator.session import Session
from jobs.simulator.stream import Stream
from jobs.simulator.world import Host, Line, Link, World

_RECEIVERS = 10  # number, in its address, of the first receiver that causes trouble
_OTHER_ADDRESSES = {4: "10.20.2.{}", 6: "fd00:20::2:{}"}
_MOST_UNACKNOWLEDGED = 10  # from then on, a sender in trouble commits no transaction
_MOST_TOO_LARGE = 3  # the same, so that TCP's first window takes them all
_LARGEST_SEGMENT = 1_320  # bytes that a tunnel takes
_SMALL_BODY, _LARGE_BODY = 40, 2_000  # bytes; of three messages in one segment, of one message in two
_SURE_RESENDS = 4
_RECONNECT_NS = 5 * SECOND  # [MS-MQQB] 3.1.2.3
_WAIT_NS = 10 * SECOND  # between looks at whether all is acknowledged
_CLOSED_NS = 300 * MILLISECOND  # after the first message: before a SessionAck
_CALLED_NS = 21 * SECOND  # until TCP gives up
_DOWN_NS = 25 * SECOND, 60 * SECOND
_MOST_TAKEN_BACK = 4  # messages


class TroubledStream(Stream):
    """Resends four times, and then as long as other senders are busy."""

    reconnect: Action = nothing
    """Called with a session that is closed, or whose window has no room for the resend."""
    arrived: Action = nothing
    """Called with the session of each message that arrived."""

    def arrive(self, session: Session, message: Message, previous: int) -> None:
        """Hands a message to its receiver."""
        super().arrive(session, message, previous)
        self.arrived(session)

    def _wait(self, delay_ns: int, action: Action, *arguments: Any) -> None:
        wait = self._events.after if self._resends < _SURE_RESENDS else self._events.while_busy
        wait(delay_ns, action, *arguments)

    def _order_ack_timeout(self, timer: int) -> None:
        session = self.session
        if timer == self._resend_timer and self.unacknowledged and session is not None:
            self._resends += 1
            if session.open and session.has_room_for(len(self.unacknowledged)):
                self.resend(session)
            else:
                self.reconnect(session)


class TroubledSender(Sender):
    """Sends to a receiver of its own until it is in trouble, and then a few messages again and again."""

    _stream_type = TroubledStream

    def __init__(self, world: World, index: int, router: Router, quota: int, branch: Branch, trouble: Trouble) -> None:
        """Creates the receiver, too, and the one that takes its place if it is replaced; `branch` has one queue."""
        rng = world.rng
        receiver, successor = (Receiver(rng, world.events, _RECEIVERS + index) for _ in range(2))
        faults: Faults[Fault] = Faults(rng, 0, RANDOM_FAULTS)
        super().__init__(world, faults, index, receiver, router, quota, branch=branch)
        self._trouble, self._successor = trouble, successor
        self._begins_at_half = trouble in (
            Trouble.REPLACED,
            Trouble.FALLING,
            Trouble.NARROW,
            Trouble.UNREAD,
        )
        self._most_unacknowledged = _MOST_TOO_LARGE if trouble is Trouble.NARROW else _MOST_UNACKNOWLEDGED
        self._is_in_trouble = self._is_restored = False
        self._closing: Session | None = None
        self._may_call_ns = 0
        (stream,) = self.streams
        assert isinstance(stream, TroubledStream)  # noqa: S101 - see _stream_type
        stream.keeps_sequence, stream.reconnect = True, self._reconnect
        self._stream = stream
        if trouble is Trouble.REPLACED:
            self._incoming[successor.guid] = [self._second_incoming()]
        elif trouble is Trouble.CLOSING:
            stream.arrived = self._close_soon
        other = Host(rng, _OTHER_ADDRESSES, index)
        line = Line(receiver.addresses[branch.ip_version], is_direct=False)
        back = Link(world, receiver.guid, other, line, nothing, nothing)
        if trouble is Trouble.ELSEWHERE:
            self._answers = back
        elif trouble is Trouble.FIREWALL:
            other.addresses[branch.ip_version] = self.link.address
        self._back = back

    def _second_incoming(self) -> Incoming:
        truth = self._world.truth
        verdicts = truth.verdicts(self.guid, None, by_queue=True, receiver=self._successor.guid)
        world = self._world
        incoming = Incoming(world.events, world.rng, world.network.wire, self.guid, self._successor, verdicts)
        incoming.fates.is_assumed = True
        truth.fates(verdicts, incoming.fates)
        return incoming

    def start(self) -> None:
        """Connects; is in trouble at once, unless that begins at half of its messages."""
        if not self._begins_at_half:
            self._begin_trouble()
        super().start()

    def _begin_trouble(self) -> None:
        self._is_in_trouble = True
        self._world.truth.is_in(self._trouble, self._stream.incoming.verdicts)

    def _reconnect(self, session: Session) -> None:
        if session.open:
            self.link.close(session, _RECONNECT_NS, reset=True)
        else:
            self.link.connect()

    def _opened(self, session: Session) -> None:
        if self._trouble is Trouble.FIREWALL:
            session.far.mute()
        if self._trouble is Trouble.NARROW:
            up = session.connection.up
            up.largest, up.dropped, up.given_up = _LARGEST_SEGMENT, self._dropped, partial(self._give_up, session)
        if self._is_restored:
            self._stream.incoming.send_order_ack(self._stream, session)
            self._is_restored = False
        super()._opened(session)
        if self.link.far is self._successor and not self._is_in_trouble:
            self._begin_trouble()

    def _send_final_acks(self, session: Session) -> None:
        """Does nothing where no message asks for a FinalAck; the other queue manager has another GUID."""
        if self._trouble is Trouble.UNREAD:
            super()._send_final_acks(session)

    def _work(self, turn: int) -> None:
        session, stream = self.link.session, self._stream
        if turn != self._turn or session is None:
            return
        if self._begins_at_half and self._is_due(1 / 2):
            if stream.is_settled:
                self._begins_at_half = False
                self._change_receiver(session)
            else:
                self._after(_WAIT_NS)
        elif not self._is_in_trouble or (self._quota and len(stream.unacknowledged) < self._most_unacknowledged):
            super()._work(turn)

    def _change_receiver(self, session: Session) -> None:
        """Replaces the receiver, restores it to a state before all that it has acknowledged, or stops its readers."""
        rng, stream = self._world.rng, self._stream
        if self._trouble is Trouble.NARROW:
            self._begin_trouble()
            self._after(0)
            return
        if self._trouble is Trouble.UNREAD:
            stream.incoming.is_read = False
            self._world.truth.is_in(self._trouble, stream.incoming.verdicts)
            self._after(0)
            return
        self.link.cut(session, rng.randint(*_DOWN_NS))
        if self._trouble is Trouble.REPLACED:
            self.link.far = self._successor
        else:
            stream.incoming.restore(stream.number - rng.randint(1, _MOST_TAKEN_BACK))
            stream.begin_sequence()
            self._world.truth.is_in(self._trouble, stream.incoming.verdicts)
            self._is_restored = True

    def _message(self, stream: Stream, template: Template) -> Message:
        message = super()._message(stream, template)
        if self._trouble is Trouble.NARROW:
            message.body = self._world.body(_LARGE_BODY if self._is_in_trouble else _SMALL_BODY)
        return message

    def _dropped(self, *packet: Any) -> None:
        """Notes a message that does not arrive; a SessionAck has other arguments."""
        match packet:
            case _, _, _, (session, message, previous):
                self._stream.incoming.dropped(session, message, previous)

    def _give_up(self, session: Session) -> None:
        if session is self.link.session:
            self.link.close(session, reset=True)

    def _close_soon(self, session: Session) -> None:
        if session is not self._closing:
            self._closing = session
            self._world.events.after(_CLOSED_NS, self._close, session)

    def _close(self, session: Session) -> None:
        self.link.close(session, reset=self._world.rng.random() < 0.5, by_acceptor=True)  # noqa: PLR2004 - one in two

    def _answer(self, packet: bytes, deliver: Action, *arguments: Any, **how: Any) -> None:
        events = self._world.events
        if not self._is_in_trouble:
            super()._answer(packet, deliver, *arguments, **how)
        elif self._trouble is Trouble.ELSEWHERE:
            super()._answer(packet, nothing, recoverable=how["recoverable"])
        elif self._trouble is Trouble.FIREWALL and events.now >= self._may_call_ns:
            self._may_call_ns = events.now + _CALLED_NS
            self._back.call()
