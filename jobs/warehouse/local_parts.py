"""Reads parts of Delta tables in folders of this machine without Spark: keys, streams, and what changed."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa

from jobs.warehouse.local_commits import files
from jobs.warehouse.local_files import read_files
from schemas.table import Table

_MOST_SOUGHT = 500
"""Streams of which rows are looked for in a table without Spark."""


def read_keys(place: str, table: Table, near: pl.DataFrame) -> pl.DataFrame | None:
    """Returns the keys of the rows at this place that share the first column of the key with one of these rows.

    None where Spark has to read the table, or where these are many.
    """
    there, values = files(place), near[table.key[0]].unique().to_list()
    if there is None or len(values) > _MOST_SOUGHT:
        return None
    schema = pa.schema([table.arrow.field(name) for name in table.key])
    return read_files(there, schema, pl.col(table.key[0]).is_in(values))


def differences(
    place: str, table: Table, version: int, columns: Sequence[str], most: int | None = None
) -> tuple[pl.DataFrame, pl.DataFrame] | None:
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
        went, came = (read_files(sorted(one), schema) for one in (before - now, now - before))
    except OSError:  # VACUUM deleted a file
        return None
    return _without(came, went, columns), _without(went, came, columns)


def _without(rows: pl.DataFrame, others: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    return rows.join(others, on=list(columns), how="anti", nulls_equal=True)


def _bytes(there: Iterable[str]) -> int:
    return sum(Path(file).stat().st_size for file in there)
