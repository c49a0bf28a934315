"""Column expressions and window frames that several transforms share."""

from collections.abc import Callable, Iterable
from decimal import Decimal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from schemas.outcomes import Outcome
from schemas.table import U64, Table, sql_type

BEFORE = (Window.unboundedPreceding, -1)
SO_FAR = (Window.unboundedPreceding, Window.currentRow)
ALL = (Window.unboundedPreceding, Window.unboundedFollowing)
_U64 = sql_type(U64)
_SIGN = Decimal(1 << 63)


def null(kind: str) -> Column:
    """Returns NULL of this SQL type."""
    return F.lit(None).cast(kind)


def has_outcome(outcomes: Iterable[Outcome]) -> Column:
    """Returns whether `outcome` is one of these."""
    return F.col("outcome").isin(*(outcome.value for outcome in outcomes))


def columns_of(table: Table) -> list[Column]:
    """Returns the table's columns, for a `select` that gives rows its order and types."""
    return [F.col(column.name).cast(sql_type(column.type)) for column in table]


def each(aggregate: Callable[[str], Column], *names: str) -> list[Column]:
    """Returns an aggregate of each of these columns, under the column's own name."""
    return [aggregate(name).alias(name) for name in names]


def optional(rows: DataFrame, name: str, kind: str) -> Column:
    """Returns a column of a table, or NULL of this SQL type where the table is of a release that lacked it."""
    return F.col(name) if name in rows.columns else null(kind)


def with_columns_of(table: Table, rows: DataFrame) -> DataFrame:
    """Returns the rows with the table's columns, in its order and types; those that they lack are null."""
    types = {column.name: sql_type(column.type) for column in table}
    return rows.select(*(optional(rows, name, kind).cast(kind).alias(name) for name, kind in types.items()))


def nanoseconds(timestamp: Column | str) -> Column:
    """Returns a timestamp in ns since 1970; null for null."""
    return F.unix_micros(timestamp) * 1000


def with_nanoseconds(rows: DataFrame, **timestamps: str) -> DataFrame:
    """Returns rows with ns since 1970, under other names, in place of timestamps."""
    return rows.withColumns({name: nanoseconds(at) for name, at in timestamps.items()}).drop(*timestamps.values())


def timestamp(nanoseconds: Column) -> Column:
    """Returns ns since 1970 as a timestamp, rounded down to whole microseconds; null for null."""
    whole = nanoseconds - F.pmod(nanoseconds, F.lit(1000))
    return F.timestamp_micros(F.call_function("div", whole, F.lit(1000)))  # a quotient of `/` is a DOUBLE, and inexact


def row_key(of: str = "") -> Column:
    """Returns `<stream_id>@<stream_offset>` of a row, or of the struct `of`, as a witness names it; null for null."""
    return key_at(*(f"{of}.{name}" if of else name for name in ("stream_id", "stream_offset")))


def key_at(stream_id: Column | str, stream_offset: Column | str) -> Column:
    """Returns `<stream_id>@<stream_offset>` of two columns, as a witness names a row; null if one of them is null."""
    return F.concat(stream_id, F.lit("@"), stream_offset)


def name_hashes(*names: str, prefix: str) -> list[Column]:
    """Returns hashes `<prefix>_no` and `<prefix>_check` of names: windows partitioned by text cost far more.

    The hashes have 96 bits: among 10^9 names, two collide with a probability of about 10^-11.
    """
    return [F.xxhash64(*names).alias(f"{prefix}_no"), F.hash(*names).alias(f"{prefix}_check")]


def signed(unsigned: Column) -> Column:
    """Returns a TxSequenceID minus 2^63: a BIGINT in the same order, cheaper than a DECIMAL, an object per row."""
    return (unsigned.cast(_U64) - _SIGN).cast("long")


def unsigned(signed: Column) -> Column:
    """Returns the TxSequenceID of which `signed` made a BIGINT."""
    return (signed.cast(_U64) + _SIGN).cast(_U64)


def tx_sequence(tx_sequence_id: Column) -> Column:
    """Returns a TxSequenceID (U64) as text: its time stamp in UTC and its ordinal, such as `2026-03-02T07:59:41Z#3`.

    The session's time zone has no influence. Null for null.
    """
    bits = signed(tx_sequence_id)
    seconds = F.shiftright(bits, 32) + (1 << 31)
    epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    stamp = (epoch + F.make_dt_interval(secs=seconds)).cast("string")
    return F.concat(F.replace(stamp, F.lit(" "), F.lit("T")), F.lit("Z#"), bits.bitwiseAND((1 << 32) - 1))
