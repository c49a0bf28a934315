"""Runs passes on Spark: DataFrame in, DataFrame out, by `mapInArrow`."""

from typing import NamedTuple, Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from schemas.table import Table
from udfs.passes.options import Batches, Pass
from udfs.spark_worker import reduce_overhead

_MOST_TASKS = 10_000


class Shape(NamedTuple):
    """Holds the schema of rows in both forms."""

    spark: StructType
    arrow: pa.Schema

    @classmethod
    def of(cls, spark: StructType) -> Self:
        """Derives the Arrow schema."""
        return cls(spark, to_arrow_schema(spark))


_SHAPES: dict[str, Shape] = {}


def shape_of(table: Table) -> Shape:
    """Returns the schema of a table's rows."""
    if table.name not in _SHAPES:  # hashing the table itself, for a cache, takes longer than the rest of a small night
        _SHAPES[table.name] = Shape.of(table.spark)
    return _SHAPES[table.name]


def tasks(parts: int) -> int:
    """Returns the number of tasks for so many independent parts of a pass: at least 1, at most 10,000."""
    return max(1, min(parts, _MOST_TASKS))


def map_arrow(rows: DataFrame, work: Pass, schema: StructType) -> DataFrame:
    """Returns the rows of `schema` that a pass makes of `rows`."""

    def run(batches: Batches) -> Batches:
        reduce_overhead()
        yield from work(batches)

    return rows.mapInArrow(run, schema)
