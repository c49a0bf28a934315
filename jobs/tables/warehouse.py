"""Declares what steps ask of a warehouse. Every read and write of a table goes through it.

`jobs.tables.places` says which of the implementations a place gets.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeAlias

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.types import StructType

from jobs.cli.errors import ConflictError, UsageError, first_line
from jobs.cli.logs import progress
from jobs.cli.spark_session import session_settings
from jobs.tables.declared import POLL_S, Guard, identifier, naming_conflicts, path_in
from jobs.tables.layout import DECLARATION, maker, marks, plan
from jobs.tables.log import Commit, rows_version
from jobs.tables.memory import Memory
from jobs.tables.running import Mark
from jobs.tables.spark_rows import checkpoint, collect, to_spark
from jobs.tables.tasks import Made
from schemas.table import Column, Table
from udfs.frames.parallel import run_in_parallel
from udfs.frames.tables import schema_of

Rows: TypeAlias = pl.DataFrame | DataFrame
"""Rows of this process or of Spark."""
NewRows: TypeAlias = Rows | Made
"""Rows to be written, some by the tasks that make them."""
_ATTEMPTS = 5
_DELETED = ("delete", "update_preimage")
IS_DELETE = "is_delete"
_COMMIT = "_commit_version"
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_LONGEST_WITH_READERS = 168
"""Hours that Delta wants files to be kept, so that no query under way loses one."""


@dataclass(frozen=True)
class Warehouse(ABC):
    """Creates, reads and writes the tables at a place, each at `<root>/<name>` unless an implementation says otherwise.

    With a `lock`, every commit is preceded by a check that this run still holds it.
    """

    spark: SparkSession
    root: str
    """The folder of the tables as a path or URI, or CATALOG.SCHEMA."""
    lock: Guard | None = field(default=None, kw_only=True, repr=False, compare=False)
    local: Memory | None = field(default=None, kw_only=True, repr=False, compare=False)
    """The tables that this run has read or written, if the warehouse is small enough to be held in memory."""

    needs_spark: ClassVar[bool]
    """Whether only Spark can read and write the tables; each read and commit then costs more."""
    _clusters: ClassVar[bool]
    """Whether Delta itself clusters rows by the columns that a table declares for it."""

    @property
    def place(self) -> str:
        """Returns where the tables are, as a person would look for it."""
        return path_in(self.root, "").rstrip("/")

    def name(self, table: Table) -> str:
        """Returns the table's name in SQL."""
        return f"delta.{identifier(path_in(self.root, table.name))}"

    def path(self, name: str) -> str | None:
        """Returns the path of a file of this name beside the tables; None where they have no folder."""
        return path_in(self.root, name)

    @property
    @abstractmethod
    def own_logs(self) -> Mapping[str, str]:
        """Returns the folder of each table whose log this process writes, by name; empty where Spark writes it."""

    @abstractmethod
    def mark(self) -> Mark:
        """Returns the mark by which runs of this machine see that one of them writes here."""

    @abstractmethod
    def has(self, table: Table) -> bool:
        """Returns whether the table exists."""

    @abstractmethod
    def properties(self, table: Table) -> Mapping[str, str]:
        """Returns the properties of a table that is there."""

    def properties_if_any(self, table: Table) -> Mapping[str, str] | None:
        """Returns the properties of a table; None if it is not there."""
        return self.properties(table) if self.has(table) else None

    @abstractmethod
    def columns(self, table: Table) -> StructType:
        """Returns the columns of a table that is there."""

    def require(self, table: Table, step: str, where: str = "") -> None:
        """Makes sure that the table exists.

        Raises:
            UsageError: it does not: `step` has to run first, `where` if not here.
        """
        if not self.has(table):
            raise UsageError(f"There is no table {table.name} in {self.place}: run msmq-replay {step}{where} first.")

    def create(self, table: Table, *, derived: bool = False) -> None:
        """Creates the table with its comments and CHECK constraints, unless it exists as declared.

        A table of another declaration is replaced by an empty one if its rows are `derived`; otherwise it is upgraded.

        Raises:
            JobError: it cannot be upgraded. UsageError: its place holds something else.
        """
        found = self.properties_if_any(table)
        if found is not None:
            if found.get(DECLARATION) == table.fingerprint:
                return
            if not derived:
                self._upgrade(table)
                return
        for _ in range(_ATTEMPTS):
            self._create(table, exists=found is not None)
            if self.has(table):
                return
            time.sleep(POLL_S)  # another run may be creating the table: its folder exists before its first commit
        raise UsageError(f"The table {self.name(table)} cannot be created: its folder holds something else.")

    def _upgrade(self, table: Table) -> None:
        """Gives a table what it lacks of its declaration; one that is killed half way is upgraded again."""
        properties = self.properties(table)
        lacking = plan(table, self.columns(table), properties)
        progress(f"{table.name}: upgrading what {maker(properties)} of msmq-replay made")
        if lacking.added:
            self.commit(table, lambda: self._add_columns(table, lacking.added))
        self._replace_checks(table, lacking.checks)
        self.commit(table, lambda: self.set_properties(table, marks(table)))

    @abstractmethod
    def _add_columns(self, table: Table, columns: Sequence[Column]) -> None:
        """Adds columns, which are null in all rows, in one commit."""

    @abstractmethod
    def _replace_checks(self, table: Table, checks: Mapping[str, str]) -> None:
        """Adds CHECK constraints by name, or replaces those of this name."""

    @abstractmethod
    def _create(self, table: Table, *, exists: bool) -> None:
        """Commits the table's declaration, unless another run does or its folder is not empty."""

    @abstractmethod
    def set_properties(self, table: Table, pairs: Mapping[str, str], *, by: str = "") -> None:
        """Sets properties of the table in one commit, and does not repeat it after a conflict.

        `by` is written into the commit, as its user metadata.

        Raises:
            ConflictError: something else wrote to the table at the same time.
        """

    @abstractmethod
    def read(self, table: Table, *columns: str) -> DataFrame:
        """Returns the rows of a table, for Spark to read; with columns, these at least."""

    def read_in_tasks(self, table: Table, *columns: str) -> Made | None:
        """Returns columns of a table that Python reads in tasks; None where Spark itself reads them."""
        del table, columns
        return None

    @abstractmethod
    def count(self, table: Table) -> int | None:
        """Returns how many rows a table has, 0 if it is not there; None if only reading all of them would tell."""

    def read_local(self, table: Table, *columns: str) -> pl.DataFrame:
        """Returns the rows of a table, which fit in memory; with columns, these at least."""
        if self.local is not None and table.name in self.local.tables:
            return self.local.tables[table.name]
        rows = self._read_columns(table, columns_of(table, columns or table.names))
        if self.local is not None and not columns:
            self.local.tables[table.name] = rows
        return rows

    @abstractmethod
    def _read_columns(self, table: Table, schema: pa.Schema) -> pl.DataFrame:
        """Returns columns of all rows of a table."""

    @abstractmethod
    def read_if_small(self, table: Table, most: int, *columns: str) -> pl.DataFrame | None:
        """Returns columns of a table with at most `most` bytes of files; None of others, or if only Spark can tell."""

    @abstractmethod
    def scan_if_many(self, table: Table, most: int, *columns: str) -> pl.LazyFrame | None:
        """Returns columns of a table that may have over `most` rows, read when needed; None where all are read here."""

    @abstractmethod
    def differences(
        self, table: Table, version: int, columns: Sequence[str], most: int | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """Returns the rows of a table that came and that went since a version, as far as these columns say.

        None where nothing tells without Spark, where those that came have over `most` bytes more than those that went,
        or where this process has not the memory for their rows.
        """

    def changes(self, table: Table, version: int) -> tuple[DataFrame, Rows] | None:
        """Returns how the rows of a table that `keeps_changes` differ from those of an earlier version.

        First the rows that were inserted since and are there, then the keys of those that were deleted since, of which
        some may have come again. None where Delta cannot tell: VACUUM has deleted a file that it needs, or the log or
        the changes begin later, or the platform has no change data feed.
        """
        try:
            feed = self._feed(table, version)
            kinds = {row[IS_DELETE] for row in feed.groupBy(IS_DELETE).count().collect()}  # opens all files
        except Exception as error:  # noqa: BLE001 - PySpark has no class for some of them
            progress(f"{table.name}: cannot tell which rows are new: {first_line(error)}")
            return None
        came = feed.where(~F.col(IS_DELETE))
        if True not in kinds:
            return came.select(*table.names), schema_of(columns_of(table, table.key)).to_frame()
        deleted = feed.where(IS_DELETE).groupBy(*table.key).agg(F.max(_COMMIT).alias("deleted_in"))
        deleted = checkpoint(deleted)
        stays = F.coalesce(F.col("deleted_in") <= F.col(_COMMIT), F.lit(True))  # a commit deletes before it inserts
        came = came.join(deleted, list(table.key), "left").where(stays)
        return came.select(*table.names), deleted.select(*table.key)

    def _feed(self, table: Table, version: int) -> DataFrame:
        """Returns the rows that came since a version and, with IS_DELETE, those that went: Delta's change data feed."""
        reader = self.spark.read.option("readChangeFeed", "true").option("startingVersion", version + 1)
        return reader.table(self.name(table)).withColumn(IS_DELETE, F.col("_change_type").isin(*_DELETED))

    def replace(self, table: Table, rows: NewRows, *others: NewRows) -> None:
        """Replaces all rows, in one commit; none by none of this process in no commit.

        Rows that tasks are to make, and `others` beside these, have just the table's columns.

        Raises:
            ConflictError: something else wrote some of these rows at the same time, or this run lost the publish lock.
        """
        if isinstance(rows, pl.DataFrame):
            if self.local is not None:
                self.local.tables[table.name] = rows
            if not rows.height and self._has_no_rows(table):
                return
        self.check_lock()
        self._replace_all(table, rows, *others)

    @abstractmethod
    def _has_no_rows(self, table: Table) -> bool:
        """Returns whether the table is known to have no rows."""

    @abstractmethod
    def _replace_all(self, table: Table, *parts: NewRows) -> None:
        """Replaces all rows by those of these parts."""

    def replace_rows(self, table: Table, gone: Rows | None, rows: NewRows) -> None:
        """Replaces the rows that have the values of one of `gone` in its columns, or all rows, by others.

        Rows of this process are replaced in one commit; others in two.
        """
        if gone is None:
            self.replace(table, rows)
            return
        if self.local is not None:
            self.local.tables.pop(table.name, None)
        self._replace_some(table, gone, rows)

    @abstractmethod
    def _replace_some(self, table: Table, gone: Rows, rows: NewRows) -> None:
        """Replaces the rows that have the values of one of `gone` in its columns by others."""

    def append(self, table: Table, rows: NewRows) -> None:
        """Appends rows whose keys the table lacks, in one commit; none of this process in no commit."""
        if not (isinstance(rows, pl.DataFrame) and rows.is_empty()):
            self._append(table, rows)

    @abstractmethod
    def _append(self, table: Table, rows: NewRows) -> None:
        """Appends rows."""

    def merge(self, table: Table, rows: NewRows, *, update: bool = False) -> None:
        """Inserts the rows whose key the table lacks, in one commit; `update` replaces those that it has.

        None of this process are no commit. The commit is not made twice if its answer is lost.
        """
        if isinstance(rows, pl.DataFrame) and rows.is_empty():
            return
        if self.is_new(table):  # an append is cheaper than looking for keys in an empty table
            self.append(table, rows)
        else:
            self._merge(table, rows.rows() if isinstance(rows, Made) else rows, update=update)

    @abstractmethod
    def _merge(self, table: Table, rows: Rows, *, update: bool) -> None:
        """Merges rows into a table that has some."""

    @abstractmethod
    def delete_from_offset(self, table: Table, stale: Rows) -> None:
        """Deletes the rows of each stream (stream_id, from_offset) from that offset on; with -1, all of the stream."""

    def merge_from_offset(self, table: Table, stale: Rows, rows: Rows) -> None:
        """Deletes rows as `delete_from_offset` does, and inserts the rows whose key the table then lacks."""
        self.delete_from_offset(table, stale)
        self.merge(table, rows)

    @abstractmethod
    def restore(self, table: Table, version: int) -> None:
        """Puts back the rows of an earlier version, in a new commit."""

    def optimize(self, table: Table, *, sort: bool) -> tuple[int, int]:
        """Compacts small files and, at least with `sort`, sorts the rows as the table is `clustered_by`.

        Returns how many files it removed and how many it added.
        """
        columns, metrics = () if self._clusters or not sort else table.clustered_by, list[Any]()
        sorting = f" ZORDER BY ({', '.join(map(identifier, columns))})" if columns else ""
        self._change(table, f"OPTIMIZE {self.name(table)}{sorting}", metrics.extend)
        return metrics[-1]["metrics"]["numFilesRemoved"], metrics[-1]["metrics"]["numFilesAdded"]

    def vacuum(self, table: Table, hours: int) -> None:
        """Deletes the files that no version of the last `hours` needs."""
        with session_settings(self.spark, {_RETENTION_CHECK: str(hours >= _LONGEST_WITH_READERS).lower()}):
            self._change(table, f"VACUUM {self.name(table)} RETAIN {hours} HOURS")

    @abstractmethod
    def checkpoint(self, table: Table) -> None:
        """Makes a checkpoint of the table's log; nothing where Spark writes the log."""

    @abstractmethod
    def shorten_log(self, table: Table) -> None:
        """Deletes what the log says of versions before the newest checkpoint; nothing where Spark writes the log."""

    @abstractmethod
    def commits(self, table: Table) -> Iterable[Commit]:
        """Returns the table's commits, newest first."""

    @abstractmethod
    def commits_if_any(self, table: Table) -> Iterable[Commit]:
        """Returns the table's commits, newest first; none where it does not exist."""

    @abstractmethod
    def newest_entry(self, table: Table) -> tuple[int, int | None] | None:
        """Returns the table's newest version and, of its `own_logs`, the bytes of its entry; None without a table."""

    def versions(self, tables: Sequence[Table], recorded: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
        """Returns a version of each table with the same rows as its newest: the `recorded` one, if it is the newest.

        Otherwise it is that of `rows_version`.
        """

        def version_of(table: Table) -> int:
            then = recorded.get(table.name)
            newest = None if then is None else self.newest_entry(table)
            return newest[0] if newest is not None and newest[0] == then else rows_version(self.commits(table))

        found = run_in_parallel(partial(version_of, table) for table in tables)
        return {table.name: version for table, version in zip(tables, found, strict=True)}

    def is_new(self, table: Table) -> bool:
        """Returns whether the table was created and nothing was ever written to it."""
        newest = self.newest_entry(table)
        return newest is not None and newest[0] == 0

    @abstractmethod
    def forget(self, *tables: Table) -> None:
        """Makes the next look at the tables' histories ask Spark again."""

    def without_compiling(self) -> AbstractContextManager[None]:
        """Returns a context for looks at logs and at few rows, for which Spark had better compile nothing."""
        return nullcontext()

    def locked_by(self, lock: Guard) -> Self:
        """Returns the warehouse for the run that holds the lock."""
        return replace(self, lock=lock)

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

    def check_lock(self, *, surely: bool = False) -> None:
        """Makes sure that this run, if it took the publish lock, still holds it (`Guard.check`).

        Raises:
            ConflictError: it does not.
        """
        if self.lock is not None:
            self.lock.check(surely=surely)

    def _change(self, table: Table, statement: str, use: Callable[[list[Any]], Any] = lambda _: None) -> None:
        """Runs a statement that can safely be repeated, and passes on the rows that it returns."""
        self.commit(table, lambda: use(self.spark.sql(statement).collect()))

    def _as_spark(self, rows: NewRows) -> DataFrame:
        if isinstance(rows, Made):
            return rows.rows()
        return to_spark(self.spark, rows) if isinstance(rows, pl.DataFrame) else rows


def as_polars(rows: Rows) -> pl.DataFrame:
    """Returns rows, which fit in memory, as a frame of this process."""
    return rows if isinstance(rows, pl.DataFrame) else collect(rows)


def columns_of(table: Table, names: Sequence[str]) -> pa.Schema:
    """Returns the schema of columns of a table."""
    return pa.schema([table.arrow.field(name) for name in names])
