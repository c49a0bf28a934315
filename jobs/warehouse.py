"""Where the tables live: a folder of Delta tables, or registered ones. Every read and write goes through here."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.config import Config
from jobs.errors import UsageError
from schemas.table import Column, Table

Origin = dict[str, Any]
"""What rows were derived from: versions of tables, and options."""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _identifier(text: str) -> str:
    return "`" + text.replace("`", "``") + "`"


def _definition(column: Column) -> str:
    required = "" if column.nullable else " NOT NULL"
    return f"{_identifier(column.name)} {column.type.simpleString()}{required} COMMENT {_quoted(column.comment)}"


@dataclass(frozen=True, slots=True)
class Warehouse:
    """Tables at `<folder>/<name>` or, when `catalog_schema` is given, registered as CATALOG.SCHEMA.NAME."""

    spark: SparkSession
    folder: str = ""
    catalog_schema: str = ""

    @classmethod
    def of(cls, spark: SparkSession, config: Config) -> Self:
        """The warehouse that the options name.

        Raises:
            UsageError: they name none, or two.
        """
        if bool(config.warehouse) == bool(config.catalog_schema):
            raise UsageError("Give the tables one place: --warehouse URI or --catalog-schema CATALOG.SCHEMA.")
        return cls(spark, config.warehouse, config.catalog_schema)

    @property
    def place(self) -> str:
        """The folder or the catalog and schema, as a person would look for it."""
        return self.catalog_schema or self.location("").rstrip("/")

    def name(self, table: Table) -> str:
        """The table as SQL names it."""
        if self.catalog_schema:
            return ".".join(_identifier(part) for part in (*self.catalog_schema.split("."), table.name))
        return f"delta.{_identifier(self.location(table.name))}"

    def location(self, name: str) -> str:
        """Path of something in the folder; a path without scheme is made absolute."""
        folder = self.folder if "://" in self.folder else str(Path(self.folder).absolute())
        return f"{folder.rstrip('/')}/{name}"

    def create(self, table: Table) -> None:
        """Make the table with its comments and CHECK constraints, unless it is there."""
        columns = ", ".join(_definition(column) for column in table)
        checks = ", ".join(f"{_quoted('delta.constraints.' + k)} = {_quoted(v)}" for k, v in table.checks.items())
        properties = f" TBLPROPERTIES ({checks})" if checks else ""
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.name(table)} ({columns}) USING delta "
            f"COMMENT {_quoted(table.comment)}{properties}"
        )

    def require(self, table: Table, step: str) -> None:
        """Make sure the table is there.

        Raises:
            UsageError: it is not: `step` has to run first.
        """
        try:
            self.read(table)
        except AnalysisException as error:
            raise UsageError(f"There is no table {table.name}: run msmq-replay {step} first.") from error

    def read(self, table: Table) -> DataFrame:
        """The table's rows."""
        return self.spark.table(self.name(table))

    def replace(self, table: Table, rows: DataFrame, where: str = "true", derived_from: Origin | None = None) -> None:
        """Replace the rows that fulfil `where` in one commit, which says what the new ones were derived from."""
        writer = conform(rows, table).write.mode("overwrite")
        if where != "true":
            writer = writer.option("replaceWhere", where)
        if derived_from is not None:
            writer = writer.option("userMetadata", json.dumps(derived_from, sort_keys=True))
        self._write(table, writer)

    def _write(self, table: Table, writer: DataFrameWriter) -> None:
        if self.catalog_schema:
            writer.format("delta").saveAsTable(self.name(table))
        else:
            writer.format("delta").save(self.location(table.name))

    def merge(self, table: Table, rows: DataFrame, *, update: bool = False) -> None:
        """Put rows in by key in one commit; those already there, by key, stay as they are, or are replaced."""
        rows = conform(rows, table)
        if self.read(table).isEmpty():
            self._write(table, rows.write.mode("append"))
            return
        same = " AND ".join(f"t.{key} <=> s.{key}" for key in table.key)
        rows.createOrReplaceTempView("merged_rows")
        matched = " WHEN MATCHED THEN UPDATE SET *" if update else ""
        self.spark.sql(
            f"MERGE INTO {self.name(table)} t USING merged_rows s ON {same}{matched} WHEN NOT MATCHED THEN INSERT *"
        )

    def delete(self, table: Table, keys: DataFrame, where: str) -> None:
        """Remove, in one commit, the rows t for which a row s of `keys`, which are distinct, fulfils the condition."""
        keys.createOrReplaceTempView("deleted_keys")
        self.spark.sql(f"MERGE INTO {self.name(table)} t USING deleted_keys s ON {where} WHEN MATCHED THEN DELETE")

    def version(self, table: Table) -> int:
        """The table's last committed version."""
        return int(self._last_commit(table)["version"])

    def derived_from(self, table: Table) -> Origin:
        """What the table's last commit says its rows were derived from; nothing when it does not say."""
        text = self._last_commit(table)["userMetadata"]
        return dict(json.loads(text)) if text else {}

    def _last_commit(self, table: Table) -> Any:
        return self.spark.sql(f"DESCRIBE HISTORY {self.name(table)} LIMIT 1").collect()[0]


def conform(rows: DataFrame, table: Table) -> DataFrame:
    """The rows with the table's columns in its order, each of its type."""
    return rows.select([F.col(column.name).cast(column.type) for column in table])
