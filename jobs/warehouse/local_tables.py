"""Holds the tables of a run in the driver's memory.

Spark plans few rows as a local relation, which it reads without a job. Many rows it reads from a file, of which it
converts only the columns that a query needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

_MANY = 2_000_000
"""Bytes of rows that are cheaper to read from a file than as a local relation."""
_ROWS_PER_TASK = 100_000
NO_GLOB = "__globPaths__"
"""Spark's option under which a path is taken literally, even with an asterisk or a bracket."""


class LocalTable:
    """Holds rows for Python and for Spark. From the first use by Spark on, many rows are in a file in `folder` only."""

    def __init__(self, spark: SparkSession, arrow: pa.Table, schema: StructType, folder: Path | None = None) -> None:
        self._spark, self._schema, self._types = spark, schema, arrow.schema
        self._held: pa.Table | None = arrow
        self._writing = Lock()
        self._file: Path | None = None
        is_void = "void" in schema.simpleString()  # which Parquet cannot hold
        if folder is not None and arrow.nbytes >= _MANY and not is_void:
            self._file = folder / f"{uuid4()}.parquet"

    @property
    def arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        held = self._held
        return pq.read_table(self._file).cast(self._types) if held is None else held

    @cached_property
    def rows(self) -> DataFrame:
        """The rows as a DataFrame that contains them."""
        if self._file is None:
            # Spark 4.1.1 fails on a nested column without a chunk.
            arrow = self.arrow if self.arrow.num_rows else self.arrow.schema.empty_table()
            return self._spark.createDataFrame(arrow, self._schema).coalesce(1)
        with self._writing:  # several threads may use the rows first
            if self._held is not None:
                _write(self._held, self._file)
                self._held = None
        return self._spark.read.schema(self._schema).option(NO_GLOB, "false").parquet(str(self._file))

    @classmethod
    def collect(cls, rows: DataFrame, folder: Path | None = None) -> Self:
        """Computes the rows, which have to fit in memory."""
        rows = cast_columns(rows, {field.name: nullable(field.dataType) for field in rows.schema})
        return cls(rows.sparkSession, rows.toArrow(), rows.schema, folder)


def _write(rows: pa.Table, file: Path) -> None:
    """Writes the rows for Spark, with dictionaries of texts only: looking up numbers takes longer than reading them."""
    texts = [field.name for field in rows.schema if pa.types.is_string(field.type)]
    pq.write_table(
        rows,
        file,
        compression="lz4",
        coerce_timestamps="us",
        store_schema=False,
        row_group_size=_ROWS_PER_TASK,
        use_dictionary=texts,
    )


@dataclass(frozen=True)
class Memory:
    """Holds the tables that a run has read or written. Many rows go to Spark as files in `folder`, if there is one."""

    folder: Path | None = None
    tables: dict[str, LocalTable] = field(default_factory=dict)


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
