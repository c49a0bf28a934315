"""Runs passes on Spark: DataFrame in, DataFrame out, by `mapInArrow`."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from schemas.table import RowType
from udfs.passes.options import Batches, Pass
from udfs.spark_worker import reduce_overhead

_MOST_TASKS = 10_000


class RunPass(Protocol):
    """Runs a pass over rows in order: all rows with the same value in the first column of `order` come together."""

    def __call__(self, rows: DataFrame, work: Pass, schema: RowType, order: Sequence[str]) -> DataFrame:
        """Returns the rows of `schema` that the pass makes of `rows`."""


def tasks(parts: int) -> int:
    """Returns the number of tasks for a pass over `parts` independent parts: at least 1, at most 10,000."""
    return max(1, min(parts, _MOST_TASKS))


def map_arrow(rows: DataFrame, work: Pass, schema: RowType) -> DataFrame:
    """Returns the rows of `schema` that a pass makes of `rows`."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        reduce_overhead()
        yield from work(batches)

    return rows.mapInArrow(run, schema)


def run_in_order(rows: DataFrame, work: Pass, schema: RowType, order: Sequence[str]) -> DataFrame:
    """Runs a pass in Spark's tasks, each of which has all rows of some values of the first column, in order."""
    # Not by the column itself: Spark 4.1 leaves that out above a union whose sides were joined by it, and then may
    # coalesce the partitions of the two sides differently, so that rows of one value part.
    together = rows.repartition(F.xxhash64(order[0])).sortWithinPartitions(*order)
    return map_arrow(together, work, schema)
