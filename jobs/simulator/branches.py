"""Declares who sends in a simulation, how much, and what may go wrong with a transaction."""

from dataclasses import dataclass, replace
from enum import Enum, auto

from jobs.simulator.events import MILLISECOND, SECOND
from schemas.wire import QueueType


class Fault(Enum):
    """Lists what can go wrong with a transaction."""

    EXPIRED = auto()  # the message before it expires unsent
    LOST = auto()  # its first message is sent only by a resend
    LOST_AND_EXPIRED = auto()  # the same, and it may expire before the resend
    POSTPONED = auto()  # its first message is sent after the others, whose previous numbers skip it
    NOT_ACKNOWLEDGED = auto()  # the receiver loses its OrderAck
    SILENT = auto()  # all OrderAcks are lost for long; the sender sends nothing new
    DISCONNECTED = auto()  # the session breaks before the OrderAck
    CUT = auto()  # the network is cut in the middle of it
    RESTARTED = auto()  # the sender restarts in the middle of it
    RECEIVER_RESTARTED = auto()  # the receiver restarts in the middle of it
    RESTORED = auto()  # the sender is restored from a backup before its last message is sent
    VANISHED = auto()  # its first message is gone for good, and all that follow name it as their predecessor


class FirstTry(Enum):
    """Lists how a sender's first connection can fail."""

    NO_ANSWER = auto()  # its SYN has no answer
    RESET = auto()  # its SYN is answered by a reset
    SILENT = auto()  # it opens, carries nothing, and is closed
    REFUSED = auto()  # the receiver refuses the EstablishConnection
    OTHER_VERSION = auto()  # the receiver answers in another version of the protocol


class Trouble(Enum):
    """Lists what keeps acknowledgments from a sender; each has the cause that truth.json names, if that is one."""

    FIREWALL = auto(), "cannot_connect"  # the receiver and its own connections to the sender are not answered
    NO_QUEUE = auto(), "never_answered"  # the receiver takes packets, but drops the messages
    ELSEWHERE = auto(), "acknowledged_elsewhere"  # it sends acknowledgments to another queue manager
    CLOSING = auto(), "closed_by_receiver"  # it closes each connection right after the messages
    REPLACED = auto(), "receiver_replaced"  # at half, another queue manager without a state answers at its address
    FALLING = auto(), "acknowledgment_fell"  # at half, it is restored, and acknowledges less than before
    NARROW = auto(), "never_answered"  # from half on, its messages are too large for the path, which drops segments
    UNREAD = auto(), None  # from half on, no application reads its queue

    @property
    def cause(self) -> str | None:
        """Returns the cause of its incident; None where there is none."""
        cause: str | None = self.value[1]
        return cause


RANDOM_FAULTS = tuple(fault for fault in Fault if fault is not Fault.VANISHED)
"""Those after which a sender gets on by itself."""


@dataclass(frozen=True, slots=True)
class Habits:
    """Describes how much a sender sends, and when."""

    transaction_sizes: tuple[int, ...] = (1, 1, 1, 2, 3, 5, 8, 20)
    busy_share: float = 0.8
    """Share of pauses that are too short for an OrderAck."""
    idle_share: float = 0.005
    """Share of pauses after which the session has been closed."""
    pause_ns: tuple[int, int] = (600 * MILLISECOND, 3 * SECOND)
    """Shortest and longest of the other pauses."""
    final_ack_share: float = 0.05
    """Share of transactions whose messages ask for a FinalAck."""
    short_lived_share: float = 0.1
    """Share of messages that expire after 25 s."""
    express_share: float = 0.05
    """Share of transactions that a non-transactional message follows."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Describes a sender."""

    queues: tuple[QueueType, ...] = (QueueType.DIRECT,)
    queue_names: tuple[str, ...] = ("orders0", "orders1", "orders2")
    """Names of the direct queues, in order."""
    label: str = ""
    """Begins the label of each message, before a number; empty: the label names the queue manager."""
    habits: Habits = Habits()
    numbered_per_queue: bool = False
    ip_version: int = 4
    behind_nat: bool = False
    is_routed: bool = False
    isn_near_wrap: bool = False
    timestamp: int = 1_704_067_200  # TxSequenceID.TimeStamp, s since 1970
    sequence_ordinal: int = 1  # TxSequenceID.Ordinal
    message_ordinal: int = 1  # MessageID
    sent_before: int = 0
    """TxSequenceNumber of the last message sent before the capture began; 0 if there was no session."""
    order_ack_first: bool = False
    """The capture still holds the OrderAck of what was sent before it began."""
    receiver_at: int | None = None
    """Number that the receiver had accepted last when the capture began, where that is not `sent_before`."""
    is_cloned: bool = False
    """A copy of the queue manager starts, with its identity and state, and goes on by itself."""
    cloned_after: float = 1 / 2
    """Share of its messages that a queue manager sends before it is cloned."""
    copy_sends: float = 1.0
    """Share of the messages that are left that its copy sends as well, before it is silent."""
    is_held: bool = False
    """At half of its messages the receiver sends no SessionAcks for a while."""
    is_shut: bool = False
    """At half of its messages the receiver's TCP announces a window of 0 for a while."""
    first_try: FirstTry | None = None
    """How its first connection fails; the second one works."""
    is_full: bool = False
    """The queue takes no express messages: they are returned."""
    shares_address: bool = False
    """Its receiver is not the only queue manager at its address."""
    is_balanced: bool = False
    """Its connections reach, in turn, two queue managers at one address."""
    is_answered_elsewhere: bool = False
    """Its receiver sends acknowledgments to another address of it, on a connection of their own."""
    is_reverted: bool = False
    """After two thirds it goes back to a snapshot of one third, and uses numbers and MessageIDs again."""
    trouble: Trouble | None = None
    """What keeps acknowledgments from it; it sends few messages, and no fault strikes it."""

    @property
    def shares_numbers(self) -> bool:
        """Returns whether several queues are numbered together."""
        return len(self.queues) > 1 and not self.numbered_per_queue

    @property
    def needs_names(self) -> bool:
        """Returns whether a replay must know the queue managers' names to judge the messages as the truth does."""
        return self.is_routed or self.shares_numbers or self.trouble is not None


