"""Counts transactions that are broken."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from schemas.replay import FindingKind


def broken_transactions(transactions: DataFrame) -> DataFrame:
    """Returns rows of BrokenTransactions."""
    partly = FindingKind.TRANSACTION_PARTLY_DELIVERED
    kinds = (
        F.when(F.col("torn_by_sender"), FindingKind.TORN_TRANSACTION.value),
        F.when(F.col("interleaved"), FindingKind.INTERLEAVED_TRANSACTION.value),
        F.when(F.col("partly_delivered"), partly.value),
    )
    first = (
        *("first_captured_at", "session_id", "destination_queue", "witness", "tx_transaction_id", "messages"),
        *("lost", "pending"),
    )
    return (
        transactions.select("*", F.explode(F.array_compact(F.array(*kinds))).alias("kind"))
        .withColumn("has_lost", (F.col("kind") == partly.value) & (F.col("lost") > 0))
        .groupBy("kind", "has_lost", "scope_key", "tx_sequence_id")
        .agg(
            F.count(F.lit(1)).alias("transactions"),
            F.min_by(F.struct(*first), F.struct("first_captured_at", "tx_transaction_id", "instance")).alias("first"),
        )
        .select("*", "first.*")
    )
