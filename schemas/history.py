"""Declares `message_history`, one row per message: what most questions are asked of."""

from dataclasses import replace

from schemas.incidents import INCIDENT_ID
from schemas.messages import STRINGS
from schemas.outcomes import FATES, MESSAGE_KEY, OUTCOMES, Fate
from schemas.replay import VERDICTS
from schemas.table import BOOL, LONG, STRING, TIMESTAMP, Column, Table

_UNTOLD = " Null under the literal reading, which does not tell it."
_OUTCOMES_OF = ", ".join(f"{fate} ({', '.join(outcomes)})" for fate, outcomes in FATES.items())


def _of(table: Table, *names: str, comment: str = "") -> tuple[Column, ...]:
    """Returns columns of a table as they are, or with another comment; then they may be null."""
    columns = (column for name in names for column in table if column.name == name)
    return tuple(replace(column, comment=comment, nullable=True) if comment else column for column in columns)


MESSAGE_HISTORY = Table(
    "message_history",
    "One row per transactional message and receiver, delivered ones included, and per run of numbers not seen there: "
    "what became of it, what the receiver did each time that it arrived, when, and the frames that show it.",
    OUTCOMES.key,
    (
        replace(MESSAGE_KEY, comment=f"{MESSAGE_KEY.comment} Null for a number never seen."),
        Column(
            "fate",
            STRING,
            f"What became of it in one word, with the outcomes that it stands for: {_OUTCOMES_OF}. A message that was "
            "not_read reached its queue and left it unread; one that was refused_for_cause never reached it; one that "
            "is awaited was sent, as a later one says, and not seen yet; of one that is contradicted, the receiver "
            f"says otherwise than its rule.{_UNTOLD}",
            values=tuple(Fate),
        ),
        *_of(
            OUTCOMES,
            "outcome",
            comment=f"What became of it in detail; delivered where nothing else is to tell.{_UNTOLD}",
        ),
        *_of(OUTCOMES, "label", "destination_queue", "source_queue_manager"),
        Column("first_src_ip", STRING, "IP address that the first arrival came from; of a copy, as its `copy_of`."),
        Column("receiver", STRING, "Receiving queue manager: GUID, or address."),
        Column("first_dst_ip", STRING, "IP address that the first arrival went to; of a copy, as its `copy_of`."),
        *_of(OUTCOMES, "first_seen_at"),
        *_of(
            OUTCOMES,
            "decided_at",
            comment="When the captures show that this became of it, as in outcomes, UTC; of a delivered message, when "
            "the accepted arrival came; if it was acknowledged, or without that sent for the last time, later than "
            "timers allow, that time. Null for the fates pending, unconfirmed and unknown. What was in flight at a "
            "time T: first_seen_at <= T AND (decided_at > T OR fate IN ('pending', 'unconfirmed')). Null under the "
            "literal reading.",
        ),
        Column(
            "acknowledged_at",
            TIMESTAMP,
            "When its receiver acknowledged the accepted arrival or, of a delivered message, another one of it, UTC.",
        ),
        *_of(VERDICTS, "ack_latency_ms", comment="Milliseconds from that arrival to its acknowledgment."),
        *_of(OUTCOMES, "arrivals", "refusals"),
        *_of(VERDICTS, "correlation_id", "body_size", "tx_transaction_id"),
        *_of(OUTCOMES, "tx_sequence", "tx_sequence_number", "numbers"),
        INCIDENT_ID,
        Column("first_uri", STRING, "Capture file that holds the first arrival."),
        Column("first_frame_number", LONG, "Its first frame, as in witness: 1 is the first of the file."),
        Column("lost", BOOL, f"Whether it is lost for good; null when the captures do not tell.{_UNTOLD}"),
        *_of(OUTCOMES, "stuck", comment=f"Pending, and the same message was refused again.{_UNTOLD}"),
        *_of(OUTCOMES, "explanation", comment="The outcome in one sentence; null for delivered."),
        Column("verdicts", STRINGS, "What the receiver did each time that it arrived, in order; null for none."),
        *_of(VERDICTS, "sent_at"),
        *_of(OUTCOMES, "last_seen_at", "accepted_at"),
        *_of(OUTCOMES, "delivered_by", comment="What proves that it was delivered; null for outcome delivered, too."),
        *_of(
            OUTCOMES,
            "final_ack_class",
            comment="MessageClass of the FinalAck that names it; null for none, and for outcome delivered.",
        ),
        Column("accepted_uri", STRING, "Capture file that holds the arrival that was accepted."),
        Column("accepted_frame_number", LONG, "The first frame of that arrival."),
        Column("first_stream_id", STRING, "Stream of the first arrival, with the offset its key in messages."),
        Column("first_stream_offset", LONG, "Where it begins on that stream."),
        *_of(OUTCOMES, "session_id", "message_id", "scope_key", "tx_sequence_id", "content_hash"),
    ),
    clustered_by=("first_seen_at", "message_key"),
    statistics=(
        *("fate", "label", "destination_queue", "first_src_ip", "decided_at", "last_seen_at"),
        *("correlation_id", "incident_id"),
    ),
)
