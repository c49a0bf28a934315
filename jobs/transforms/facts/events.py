"""Puts together what incidents are made of."""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from udfs.replay.incidents import Event, OutcomeCount, SequenceSpan

_SEQUENCE = ("scope_key", "tx_sequence_id")


def events(findings: DataFrame, outcomes: DataFrame, sequences: DataFrame) -> DataFrame:
    """Returns rows of Event of these rows of FINDINGS, OUTCOMES and SEQUENCES."""
    parts = (
        sequences.select(*_SEQUENCE, F.struct(*SequenceSpan._fields).alias("span")),
        outcome_counts(outcomes).select(*_SEQUENCE, F.struct(*OutcomeCount._fields).alias("outcome")),
        findings.select(*_SEQUENCE, F.struct(*findings.columns).alias("finding")),
    )
    rows = reduce(lambda above, below: above.unionByName(below, allowMissingColumns=True), parts)
    return rows.select(*Event._fields)


def outcome_counts(outcomes: DataFrame) -> DataFrame:
    """Returns rows of OutcomeCount per sequence; there may be ten million messages of one outcome in one sequence."""
    ended_at = F.coalesce("accepted_at", "last_seen_at")
    first = F.struct(F.coalesce("first_seen_at", ended_at).alias("first_at"), "witness")
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
        )
        .select("*", "first.*", "place.session_id", "place.destination_queue")
    )
