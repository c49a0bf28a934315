"""Holds small tables in the driver's memory. Spark plans them as local relations, which it reads without a job."""

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
        schema = rows.schema
        rows = rows.select([F.col(field.name).cast(nullable(field.dataType)) for field in schema])
        return cls(rows.sparkSession, rows.toArrow(), rows.schema)


def nullable(of: DataType) -> DataType:
    """Returns the type with all that is nested in it nullable.

    Spark 4.1.1 fails to make Arrow of a struct that is null if one of its fields is not nullable.
    """
    if isinstance(of, ArrayType):
        return ArrayType(nullable(of.elementType))
    if isinstance(of, StructType):
        return StructType([StructField(field.name, nullable(field.dataType)) for field in of])
    return of
