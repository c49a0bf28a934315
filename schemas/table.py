"""Declares a table: its columns with types, comments and allowed values.

The Arrow and Spark schemas, the Delta comments, the CHECK constraints and the documentation derive from a `Table`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

BINARY = pa.binary()
BOOL = pa.bool_()
DOUBLE = pa.float64()
LONG = pa.int64()
STRING = pa.string()
TIMESTAMP = pa.timestamp("us", tz="UTC")
U8 = pa.int16()  # the smallest Spark type that holds every unsigned value of that width
U16 = pa.int32()
U32 = LONG
U64 = pa.decimal128(20, 0)
RowType: TypeAlias = pa.Schema
_SQL: dict[pa.DataType, str] = {
    BINARY: "binary",
    BOOL: "boolean",
    DOUBLE: "double",
    LONG: "bigint",
    STRING: "string",
    TIMESTAMP: "timestamp",
    U8: "smallint",
    U16: "int",
    U64: "decimal(20,0)",
}


def row(**types: pa.DataType | RowType) -> RowType:
    """Returns the schema of rows with these columns, all nullable; a row in a row is a struct."""
    return pa.schema([(name, pa.struct(of) if isinstance(of, pa.Schema) else of) for name, of in types.items()])


def required(name: str, of: pa.DataType) -> pa.Field:
    """Returns a field that is never null."""
    return pa.field(name, of, nullable=False)


def array(of: pa.DataType | RowType, *, nullable: bool = True) -> pa.ListType:
    """Returns the type of a list; its elements may be null if it is `nullable`."""
    return pa.list_(pa.field("element", pa.struct(of) if isinstance(of, pa.Schema) else of, nullable=nullable))


def sql_type(of: pa.DataType) -> str:
    """Returns the name of a type in Spark's SQL."""
    if pa.types.is_struct(of):
        return f"struct<{','.join(f'{field.name}:{sql_type(field.type)}' for field in of)}>"
    return f"array<{sql_type(of.value_type)}>" if pa.types.is_list(of) else _SQL[of]


def spark_schema(schema: RowType) -> "StructType":
    """Returns the schema for Spark, without comments: metadata in a UDF's return type breaks it."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - what runs without Spark need not have it

    return from_arrow_schema(schema)


def row_type(spark: "StructType") -> RowType:
    """Returns the schema of rows that Spark has, all columns nullable."""
    return row(**{field.name: _arrow_type(field.dataType) for field in spark})


def _arrow_type(of: "DataType") -> pa.DataType:
    """Returns the Arrow type of a Spark type; Spark 4.1 and 4.2 are told the time zone of timestamps in two ways."""
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415
    from pyspark.sql.types import ArrayType, StructType, TimestampType  # noqa: PLC0415

    if isinstance(of, StructType):
        return pa.struct([pa.field(one.name, _arrow_type(one.dataType), one.nullable) for one in of])
    if isinstance(of, ArrayType):
        return array(_arrow_type(of.elementType), nullable=of.containsNull)
    return TIMESTAMP if isinstance(of, TimestampType) else to_arrow_type(of)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: name, Arrow type, comment for analysts, and the values if they are enumerated."""

    name: str
    type: pa.DataType
    comment: str
    nullable: bool = True
    values: Sequence[str] | None = None


@dataclass(frozen=True)
class Table:
    """A Delta table: `<warehouse>/<name>`, one row per `key`; clustered in a catalog, sorted by `maintain` elsewhere.

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
    def arrow(self) -> RowType:
        """Arrow schema of the rows."""
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.columns])

    @cached_property
    def spark(self) -> "StructType":
        """Spark schema of the rows."""
        return spark_schema(self.arrow)

    @property
    def fingerprint(self) -> str:
        """Hash of the rows that the table can have, which is stored with the table that was created from it."""
        columns = [(c.name, str(c.type), c.nullable, c.values and tuple(map(str, c.values))) for c in self.columns]
        return hashlib.sha256(repr(columns).encode()).hexdigest()[:16]

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
