"""The rows of VERDICTS: messages, each with what the passes found of its run."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import columns_of, timestamp, tx_sequence, unsigned
from jobs.transforms.replay.timeline import with_stream_number
from schemas.replay import VERDICTS, Reason
from udfs.replay.evidence import BLOCK_BITS

CONTENT = (
    "message_id",
    "sent_at",
    "tx_transaction_id",
    "tx_first",
    "tx_last",
    "message_class",
    "label",
    "body_size",
    "body_type",
    "body_crc32",
    "application_tag",
    "extension_size",
    "correlation_id",
)
"""Columns that a resend repeats ([MS-MQQB] 3.1.7.1.3); its previous number and hop count may change."""
_MS = 1_000_000  # ns


def with_end_of_doubt(proven: DataFrame) -> DataFrame:
    """Adds `doubt_ended_ns` to rows of PROVEN where the state before them rests on an `unknown` message.

    It is the time when an OrderAck covered that message, or the assumed state that the previous warehouse left
    (`initially_until`); null for none.
    """
    unknown = proven.where(F.col("accepted").isNull()).select(
        "scope_no", F.col("replay_order").alias("doubt_order"), F.col("covered_ns").alias("cleared_ns")
    )
    ended = F.when(F.col("doubt_order").isNull(), F.col("initially_until")).otherwise(F.col("cleared_ns"))
    return proven.join(unknown, ["scope_no", "doubt_order"], "left").withColumn("doubt_ended_ns", ended)


def verdict_rows(proven: DataFrame, messages: DataFrame, streams: DataFrame) -> DataFrame:
    """Returns rows of VERDICTS: MESSAGES, each with what its row of PROVEN says."""
    arrived = with_stream_number(messages, streams).withColumn("content_hash", F.xxhash64(*CONTENT))
    nth = F.col("tx_sequence_number") - F.col("first_number")
    found = proven.withColumn("tx_sequence", tx_sequence(unsigned(F.col("sequence")))).drop("sequence")
    values = {
        "replay_order": F.col("replay_order") + nth,
        "incoming_tx_sequence_id": unsigned(F.col("state_sequence")),
        "incoming_tx_sequence_number": F.col("state_number") + nth,
        "acknowledged_at": timestamp(F.col("acknowledged_ns")),
        "ack_latency_ms": (F.col("acknowledged_ns") - F.col("captured_ns")) / _MS,
        "covered_at": timestamp(F.col("covered_ns")),
        "final_ack_latency_ms": (F.col("final_ns") - F.col("captured_ns")) / _MS,
        "assumed": F.col("in_doubt") & ~F.coalesce(F.col("doubt_ended_ns") < F.col("captured_ns"), F.lit(False)),
    }
    return (
        arrived.withColumn("block", F.shiftright("stream_offset", BLOCK_BITS))
        .join(found, ["scope_no", "stream_no", "block"])
        .where(F.col("stream_offset").between(F.col("first_offset"), F.col("last_offset")))
        .withColumns(values)
        .select(columns_of(VERDICTS))
    )


def with_disputes(verdicts: DataFrame, disputed: DataFrame) -> DataFrame:
    """Returns VERDICTS in which the `disputed` messages that cannot be judged say that clocks are why."""
    key = ["stream_id", "stream_offset"]
    in_doubt = disputed.select(*key, F.lit(True).alias("in_doubt"))
    is_gap = F.col("reason") == Reason.CAPTURE_GAP.value
    reason = F.when(is_gap & F.col("in_doubt"), Reason.CLOCKS_DIFFER.value).otherwise(F.col("reason"))
    return verdicts.join(F.broadcast(in_doubt), key, "left").withColumn("reason", reason).select(*verdicts.columns)
