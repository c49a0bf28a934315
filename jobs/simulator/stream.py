"""Simulates the sender's half of a stream: its table of messages that no OrderAck has covered, and the resends.

[MS-MQQB] 3.1.1.5, 3.1.5.6, 3.1.6.5.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jobs.simulator.answers import RESEND_S
from jobs.simulator.capture import Seen
from jobs.simulator.events import SECOND, Action, Events, nothing
from jobs.simulator.incoming import Incoming
from jobs.simulator.network import Connection
from jobs.simulator.packets import Message, Template
from jobs.simulator.session import Session, Side


class Stream:
    """Sends, accepts and acknowledges the messages that are numbered together."""

    def __init__(
        self,
        events: Events,
        incoming: Incoming,
        templates: Sequence[Template],
        next_sequence_id: Callable[[], int],
        answer: Callable[..., None],
    ) -> None:
        """Begins an empty sequence; `answer` sends a packet of the receiver to the sender."""
        self.templates = templates
        self.incoming = incoming
        self.judge = incoming.verdicts.judge
        self.answer = answer
        self.session: Session | None = None
        """The sender's last session."""
        self.unacknowledged: deque[Message] = deque()
        self.left_behind: list[Message] = []
        """Messages of a sequence from before a restore, which are sent after the first message of the new one."""
        self.sequence_id = next_sequence_id()
        self.number = self.last_sent = self.vanished = 0
        """`vanished` is the number of a message that is gone, though all later ones depend on it."""
        self.loses_order_ack = False
        self.take_express: Action = nothing
        self.keeps_sequence = False
        """No new sequence begins when nothing is left to be acknowledged."""
        self.silent_until_ns = 0
        """Time until which the receiver's OrderAcks are lost."""
        self._events = events
        self._next_sequence_id = next_sequence_id
        self._resends = 0
        self._resend_timer = 0

    @property
    def is_settled(self) -> bool:
        """Returns whether the sender waits for no acknowledgment."""
        return not self.unacknowledged and self.incoming.is_settled

    def go_on_from(self, number: int, accepted: int) -> None:
        """Continues after this number, of which everything up to `accepted` has been accepted."""
        self.number = self.last_sent = number
        self.incoming.state = self.sequence_id, accepted
        self.incoming.fates.begins_captured = False

    def begin_sequence(self) -> None:
        """Numbers from 1 under the next TxSequenceID."""
        self.sequence_id = self._next_sequence_id()
        self.number = self.last_sent = self.vanished = 0

    def restore(self) -> None:
        """Forgets the table, as a queue manager restored from a backup does; what was sent turns up later."""
        self.left_behind += self.unacknowledged
        self.unacknowledged.clear()
        self.begin_sequence()

    def expect_order_ack(self) -> None:
        """Starts the timer after which everything unacknowledged is resent."""
        self._resend_timer += 1
        interval = RESEND_S[min(self._resends, len(RESEND_S) - 1)] * SECOND
        self._wait(interval, self._order_ack_timeout, self._resend_timer)

    def _wait(self, delay_ns: int, action: Action, *arguments: Any) -> None:
        self._events.after(delay_ns, action, *arguments)

    def resend(self, session: Session) -> None:
        """Resends what is unacknowledged and has not expired; each message names the one before it in the table."""
        now_s = self._events.now // SECOND
        self.unacknowledged = deque(message for message in self.unacknowledged if not message.has_expired(now_s))
        previous = 0
        for message in self.unacknowledged:
            if previous < self.vanished < message.number:
                previous = self.vanished
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

    def acknowledged(self, sequence_id: int, number: int) -> None:
        """Drops what an OrderAck covers; when nothing is left, a new sequence begins."""
        if sequence_id != self.sequence_id or not self.unacknowledged or self.unacknowledged[0].number > number:
            return
        while self.unacknowledged and self.unacknowledged[0].number <= number:
            self.unacknowledged.popleft()
        self._resends = 0
        if self.unacknowledged:
            self.expect_order_ack()
        elif not self.keeps_sequence:
            self.begin_sequence()

    def arrive(self, session: Session, message: Message, previous: int) -> None:
        """Hands a message to its receiver."""
        if message.number:
            self.incoming.arrive(self, session, message, previous)
        else:
            self.take_express(message)


def post_back(
    sides: Sequence[Side | None],
    packet: bytes,
    deliver: Action,
    *arguments: Any,
    recoverable: bool,
    seen_on: Callable[[Connection], Seen] | None = None,
) -> None:
    """Sends a packet on from one of these sides of sessions to the next; a closed session loses it."""
    if not sides:
        deliver(*arguments)
        return
    side, *others = sides
    if side is not None and side.session.open:
        seen = None if seen_on is None else seen_on(side.session.connection)
        go_on = partial(post_back, others, packet, deliver, *arguments, recoverable=recoverable, seen_on=seen_on)
        side.post(bytearray(packet), go_on, recoverable=recoverable, seen=seen)
        side.direction.flush()
