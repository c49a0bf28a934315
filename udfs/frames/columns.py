"""Column expressions that several derivations share; each is null for null unless it says otherwise."""

from collections.abc import Sequence

import polars as pl

from schemas.judging import PIECE_BYTES

_SIGN = 1 << 63
UTC = pl.Datetime("us", "UTC")
PLACE = ("stream_id", "stream_offset")
"""Where a packet is; a `row_key` says it."""
RANGE = (*PLACE, "length")
SEQUENCE = ("scope_key", "tx_sequence_id")
SPAN = ("scope_key", "sequence")
"""A SEQUENCE, with its number `signed`."""
ACK_PAIR = ("receiver", "source_queue_manager")
"""Who acknowledges, and the original sender that this is for."""
CAPTURES_OF_PAIR = ("one_capture", "other_capture")
"""Captures at the two ends of connections."""


def null(of: "pl.DataType | type[pl.DataType]") -> pl.Expr:
    """Returns null of a type."""
    return pl.lit(None, dtype=of)


def key_at(stream_id: str | pl.Expr, stream_offset: str | pl.Expr) -> pl.Expr:
    """Returns `<stream_id>@<stream_offset>`, as a witness names a packet."""
    return pl.concat_str(stream_id, pl.lit("@"), stream_offset)


def row_key() -> pl.Expr:
    """Returns `key_at` of the row's own columns."""
    return key_at("stream_id", "stream_offset")


def piece() -> pl.Expr:
    """Returns `stream_offset` divided by PIECE_BYTES and rounded down."""
    return pl.col("stream_offset") // PIECE_BYTES


def address_of_stream() -> pl.Expr:
    """Returns the IP address of the sender of `stream_id`; null without one."""
    return pl.col("stream_id").str.extract(r"^\[?(.+?)\]?:\d+>")


def address_reached() -> pl.Expr:
    """Returns the IP address of the receiver of `stream_id`; null without one."""
    return pl.col("stream_id").str.extract(r">\[?(.+?)\]?:\d+(?:#\d+)?$")


def signed(tx_sequence_id: pl.Expr) -> pl.Expr:
    """Returns a TxSequenceID minus 2^63, as an Int64 in the same order."""
    return (tx_sequence_id.cast(pl.Int128) - _SIGN).cast(pl.Int64)


def unsigned(sequence: pl.Expr) -> pl.Expr:
    """Returns the TxSequenceID of which `signed` made an Int64."""
    return (sequence.cast(pl.Int128) + _SIGN).cast(pl.UInt64)


def tx_sequence(tx_sequence_id: pl.Expr) -> pl.Expr:
    """Returns a TxSequenceID as text: its time stamp in UTC and its ordinal, such as `2026-03-02T07:59:41Z#3`."""
    stamp = pl.from_epoch((tx_sequence_id.cast(pl.UInt64) // (1 << 32)).cast(pl.Int64), "s")
    ordinal = tx_sequence_id.cast(pl.UInt64) % (1 << 32)
    return pl.concat_str(stamp.dt.to_string("%Y-%m-%dT%H:%M:%S"), pl.lit("Z#"), ordinal)


def nanoseconds(at: pl.Expr) -> pl.Expr:
    """Returns a timestamp in ns since 1970."""
    return at.dt.timestamp("us") * 1000


def timestamp(ns: pl.Expr) -> pl.Expr:
    """Returns ns since 1970 as a timestamp, rounded down to whole microseconds."""
    return (ns // 1000).cast(UTC)


def sent_order() -> pl.Expr:
    """Returns an Int64 that rises with SentTime and, within a second, with the number in the message ID."""
    return (pl.col("sent_at").dt.epoch("s") - (1 << 31)) * (1 << 32) + (message_ordinal() + 1).fill_null(0)


def message_ordinal() -> pl.Expr:
    """Returns the number in the message ID, by which a sender counts its messages; null without a number."""
    return pl.col("message_id").str.extract(r"([^\\]*)$").cast(pl.Int64, strict=False)


def way_back() -> pl.Expr:
    """Returns the `session_id` of the other direction, of rows with `sender` and `receiver`."""
    return pl.concat_str("receiver", "sender", separator="->").alias("session_id")


def count() -> pl.Expr:
    """Returns the number of rows of a group."""
    return pl.len().cast(pl.Int64)


def count_if(condition: pl.Expr | str) -> pl.Expr:
    """Returns the number of rows for which a condition holds."""
    return (pl.col(condition) if isinstance(condition, str) else condition).sum().cast(pl.Int64)


def undecided() -> pl.Expr:
    """Returns how many messages were lost of those with `contenders`: all but one of each number."""
    return (1 - 1 / pl.col("contenders")).sum()


def count_distinct(of: pl.Expr | str) -> pl.Expr:
    """Returns the number of different values of a group; null is none."""
    return (pl.col(of) if isinstance(of, str) else of).drop_nulls().n_unique().cast(pl.Int64)


def as_numbers(rows: pl.DataFrame, *names: str) -> list[pl.Expr]:
    """Returns columns of names as numbers in the order of the names; null stays null.

    Names that repeat in many rows take four bytes each then, and are compared faster.
    """
    return [pl.col(name).cast(pl.Enum(rows[name].unique().drop_nulls().sort())) for name in names]


def number_of(*texts: str) -> pl.Expr:
    """Returns a number that equal texts share in all frames, and others by chance only: a hash of 64 bits."""
    return pl.struct(*texts).hash(seed=0).reinterpret(signed=True)


def are_in(rows: pl.DataFrame, some: pl.DataFrame) -> pl.Series:
    """Returns which rows have the values of one of some others in the columns of these; null is equal to nothing."""
    marked = some.unique().with_columns(is_in=True)
    found = rows.select(some.columns).join(marked, on=some.columns, how="left", maintain_order="left")
    return found["is_in"].fill_null(value=False)


def only_in_each(one: pl.DataFrame, other: pl.DataFrame, on: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the rows of either frame that the other has none like, by the columns `on`."""
    by = list(on)
    return one.join(other, on=by, how="anti", nulls_equal=True), other.join(one, on=by, how="anti", nulls_equal=True)


def in_one_only(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows that only one of two frames with the same columns has."""
    return pl.concat(only_in_each(one, other, one.columns))


def is_on(streams: pl.Series) -> pl.Expr:
    """Returns whether a row is of one of these streams."""
    return pl.col("stream_id").is_in(streams.implode())


def quotient(dividend: pl.Expr, divisor: float) -> pl.Expr:
    """Returns the double nearest to the quotient; null for null.

    Polars multiplies a column by the reciprocal of a constant instead, and 60 s come out as 60.00000000000001 s. By a
    column it divides.
    """
    column_of_divisors = dividend * 0 + divisor
    return dividend / column_of_divisors
