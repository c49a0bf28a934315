"""Holds small tables in the driver's memory. Spark plans them as local relations, which it reads without a job."""

from typing import NamedTuple, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.types import ArrayType, DataType, StructField, StructType


class LocalTable(NamedTuple):
    """Holds rows as an Arrow table, and as a DataFrame that contains them."""

    arrow: pa.Table
    rows: DataFrame

    @classmethod
    def of(cls, spark: SparkSession, arrow: pa.Table, schema: StructType) -> Self:
        """Makes a DataFrame of the Arrow table, with the columns of the schema."""
        if not arrow.num_rows:
            arrow = arrow.schema.empty_table()  # Spark 4.1.1 fails on a nested column without a chunk
        return cls(arrow, spark.createDataFrame(arrow, schema).coalesce(1))

    @classmethod
    def collect(cls, rows: DataFrame) -> Self:
        """Computes the rows, which have to be few."""
        schema = rows.schema
        rows = rows.select([F.col(field.name).cast(nullable(field.dataType)) for field in schema])
        return cls.of(rows.sparkSession, rows.toArrow(), rows.schema)


def nullable(of: DataType) -> DataType:
    """Returns the type with all that is nested in it nullable.

    Spark 4.1.1 fails to make Arrow of a struct that is null if one of its fields is not nullable.
    """
    if isinstance(of, ArrayType):
        return ArrayType(nullable(of.elementType))
    if isinstance(of, StructType):
        return StructType([StructField(field.name, nullable(field.dataType)) for field in of])
    return of
