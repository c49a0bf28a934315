"""The table `incidents`: one row per story, of one sequence of a scope or of several with one cause."""

from dataclasses import replace
from enum import StrEnum

from schemas.messages import STRINGS, TX_SEQUENCE
from schemas.outcomes import SCOPE_KEY, SOURCE
from schemas.table import BOOL, LONG, STRING, TIMESTAMP, U64, Column, Table, array, row
from schemas.witness import WITNESS


class Cause(StrEnum):
    """Lists what starts an incident, the cause that explains the most first."""

    REFUSED_FOR_CAUSE = "refused_for_cause"
    NUMBER_REUSED = "number_reused"
    SEVERAL_RECEIVERS = "several_receivers"
    SEQUENCE_REGRESSED = "sequence_regressed"
    MESSAGE_MISSING = "message_missing"
    CANNOT_CONNECT = "cannot_connect"
    ACKNOWLEDGED_ELSEWHERE = "acknowledged_elsewhere"
    CLOSED_BY_RECEIVER = "closed_by_receiver"
    RECEIVER_REPLACED = "receiver_replaced"
    ACKNOWLEDGMENT_FELL = "acknowledgment_fell"
    NEVER_ANSWERED = "never_answered"
    CONTRADICTED = "contradicted"
    CAPTURE_INCOMPLETE = "capture_incomplete"
    DELIVERED_TWICE = "delivered_twice"
    NOT_READ = "not_read"
    EXPIRED = "expired"
    TRANSACTION = "transaction"
    ACKNOWLEDGMENT = "acknowledgment"
    RESENT = "resent"
    OTHER = "other"


class IncidentOutcome(StrEnum):
    """Lists how an incident ended, the worst first."""

    LOST = "lost"
    PENDING = "pending"
    UNACKNOWLEDGED = "unacknowledged"
    UNKNOWN = "unknown"
    REPAIRED = "repaired"


WORST_FIRST = ("lost_messages", "stuck_messages", "unacknowledged", "pending", "unknown", "repaired")
"""The columns by which incidents are ranked for people, the most first: the first of them that differs decides."""

SENDER = row(
    address=STRING,
    first_seen_at=TIMESTAMP,
    last_seen_at=TIMESTAMP,
    messages=LONG,
    accepted=LONG,
    lost=LONG,
    suspected=BOOL,
)

INCIDENT_ID = Column("incident_id", STRING, "Incident that the sequence is part of; null where nothing happened to it.")
INCIDENT_OF = row(scope_key=STRING, tx_sequence_id=U64, incident_id=STRING)
"""A sequence that is part of an incident."""

INCIDENTS = Table(
    "incidents",
    "One row per story: what happened to one sequence of a scope, or to several for one cause.",
    ("incident_id",),
    (
        Column("incident_id", STRING, "Hash of scope and first sequence, the same in every run.", nullable=False),
        Column("cause", STRING, "What started it.", nullable=False, values=tuple(Cause)),
        Column("outcome", STRING, "How it ended.", nullable=False, values=tuple(IncidentOutcome)),
        Column("severity", STRING, "How soon to look.", nullable=False, values=("info", "warning", "error")),
        Column("session_id", STRING, "Session of the first message concerned.", nullable=False),
        SCOPE_KEY,
        SOURCE,
        Column("destination_queue", STRING, "Queue of the first message concerned."),
        Column("destination_queues", STRINGS, "All queues concerned, sorted.", nullable=False),
        Column("tx_sequence_id", U64, "TxSequenceID of its first sequence, unsigned.", nullable=False),
        replace(TX_SEQUENCE, nullable=False),
        Column("sequences", LONG, "Sequences that it concerns.", nullable=False),
        Column("began_at", TIMESTAMP, "Time of the first message with that outcome, or else concerned, UTC."),
        Column("ended_at", TIMESTAMP, "Time of the last message concerned, UTC."),
        Column("last_captured_at", TIMESTAMP, "Time of the last message of its sequences, UTC."),
        Column("lost_messages", LONG, "Messages lost.", nullable=False),
        Column("pending", LONG, "Messages pending or awaited.", nullable=False),
        Column("stuck_messages", LONG, "Those of them that were resent and refused again.", nullable=False),
        Column("unacknowledged", LONG, "Messages that their receiver never acknowledged.", nullable=False),
        Column("unknown", LONG, "Messages whose outcome is unknown or contradicted.", nullable=False),
        Column(
            "undecided",
            LONG,
            "Of these, how many were lost, though no clocks that are compared tell which.",
            nullable=False,
        ),
        Column("repaired", LONG, "Messages delivered after a refusal.", nullable=False),
        Column("expired", LONG, "Numbers that the sender skipped, never seen with a message.", nullable=False),
        Column("findings", LONG, "Findings with this incident_id.", nullable=False),
        Column("explanation", STRING, "The incident in one sentence.", nullable=False),
        Column(
            "ongoing",
            BOOL,
            "Whether it is still so at the end of the captures: messages of it wait, or are still sent without an "
            "acknowledgment, or numbers were used twice and no sequence began since that, or since all addresses but "
            "one fell silent. Null if no capture shows its end: nothing was delivered after the last message "
            "in doubt or refused for a cause.",
        ),
        Column(
            "senders",
            array(SENDER),
            "Each address that the original sender used, in order of first_seen_at: when it was seen in all captures, "
            "and its messages in this incident. `suspected`: numbers were used twice, and it came while another sent.",
            nullable=False,
        ),
        Column("receivers", STRINGS, "Addresses that its messages were sent to, sorted.", nullable=False),
        Column("advice", STRING, "What to do about it.", nullable=False),
        Column(
            "go_to",
            STRINGS,
            "Addresses of the machines to go to, in this order; a GUID where no address is known. None if all is "
            "repaired.",
            nullable=False,
        ),
        replace(WITNESS, comment=f"Of its worst message, or of its gravest finding. {WITNESS.comment}"),
    ),
)
