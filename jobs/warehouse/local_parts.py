"""Reads parts of Delta tables in folders of this machine without Spark: keys, streams, and what changed."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import dataset as parquet_files

from jobs.warehouse.local_commits import files, open_table
from schemas.table import LONG, STRING, Table

CHANGE_TYPE, COMMIT = "_change_type", "_commit_version"
"""Columns that Delta's change data feed adds."""
_MOST_SOUGHT = 500
"""Streams or captures of which rows are looked for in a table without Spark."""


class Range(NamedTuple):
    """Names the rows of a stream from an offset to another, or to its end; -1 is before all."""

    stream_id: str
    first: int
    last: int | None = None

    def has_any(self, offsets: Sequence[int]) -> bool:
        """Returns whether one of the offsets, which are sorted, is among them."""
        at = bisect_left(offsets, self.first)
        return at < len(offsets) and (self.last is None or offsets[at] <= self.last)


def read_keys(place: str, table: Table, near: pa.Table) -> pa.Table | None:
    """Returns the keys of the rows at this place that share the first column of the key with one of these rows.

    None where Spark has to read the table, or where these are many.
    """
    first = table.key[0]
    values = near[first].unique()
    schema = pa.schema([table.arrow.field(name) for name in table.key])
    return None if len(values) > _MOST_SOUGHT else _read_where(place, schema, first, values)


def has_any(place: str, table: Table, ranges: Sequence[Range]) -> bool:
    """Returns whether the table at this place may have rows in these ranges: also where Spark has to find out.

    A row of a table without offsets is in every range of its stream.
    """
    has_offsets = "stream_offset" in table.names
    schema = pa.schema([table.arrow.field(name) for name in ("stream_id", "stream_offset")[: 1 + has_offsets]])
    streams = pa.array({one.stream_id for one in ranges}, pa.string())
    found = None if len(streams) > _MOST_SOUGHT else _read_where(place, schema, "stream_id", streams)
    if found is None or not has_offsets:
        return found is None or bool(found.num_rows)
    offsets: dict[str, list[int]] = defaultdict(list)
    for one in found.to_pylist():
        insort(offsets[one["stream_id"]], -1 if one["stream_offset"] is None else one["stream_offset"])
    return any(one.has_any(offsets[one.stream_id]) for one in ranges)


def _read_where(place: str, schema: pa.Schema, column: str, values: pa.Array) -> pa.Table | None:
    """Returns the rows with one of these values in a column; None where Spark has to read the table."""
    there = files(place)
    if not there:
        return None if there is None else schema.empty_table()
    return parquet_files(there, schema=schema).to_table(filter=pc.field(column).isin(values))


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
