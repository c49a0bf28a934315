"""Holds small tables in the driver's memory. Spark plans them as local relations, which it reads without a job."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.types import ArrayType, DataType, StructField, StructType


@dataclass(frozen=True)
class LocalTable:
    """Holds rows as an Arrow table, and as a DataFrame that contains them, which is made when it is first used."""

    spark: SparkSession
    arrow: pa.Table
    schema: StructType

    @cached_property
    def rows(self) -> DataFrame:
        """The rows for Spark."""
        # Spark 4.1.1 fails on a nested column without a chunk.
        arrow = self.arrow if self.arrow.num_rows else self.arrow.schema.empty_table()
        return self.spark.createDataFrame(arrow, self.schema).coalesce(1)

    @classmethod
    def collect(cls, rows: DataFrame) -> Self:
        """Computes the rows, which have to be few."""
        rows = cast_columns(rows, {field.name: nullable(field.dataType) for field in rows.schema})
        return cls(rows.sparkSession, rows.toArrow(), rows.schema)


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
