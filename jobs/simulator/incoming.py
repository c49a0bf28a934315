"""Simulates the receiver's half of a stream: its state, OrderAcks and FinalAcks, and what became of each message.

[MS-MQQB] 3.1.5.8.6, 3.1.6.9, 3.1.7.2.2, 3.1.7.17. Several senders may share one state: a cloned queue manager keeps the
identity of its original.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol
from uuid import UUID

from jobs.simulator import build
from jobs.simulator.answers import Answers, Arrival, Wire
from jobs.simulator.capture import Seen
from jobs.simulator.events import MILLISECOND, SECOND, Events
from jobs.simulator.fates import Fates
from jobs.simulator.network import Connection
from jobs.simulator.packets import Message, Template
from jobs.simulator.session import Session
from jobs.simulator.truth import Verdicts
from schemas.wire import MessageClass

_ORDER_ACK_NS = 500 * MILLISECOND
_MAXIMUM_ORDER_ACK_DELAY_NS = 10 * SECOND
_FINAL_ACK_REQUIRED = 0x2  # [MS-MQMQ] 2.2.20.5, FA
_READ_NS = 50 * MILLISECOND, 20 * SECOND  # how long a message stays in its queue
_LEFT_UNREAD = (MessageClass.MQMSG_CLASS_ACK_RECEIVE,) * 7 + (MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT,)


class Acknowledger(Protocol):
    """Names the receiving queue manager, and numbers the acknowledgments that it sends."""

    guid: UUID

    def next_ordinal(self) -> int:
        """Returns the MessageID of the next acknowledgment."""


class Acknowledged(Protocol):
    """Gets the acknowledgments of the messages that it sent."""

    templates: Sequence[Template]
    answer: Callable[..., None]
    """Sends a packet of the receiver back along the path of the messages."""
    loses_order_ack: bool
    silent_until_ns: int

    def acknowledged(self, sequence_id: int, number: int) -> None:
        """Takes an OrderAck that arrived."""


class Incoming:
    """Accepts and acknowledges the messages that are numbered together."""

    def __init__(
        self, events: Events, rng: Random, wire: Wire, source: UUID, receiver: Acknowledger, verdicts: Verdicts
    ) -> None:
        """Starts without a state; what passes `wire` tells what it acknowledged."""
        self.verdicts = verdicts
        self.state = 0, 0
        """IncomingTxSequenceID and IncomingTxSequenceNumber."""
        self._shown = 0, 0  # the state that it would have, had everything arrived that passed the tap
        self.is_read = True
        """Applications read the queue."""
        self.fates = Fates(Answers(wire, receiver.guid, source))
        self._events, self._rng = events, rng
        self._wire, self._source, self._receiver = wire, source, receiver
        self._arrived: tuple[Acknowledged, Session] | None = None
        self._order_ack_due = 0  # ns; 0 when none is
        self._order_ack_sent = events.now
        self._unread = 0  # messages in the queue that will get a FinalAck
        self._final_acks: dict[int, tuple[Acknowledged, bytes, Message]] = {}  # not arrived, by MessageID

    @property
    def is_settled(self) -> bool:
        """Returns whether every FinalAck has arrived that will be sent."""
        return not (self._final_acks or (self._unread and self.is_read))

    def arrive(self, stream: Acknowledged, session: Session, message: Message, previous: int) -> None:
        """Accepts or rejects a message, and starts or restarts the OrderAck timer."""
        accepts = _accepts(self.state, message, previous)
        self._record(session, message, previous, accepts=accepts)
        if accepts:
            self.state = message.sequence_id, message.number
            if message.transaction_flags & _FINAL_ACK_REQUIRED:
                self._unread += 1
                self._events.after(self._rng.randint(*_READ_NS), self._leave_queue, message, previous)
        now = self._events.now
        self._arrived = stream, session
        if not self._order_ack_due:
            self._events.after(_ORDER_ACK_NS, self._order_ack_timer)
        if not self._order_ack_due or now - self._order_ack_sent < _MAXIMUM_ORDER_ACK_DELAY_NS:
            self._order_ack_due = now + _ORDER_ACK_NS

    def dropped(self, session: Session, message: Message, previous: int) -> None:
        """Notes a message that passed the tap and did not arrive; a reader of the capture takes it for one that did."""
        accepts = _accepts(max(self.state, self._shown), message, previous)
        if accepts:
            self._shown = message.sequence_id, message.number
        self._record(session, message, previous, accepts=accepts)

    def _record(self, session: Session, message: Message, previous: int, *, accepts: bool) -> None:
        what = message.sequence_id, message.number, previous, message.ordinal, message.content
        if message.transaction_flags & _FINAL_ACK_REQUIRED:
            self.fates.asking.add(message.identity)
        way = session.connection
        when = self._events.now, way, way.up.delivered
        self.fates.arrived(Arrival(*what, accepts, session.initiator, *when))

    def send_order_ack(self, stream: Acknowledged, session: Session) -> None:
        """Acknowledges the sequence up to the incoming number; the last message came from `stream`, on `session`."""
        self._order_ack_sent = self._events.now
        is_direct = stream.templates[0].is_direct
        incoming = self.state
        packet = build.order_ack(
            self._receiver.guid,
            sender=self._source,
            message_id=self._receiver.next_ordinal(),
            sequence_id=incoming[0],
            number=incoming[1],
            direct_name=f"TCP:{session.initiator}\\PRIVATE$\\order_queue$" if is_direct else None,
            sent_time=self._events.now // SECOND,
        )

        def seen_on(connection: Connection) -> Seen:
            return partial(self._acknowledged, incoming, connection, is_direct)

        stream.answer(packet, stream.acknowledged, *incoming, recoverable=False, seen_on=seen_on)

    def _acknowledged(self, state: tuple[int, int], connection: Connection, is_direct: bool, time_ns: int) -> None:
        self.verdicts.acknowledged(state, connection, is_direct, time_ns)
        self._wire.shows_order_ack((self._receiver.guid, self._source), state, self._events.now)

    def restore(self, number: int) -> None:
        """Goes back to the state after this number of the current sequence, all of which has been acknowledged."""
        sequence_id, last = self.state
        self.fates.taken_back |= {(sequence_id, taken) for taken in range(number + 1, last + 1)}
        self.state = sequence_id, number

    def send_final_acks(self) -> None:
        """Sends the FinalAcks that have not arrived."""
        for ordinal in list(self._final_acks):
            self._send_final_ack(ordinal)

    def _order_ack_timer(self) -> None:
        if self._events.now < self._order_ack_due:
            self._events.at(self._order_ack_due, self._order_ack_timer)
            return
        self._order_ack_due = 0
        if self._arrived is None:
            return
        stream, session = self._arrived
        lost = stream.loses_order_ack or self._events.now < stream.silent_until_ns
        stream.loses_order_ack = False
        if session.open and self.state[1] and not lost:
            self.send_order_ack(stream, session)

    def _leave_queue(self, message: Message, previous: int) -> None:
        """Takes a message out of the queue: an application reads it, or its time to be received is over."""
        if not self.is_read:
            return
        assert self._arrived is not None  # noqa: S101 - the message arrived
        stream, session = self._arrived
        self._unread -= 1
        ordinal = self._receiver.next_ordinal()
        message_class = self._rng.choice(_LEFT_UNREAD)
        if message_class != MessageClass.MQMSG_CLASS_ACK_RECEIVE:
            self.fates.unread.add(message.identity)
        packet = build.final_ack(
            self._receiver.guid,
            sender=self._source,
            message_id=ordinal,
            sequence_id=message.sequence_id,
            number=message.number,
            previous=previous,
            acknowledged_message_id=message.ordinal,
            message_class=message_class,
            direct_name=f"TCP:{session.initiator}\\PRIVATE$\\order_queue$" if stream.templates[0].is_direct else None,
            sent_time=self._events.now // SECOND,
        )
        self._final_acks[ordinal] = stream, packet, message
        self._send_final_ack(ordinal)

    def _send_final_ack(self, ordinal: int) -> None:
        stream, packet, message = self._final_acks[ordinal]
        arrived: Callable[..., Any] = self._final_acks.pop

        def seen_on(_: Connection) -> Seen:
            return lambda _: self.fates.answers.final_acked.add(message.identity)

        stream.answer(packet, arrived, ordinal, None, recoverable=True, seen_on=seen_on)


def _accepts(state: tuple[int, int], message: Message, previous: int) -> bool:
    """Returns whether a receiver in a state accepts a message, [MS-MQQB] 3.1.5.8.6."""
    sequence_id, number = state
    if message.sequence_id == sequence_id:
        return previous <= number < message.number
    return message.sequence_id > sequence_id and not previous
