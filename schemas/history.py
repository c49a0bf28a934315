"""Declares `message_history`, one row per message: a view in a catalog, and a statement over a folder of tables.

The statement is schemas/message_history.sql, in the SQL that DuckDB and Polars have in common. Spark orders an
aggregated array in another way; the rest is the same for all.
"""

import re
from collections.abc import Callable
from importlib import resources

from schemas.ingest import CAPTURES, STREAMS
from schemas.messages import STRINGS
from schemas.outcomes import OUTCOMES
from schemas.replay import SEQUENCES, VERDICTS
from schemas.table import BOOL, LONG, STRING, TIMESTAMP, Column, Table

SQL = resources.files("schemas").joinpath("message_history.sql").read_text(encoding="utf-8")
"""The statement for DuckDB and Polars."""
SOURCES = (VERDICTS, OUTCOMES, SEQUENCES, CAPTURES, STREAMS)
"""The tables that it reads."""
_ORDERED = "array_agg(v.verdict ORDER BY v.replay_order)"
_ORDERED_BY_SPARK = "transform(array_sort(array_agg(struct(v.replay_order, v.verdict))), arrival -> arrival.verdict)"
_READS = re.compile(rf"\b(FROM|JOIN) ({'|'.join(table.name for table in SOURCES)})\b")
_UNTOLD = " Null under the literal reading, which does not tell it."


def spark_sql(name: Callable[[Table], str] = lambda table: table.name) -> str:
    """Returns the statement for Spark, with what the tables are called there."""
    names = {table.name: name(table) for table in SOURCES}
    return _READS.sub(lambda found: f"{found[1]} {names[found[2]]}", SQL.replace(_ORDERED, _ORDERED_BY_SPARK))


def _of(table: Table, *names: str, comment: str = "") -> tuple[Column, ...]:
    """Returns columns of a table, as they are or with another comment."""
    columns = {column.name: column for column in table}
    return tuple(
        Column(name, columns[name].type, comment or columns[name].comment, values=columns[name].values)
        for name in names
    )


MESSAGE_HISTORY = Table(
    "message_history",
    "One row per transactional message, delivered ones included, and per run of numbers that were never seen: what "
    "became of it, what the receiver did each time that it arrived, when, and the frames that show it.",
    OUTCOMES.key,
    (
        *_of(OUTCOMES, "session_id", "source_queue_manager", "destination_queue", "tx_sequence", "tx_sequence_number"),
        *_of(OUTCOMES, "numbers", "message_id", "message_key", "label"),
        *_of(VERDICTS, "body_size", "sent_at"),
        *_of(OUTCOMES, "outcome", comment=f"What became of it; delivered where nothing else is to tell.{_UNTOLD}"),
        Column("lost", BOOL, f"Whether it is lost for good; null when the captures do not tell.{_UNTOLD}"),
        *_of(OUTCOMES, "stuck"),
        *_of(OUTCOMES, "explanation", comment="The outcome in one sentence; null for delivered."),
        Column("verdicts", STRINGS, "What the receiver did each time that it arrived, in order; null for none."),
        *_of(OUTCOMES, "arrivals", "refusals", "first_seen_at", "last_seen_at", "accepted_at"),
        Column(
            "acknowledged_at",
            TIMESTAMP,
            "When its receiver acknowledged that arrival or, of a delivered message, another one of it, UTC.",
        ),
        *_of(VERDICTS, "ack_latency_ms", comment="Milliseconds from that arrival to its acknowledgment."),
        *_of(OUTCOMES, "delivered_by", comment="What proves that it was delivered; null for outcome delivered, too."),
        *_of(
            OUTCOMES,
            "final_ack_class",
            comment="MessageClass of the FinalAck that names it; null for none, and for outcome delivered.",
        ),
        Column(
            "first_src_ip",
            STRING,
            "IP address that the first arrival came from; of a copy, as its `copy_of`.",
        ),
        Column("first_uri", STRING, "Capture file that holds the first arrival."),
        Column("first_frame_number", LONG, "Its first frame, as in witness: 1 is the first of the file."),
        Column("first_stream_id", STRING, "Stream of the first arrival, with the offset its key in messages."),
        Column("first_stream_offset", LONG, "Where it begins on that stream."),
        Column("accepted_uri", STRING, "Capture file that holds the arrival that was accepted."),
        Column("accepted_frame_number", LONG, "The first frame of that arrival."),
        *_of(OUTCOMES, "scope_key", "tx_sequence_id", "content_hash"),
    ),
)
