"""Counts transactions that are broken."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it


def broken_transactions(transactions: DataFrame, when: str, has_lost: Column | None = None) -> DataFrame:
    """Returns rows of TornTransactions, or of another kind, of the transactions with a flag `when`."""
    first = (
        *("session_id", "destination_queue", "witness", "tx_transaction_id", "lost", "pending"),
        *(F.col("first_captured_at").alias("found_at"), F.col("messages").alias("size")),
    )
    place = F.struct("first_captured_at", "tx_transaction_id", "instance")
    return (
        transactions.where(when)
        .groupBy("scope_key", "tx_sequence_id", (F.lit(True) if has_lost is None else has_lost).alias("has_lost"))
        .agg(F.count(F.lit(1)).alias("messages"), F.min_by(F.struct(*first), place).alias("first"))
        .select("scope_key", "tx_sequence_id", "has_lost", "messages", "first.*")
    )
