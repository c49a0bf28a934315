"""Finds transactions that one aggregate describes, so that only the others have to be assembled.

Such a transaction is *whole*: it lies on one stream and in one sequence, its numbers follow one another from FM to LM,
and all of its messages are plain (`udfs.derive.outcomes.slots`), so that each has its number for itself.
"""

import polars as pl

from schemas.replay import TRANSACTIONS
from udfs.derive.columns import count, key_at, null, tx_sequence, unsigned
from udfs.derive.transactions.messages import ID, NUMBER

_PLACE_OF_USE = (*ID, "session_id", "scope_key", "destination_queue", "stream_id", "sequence")
_NUMBERS_OF_ONE_USE = 4096
"""A later use of an ID has higher numbers."""


def find_uses(messages: pl.DataFrame, unusual: pl.DataFrame) -> pl.DataFrame:
    """Returns a row per use of a transaction ID in one place, with `instance`, the count of the uses so far.

    `messages` are those of `read_messages`, `unusual` the slots of `unusual_arrivals`. `all_whole`: each use of the ID
    is a whole transaction, and the message IDs tell their order. Otherwise a row need not be a transaction.
    `first_ordinal` is that of the message with FM, of which a whole one has one.
    """
    number = pl.col("number")
    slots = unusual.select(pl.col("scope_key").cast(messages.schema["scope_key"], strict=False), *NUMBER[1:])
    in_unusual = messages.join(slots, on=NUMBER, how="semi").select("row").to_series()
    uses = (
        messages.select(
            *(*_PLACE_OF_USE, "number", "ordinal", "stream_offset", "captured_at"),
            (number // _NUMBERS_OF_ONE_USE).alias("bucket"),
            pl.col("row").is_in(in_unusual.implode()).alias("unusual"),
            *(pl.when("tx_first").then(of).alias(f"first_{of}") for of in ("number", "ordinal")),
            pl.when("tx_last").then("number").alias("last_number"),
        )
        .group_by(*_PLACE_OF_USE, "bucket")
        .agg(
            count().alias("messages"),
            pl.col("unusual").any(),
            number.min().alias("low"),
            number.max().alias("high"),
            pl.col("first_number").max().alias("last_fm"),
            pl.col("last_number").min().alias("first_lm"),
            pl.col("ordinal").min().alias("anchor"),
            pl.col("first_ordinal").max(),
            pl.col("stream_offset").min().alias("first_offset"),
            pl.col("stream_offset").max().alias("last_offset"),
            pl.col("captured_at").min().alias("first_captured_at"),
            pl.col("captured_at").max().alias("last_captured_at"),
        )
    )
    whole = (
        ~pl.col("unusual")
        & (pl.col("messages") == pl.col("high") - pl.col("low") + 1)
        & (pl.col("last_fm") == pl.col("low"))
        & (pl.col("first_lm") == pl.col("high"))
    )
    anchor, sequence, instance = pl.col("anchor"), pl.col("sequence"), pl.col("instance")
    is_later = (anchor > anchor.shift(1)) | ((anchor == anchor.shift(1)) & (sequence > sequence.shift(1)))
    return (
        uses.sort(*ID, "anchor", "sequence")
        .with_columns(instance=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over(ID))
        .with_columns(is_clear=(whole & anchor.is_not_null() & ((instance == 1) | is_later)).fill_null(value=False))
        .with_columns(all_whole=pl.col("is_clear").all().over(ID))
    )


def whole_transactions(uses: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of TRANSACTIONS of the IDs of which all uses are whole."""
    several = pl.when(pl.col("messages") > 1).then(key_at("stream_id", "last_offset")).otherwise(null(pl.String))
    tx_sequence_id = unsigned(pl.col("sequence"))
    return (
        uses.filter("all_whole")
        .with_columns(
            pl.col("source_queue_manager", "session_id", "scope_key", "destination_queue").cast(pl.String),
            *(pl.lit(0, pl.Int64).alias(name) for name in ("lost", "pending")),
            *(
                pl.lit(value=False).alias(name)
                for name in ("partly_delivered", "torn", "torn_by_sender", "interleaved")
            ),
            first_message_id=first_message_id(),
            accepted="messages",
            tx_sequence_id=tx_sequence_id,
            tx_sequence=tx_sequence(tx_sequence_id),
            witness=pl.concat_list(key_at("stream_id", "first_offset"), several).list.drop_nulls(),
        )
        .select(TRANSACTIONS.names)
    )


def first_message_id() -> pl.Expr:
    """Returns the message ID with `first_ordinal`; the sender's name alone without one."""
    return pl.concat_str("source_queue_manager", "first_ordinal", separator="\\", ignore_nulls=True)
