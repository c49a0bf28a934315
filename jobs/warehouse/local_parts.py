"""Reads parts of Delta tables in folders of this machine without Spark: keys, streams, and what changed."""

from collections.abc import Sequence
from typing import Literal

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import dataset as parquet_files

from jobs.warehouse.local_commits import files, open_table
from schemas.table import LONG, STRING, Table
from udfs.derive.frames import to_arrow, to_frame

DELETED = ("delete", "update_preimage")
CHANGE_TYPE, COMMIT = "_change_type", "_commit_version"
"""Columns that Delta's change data feed adds."""
_ENDS: tuple[Literal["first"], Literal["last"]] = ("first", "last")
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


def differences(place: str, table: Table, version: int, columns: Sequence[str]) -> tuple[pa.Table, pa.Table] | None:
    """Returns the rows that are in a table and were not in a version of it, and the other way round, in these columns.

    Only files that are in one of both are read. None where one of them cannot be read.
    """
    parts = files(place, version), files(place)
    if None in parts:
        return None
    before, now = ({*(part or ())} for part in parts)
    schema = pa.schema([table.arrow.field(name) for name in columns])
    try:
        went, came = (to_frame(_read(sorted(one), schema)) for one in (before - now, now - before))
    except (OSError, pa.ArrowException):  # VACUUM deleted a file
        return None
    found = (
        one.join(other, on=list(columns), how="anti", nulls_equal=True) for one, other in ((came, went), (went, came))
    )
    one, other = (to_arrow(rows).cast(schema) for rows in found)
    return one, other


def _read(there: Sequence[str], schema: pa.Schema) -> pa.Table:
    return parquet_files(list(there), schema=schema).to_table() if there else schema.empty_table()


def changes(place: str, table: Table, version: int, most: int) -> pa.Table | None:
    """Returns the rows that came into or went from a table since a version, as its change data feed has them.

    None where Spark has to find out, and where they have more than `most` bytes.
    """
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    delta = open_table(place)
    if delta is None or delta.version() <= version:
        return None
    parts: list[pa.RecordBatch] = []
    size = 0
    try:
        feed = pa.RecordBatchReader.from_stream(delta.load_cdf(starting_version=version + 1))
        for batch in feed:
            parts.append(batch)
            size += batch.nbytes
            if size > most:
                return None
    except (DeltaError, OSError, pa.ArrowException):  # a file is gone, or the log begins later
        return None
    schema = pa.schema([*table.arrow, (CHANGE_TYPE, STRING), (COMMIT, LONG)])
    return pa.Table.from_batches(parts, feed.schema).select(schema.names).cast(schema)


def net(feed: pa.Table, table: Table) -> tuple[pa.Table, pa.Table]:
    """Returns the rows that came and are there, and the keys of those that went, of rows of `changes`.

    A row that went and came again as it was is in neither.
    """
    key, is_delete = list(table.key), pl.col(CHANGE_TYPE).is_in(DELETED)
    events = to_frame(feed).select(
        *table.names, COMMIT, is_delete.alias("is_delete"), pl.int_range(pl.len()).alias("place")
    )
    in_order = events.sort(COMMIT, "is_delete", descending=[False, True])  # a commit deletes before it inserts
    first, last = (in_order.unique(key, keep=keep, maintain_order=True) for keep in _ENDS)
    before, now = first.filter("is_delete"), last.filter(~pl.col("is_delete"))
    came, went = (
        one.join(other, on=table.names, how="anti", nulls_equal=True)["place"].sort().to_arrow()
        for one, other in ((now, before), (before, now))
    )
    return feed.take(came).select(table.names).cast(table.arrow), feed.take(went).select(key)
