"""Declares a table: its columns with types, comments and allowed values.

The Spark and Arrow schemas, the Delta comments, the CHECK constraints and the documentation derive from a `Table`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
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
    StructField,
    StructType,
    TimestampType,
)

BINARY = BinaryType()
BOOL = BooleanType()
DOUBLE = DoubleType()
LONG = LongType()
STRING = StringType()
TIMESTAMP = TimestampType()
U8 = ShortType()  # the smallest Spark type that holds every unsigned value of that width
U16 = IntegerType()
U32 = LongType()
U64 = DecimalType(20, 0)
RowType = StructType
_ARROW: dict[DataType, pa.DataType] = {
    BINARY: pa.binary(),
    BOOL: pa.bool_(),
    DOUBLE: pa.float64(),
    LONG: pa.int64(),
    STRING: pa.string(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    U8: pa.int16(),
    U16: pa.int32(),
    U64: pa.decimal128(20, 0),
}


def row(**types: DataType) -> RowType:
    """Returns the Spark schema of rows with these columns, all nullable."""
    return StructType([StructField(name, of) for name, of in types.items()])


def arrow_schema(spark: RowType) -> pa.Schema:
    """Returns the Arrow schema of rows, as `mapInArrow` exchanges them."""
    return pa.schema(_arrow_fields(spark))


def _arrow_fields(spark: RowType) -> list[pa.Field]:
    return [pa.field(field.name, _arrow_type(field.dataType), nullable=field.nullable) for field in spark]


def _arrow_type(spark: DataType) -> pa.DataType:
    if isinstance(spark, StructType):
        return pa.struct(_arrow_fields(spark))
    if isinstance(spark, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(spark.elementType), nullable=spark.containsNull))
    return _ARROW[spark]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: name, Spark type, comment for analysts, and the values if they are enumerated."""

    name: str
    type: DataType
    comment: str
    nullable: bool = True
    values: Sequence[str] | None = None


@dataclass(frozen=True)
class Table:
    """A Delta table: `<warehouse>/<name>`, one row per `key`, with liquid clustering by `clustered_by`.

    If `statistics` names further columns that queries filter by, Delta collects minimum and maximum of these, of the
    key and of `clustered_by` only; otherwise of the first 32 columns, its default.
    """

    name: str
    comment: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    clustered_by: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    keeps_changes: bool = False
    """Delta records which rows each commit inserted and deleted."""

    def __iter__(self) -> Iterator[Column]:
        """Iterates over the columns in their order."""
        return iter(self.columns)

    @property
    def names(self) -> list[str]:
        """Names of the columns, in their order."""
        return [column.name for column in self.columns]

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def spark(self) -> RowType:
        """Spark schema, without comments: metadata in a UDF's return type breaks Spark."""
        return StructType([StructField(c.name, c.type, c.nullable) for c in self.columns])

    @cached_property
    def arrow(self) -> pa.Schema:
        """Arrow schema of the same rows."""
        return arrow_schema(self.spark)

    @property
    def fingerprint(self) -> str:
        """Hash of this declaration, which is stored with the table that was created from it."""
        declared: tuple[object, ...] = (self.comment, self.columns, self.clustered_by, self.statistics_columns)
        declared += ("keeps changes",) if self.keeps_changes else ()
        return hashlib.sha256(repr(declared).encode()).hexdigest()[:16]

    @property
    def statistics_columns(self) -> tuple[str, ...]:
        """Columns for which Delta collects file statistics; empty for Delta's default."""
        return tuple(dict.fromkeys((*self.key, *self.clustered_by, *self.statistics))) if self.statistics else ()

    @property
    def checks(self) -> dict[str, str]:
        """CHECK constraints by name, one for each enumerated column."""
        return {
            f"{column.name}_values": " OR ".join(
                [f"{column.name} IS NULL"] * column.nullable
                + [f"{column.name} IN ({', '.join(repr(str(value)) for value in column.values)})"]
            )
            for column in self.columns
            if column.values is not None
        }
