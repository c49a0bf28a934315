"""Creates the Delta tables with columns, comments and constraints as declared.

The tables lie in a folder or are registered in a catalog.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from jobs.cli.config import Config
from jobs.cli.errors import ConflictError, JobError, UsageError
from jobs.tables import local_commits, log
from schemas.table import Column, Table, sql_type

_CONFLICT = re.compile(r"DELTA_(CONCURRENT_\w+|METADATA_CHANGED|PROTOCOL_CHANGED)")
POLL_S = 2.0
"""Seconds between two looks at what another run does."""
_NOT_EMPTY = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_CHECK = "delta.constraints."
DECLARATION = "msmq.schema"
"""The property of a table that holds the fingerprint of its declaration."""
_STATISTICS = "delta.dataSkippingStatsColumns"
_CHANGES = "delta.enableChangeDataFeed"
_ATTEMPTS = 5


class Guard(Protocol):
    """Declares what a warehouse asks of the publish lock that its run holds."""

    def check(self) -> None:
        """Makes sure that the run still holds the lock; raises ConflictError if it does not."""


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


def is_local(folder: str, catalog_schema: str) -> bool:
    """Returns whether tables lie in a folder of the machine that Spark's driver runs on."""
    return not (catalog_schema or "://" in folder or is_remote())


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables at `<folder>/<name>` or, when `catalog_schema` is given, registered as CATALOG.SCHEMA.NAME.

    With a `lock`, every commit is preceded by a check that this run still holds it.
    """

    spark: SparkSession
    folder: str = ""
    catalog_schema: str = ""
    lock: Guard | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, spark: SparkSession, config: Config) -> Self:
        """Returns the warehouse that the options name.

        Raises:
            UsageError: they name none, or two.
        """
        if bool(config.warehouse) == bool(config.catalog_schema):
            raise UsageError("Give the tables one place: --warehouse URI or --catalog-schema CATALOG.SCHEMA.")
        return cls(spark, config.warehouse, config.catalog_schema)

    @property
    def place(self) -> str:
        """Returns the folder, or the catalog and schema, as a person would look for it."""
        return self.catalog_schema or self.location("").rstrip("/")

    def name(self, table: Table) -> str:
        """Returns the table's name in SQL."""
        if self.catalog_schema:
            return self.registered(table.name)
        return f"delta.{identifier(self.location(table.name))}"

    def registered(self, name: str) -> str:
        """Returns the SQL name of what is registered under the name in the catalog's schema."""
        return ".".join(identifier(part) for part in (*self.catalog_schema.split("."), name))

    def location(self, name: str) -> str:
        """Returns the path of a name in the folder."""
        return path_in(self.folder, name)

    def read(self, table: Table) -> DataFrame:
        """Returns the table's rows."""
        return self.spark.read.table(self.name(table))

    @property
    def is_local(self) -> bool:
        """Returns whether the tables lie in a folder of the machine that Spark's driver runs on."""
        return is_local(self.folder, self.catalog_schema)

    def has(self, table: Table) -> bool:
        """Returns whether the table exists."""
        if self.is_local:
            with suppress(OSError):
                return bool(log.versions(self.location(table.name)))
            return False
        try:
            return bool(Tables.read(self, table).schema)  # a Connect client asks the server only for the schema
        except AnalysisException:
            return False

    def require(self, table: Table, step: str, where: str = "") -> None:
        """Makes sure that the table exists.

        Raises:
            UsageError: it does not: `step` has to run first, `where` if not here.
        """
        if not self.has(table):
            raise UsageError(f"There is no table {table.name} in {self.place}: run msmq-replay {step}{where} first.")

    def create(self, table: Table, *, derived: bool = False) -> None:
        """Creates the table with its comments and CHECK constraints, unless it exists as declared.

        A table of another declaration is replaced by an empty one if its rows are `derived`.

        Raises:
            JobError: its rows are not derived, and another version of the program wrote them. UsageError: its place
            holds something else.
        """
        exists = self.has(table)
        if exists:
            if self.declaration(table) == table.fingerprint:
                return
            if not derived:
                raise JobError(
                    f"The table {table.name} in {self.place} was made by another version of msmq-replay, with other "
                    "columns or values. Use that version, or ingest the captures into a new warehouse."
                )
        for _ in range(_ATTEMPTS):
            self._create(table, exists=exists)
            if self.has(table):
                return
            time.sleep(POLL_S)  # another run may be creating the table: its folder exists before its first commit
        raise UsageError(f"The table {self.name(table)} cannot be created: its folder holds something else.")

    def _create(self, table: Table, *, exists: bool) -> None:
        """Commits the table's declaration, unless another run does or its folder is not empty."""
        statistics = {_STATISTICS: ",".join(table.statistics_columns)} if table.statistics else {}
        changes = {_CHANGES: "true"} if table.keeps_changes else {}
        checks = {_CHECK + name: check for name, check in table.checks.items()}
        properties = {DECLARATION: table.fingerprint} | statistics | changes | checks
        if self.is_local:
            self.check_lock()
            local_commits.create(self.location(table.name), table, properties, again=exists)
            return
        verb = "REPLACE TABLE" if exists else "CREATE TABLE IF NOT EXISTS"
        columns = ", ".join(_definition(column) for column in table)
        clustering = f"CLUSTER BY ({', '.join(map(identifier, table.clustered_by))})" if table.clustered_by else ""
        statement = (
            f"{verb} {self.name(table)} ({columns}) USING delta {clustering} "
            f"COMMENT {string_literal(table.comment)} TBLPROPERTIES ({_properties(properties)})"
        )
        try:
            self.commit(table, lambda: self._sql(statement))
        except AnalysisException as error:
            if _NOT_EMPTY not in str(error):
                raise

    def declaration(self, table: Table) -> str | None:
        """Returns the fingerprint of the declaration from which the table was made; None if it has none."""
        return self._properties(table).get(DECLARATION)

    def _properties(self, table: Table) -> dict[str, str]:
        if self.is_local:
            return local_commits.read_properties(self.location(table.name))
        rows = self._sql(f"SHOW TBLPROPERTIES {self.name(table)}").collect()
        return {row["key"]: row["value"] for row in rows}

    def set_properties(self, table: Table, pairs: Mapping[str, str]) -> None:
        """Sets properties of the table in one commit, and does not repeat it after a conflict.

        Raises:
            ConflictError: something else wrote to the table at the same time.
        """
        if self.is_local:
            local_commits.set_properties(self.location(table.name), pairs)
            return
        with naming_conflicts(table):
            self._sql(f"ALTER TABLE {self.name(table)} SET TBLPROPERTIES ({_properties(pairs)})")

    def commit(self, table: Table, work: Callable[[], Any]) -> None:
        """Makes a commit that can safely be made twice; repeats it after a conflict with another commit.

        Raises:
            ConflictError: this run no longer holds the publish lock.
        """
        for attempt in range(_ATTEMPTS):
            self.check_lock()
            try:
                with naming_conflicts(table):
                    work()
            except ConflictError:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def check_lock(self) -> None:
        """Makes sure that this run, if it took the publish lock, still holds it.

        Raises:
            ConflictError: it does not.
        """
        if self.lock is not None:
            self.lock.check()

    def _sql(self, statement: str) -> DataFrame:
        return self.spark.sql(statement)


@contextmanager
def naming_conflicts(table: Table) -> Iterator[None]:
    """Raises ConflictError where Spark says that something else wrote to the table at the same time."""
    try:
        yield
    except Exception as error:  # PySpark has no class for conflicts, and its two clients have none in common
        if not _CONFLICT.search(str(error)):
            raise
        raise ConflictError(f"Something else wrote {table.name} at the same time.") from error


def _properties(pairs: Mapping[str, str]) -> str:
    return ", ".join(f"{string_literal(key)} = {string_literal(value)}" for key, value in pairs.items())


def _definition(column: Column) -> str:
    required = "" if column.nullable else " NOT NULL"
    return f"{identifier(column.name)} {sql_type(column.type)}{required} COMMENT {string_literal(column.comment)}"
