"""Column expressions that several transforms share."""

from decimal import Decimal

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from schemas.table import U64

_SIGN = Decimal(1 << 63)


def null(kind: str) -> Column:
    """Nothing, of this SQL type."""
    return F.lit(None).cast(kind)


def nanoseconds(timestamp: str) -> Column:
    """A timestamp in ns since 1970; null for null."""
    return F.unix_micros(timestamp) * 1000


def row_key(of: str = "") -> Column:
    """What a witness calls a row, or the row that a struct places: `<stream_id>@<stream_offset>`; null for null."""
    stream_id, stream_offset = (F.col(f"{of}.{name}" if of else name) for name in ("stream_id", "stream_offset"))
    return F.concat(stream_id, F.lit("@"), stream_offset)


def name_hashes(*names: str, prefix: str) -> list[Column]:
    """Two hashes, `<prefix>_no` and `<prefix>_check`, that together stand for names: windows over names cost far more.

    96 bits: of a thousand million names, two are alike in one of a hundred thousand million warehouses.
    """
    return [F.xxhash64(*names).alias(f"{prefix}_no"), F.hash(*names).alias(f"{prefix}_check")]


def signed(unsigned: Column) -> Column:
    """A TxSequenceID less 2^63: a BIGINT in the same order, where the decimal would cost an object per row."""
    return (unsigned.cast(U64) - _SIGN).cast("long")


def unsigned(signed: Column) -> Column:
    """The TxSequenceID that `signed` made a BIGINT of."""
    return (signed.cast(U64) + _SIGN).cast(U64)


def tx_sequence(tx_sequence_id: Column) -> Column:
    """A TxSequenceID (U64) as text: its time stamp in UTC and its ordinal, such as `2026-03-02T07:59:41Z#3`.

    The session's time zone has no influence. Null for null.
    """
    bits = signed(tx_sequence_id)
    seconds = F.shiftright(bits, 32) + (1 << 31)
    epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    stamp = (epoch + F.make_dt_interval(secs=seconds)).cast("string")
    return F.concat(F.replace(stamp, F.lit(" "), F.lit("T")), F.lit("Z#"), bits.bitwiseAND((1 << 32) - 1))
