"""The table `outcomes`: what became of each transactional message, and of each run of numbers never seen.

The outcomes stand in the order of the rules: the first whose condition holds is a message's outcome.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from schemas.messages import TX_SEQUENCE
from schemas.table import BOOL, LONG, STRING, TIMESTAMP, U16, U32, U64, Column, Table
from schemas.witness import WITNESS, keyed


class Outcome(StrEnum):
    """Names what became of a message at its final destination."""

    CONTRADICTED = "contradicted"
    REFUSED_FOR_CAUSE = "refused_for_cause"
    DELIVERED_TWICE = "delivered_twice"
    NOT_READ = "not_read"
    UNACKNOWLEDGED = "unacknowledged"
    DELIVERED_AFTER_REFUSAL = "delivered_after_refusal"
    DELIVERED = "delivered"
    DELIVERED_BY_ACKNOWLEDGMENT = "delivered_by_acknowledgment"
    DISPLACED = "displaced"
    DELIVERED_BEFORE_CAPTURE = "delivered_before_capture"
    GIVEN_UP = "given_up"
    PASSED_BY = "passed_by"
    PENDING = "pending"
    UNKNOWN = "unknown"
    EXPIRED_UNSEEN = "expired_unseen"
    NEVER_SEEN = "never_seen"
    AWAITED = "awaited"


class Fate(StrEnum):
    """Names what became of a message in one of six words."""

    DELIVERED = "delivered"
    UNCONFIRMED = "unconfirmed"
    LOST = "lost"
    PENDING = "pending"
    UNKNOWN = "unknown"
    EXPIRED = "expired"


class DeliveredBy(StrEnum):
    """Names the proof that a message was delivered."""

    ACCEPTED = "accepted"
    ORDER_ACK = "order_ack"
    FINAL_ACK = "final_ack"


LOST = (Outcome.DISPLACED, Outcome.GIVEN_UP, Outcome.PASSED_BY, Outcome.NEVER_SEEN, Outcome.REFUSED_FOR_CAUSE)
"""The outcomes that count as lost, in the order of the headline."""
NOT_KNOWN = (Outcome.CONTRADICTED, Outcome.UNKNOWN)
"""The outcomes that say that the captures do not tell."""
LOSS_UNKNOWN = (Outcome.UNACKNOWLEDGED, *NOT_KNOWN)
"""The outcomes of which `lost` is null."""
NOT_ACCEPTED = (*LOST, *NOT_KNOWN)
"""The outcomes of messages that do not count as accepted, although the rule may accept an arrival of theirs."""
DELIVERED = (
    Outcome.DELIVERED,
    Outcome.DELIVERED_AFTER_REFUSAL,
    Outcome.DELIVERED_TWICE,
    Outcome.DELIVERED_BY_ACKNOWLEDGMENT,
    Outcome.DELIVERED_BEFORE_CAPTURE,
)
"""The outcomes of messages that were delivered; of some of these an acknowledgment says so (`confirmed`)."""
READABLE = tuple(outcome for outcome in DELIVERED if outcome is not Outcome.DELIVERED_BEFORE_CAPTURE)
"""The outcomes of messages that lie in their queue until they are read: those of earlier deliveries may be read."""

FATES = {
    Fate.DELIVERED: (*DELIVERED, Outcome.NOT_READ),
    Fate.UNCONFIRMED: (Outcome.UNACKNOWLEDGED,),
    Fate.LOST: LOST,
    Fate.PENDING: (Outcome.PENDING, Outcome.AWAITED),
    Fate.UNKNOWN: NOT_KNOWN,
    Fate.EXPIRED: (Outcome.EXPIRED_UNSEEN,),
}
"""The outcomes of each fate: every outcome has one."""
FATE_OF = {outcome: fate for fate, outcomes in FATES.items() for outcome in outcomes}

MEANING = {
    Outcome.CONTRADICTED: "that the receiver's acknowledgments contradict",
    Outcome.REFUSED_FOR_CAUSE: "that a FinalAck says never reached their queue",
    Outcome.DELIVERED_TWICE: "accepted more than once, over all scopes",
    Outcome.NOT_READ: "that a FinalAck says left their queue unread",
    Outcome.UNACKNOWLEDGED: "accepted by the rule, that their receiver never acknowledged although it should have",
    Outcome.DELIVERED_AFTER_REFUSAL: "accepted after an arrival of theirs was refused as out of order",
    Outcome.DELIVERED: "accepted, with nothing else to tell",
    Outcome.DELIVERED_BY_ACKNOWLEDGMENT: "that only an acknowledgment proves to be delivered",
    Outcome.DISPLACED: "never accepted, because another message has their number",
    Outcome.DELIVERED_BEFORE_CAPTURE: "that came again after a delivery that no capture holds",
    Outcome.GIVEN_UP: "refused, then skipped by their sender",
    Outcome.PASSED_BY: "refused, then overtaken for good by what came later",
    Outcome.PENDING: "refused, above the receiver's state: a predecessor is still missing",
    Outcome.UNKNOWN: "of which the captures do not tell",
    Outcome.EXPIRED_UNSEEN: "never seen, that their sender skipped",
    Outcome.NEVER_SEEN: "sent but never seen, at or below the receiver's state",
    Outcome.AWAITED: "sent but never seen, above the receiver's state",
}


def count_column(outcome: Outcome) -> str:
    """Names the column that counts an outcome; `unknown` counts a verdict already."""
    return "unknown_outcome" if outcome is Outcome.UNKNOWN else outcome.value


_UNTOLD = "; null under the literal reading"
OUTCOME_COUNTS: Sequence[Column] = (
    *(Column(count_column(outcome), LONG, f"Messages {MEANING[outcome]}{_UNTOLD}.") for outcome in Outcome),
    Column("confirmed", LONG, f"Messages that were delivered, as an acknowledgment says, too{_UNTOLD}."),
    Column("lost_messages", LONG, f"Messages that are lost for good: {', '.join(LOST)} together{_UNTOLD}."),
    Column("stuck_messages", LONG, f"Messages that are pending and were refused again{_UNTOLD}."),
    Column(
        "accepted_not_read_messages",
        LONG,
        "Messages that were delivered and whose sender asked for a FinalAck, but none came: accepted, not read yet. "
        "Null where none asked, or where the captures hold no acknowledgment for their sender: not reported.",
    ),
)
NOT_READ_SINCE = Column(
    "accepted_not_read_since", TIMESTAMP, "When the first message of accepted_not_read_messages was accepted, UTC."
)

SCOPE_KEY = Column("scope_key", STRING, "What a state belongs to; its first word is the scope.", nullable=False)
SOURCE = Column("source_queue_manager", STRING, "GUID of the original sender.", nullable=False)

MESSAGE_KEY = Column(
    "message_key",
    STRING,
    "Tells messages apart, also where machines share an identity: the content_hash as text, message ID included.",
)

OUTCOMES = Table(
    "outcomes",
    "One row per transactional message that was not plainly delivered, and per run of numbers that were never seen.",
    ("scope_key", "tx_sequence_id", "tx_sequence_number", "source_queue_manager", "message_id", "content_hash"),
    (
        SCOPE_KEY,
        Column("tx_sequence_id", U64, "TxSequenceID, unsigned.", nullable=False),
        TX_SEQUENCE,
        Column("tx_sequence_number", U32, "TxSequenceNumber; the first one of a run of numbers.", nullable=False),
        SOURCE,
        Column("message_id", STRING, r"<source_queue_manager>\<ordinal>; null for a number never seen."),
        replace(MESSAGE_KEY, comment=f"{MESSAGE_KEY.comment} Null for a number never seen."),
        Column("content_hash", LONG, "Hash of the content, as in verdicts; null for a number never seen."),
        Column("numbers", LONG, "How many numbers it stands for, from tx_sequence_number on.", nullable=False),
        Column("session_id", STRING, "Session of its first arrival, or of the message that shows it.", nullable=False),
        Column("destination_queue", STRING, "Format name of the destination queue, of the same message."),
        Column("label", STRING, "The message's label; null for a number never seen."),
        Column("outcome", STRING, "What became of it.", nullable=False, values=tuple(Outcome)),
        Column("lost", BOOL, "Whether it is lost for good; false while pending or awaited, null when unknown."),
        Column("stuck", BOOL, "Pending, and the same message was refused again.", nullable=False),
        Column(
            "contenders",
            LONG,
            "If it is unknown because nothing compares the clocks of captures: how many messages have its number, of "
            "which the receiver accepted one at most.",
        ),
        Column("arrivals", LONG, "Times that it arrived, as in verdicts.", nullable=False),
        Column("refusals", LONG, "Times that it was refused, as a duplicate or out of order.", nullable=False),
        Column("sent_at", TIMESTAMP, "SentTime, by its sender's clock, UTC; null for a number never seen."),
        Column("first_seen_at", TIMESTAMP, "Time of the first arrival, UTC; null for a number never seen."),
        Column("last_seen_at", TIMESTAMP, "Time of the last arrival, UTC; null for a number never seen."),
        Column("accepted_at", TIMESTAMP, "Time of the arrival that was accepted, UTC; null for none."),
        Column(
            "decided_at",
            TIMESTAMP,
            "When the captures show that this became of it, UTC: when the accepted arrival came; if it was "
            "acknowledged, or without that sent for the last time, later than timers allow, that time; when an "
            "acknowledgment came, if only that proves or denies its delivery; when what passed, displaced or skipped "
            "it came, or, if that is later, its own first arrival. Null while nothing decides: pending, awaited, "
            "unacknowledged, contradicted or unknown.",
        ),
        Column(
            "acknowledged_at", TIMESTAMP, "When its receiver acknowledged the accepted arrival, or one not judged, UTC."
        ),
        Column(
            "next_resend_at",
            TIMESTAMP,
            "If it is unacknowledged and its sender still sends it: when the next resend is due at the latest, UTC.",
        ),
        Column("delivered_by", STRING, "What proves its delivery; null when nothing does.", values=tuple(DeliveredBy)),
        Column("final_ack_class", U16, "MessageClass of the FinalAck that names it; null for none."),
        Column("final_ack_requested", BOOL, "As in verdicts, of any arrival; null for a number never seen."),
        replace(WITNESS, comment=f"Its first arrival, the one that decided, and what passed it. {WITNESS.comment}"),
        Column("explanation", STRING, "The outcome in one sentence.", nullable=False),
    ),
)
EXPLAINED = keyed(OUTCOMES)
"""A row of OUTCOMES, or one of a delivered message that came more than once, before frames are looked up."""
