"""The messages of transactions, in few bytes each: names that many of them share are numbers."""

import polars as pl

from udfs.derive.columns import SPAN, as_numbers, signed

ID = ("source_queue_manager", "tx_transaction_id")
NUMBER = (*SPAN, "number")
_NAMES = ("source_queue_manager", "session_id", "scope_key", "destination_queue", "stream_id")
_COPIED = ("tx_transaction_id", "tx_first", "tx_last", "stream_offset", "captured_at", "replay_order", "accepted")


def read_messages(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns the messages of transactions, each with its `row` among the verdicts.

    `sequence` is `signed`, and `ordinal` the second part of the message ID. Names are numbers in their order.
    """
    ordinal = pl.col("message_id").str.extract(r"([^\\]*)$").cast(pl.Int64, strict=False)
    return (
        verdicts.with_row_index("row")
        .select(
            "row",
            *as_numbers(verdicts, *_NAMES),
            *_COPIED,
            signed(pl.col("tx_sequence_id")).alias("sequence"),
            pl.col("tx_sequence_number").alias("number"),
            ordinal.alias("ordinal"),
        )
        .filter(pl.col("tx_transaction_id").is_not_null())
    )
