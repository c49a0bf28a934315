"""Counts what acknowledgments show."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import row_key, timestamp, unsigned
from jobs.transforms.replay.acknowledgments import select_order_acks
from schemas.replay import Verdict
from schemas.wire import NEGATIVE_CLASS
from udfs.replay.words import NS as _NS

_REPEATED_TIMES, _REPEATED_S = 3, 60  # over two of the shortest resend intervals


def repeated_order_acks(acks: DataFrame, verdicts: DataFrame, sequences: DataFrame) -> DataFrame:
    """Returns rows of RepeatedOrderAck. `acks` are those of `acknowledgments.pair_acks`."""
    pair = ("receiver", "source_queue_manager", "sequence")
    figures = ("number", "messages", "first_ns", "last_ns", "first_key", "last_key")
    repeated = (
        select_order_acks(acks)
        .groupBy(*pair, "number")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.min("ns").alias("first_ns"),
            F.max("ns").alias("last_ns"),
            F.min_by("key", F.struct("ns", "key")).alias("first_key"),
            F.max_by("key", F.struct("ns", "key")).alias("last_key"),
        )
        .groupBy(*pair)
        .agg(F.max(F.struct(*figures)).alias("highest"))
        .select("*", "highest.*", unsigned(F.col("sequence")).alias("tx_sequence_id"))
        .where((F.col("messages") >= _REPEATED_TIMES) & (F.col("last_ns") - F.col("first_ns") >= _REPEATED_S * _NS))
    )
    last = sequences.groupBy("scope_key").agg(F.max("tx_sequence_id").alias("last_sequence"))
    refused = (
        (F.col("verdict") == Verdict.OUT_OF_ORDER.value)
        & (F.col("tx_sequence_number") > F.col("number"))
        & F.col("captured_ns").between(F.col("first_ns"), F.col("last_ns"))
    )
    return (
        verdicts.withColumn("receiver", F.substring_index("session_id", "->", -1))
        .join(F.broadcast(repeated), ["receiver", "source_queue_manager", "tx_sequence_id"])
        .groupBy("source_queue_manager", "tx_sequence_id", "scope_key", "session_id", *figures)
        .agg(F.min("destination_queue").alias("destination_queue"), F.count_if(refused).alias("refused"))
        .join(last, "scope_key")
        .where("tx_sequence_id = last_sequence")
        .withColumn("found_at", timestamp(F.col("first_ns")))
        .withColumn("seconds", (F.col("last_ns") - F.col("first_ns")) / _NS)
    )


def negative_acks(messages: DataFrame, ends: DataFrame) -> DataFrame:
    """Returns the administration messages that are negative acknowledgments."""
    return (
        messages.where(F.col("message_class").bitwiseAND(NEGATIVE_CLASS) != 0)
        .join(ends.select("stream_id", "session_id"), "stream_id")
        .select(
            "correlation_id",
            "message_class",
            "session_id",
            F.struct("captured_ns", "captured_at", row_key().alias("key")).alias("ack"),
        )
    )


def returned_messages(messages: DataFrame, negative: DataFrame, ends: DataFrame) -> DataFrame:
    """Returns rows of Returned. `negative` are `negative_acks`.

    CorrelationID names the message, transactional or not ([MS-MQMQ] 2.2.18.1.6). Session and queue are those of the
    message where a capture holds it, else the session is that of the acknowledgment.
    """
    limits = ("time_to_be_received", "time_to_reach_queue")
    named = (
        messages.join(negative.select(F.col("correlation_id").alias("message_id")), "message_id", "left_semi")
        .join(ends.select("stream_id", "session_id"), "stream_id")
        .groupBy(F.col("message_id").alias("correlation_id"))
        .agg(
            F.min(
                F.struct(
                    *("captured_ns", row_key().alias("key"), "session_id", "destination_queue", "transactional"),
                    *limits,
                )
            ).alias("about"),
        )
    )
    return (
        negative.join(named, "correlation_id", "left")
        .groupBy(
            "message_class",
            F.coalesce("about.session_id", "session_id").alias("session_id"),
            F.col("about.destination_queue").alias("destination_queue"),
        )
        .agg(
            F.count_distinct("correlation_id").alias("messages"),
            F.count_distinct(F.when(F.col("about.transactional"), F.col("correlation_id"))).alias("transactional"),
            F.min(F.struct("ack.captured_ns", "ack.captured_at", "ack.key", "about", "correlation_id")).alias("first"),
        )
        .select(
            "*",
            F.col("first.captured_at").alias("found_at"),
            "first.key",
            F.col("first.correlation_id").alias("message_id"),
            ((F.col("first.captured_ns") - F.col("first.about.captured_ns")) / _NS).alias("seconds"),
            F.col("first.about.key").alias("about_key"),
            *(f"first.about.{name}" for name in limits),
        )
    )
