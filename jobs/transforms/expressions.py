"""Columns that several transforms write alike."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it


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


def numbers_of(*names: str, called: str) -> list[Column]:
    """Two hashes, `<called>_no` and `<called>_check`, that together stand for names: windows over names cost far more.

    96 bits: of a thousand million names, two are alike in one of a hundred thousand million warehouses.
    """
    return [F.xxhash64(*names).alias(f"{called}_no"), F.hash(*names).alias(f"{called}_check")]
