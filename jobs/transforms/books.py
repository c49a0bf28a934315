"""Checks the conservation laws: the input of each step equals its output, quarantine included."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.transforms.expressions import null
from schemas.ingest import BOOKS, Law, Stage


def balance_records(captures: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Returns BOOKS rows: records read = MSMQ segments + other traffic + quarantined records, per capture."""
    rejected = (
        quarantine.where(F.col("stage") == Stage.FRAME.value).groupBy("capture_id").agg(F.count("*").alias("rejected"))
    )
    accounted = F.col("segment_count") + F.col("other_count") + F.coalesce("rejected", F.lit(0))
    return captures.join(rejected, "capture_id", "left").select(
        *_law(Law.RECORDS, "capture_id"), *_sides(F.col("packet_count"), accounted)
    )


def balance_bytes(streams: DataFrame, packets: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Returns BOOKS rows: bytes recovered = bytes in packets + bytes quarantined by framing, per stream."""
    framing = quarantine.where(F.col("stage") == Stage.FRAMING.value)
    parts = packets.select("stream_id", F.col("size").alias("bytes")).unionByName(
        framing.select("stream_id", F.col("length").alias("bytes"))
    )
    sums = parts.groupBy("stream_id").agg(F.sum("bytes").alias("accounted"))
    recovered = streams.select("stream_id", F.col("recovered_bytes"))
    # A stream on only one side is unbalanced too, hence the outer join.
    return recovered.join(sums, "stream_id", "full").select(
        *_law(Law.BYTES, "stream_id"),
        *_sides(F.coalesce("recovered_bytes", F.lit(0)), F.coalesce("accounted", F.lit(0))),
    )


def balance_packets(packets: DataFrame, decoded: list[DataFrame], quarantine: DataFrame) -> DataFrame:
    """Returns BOOKS rows: packets = rows of the decoded tables + packets quarantined by decode, per stream."""
    undecodable = quarantine.where(F.col("stage") == Stage.DECODE.value)
    ends = [rows.select("stream_id") for rows in (*decoded, undecodable)]
    accounted = reduce(DataFrame.unionAll, ends).groupBy("stream_id").agg(F.count("*").alias("accounted"))
    framed = packets.groupBy("stream_id").agg(F.count("*").alias("framed"))
    return framed.join(accounted, "stream_id", "full").select(
        *_law(Law.PACKETS, "stream_id"),
        *_sides(F.coalesce("framed", F.lit(0)), F.coalesce("accounted", F.lit(0))),
    )


def balance_arrivals(verdicts: DataFrame, outcomes: DataFrame, sequences: DataFrame) -> DataFrame:
    """Returns BOOKS rows: verdicts = arrivals of the messages in `outcomes` and of delivered messages, per scope."""
    parts = outcomes.select("scope_key", F.col("arrivals").alias("n")).unionByName(
        sequences.select("scope_key", F.col("delivered_arrivals").alias("n"))
    )
    accounted = parts.groupBy("scope_key").agg(F.sum("n").alias("accounted"))
    judged = verdicts.groupBy("scope_key").agg(F.count("*").alias("judged"))
    return judged.join(accounted, "scope_key", "full").select(
        *_law(Law.ARRIVALS, "scope_key"),
        *_sides(F.coalesce("judged", F.lit(0)), F.coalesce("accounted", F.lit(0))),
    )


def balance_slots(outcomes: DataFrame, sequences: DataFrame) -> DataFrame:
    """Returns BOOKS rows: slots up to the state = slots seen + numbers of outcomes without a message, per scope."""
    key = ["scope_key", "tx_sequence_id"]
    unseen = outcomes.where(F.col("message_id").isNull()).select(*key, "tx_sequence_number", "numbers")
    number, due = F.col("tx_sequence_number"), F.col("first_due")
    within = (number >= due) & (number < due + F.col("slots"))
    return (
        sequences.where(due.isNotNull())
        .select(*key, "first_due", "slots", "slots_seen")
        .join(unseen, key, "left")
        .groupBy("scope_key", "slots", "slots_seen")
        .agg(F.sum(F.when(within, F.col("numbers")).otherwise(0)).alias("unseen"))
        .select(
            *_law(Law.SLOTS, "scope_key"),
            *_sides(F.col("slots"), F.col("slots_seen") + F.col("unseen")),
        )
    )


def _law(law: Law, key: str) -> list[Column]:
    """Returns the key columns of BOOKS: the law, and `key`; the others are null."""
    return [
        F.lit(law.value).alias("law"),
        *(F.col(name) if name == key else null("string").alias(name) for name in BOOKS.key[1:]),
    ]


def _sides(left: Column, right: Column) -> list[Column]:
    return [left.alias("left_side"), right.alias("right_side"), (left == right).alias("balanced")]
