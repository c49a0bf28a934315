"""Columns that several transforms write alike."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it


def null(kind: str) -> Column:
    """Nothing, of this SQL type."""
    return F.lit(None).cast(kind)


def nanoseconds(timestamp: str) -> Column:
    """A timestamp in ns since 1970; null for null."""
    return F.unix_micros(timestamp) * 1000


def row_key() -> Column:
    """What a witness calls a row: `<stream_id>@<stream_offset>`."""
    return F.concat_ws("@", "stream_id", "stream_offset")
