"""Holds the tables of a run in the driver's memory, and hands rows to Spark and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from jobs.warehouse.local_files import read_files
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
    columns: dict[str, tuple[tuple[str, ...], pl.DataFrame]] = field(default_factory=dict)
    """By table: the files that it consisted of when it was last read in part, and the columns that were read."""

    def read_columns(self, table: str, files: Sequence[str], schema: pa.Schema) -> pl.DataFrame:
        """Returns columns of the table from its files, which never change: so no column is read twice."""
        of_files, known = self.columns.get(table, ((), pl.DataFrame()))
        if of_files != tuple(files):
            known = pl.DataFrame()
        missing = [schema.field(name) for name in schema.names if name not in known.columns]
        if missing:
            known = pl.concat([known, read_files(files, pa.schema(missing))], how="horizontal")
            self.columns[table] = tuple(files), known
        return known.select(schema.names)


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
