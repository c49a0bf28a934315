"""Tables that `replay` writes: verdicts, sequences, sessions, transactions and findings."""

from dataclasses import replace
from enum import StrEnum

from schemas import wire
from schemas.incidents import INCIDENT_ID
from schemas.messages import COPIED_COLUMNS, STRINGS, TX_SEQUENCE, some_columns
from schemas.outcomes import MESSAGE_KEY, NOT_READ_SINCE, OUTCOME_COUNTS, SCOPE_KEY, SOURCE
from schemas.table import BOOL, DOUBLE, LONG, STRING, TIMESTAMP, U16, U32, U64, Column, Table
from schemas.witness import WITNESS


class Reading(StrEnum):
    """Lists the readings of [MS-MQQB] 3.1.5.8.6: only an accepted message moves the state, or every message does."""

    CONFORMANT = "conformant"
    LITERAL = "literal"


class Scope(StrEnum):
    """Lists what one replayed sequence state may belong to; `auto` takes `session` or `queue` for each sender."""

    AUTO = "auto"
    SESSION = "session"
    QUEUE = "queue"


BOTH_SCOPES = f"{Scope.SESSION} and {Scope.QUEUE}"
"""What a session has of which some senders number by session, and others by queue."""


class Verdict(StrEnum):
    """Lists what a conforming receiver may do with a transactional message, [MS-MQQB] 3.1.5.8.6."""

    IN_ORDER = "in_order"
    NEW_SEQUENCE = "new_sequence"
    GAP_EXPIRED = "gap_expired"
    DUPLICATE = "duplicate"
    OUT_OF_ORDER = "out_of_order"
    UNKNOWN = "unknown"


ACCEPTING = (Verdict.IN_ORDER, Verdict.NEW_SEQUENCE, Verdict.GAP_EXPIRED)
"""The verdicts on messages that the rule accepts."""


class Reason(StrEnum):
    """Why a message is `out_of_order` or `unknown`; clocks also, why it is a `duplicate`."""

    PREDECESSOR_MISSING = "predecessor_missing"
    LATE = "late"
    STALE_SEQUENCE = "stale_sequence"
    NO_PRIOR_STATE = "no_prior_state"
    CAPTURE_GAP = "capture_gap"
    CLOCKS_DIFFER = "clocks_differ"


class Evidence(StrEnum):
    """Lists what the receiver's own acknowledgments say of a verdict."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    NONE = "none"


class FindingKind(StrEnum):
    """Lists the kinds of things that an analyst should look at."""

    DUPLICATES = "duplicates"
    OUT_OF_ORDER = "out_of_order"
    GAP_EXPIRED = "gap_expired"
    STUCK_SEQUENCE = "stuck_sequence"
    CAPTURE_GAP = "capture_gap"
    MISSED_BY_CAPTURE = "missed_by_capture"
    CONTRADICTED = "contradicted"
    REFUSED_FOR_CAUSE = "refused_for_cause"
    DUPLICATES_DIFFER = "duplicates_differ"
    SEQUENCE_REGRESSED = "sequence_regressed"
    UNACKNOWLEDGED = "unacknowledged"
    SLOW_ACKNOWLEDGMENT = "slow_acknowledgment"
    REPEATED_ORDER_ACK = "repeated_order_ack"
    RESEND_SCHEDULE = "resend_schedule"
    EXPIRED_ON_ARRIVAL = "expired_on_arrival"
    TWO_ADDRESSES = "two_addresses"
    TORN_TRANSACTION = "torn_transaction"
    TRANSACTION_PARTLY_DELIVERED = "transaction_partly_delivered"
    NOT_RECEIVED_BY_APPLICATION = "not_received_by_application"
    CAPTURED_TWICE = "captured_twice"
    CLOCK_STEPPED = "clock_stepped"
    CLOCKS_DIFFER = "clocks_differ"
    CANNOT_CONNECT = "cannot_connect"
    UNANSWERED_PINGS = "unanswered_pings"
    ACKNOWLEDGED_ELSEWHERE = "acknowledged_elsewhere"
    CLOSED_BY_RECEIVER = "closed_by_receiver"
    RECEIVER_REPLACED = "receiver_replaced"
    ACKNOWLEDGMENT_FELL = "acknowledgment_fell"
    NEVER_ANSWERED = "never_answered"
    WINDOW_STALLED = "window_stalled"
    SEVERAL_RECEIVERS = "several_receivers"


class Severity(StrEnum):
    """Lists how soon an analyst should look, the least urgent first."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_STREAM_ID = Column("stream_id", STRING, "One direction of one TCP connection.", nullable=False)
