"""Says in Delta's and Spark's words what a table is declared to be: its properties, its columns, its place."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from deltalake import Schema
from pyspark.sql.types import StructField, StructType

from jobs.cli.errors import ConflictError
from jobs.tables.layout import constraints, marks
from jobs.tables.spark_rows import nullable
from schemas.table import Column, Table, sql_type

_CONFLICT = re.compile(r"DELTA_(CONCURRENT_\w+|METADATA_CHANGED|PROTOCOL_CHANGED)")
POLL_S = 2.0
"""Seconds between two looks at what another run does."""
_STATISTICS = "delta.dataSkippingStatsColumns"
CHANGES = "delta.enableChangeDataFeed"


class Guard(Protocol):
    """Declares what a warehouse asks of the publish lock that its run holds."""

    def check(self, *, surely: bool = False) -> None:
        """Makes sure that the run still holds the lock; raises ConflictError if it does not.

        `surely`: by a look at the lock; otherwise an operator may have taken it from the run since the last one.
        """


class CheckLock(Protocol):
    """Makes sure that the run may commit, as `Guard.check` does."""

    def __call__(self, *, surely: bool) -> None:
        """Makes sure of it; `surely`: by a look at the lock."""


def string_literal(text: str) -> str:
    """Returns the text as a string literal of Spark SQL, in which Spark finds no ${variable} to replace."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"


def identifier(text: str) -> str:
    """Returns the text as an identifier of Spark SQL."""
    return "`" + text.replace("`", "``") + "`"


def path_in(folder: str, name: str) -> str:
    """Returns the path of a name in a folder of tables; a path without a scheme is made absolute."""
    folder = folder if "://" in folder else str(Path(folder).absolute())
    return f"{folder.rstrip('/')}/{name}"


def properties(table: Table) -> dict[str, str]:
    """Returns the properties that a table is created with: its declaration, statistics, changes and constraints."""
    statistics = {_STATISTICS: ",".join(table.statistics_columns)} if table.statistics else {}
    changes = {CHANGES: "true"} if table.keeps_changes else {}
    return marks(table) | statistics | changes | constraints(table.checks)


@contextmanager
def naming_conflicts(table: Table) -> Iterator[None]:
    """Raises ConflictError where Spark says that something else wrote to the table at the same time."""
    try:
        yield
    except Exception as error:  # PySpark has no class for conflicts, and its two clients have none in common
        if not _CONFLICT.search(str(error)):
            raise
        raise ConflictError(f"Something else wrote {table.name} at the same time.") from error


def property_list(pairs: Mapping[str, str]) -> str:
    """Returns properties as SQL lists them."""
    return ", ".join(f"{string_literal(key)} = {string_literal(value)}" for key, value in pairs.items())


def definition(column: Column) -> str:
    """Returns how SQL declares a column."""
    required = "" if column.nullable else " NOT NULL"
    return f"{identifier(column.name)} {sql_type(column.type)}{required} COMMENT {string_literal(column.comment)}"


def delta_schema(table: Table) -> Schema:
    """Returns the table's schema with the columns' comments."""
    spark = StructType(
        [
            StructField(of.name, nullable(of.dataType), of.nullable, {"comment": column.comment})
            for column, of in zip(table, table.spark, strict=True)
        ]
    )
    return Schema.from_json(spark.json())
