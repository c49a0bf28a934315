"""Runs passes on Spark: DataFrame in, DataFrame out, by `mapInArrow`."""

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from zipimport import zipimporter

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame

from schemas.table import RowType, row_type, spark_schema
from udfs.capture import stores
from udfs.frames.derivation import row_type_of, to_batches, to_frame
from udfs.frames.groups import FRAME_ROWS, bunches
from udfs.frames.rows import Batches, Pass
from udfs.frames.tables import schema_of

_MOST_TASKS = 10_000
_BATCH_ROWS, _BATCH_BYTES = 20_000, 16 * 2**20
"""Rows or bytes that are enough for a batch: each costs a pass as much as hundreds of rows."""


def tasks(parts: int) -> int:
    """Returns the number of tasks for a pass over `parts` independent parts: at least 1, at most 10,000."""
    return max(1, min(parts, _MOST_TASKS))


def map_arrow(rows: DataFrame, work: Pass, schema: RowType) -> DataFrame:
    """Returns the rows of `schema` that a pass makes of `rows`.

    Its tasks reach the object stores that this process has used as this process does.
    """
    of_stores = stores.handed_over()

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        reduce_overhead()
        stores.take_over(of_stores)
        yield from work(_together(batches))

    return rows.mapInArrow(run, spark_schema(schema))


def _together(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yields the rows in larger batches than Spark's, which have few rows (`conf/cluster.conf` says why)."""
    for some in bunches(batches, _share_of_a_batch, 1):
        yield some[0] if len(some) == 1 else pa.concat_batches(some)


def _share_of_a_batch(batch: pa.RecordBatch) -> float:
    return float(max(batch.num_rows / _BATCH_ROWS, batch.nbytes / _BATCH_BYTES))


def to_frames(batches: Batches) -> Iterator[pl.DataFrame]:
    """Yields the rows as frames that are worth a call of their own."""
    return (to_frame(pa.Table.from_batches(some)) for some in bunches(batches, len, FRAME_ROWS))


@dataclass(frozen=True)
class Made:
    """Holds rows that tasks make of others, while it is open what is done with them there.

    Whatever a Python process hands to the JVM, and gets back from it, costs more than most of what is done with it.
    """

    source: DataFrame
    making: Callable[[RowType], Pass]
    """Returns the pass that makes these columns of the schema."""
    schema: RowType

    @classmethod
    def by(cls, source: DataFrame, work: Pass, schema: RowType) -> "Made":
        """Returns the rows that a pass makes, with all columns of the schema."""
        return cls(source, partial(_choosing, work), schema)

    @classmethod
    def of(cls, source: DataFrame) -> "Made":
        """Returns rows that Spark hands to tasks."""
        return cls.by(source, lambda batches: batches, row_type(source.schema))

    def select(self, *names: str) -> "Made":
        """Returns columns."""
        return replace(self, schema=pa.schema([self.schema.field(name) for name in names]))

    def each(self, work: Callable[[pl.DataFrame], pl.DataFrame]) -> "Made":
        """Returns what a function makes of some of the rows at a time, any of them."""
        schema = row_type_of(work(schema_of(self.schema).to_frame()))
        return self.followed_by(
            lambda batches: (made for rows in to_frames(batches) for made in to_batches(work(rows), schema)), schema
        )

    def followed_by(self, work: Pass, schema: RowType) -> "Made":
        """Returns what a second pass makes of the rows in the same tasks: they never leave the Python process."""
        first = self.making(self.schema)
        return Made.by(self.source, lambda batches: work(first(batches)), schema)

    def rows(self) -> DataFrame:
        """Returns the rows, which Spark makes whenever they are read."""
        return map_arrow(self.source, self.making(self.schema), self.schema)


def _choosing(work: Pass, schema: RowType) -> Pass:
    """Returns a pass that leaves of the rows of another one only these columns."""
    return lambda batches: (batch.select(schema.names) for batch in work(batches))


def reduce_overhead() -> None:
    """Drops the importers of zip files from the path cache and exempts loaded modules from garbage collection.

    Before each task, Spark invalidates the caches of all importers. Before Python 3.13, the importer of a zip file then
    reads the whole directory of the file (python/cpython#103200); Spark's path holds about twenty such files, its own
    archives and jars, which costs 0.1 s of CPU time per task. An import that needs a dropped importer creates it again,
    without reading. Spark also collects garbage before each task; frozen objects are not visited.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    gc.freeze()
