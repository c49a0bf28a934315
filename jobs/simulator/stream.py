"""Simulates one stream of transactional messages: the sender's table, the receiver's state, the acknowledgments.

Sender: [MS-MQQB] 3.1.1.5, 3.1.5.6, 3.1.6.5. Receiver: 3.1.5.8.6, 3.1.6.9, 3.1.7.2.2, 3.1.7.17.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol
from uuid import UUID

from jobs.simulator import build
from jobs.simulator.capture import Seen
from jobs.simulator.events import MILLISECOND, SECOND, Action, Events
from jobs.simulator.network import Connection
from jobs.simulator.packets import Message, Template
from jobs.simulator.session import Session
from jobs.simulator.truth import Verdicts
from schemas.wire import MessageClass

_ORDER_ACK_NS = 500 * MILLISECOND
_MAXIMUM_ORDER_ACK_DELAY_NS = 10 * SECOND
_RESEND_S = (30, 30, 30, 300, 300, 300, 1_800, 1_800, 1_800, 21_600)  # [MS-MQQB] 3.1.3.1; the last one repeats
_FINAL_ACK_REQUIRED = 0x2  # [MS-MQMQ] 2.2.20.5, FA
_READ_NS = 50 * MILLISECOND, 20 * SECOND  # how long a message stays in its queue
_LEFT_UNREAD = (MessageClass.MQMSG_CLASS_ACK_RECEIVE,) * 7 + (MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT,)
Answer = Callable[..., None]


class Acknowledger(Protocol):
    """Names the receiving queue manager, and numbers the acknowledgments that it sends."""

    guid: UUID

    def next_ordinal(self) -> int:
        """Returns the MessageID of the next acknowledgment."""


class Stream:
    """Sends, accepts and acknowledges the messages that are numbered together."""

    def __init__(
        self,
        events: Events,
        rng: Random,
        source: UUID,
        receiver: Acknowledger,
        templates: Sequence[Template],
        verdicts: Verdicts,
        next_sequence_id: Callable[[], int],
        answer: Answer,
    ) -> None:
        """Begins an empty sequence; `answer` sends a packet of the receiver to the sender."""
        self.templates = templates
        self.verdicts = verdicts
        self.judge = verdicts.judge
        self.session: Session | None = None
        """The sender's last session."""
        self.unacknowledged: deque[Message] = deque()
        self.left_behind: list[Message] = []
        """Messages of a sequence from before a restore, which are sent after the first message of the new one."""
        self.sequence_id = next_sequence_id()
        self.number = self.last_sent = 0
        self.loses_order_ack = False
        self.silent_until_ns = 0
        """Time until which the receiver's OrderAcks are lost."""
        self._events, self._rng = events, rng
        self._source, self._receiver = source, receiver
        self._next_sequence_id, self._answer = next_sequence_id, answer
        self._resends = 0
        self._resend_timer = 0
        self._incoming = 0, 0  # IncomingTxSequenceID and IncomingTxSequenceNumber
        self._arrived_on: Session | None = None
        self._order_ack_due = 0  # ns; 0 when none is
        self._order_ack_sent = events.now
        self._unread = 0  # messages in the queue that will get a FinalAck
        self._final_acks: dict[int, bytes] = {}  # those that have not arrived, by MessageID

    @property
    def is_settled(self) -> bool:
        """Returns whether the sender waits for no acknowledgment."""
        return not (self.unacknowledged or self._unread or self._final_acks)

    # --- the sender's half ---

    def go_on_from(self, number: int) -> None:
        """Continues after this number, as if everything up to it had been sent and accepted."""
        self.number = self.last_sent = number
        self._incoming = self.sequence_id, number

    def begin_sequence(self) -> None:
        """Numbers from 1 under the next TxSequenceID."""
        self.sequence_id = self._next_sequence_id()
        self.number = self.last_sent = 0

    def restore(self) -> None:
        """Forgets the table, as a queue manager restored from a backup does; what was sent turns up later."""
        self.left_behind += self.unacknowledged
        self.unacknowledged.clear()
        self.begin_sequence()

    def expect_order_ack(self) -> None:
        """Starts the timer after which everything unacknowledged is resent."""
        self._resend_timer += 1
        interval = _RESEND_S[min(self._resends, len(_RESEND_S) - 1)] * SECOND
        self._events.after(interval, self._order_ack_timeout, self._resend_timer)

    def resend(self, session: Session) -> None:
        """Resends what is unacknowledged and has not expired; each message names the one before it in the table."""
        now_s = self._events.now // SECOND
        self.unacknowledged = deque(message for message in self.unacknowledged if not message.has_expired(now_s))
        previous = 0
        for message in self.unacknowledged:
            session.send(message, previous)
            previous = message.number
        if self.unacknowledged:
            self.expect_order_ack()
        session.pump()

    def _order_ack_timeout(self, timer: int) -> None:
        session = self.session
        if timer == self._resend_timer and self.unacknowledged and session is not None and session.open:
            self._resends += 1
            self.resend(session)

    def _acknowledged(self, sequence_id: int, number: int) -> None:
        """Drops what an OrderAck covers; when nothing is left, a new sequence begins."""
        if sequence_id != self.sequence_id or not self.unacknowledged or self.unacknowledged[0].number > number:
            return
        while self.unacknowledged and self.unacknowledged[0].number <= number:
            self.unacknowledged.popleft()
        self._resends = 0
        if self.unacknowledged:
            self.expect_order_ack()
        else:
            self.begin_sequence()

    # --- the receiver's half ---

    def arrive(self, session: Session, message: Message, previous: int) -> None:
        """Accepts or rejects a message at the receiver, and starts or restarts the OrderAck timer."""
        if not message.number:
            return
        sequence_id, number = self._incoming
        same = message.sequence_id == sequence_id
        if (same and previous <= number < message.number) or (message.sequence_id > sequence_id and previous == 0):
            self._incoming = message.sequence_id, message.number
            if message.transaction_flags & _FINAL_ACK_REQUIRED:
                self._unread += 1
                self._events.after(self._rng.randint(*_READ_NS), self._leave_queue, message, previous)
        now = self._events.now
        self._arrived_on = session
        if not self._order_ack_due:
            self._events.after(_ORDER_ACK_NS, self._order_ack_timer)
        if not self._order_ack_due or now - self._order_ack_sent < _MAXIMUM_ORDER_ACK_DELAY_NS:
            self._order_ack_due = now + _ORDER_ACK_NS

    def send_order_ack(self, session: Session) -> None:
        """Acknowledges the sequence up to the incoming number; `session` is the one that the messages came on."""
        self._order_ack_sent = self._events.now
        is_direct = self.templates[0].is_direct
        packet = build.order_ack(
            self._receiver.guid,
            sender=self._source,
            message_id=self._receiver.next_ordinal(),
            sequence_id=self._incoming[0],
            number=self._incoming[1],
            direct_name=f"TCP:{session.initiator}\\PRIVATE$\\order_queue$" if is_direct else None,
            sent_time=self._events.now // SECOND,
        )

        def seen_on(connection: Connection) -> Seen:
            return partial(self.verdicts.acknowledged, incoming, connection, is_direct)

        incoming = self._incoming
        self._answer(packet, self._acknowledged, *incoming, recoverable=False, seen_on=seen_on)

    def send_final_acks(self) -> None:
        """Sends the FinalAcks that have not arrived."""
        for ordinal in list(self._final_acks):
            self._send_final_ack(ordinal)

    def _order_ack_timer(self) -> None:
        if self._events.now < self._order_ack_due:
            self._events.at(self._order_ack_due, self._order_ack_timer)
            return
        self._order_ack_due = 0
        lost = self.loses_order_ack or self._events.now < self.silent_until_ns
        self.loses_order_ack = False
        if self._arrived_on is not None and self._arrived_on.open and self._incoming[1] and not lost:
            self.send_order_ack(self._arrived_on)

    def _leave_queue(self, message: Message, previous: int) -> None:
        """Takes a message out of the queue: an application reads it, or its time to be received is over."""
        self._unread -= 1
        ordinal = self._receiver.next_ordinal()
        is_direct = self.templates[0].is_direct
        address = self._arrived_on.initiator if self._arrived_on is not None else ""
        self._final_acks[ordinal] = build.final_ack(
            self._receiver.guid,
            sender=self._source,
            message_id=ordinal,
            sequence_id=message.sequence_id,
            number=message.number,
            previous=previous,
            acknowledged_message_id=message.ordinal,
            message_class=self._rng.choice(_LEFT_UNREAD),
            direct_name=f"TCP:{address}\\PRIVATE$\\order_queue$" if is_direct else None,
            sent_time=self._events.now // SECOND,
        )
        self._send_final_ack(ordinal)

    def _send_final_ack(self, ordinal: int) -> None:
        self._answer(self._final_acks[ordinal], self._final_acks.pop, ordinal, None, recoverable=True)


def post_back(
    sessions: Sequence[Session | None],
    packet: bytes,
    deliver: Action,
    *arguments: Any,
    recoverable: bool,
    seen_on: Callable[[Connection], Seen] | None = None,
) -> None:
    """Sends a packet against the direction of these sessions, one after the other; a closed one loses it."""
    if not sessions:
        deliver(*arguments)
        return
    session, *others = sessions
    if session is not None and session.open:
        seen = None if seen_on is None else seen_on(session.connection)
        go_on = partial(post_back, others, packet, deliver, *arguments, recoverable=recoverable, seen_on=seen_on)
        session.far.post(bytearray(packet), go_on, recoverable=recoverable, seen=seen)
        session.far.direction.flush()
