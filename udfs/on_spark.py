"""Runs passes on Spark: DataFrame in, DataFrame out, by `mapInArrow`."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from schemas.table import RowType, spark_schema
from udfs.passes.options import Batches, Pass
from udfs.spark_worker import reduce_overhead

_MOST_TASKS = 10_000


def tasks(parts: int) -> int:
    """Returns the number of tasks for a pass over `parts` independent parts: at least 1, at most 10,000."""
    return max(1, min(parts, _MOST_TASKS))


def map_arrow(rows: DataFrame, work: Pass, schema: RowType) -> DataFrame:
    """Returns the rows of `schema` that a pass makes of `rows`."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        reduce_overhead()
        yield from work(batches)

    return rows.mapInArrow(run, spark_schema(schema))