_SESSION_ID = Column("session_id", STRING, "Sending and receiving queue manager: GUIDs or addresses.", nullable=False)
_SENDER = Column("sender", STRING, "Sending queue manager: GUID, or address.", nullable=False)
_RECEIVER = Column("receiver", STRING, "Receiving queue manager: GUID, or address.", nullable=False)
_FIRST_AT = Column("first_captured_at", TIMESTAMP, "Time of the first message, UTC.")
_LAST_AT = Column("last_captured_at", TIMESTAMP, "Time of the last message, UTC.")
VERDICT_COUNTS = tuple(
    Column(verdict.value, LONG, f"Arrivals with the verdict {verdict.value}.", nullable=False) for verdict in Verdict
)

ENDS = Table(
    "stream_ends",
    "One row per stream: the queue managers that talk on it.",
    ("stream_id",),
    (
        _STREAM_ID,
        Column("connection_id", STRING, "The TCP connection.", nullable=False),
        _SESSION_ID,
        _SENDER,
        _RECEIVER,
        Column("sender_guid", STRING, "GUID of the sender; null when no handshake names it."),
        Column("receiver_guid", STRING, "GUID of the receiver; null when no handshake names it."),
        Column("receiver_by_address", STRING, "If that is null: the only GUID that handshakes give to its address."),
        Column("address", STRING, "IP address of the sender.", nullable=False),
        Column("mid_stream", BOOL, "The beginning of the connection was not captured.", nullable=False),
        Column("recovered_bytes", LONG, "Bytes that the captures hold.", nullable=False),
        Column("missing_bytes", LONG, "Bytes that no capture holds.", nullable=False),
        Column("copy_of", STRING, "As in `streams`: the stream that counts, where both show the same conversation."),
        Column("first_ns", LONG, "Time of its first segment with data, or of the connection's, in ns since 1970."),
        Column("last_ns", LONG, "Time of its last segment with data, in ns since 1970."),
        Column("receiver_last_ns", LONG, "Time of its receiver's last segment of any kind on the connection, in ns."),
    ),
)

