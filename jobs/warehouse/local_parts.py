"""Reads parts of Delta tables in folders of this machine without Spark: keys, streams, and what changed."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import dataset as parquet_files

from jobs.warehouse.local_commits import files
from schemas.table import Table
from udfs.derive.frames import to_arrow, to_frame

_MOST_SOUGHT = 500
"""Streams of which rows are looked for in a table without Spark."""


def read_keys(place: str, table: Table, near: pa.Table) -> pa.Table | None:
    """Returns the keys of the rows at this place that share the first column of the key with one of these rows.

    None where Spark has to read the table, or where these are many.
    """
    first = table.key[0]
    values = near[first].unique()
    schema = pa.schema([table.arrow.field(name) for name in table.key])
    return None if len(values) > _MOST_SOUGHT else _read_where(place, schema, first, values)


def _read_where(place: str, schema: pa.Schema, column: str, values: pa.Array) -> pa.Table | None:
    """Returns the rows with one of these values in a column; None where Spark has to read the table."""
    there = files(place)
    if not there:
        return None if there is None else schema.empty_table()
    return parquet_files(there, schema=schema).to_table(filter=pc.field(column).isin(values))


def differences(
    place: str, table: Table, version: int, columns: Sequence[str], most: int | None = None
) -> tuple[pa.Table, pa.Table] | None:
    """Returns the rows that are in a table and were not in a version of it, and the other way round, in these columns.

    Only files that are in one of both are read. None where one of them cannot be read, or Spark has to find out; and
    where those that came have over `most` bytes more than those that went.
    """
    parts = files(place, version), files(place)
    if parts[0] is None or parts[1] is None:
        return None
    before, now = {*parts[0]}, {*parts[1]}
    schema = pa.schema([table.arrow.field(name) for name in columns])
    try:
        if most is not None and _bytes(now - before) - _bytes(before - now) > most:
            return None
        went, came = (to_frame(_read(sorted(one), schema)) for one in (before - now, now - before))
    except (OSError, pa.ArrowException):  # VACUUM deleted a file
        return None
    both = (
        one.join(other, on=list(columns), how="anti", nulls_equal=True) for one, other in ((came, went), (went, came))
    )
    only_now, only_before = (to_arrow(rows).cast(schema) for rows in both)
    return only_now, only_before


def _bytes(there: Iterable[str]) -> int:
    return sum(Path(file).stat().st_size for file in there)


def _read(there: Sequence[str], schema: pa.Schema) -> pa.Table:
    return parquet_files(list(there), schema=schema).to_table() if there else schema.empty_table()
