"""Runs passes on Spark: DataFrame in, DataFrame out, by `mapInArrow`."""

from typing import NamedTuple, Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from schemas.table import Table
from udfs.passes.options import Batches, Pass
from udfs.spark_worker import reduce_overhead

_MOST_TASKS = 10_000
_ARROW: dict[DataType, pa.DataType] = {
    BinaryType(): pa.binary(),
    BooleanType(): pa.bool_(),
    DoubleType(): pa.float64(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    ShortType(): pa.int16(),
    StringType(): pa.string(),
    TimestampType(): pa.timestamp("us", tz="UTC"),
}


class Shape(NamedTuple):
    """Holds the schema of rows in both forms."""

    spark: StructType
    arrow: pa.Schema

    @classmethod
    def of(cls, spark: StructType) -> Self:
        """Derives the Arrow schema."""
        return cls(spark, arrow_schema(spark))


def arrow_schema(spark: StructType) -> pa.Schema:
    """Returns the Arrow schema of rows, as `mapInArrow` exchanges them."""
    return pa.schema(_arrow_fields(spark))


def _arrow_fields(spark: StructType) -> list[pa.Field]:
    return [pa.field(field.name, _arrow_type(field.dataType), nullable=field.nullable) for field in spark]


def _arrow_type(spark: DataType) -> pa.DataType:
    if isinstance(spark, StructType):
        return pa.struct(_arrow_fields(spark))
    if isinstance(spark, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(spark.elementType), nullable=spark.containsNull))
    if isinstance(spark, DecimalType):
        return pa.decimal128(spark.precision, spark.scale)
    return _ARROW[spark]


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