VERDICTS = Table(
    "verdicts",
    "One row per transactional message that arrived at its final destination.",
    ("stream_id", "stream_offset"),
    (
        *COPIED_COLUMNS,
        SOURCE,
        Column("destination_queue", STRING, "Format name of the destination queue."),
        Column("message_id", STRING, r"<source_queue_manager>\<ordinal>, as MSMQ prints it.", nullable=False),
        replace(MESSAGE_KEY, nullable=False),
        Column("label", STRING, "The message's label."),
        *some_columns(wire.MESSAGE_PROPERTIES_HEADER, "correlation_id"),
        Column("body_size", U32, "Bytes of the body."),
        Column("sent_at", TIMESTAMP, "SentTime, by the sender's clock, UTC."),
        Column("tx_sequence_id", U64, "TxSequenceID, unsigned.", nullable=False),
        TX_SEQUENCE,
        Column("tx_sequence_number", U32, "TxSequenceNumber.", nullable=False),
        Column("previous_tx_sequence_number", U32, "PreviousTxSequenceNumber.", nullable=False),
        Column("tx_first", BOOL, "FM: first message of its transaction."),
        Column("tx_last", BOOL, "LM: last message of its transaction."),
        Column("tx_transaction_id", U32, "Transaction ID, 20 bits that the sender uses again."),
        _SESSION_ID,
        SCOPE_KEY,
        Column("replay_order", LONG, "1, 2, … in the order the scope's receiver saw them.", nullable=False),
        Column("incoming_tx_sequence_id", U64, "IncomingTxSequenceID before it; null when unknown."),
        Column("incoming_tx_sequence_number", U32, "IncomingTxSequenceNumber before it; null when unknown."),
        Column("accepted", BOOL, "Whether the rule accepts it; null when the captures cannot show it."),
        Column("verdict", STRING, "What the receiver did.", nullable=False, values=tuple(Verdict)),
        Column("reason", STRING, "Why, for out_of_order and unknown.", values=tuple(Reason)),
        Column("gap_size", LONG, "Numbers directly before it that expired; 0 for none.", nullable=False),
        Column("reject_count", LONG, "TxMessageRejectCount after it.", nullable=False),
        Column("acknowledged_at", TIMESTAMP, "Time of the OrderAck that first covers it, or of its FinalAck, UTC."),
        Column("ack_latency_ms", DOUBLE, "Milliseconds from the message to that acknowledgment."),
        Column("evidence", STRING, "What acknowledgments say of the verdict.", nullable=False, values=tuple(Evidence)),
        Column("final_ack_class", U16, "MessageClass of the last FinalAck for it; null for none."),
        Column(
            "denied_at",
            TIMESTAMP,
            "Time of that FinalAck if it says that the message never reached its queue or left it unread, UTC.",
        ),
        Column(
            "final_ack_requested",
            BOOL,
            "Its sender asks for a FinalAck when it is read: FA, or journaling at the source (JN, JP).",
            nullable=False,
        ),
        Column("covered_at", TIMESTAMP, "Time of the first OrderAck from it on with its number or a higher one, UTC."),
        Column("assumed", BOOL, "The state before it rests on an unconfirmed unknown arrival.", nullable=False),
        Column(
            "missing_runs",
            LONG,
            "What may hide messages of the scope before it: runs of missing or unreadable bytes, messages with an "
            "unknown receiver, and those whose place is in doubt because the clocks of two captures differ.",
            nullable=False,
        ),
        Column(
            "behind_gap",
            BOOL,
            "Such a run lies between what set the state before it and this message, or clocks put its order in doubt.",
            nullable=False,
        ),
        Column(
            "content_hash",
            LONG,
            "Hash of what a resend repeats: message ID, SentTime, body and others.",
            nullable=False,
        ),
    ),
    clustered_by=("session_id", "captured_at"),
    statistics=(
        *("captured_ns", "capture_id", "source_queue_manager", "destination_queue", "scope_key"),
        *("tx_sequence_id", "tx_sequence_number", "verdict"),
    ),
)

_ACCEPTED_ARRIVALS = Column(
    "accepted_arrivals", LONG, f"Arrivals that the rule accepts: {', '.join(ACCEPTING)} together.", nullable=False
)

SEQUENCES = Table(
    "sequences",
    "One row per scope and TxSequenceID.",
    ("scope_key", "tx_sequence_id"),
    (
        SCOPE_KEY,
        Column("tx_sequence_id", U64, "TxSequenceID, unsigned.", nullable=False),
        replace(TX_SEQUENCE, nullable=False),
        SOURCE,
        Column("messages", LONG, "Messages that arrived, resends included.", nullable=False),
        *VERDICT_COUNTS,
        _ACCEPTED_ARRIVALS,
        *OUTCOME_COUNTS,
        NOT_READ_SINCE,
        Column("delivered_arrivals", LONG, "Arrivals of delivered messages; null under the literal reading."),
        Column("first_number_due", LONG, "First number that its scope had to see; null where its state is elsewhere."),
        Column("numbers_due", LONG, "How many there are from first_number_due up to the state; null as that one."),
        Column("numbers_seen", LONG, "Those of them that a message was seen with; null as that one."),
        Column("expired", LONG, "Numbers that their sender skipped, as a known state shows.", nullable=False),
        Column("first_number", U32, "Lowest TxSequenceNumber seen.", nullable=False),
        Column("last_number", U32, "Highest TxSequenceNumber seen.", nullable=False),
        Column("last_accepted_number", U32, "Highest TxSequenceNumber accepted; null for none."),
        INCIDENT_ID,
        _FIRST_AT,
        _LAST_AT,
    ),
)

