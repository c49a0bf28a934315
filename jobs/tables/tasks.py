"""Runs passes on Spark: DataFrame in, DataFrame out, by `mapInArrow`."""

import gc
import sys
from collections.abc import Iterator
from typing import NamedTuple
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import DataFrame

from schemas.table import RowType, spark_schema
from udfs.capture import stores
from udfs.frames.groups import bunches
from udfs.frames.rows import Batches, Pass

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


class Made(NamedTuple):
    """Holds rows that a pass makes of others in tasks, while it is open what is done with them there."""

    source: DataFrame
    work: Pass
    schema: RowType

    def rows(self) -> DataFrame:
        """Returns the rows, which Spark makes whenever they are read."""
        return map_arrow(self.source, self.work, self.schema)

    def then(self, work: Pass, schema: RowType) -> DataFrame:
        """Returns what a second pass makes of the rows in the same tasks: they never leave the Python process."""
        first = self.work
        return map_arrow(self.source, lambda batches: work(first(batches)), schema)


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
