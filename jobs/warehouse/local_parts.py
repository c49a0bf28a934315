"""Reads parts of Delta tables in folders of this machine without Spark: keys, streams, and what changed."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

import polars as pl
import pyarrow as pa

from jobs.warehouse import log
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

    Only files that are in one of both are read. None where a file or a commit since is gone, or Spark has to find out;
    and where those that came have over `most` bytes more than those that went.
    """
    if files(place) is None:
        return None
    schema = pa.schema([table.arrow.field(name) for name in columns])
    try:
        changed = [[str(Path(place, unquote(path))) for path in sorted(of)] for of in log.changed_files(place, version)]
        if most is not None and _bytes(changed[0]) - _bytes(changed[1]) > most:
            return None
        came, went = (read_files(of, schema) for of in changed)
    except OSError:  # VACUUM deleted a file, or Delta a commit
        return None
    return _without(came, went, columns), _without(went, came, columns)


def _without(rows: pl.DataFrame, others: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    return rows.join(others, on=list(columns), how="anti", nulls_equal=True)


def _bytes(there: Iterable[str]) -> int:
    return sum(Path(file).stat().st_size for file in there)
