"""Hands rows to Spark and back, and keeps rows there, so that later queries do not compute them again."""

import re
from collections.abc import Mapping

import polars as pl
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from jobs.cli.spark_session import is_local
from schemas.table import Table, spark_schema
from udfs.frames.derivation import to_arrow, to_frame

NO_GLOB = "__globPaths__"
"""Spark's option under which a path is taken literally, even with an asterisk or a bracket."""
MOST_ROWS = 250_000
"""Rows of some hundred bytes that a broadcast join may send to each task."""
_RELIABLE = "spark.checkpoint.dir"
_REFUSAL = re.compile("not.?supported|unsupported|not.?implemented|not.?available", re.IGNORECASE)


def to_spark(spark: SparkSession, rows: pl.DataFrame) -> DataFrame:
    """Returns the rows as a DataFrame that contains them; Spark plans few rows as a relation that needs no job."""
    table = to_arrow(rows)
    # Spark 4.1.1 fails on a nested column without a chunk.
    held = table if table.num_rows else table.schema.empty_table()
    return spark.createDataFrame(held, spark_schema(table.schema)).coalesce(1)


def collect(rows: DataFrame) -> pl.DataFrame:
    """Computes the rows, which have to fit in memory."""
    return to_frame(cast_columns(rows, {field.name: nullable(field.dataType) for field in rows.schema}).toArrow())


def checkpoint(rows: DataFrame) -> DataFrame:
    """Checkpoints the rows, so that later queries are planned without what computed them.

    They go to `spark.checkpoint.dir` if that is set; else to the disks of two executors, so that one of these may die.
    Where the platform refuses to keep rows, as serverless Databricks does, the driver holds them.
    """
    conf = rows.sparkSession.conf
    try:
        if conf.get(_RELIABLE, ""):
            kept = rows.checkpoint()
        else:
            is_alone = is_local(conf.get("spark.master", "") or "")
            level = StorageLevel.DISK_ONLY if is_alone else StorageLevel.DISK_ONLY_2
            kept = rows.localCheckpoint(storageLevel=level)
        # Columns of their own: without adaptive execution, Spark fails to tell those of a checkpoint from those of the
        # rows it was made of, where both are joined.
        return kept.toDF(*rows.columns)
    except PySparkException as refusal:
        if not _REFUSAL.search(str(refusal)):
            raise
        return to_spark(rows.sparkSession, collect(rows))


def cast_columns(rows: DataFrame, types: Mapping[str, DataType]) -> DataFrame:
    """Returns the columns of these names with these types, in this order; those that the rows lack are null.

    A column that has its type is left alone: each expression costs several calls to the JVM.
    """
    there = {field.name: field.dataType for field in rows.schema}
    if there == types and list(there) == list(types):
        return rows
    return rows.select(
        *(
            name if there.get(name) == of else (F.col(name) if name in there else F.lit(None)).cast(of).alias(name)
            for name, of in types.items()
        )
    )


def with_columns_of(table: Table, rows: DataFrame) -> DataFrame:
    """Returns the rows with the table's columns, in its order and types; nested fields are nullable."""
    return cast_columns(rows, {of.name: nullable(of.dataType) for of in table.spark})


def timestamp(nanoseconds: Column) -> Column:
    """Returns ns since 1970 as a timestamp, rounded down to whole microseconds; null for null."""
    whole = nanoseconds - F.pmod(nanoseconds, F.lit(1000))
    return F.timestamp_micros(F.call_function("div", whole, F.lit(1000)))  # a quotient of `/` is a DOUBLE, and inexact


def nullable(of: DataType) -> DataType:
    """Returns the type with all that is nested in it nullable.

    Spark 4.1.1 fails to make Arrow of a struct that is null if one of its fields is not nullable.
    """
    if isinstance(of, ArrayType):
        return ArrayType(nullable(of.elementType))
    if isinstance(of, StructType):
        return StructType([StructField(field.name, nullable(field.dataType)) for field in of])
    return of