_DIRECT, _PRIVATE = QueueType.DIRECT, QueueType.PRIVATE_ON_DESTINATION
BRANCHES = (
    Branch(),
    Branch((_PRIVATE,), isn_near_wrap=True),
    Branch(sent_before=41),
    Branch(ip_version=6),
    Branch((_DIRECT, _DIRECT, _DIRECT), numbered_per_queue=True),
    Branch((_PRIVATE, _PRIVATE)),
    Branch(behind_nat=True),
    Branch(behind_nat=True),
    Branch((_PRIVATE,), sent_before=0xFFFFFFFD, timestamp=0x8000_0000),
    Branch((_PRIVATE,), sent_before=7, order_ack_first=True),
    Branch((_PRIVATE,), timestamp=0xFFF0_0000, sequence_ordinal=0xC000_0000, message_ordinal=0x8000_0000),
    Branch((_PRIVATE,), ip_version=6, behind_nat=True, isn_near_wrap=True, sequence_ordinal=0x7FFF_FFF0),
    Branch((_PRIVATE,), is_routed=True),
    Branch((_PRIVATE, _PRIVATE), numbered_per_queue=True, is_routed=True, ip_version=6),
)
SITUATIONS = (
    Branch((_PRIVATE,), is_cloned=True),
    Branch((_PRIVATE,), is_reverted=True),
    Branch((_PRIVATE,), sent_before=9, receiver_at=5),
    Branch(is_cloned=True, ip_version=6),
    Branch((_PRIVATE,), is_held=True),
    Branch((_PRIVATE,), is_shut=True),
    Branch(first_try=FirstTry.NO_ANSWER),
    Branch(is_full=True, habits=Habits(express_share=0.5)),
    Branch((_PRIVATE,), shares_address=True),
    Branch(shares_address=True),
    Branch(first_try=FirstTry.RESET),
    Branch((_PRIVATE,), first_try=FirstTry.SILENT),
    Branch(first_try=FirstTry.REFUSED, ip_version=6),
    Branch((_PRIVATE,), first_try=FirstTry.OTHER_VERSION),
    Branch(is_balanced=True, habits=Habits((1, 1, 2), busy_share=0.4, idle_share=0.4, final_ack_share=0)),
    Branch((_PRIVATE,), is_answered_elsewhere=True),
)
"""Senders with whom something is wrong for good, or for a while."""
_PLAIN = Habits((1, 1, 2, 3), 1.0, 0.0, final_ack_share=0.0, short_lived_share=0.0, express_share=0.0)
TROUBLES = (
    Branch(trouble=Trouble.FIREWALL, habits=_PLAIN),
    Branch((_PRIVATE,), trouble=Trouble.NO_QUEUE, habits=_PLAIN),
    Branch((_PRIVATE,), trouble=Trouble.ELSEWHERE, habits=_PLAIN),
    Branch(trouble=Trouble.CLOSING, habits=_PLAIN),
    Branch(trouble=Trouble.REPLACED, habits=_PLAIN),
    Branch((_PRIVATE,), trouble=Trouble.FALLING, habits=_PLAIN),
    Branch(trouble=Trouble.NARROW, habits=_PLAIN),
    Branch(trouble=Trouble.UNREAD, habits=replace(_PLAIN, final_ack_share=1.0)),
)
"""Senders whose messages are not acknowledged, or not read, or no longer."""
