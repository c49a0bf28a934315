"""Counts transactions that are broken."""

import polars as pl


def broken_transactions(transactions: pl.DataFrame, when: str, has_lost: pl.Expr | None = None) -> pl.DataFrame:
    """Returns rows of TornTransactions, or of another kind, of the transactions with a flag `when`.

    There is one row per sequence and value of `has_lost`; its figures are those of the first transaction.
    """
    first = ("session_id", "destination_queue", "witness", "tx_transaction_id", "lost", "pending")
    return (
        transactions.filter(when)
        .with_columns(has_lost=pl.lit(value=True) if has_lost is None else has_lost)
        .sort("first_captured_at", "tx_transaction_id", "instance")
        .group_by("scope_key", "tx_sequence_id", "has_lost")
        .agg(
            pl.first(*first),
            pl.first("first_captured_at").alias("found_at"),
            pl.first("messages").alias("size"),
            pl.len().cast(pl.Int64).alias("messages"),
        )
    )
