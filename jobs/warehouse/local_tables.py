"""Holds the tables of a run in the driver's memory, and hands rows to Spark and back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from schemas.table import spark_schema
from udfs.derive.frames import to_arrow, to_frame

NO_GLOB = "__globPaths__"
"""Spark's option under which a path is taken literally, even with an asterisk or a bracket."""


def to_spark(spark: SparkSession, rows: pl.DataFrame) -> DataFrame:
    """Returns the rows as a DataFrame that contains them; Spark plans few rows as a relation that needs no job."""
    table = to_arrow(rows)
    # Spark 4.1.1 fails on a nested column without a chunk.
    held = table if table.num_rows else table.schema.empty_table()
    return spark.createDataFrame(held, spark_schema(table.schema)).coalesce(1)


def collect(rows: DataFrame) -> pl.DataFrame:
    """Computes the rows, which have to fit in memory."""
    return to_frame(cast_columns(rows, {field.name: nullable(field.dataType) for field in rows.schema}).toArrow())


@dataclass(frozen=True)
class Memory:
    """Holds the tables that a run has read or written."""

    tables: dict[str, pl.DataFrame] = field(default_factory=dict)


def cast_columns(rows: DataFrame, types: Mapping[str, DataType]) -> DataFrame:
    """Returns the columns of these names with these types, in this order.

    A column that has its type is left alone: each expression costs several calls to the JVM.
    """
    there = {field.name: field.dataType for field in rows.schema}
    if there == types and list(there) == list(types):
        return rows
    return rows.select(*(name if there[name] == of else F.col(name).cast(of) for name, of in types.items()))


def nullable(of: DataType) -> DataType:
    """Returns the type with all that is nested in it nullable.

    Spark 4.1.1 fails to make Arrow of a struct that is null if one of its fields is not nullable.
    """
    if isinstance(of, ArrayType):
        return ArrayType(nullable(of.elementType))
    if isinstance(of, StructType):
        return StructType([StructField(field.name, nullable(field.dataType)) for field in of])
    return of
