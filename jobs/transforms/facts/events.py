"""Puts together what incidents are made of."""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from udfs.replay.incidents import Event, OutcomeCount, SenderSpan, SequenceSpan

_SEQUENCE = ("scope_key", "tx_sequence_id")


def events(findings: DataFrame, outcomes: DataFrame, sequences: DataFrame, senders: DataFrame) -> DataFrame:
    """Returns rows of Event of these rows of FOUND, OUTCOMES with keys of witnesses, SEQUENCES and `sender_spans`."""
    parts = (
        sequences.select(*_SEQUENCE, F.struct(*SequenceSpan._fields).alias("span")),
        outcome_counts(outcomes).select(*_SEQUENCE, F.struct(*OutcomeCount._fields).alias("outcome")),
        findings.select(*_SEQUENCE, F.struct(*findings.columns).alias("finding")),
        senders.select(*_SEQUENCE, F.struct(*SenderSpan._fields).alias("sender")),
    )
    rows = reduce(lambda above, below: above.unionByName(below, allowMissingColumns=True), parts)
    return rows.select(*Event._fields)


def outcome_counts(outcomes: DataFrame) -> DataFrame:
    """Returns rows of OutcomeCount per sequence; there may be ten million messages of one outcome in one sequence."""
    ended_at = F.coalesce("accepted_at", "last_seen_at")
    first_at = F.coalesce("first_seen_at", ended_at).alias("first_at")
    first = F.struct(first_at, F.array_sort("witness").alias("keys"), "witness")
    return (
        outcomes.groupBy(*_SEQUENCE, "outcome")
        .agg(
            F.sum("numbers").alias("numbers"),
            F.count_if("stuck").alias("stuck"),
            F.max(F.col("tx_sequence_number") + F.col("numbers") - 1).alias("last_number"),
            F.min("first_seen_at").alias("began_at"),
            F.max(ended_at).alias("ended_at"),
            F.min(first).alias("first"),
            F.min(F.struct("first_seen_at", "tx_sequence_number", "session_id", "destination_queue")).alias("place"),
            F.array_sort(F.collect_set("destination_queue")).alias("queues"),
        )
        .select("*", "first.*", "place.session_id", "place.destination_queue")
    )


def sender_spans(verdicts: DataFrame, outcomes: DataFrame, findings: DataFrame) -> DataFrame:
    """Returns rows of SenderSpan, with their sequence, of the sequences that have an unusual outcome or a finding.

    A message that came from two addresses counts for both. Streams of older captures without an address have none.
    """
    troubled = (outcomes.select(*_SEQUENCE).unionByName(findings.select(*_SEQUENCE))).distinct()
    message = ("tx_sequence_number", "source_queue_manager", "message_id", "content_hash")
    address = F.regexp_extract("stream_id", r"^\[?(.*?)\]?:\d+>", 1)
    sent = verdicts.select(*_SEQUENCE, *message, "captured_at", "accepted", address.alias("address"))
    seen = sent.groupBy("source_queue_manager", "address").agg(
        F.min("captured_at").alias("first_seen_at"), F.max("captured_at").alias("last_seen_at")
    )
    lost = outcomes.where("lost").select(*_SEQUENCE, *message, F.lit(True).alias("is_lost"))
    return (
        sent.where("address != ''")
        .join(troubled, list(_SEQUENCE), "left_semi")
        .groupBy(*_SEQUENCE, *message, "address")
        .agg(F.max("accepted").alias("accepted"))
        .join(lost, [*_SEQUENCE, *message], "left")
        .groupBy(*_SEQUENCE, "source_queue_manager", "address")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.count_if("accepted").alias("accepted"),
            F.count_if("is_lost").alias("lost"),
        )
        .join(seen, ["source_queue_manager", "address"])
    )