SESSIONS = Table(
    "sessions",
    "One row per pair of queue managers and direction that carried messages.",
    ("session_id",),
    (
        _SESSION_ID,
        _SENDER,
        _RECEIVER,
        Column(
            "replay_scope",
            STRING,
            "What a state belonged to, which may depend on the original sender.",
            nullable=False,
            values=(Scope.SESSION, Scope.QUEUE, BOTH_SCOPES),
        ),
        Column("connections", LONG, "TCP connections.", nullable=False),
        Column("encrypted", LONG, "Messages whose body is encrypted; it is not looked into.", nullable=False),
        Column("messages", LONG, "Arrivals of messages, resends included.", nullable=False),
        Column("transactional_messages", LONG, "Transactional ones among them.", nullable=False),
        Column("passing_through", LONG, "Transactional ones for other queue managers, not judged.", nullable=False),
        Column("receiver_unknown", LONG, "Transactional ones that may be passing through, not judged.", nullable=False),
        *VERDICT_COUNTS,
        _ACCEPTED_ARRIVALS,
        *OUTCOME_COUNTS,
        NOT_READ_SINCE,
        Column("source_queue_managers", STRINGS, "GUIDs of the original senders of judged messages.", nullable=False),
        Column("destination_queues", STRINGS, "Format names of the queues of judged messages.", nullable=False),
        Column("missing_bytes", LONG, "Bytes of its streams that no capture holds.", nullable=False),
        Column(
            "byte_coverage",
            DOUBLE,
            "Share of its streams' bytes, from the first captured one on, that became packets; null without bytes.",
        ),
        Column("mid_stream_connections", LONG, "Connections whose beginning no capture holds.", nullable=False),
        _FIRST_AT,
        _LAST_AT,
    ),
)

TRANSACTIONS = Table(
    "transactions",
    "One row per transaction of a sender: the messages from FM to LM under one ID, in the order of their numbers.",
    ("source_queue_manager", "tx_transaction_id", "instance"),
    (
        SOURCE,
        Column("tx_transaction_id", U32, "Transaction ID, 20 bits.", nullable=False),
        Column("instance", LONG, "1, 2, … for the k-th transaction seen under the ID.", nullable=False),
        Column("messages", LONG, "Messages, resends not counted.", nullable=False),
        Column("accepted_messages", LONG, "Those that were accepted.", nullable=False),
        Column("lost_messages", LONG, "Those that will never be accepted.", nullable=False),
        Column("pending", LONG, "Those that the receiver refused and may still accept.", nullable=False),
        Column("partly_delivered", BOOL, "Some were delivered, others are lost or pending.", nullable=False),
        Column("torn", BOOL, "Its first or its last message was not seen.", nullable=False),
        Column("torn_by_sender", BOOL, "Torn because a message was not sent; null when the captures do not tell."),
        Column("first_message_id", STRING, "Its first message.", nullable=False),
        replace(MESSAGE_KEY, comment="The message_key of its first message.", nullable=False),
        _SESSION_ID,
        SCOPE_KEY,
        Column("destination_queue", STRING, "Queue of its first message."),
        Column("tx_sequence_id", U64, "TxSequenceID of its first message, unsigned.", nullable=False),
        replace(TX_SEQUENCE, nullable=False),
        Column(
            "witness_keys",
            STRINGS,
            "Its first and last message as stream_id@stream_offset, and, where it is torn by its sender, the message "
            "that shows it.",
            nullable=False,
        ),
        _FIRST_AT,
        _LAST_AT,
    ),
)

FINDINGS = Table(
    "findings",
    "One row per thing an analyst should look at: per kind, severity, session, scope, queue and sequence, as far as it "
    "has one; of negative acknowledgments also per class.",
    ("kind", "severity", "session_id", "scope_key", "destination_queue", "tx_sequence_id", "found_at"),
    (
        Column("kind", STRING, "What was found.", nullable=False, values=tuple(FindingKind)),
        Column("severity", STRING, "How soon to look.", nullable=False, values=tuple(Severity)),
        Column("found_at", TIMESTAMP, "Time of the first message concerned, UTC."),
        replace(_SESSION_ID, nullable=True),
        replace(SCOPE_KEY, nullable=True),
        Column("destination_queue", STRING, "Queue of the first message concerned."),
        Column("tx_sequence_id", U64, "TxSequenceID, unsigned."),
        TX_SEQUENCE,
        Column("messages", LONG, "Messages, or what else the kind counts, such as connections.", nullable=False),
        Column("explanation", STRING, "The finding in words.", nullable=False),
        WITNESS,
        Column("incident_id", STRING, "The incident that it is part of; null where it is part of none."),
    ),
)
