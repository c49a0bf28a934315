"""Reads and writes the rows of the Delta tables. Every read and write of a step goes through `Warehouse`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from operator import and_
from pathlib import Path
from typing import Any, Self, TypeAlias
from uuid import uuid4

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.cli.errors import first_line
from jobs.cli.logs import progress
from jobs.cli.spark_session import session_settings
from jobs.tables import local_commits, log
from jobs.tables.declared import Guard, Tables, identifier, naming_conflicts
from jobs.tables.gone import Gone, with_values
from jobs.tables.local_files import count_rows, read_files
from jobs.tables.log import Commit, rows_version
from jobs.tables.spark_rows import (
    NO_GLOB,
    checkpoint,
    collect,
    to_spark,
    with_columns_of,
)
from schemas.table import Table
from udfs.frames.columns import only_in_each
from udfs.frames.parallel import run_in_parallel
from udfs.frames.tables import schema_of

Rows: TypeAlias = pl.DataFrame | DataFrame
"""Rows of this process or of Spark."""
_DELETED = ("delete", "update_preimage")
_COMMIT = "_commit_version"
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_COMMITS = 500
"""The newest commits that are read of a table's history."""
_LONGEST_WITH_READERS = 168
"""Hours that Delta wants files to be kept, so that no query under way loses one."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Holds the tables that a run has read or written."""

    most_to_judge: int
    """How many messages this process has the memory to judge."""
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    columns: dict[str, tuple[tuple[str, ...], pl.DataFrame]] = field(default_factory=dict)
    """By table: the files that it consisted of when it was last read in part, and the columns that were read."""

    @property
    def most_settled(self) -> int:
        """Returns for how many other messages there is the memory: each takes a quarter of one that is judged."""
        return 4 * self.most_to_judge

    def read_columns(self, table: str, files: Sequence[str], schema: pa.Schema) -> pl.DataFrame:
        """Returns columns of the table from its files, which never change: so no column is read twice."""
        of_files, known = self.columns.get(table, ((), pl.DataFrame()))
        if of_files != tuple(files):
            known = pl.DataFrame()
        missing = [schema.field(name) for name in schema.names if name not in known.columns]
        if missing:
            known = pl.concat([known, read_files(files, pa.schema(missing))], how="horizontal")
            self.columns[table] = tuple(files), known
        return known.select(schema.names)


@dataclass(frozen=True, slots=True)
class Warehouse(Tables):
    """Reads and writes the rows of tables."""

    histories: dict[str, list[Commit]] = field(default_factory=dict, repr=False, compare=False)
    """Histories that were read by Spark. They stay true because this run holds the publish lock: nobody else writes."""
    local: Memory | None = field(default=None, repr=False, compare=False)
    """The tables that this run has read or written, if the warehouse is small enough to be held in memory."""

    def read(self, table: Table) -> DataFrame:
        """Returns the rows of a table; in a local folder without Delta, which finds its files by a query each time."""
        if not self.is_local:
            return Tables.read(self, table)
        files = self.files(table)
        if not files:
            return self.spark.createDataFrame([], table.spark)
        return self.spark.read.schema(table.spark).option(NO_GLOB, "false").parquet(*files)

    def files(self, table: Table) -> list[str]:
        """Returns the Parquet files that hold the rows of a local table."""
        return local_commits.files(self.location(table.name))

    def count(self, table: Table) -> int | None:
        """Returns how many rows a table has, 0 if it is not there; None if the log of a local one does not tell."""
        if self.is_local:
            return local_commits.count(self.location(table.name))
        return self.read(table).count() if self.has(table) else 0

    def read_local(self, table: Table, *columns: str) -> pl.DataFrame:
        """Returns the rows of a table, which fit in memory; with columns, these at least."""
        if self.local is not None and table.name in self.local.tables:
            return self.local.tables[table.name]
        schema = _schema(table, columns or table.names)
        if self.is_local:
            reader = read_files if self.local is None else partial(self.local.read_columns, table.name)
            rows = reader(self.files(table), schema)
        elif self.is_new(table):
            rows = schema_of(schema).to_frame()
        else:
            rows = collect(with_columns_of(table, Tables.read(self, table)).select(*schema.names))
        if self.local is not None and not columns:
            self.local.tables[table.name] = rows
        return rows

    def read_if_small(self, table: Table, most: int) -> pl.DataFrame | None:
        """Returns the rows of a table in a local folder whose files have at most `most` bytes; None of another one."""
        place = self.location(table.name)
        return local_commits.read(place, table.arrow) if self.is_local and local_commits.size(place) <= most else None

    def read_keys(self, table: Table, near: pl.DataFrame) -> pl.DataFrame:
        """Returns the keys of a local table that share the first column with one of few rows."""
        files, first = self.files(table), table.key[0]
        return read_files(files, _schema(table, table.key), pl.col(first).is_in(near[first].implode()))

    def differences(
        self, table: Table, version: int, columns: Sequence[str], most: int | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """Returns the rows of a local table that came and that went since a version, as far as these columns say.

        Only files that are in one of both versions are read; a later version with the same rows stands for `version`.
        None where a file or a commit since is gone, where Spark has to find out, where those that came have over `most`
        bytes more than those that went, or where this process has not the memory for their rows.
        """
        if not self.is_local:
            return None
        try:
            same = log.last_with_rows_of(version, self.commits(table))
            changed = local_commits.changed_files(self.location(table.name), same)
            more, fewer = (sum(Path(file).stat().st_size for file in files) for files in changed)
            if most is not None and more - fewer > most:
                return None
            if self.local is not None and count_rows(chain(*changed)) > self.local.most_settled:
                return None
            came, went = (read_files(files, _schema(table, columns)) for files in changed)
        except OSError:  # VACUUM deleted a file, or Delta a commit
            return None
        return only_in_each(came, went, columns)

    def replace(self, table: Table, rows: Rows) -> None:
        """Replaces all rows, in one commit; none by none of this process in no commit.

        Raises:
            ConflictError: something else wrote some of these rows at the same time, or this run lost the publish lock.
        """
        if isinstance(rows, pl.DataFrame):
            if self.local is not None:
                self.local.tables[table.name] = rows
            if not rows.height and self._has_no_rows(table):
                return
        self.check_lock()
        if self.is_local:
            self._write_here(table, rows, overwrite=True)
            return
        writer = with_columns_of(table, self._there(rows)).write
        if self.is_new(table):  # so that Delta need not find out what is to be replaced
            writer = self._append_once(writer)
        else:
            writer = writer.mode("overwrite")
            if table.clustered_by:  # a plain overwrite drops the clustering
                writer = writer.option("replaceWhere", "true")
        with naming_conflicts(table):
            self._write(table, writer)

    def replace_here(self, table: Table, gone: Gone, rows: pl.DataFrame | None = None) -> None:
        """Replaces the rows of a local table that are gone by others, in one commit."""
        others = schema_of(table.arrow).to_frame() if rows is None else rows
        local_commits.replace_rows(self.location(table.name), table, gone, others, self.check_lock)

    def replace_rows(self, table: Table, gone: Rows | None, rows: Rows) -> None:
        """Replaces the rows that have the values of one of `gone` in its columns, or all rows, by others.

        Rows of this process are replaced in a local table in one commit, others in two.
        """
        if gone is None:
            self.replace(table, rows)
            return
        if self.local is not None:
            self.local.tables.pop(table.name, None)
        if self.is_local:
            values = with_values(gone if isinstance(gone, pl.DataFrame) else collect(gone))
            self.replace_here(table, values, rows if isinstance(rows, pl.DataFrame) else None)
            if isinstance(rows, pl.DataFrame):
                return
        elif not (self.is_new(table) or (isinstance(gone, pl.DataFrame) and gone.is_empty())):
            self.delete(table, self._there(gone), " AND ".join(f"t.{name} = s.{name}" for name in gone.columns))
        self.append(table, rows)

    def append(self, table: Table, rows: Rows) -> None:
        """Appends rows whose keys the table lacks, in one commit; none of this process in no commit."""
        if isinstance(rows, pl.DataFrame) and not rows.height:
            return
        if self.is_local:
            self._write_here(table, rows)
        else:
            writer = self._append_once(with_columns_of(table, self._there(rows)).write)
            self.commit(table, lambda: self._write(table, writer))

    def changes(self, table: Table, version: int) -> tuple[DataFrame, Rows] | None:
        """Returns how the rows of a table that `keeps_changes` differ from those of an earlier version.

        First the rows that were inserted since and are there, then the keys of those that were deleted since, of which
        some may have come again. None where Delta cannot tell: VACUUM has deleted a file that it needs, or the log or
        the changes begin later, or the platform has no change data feed.
        """
        reader = self.spark.read.option("readChangeFeed", "true").option("startingVersion", version + 1)
        is_delete = F.col("_change_type").isin(*_DELETED)
        try:
            feed = reader.table(self.name(table)).withColumn("is_delete", is_delete)
            kinds = {row["is_delete"] for row in feed.groupBy("is_delete").count().collect()}  # opens all files
        except Exception as error:  # noqa: BLE001 - PySpark has no class for some of them
            progress(f"{table.name}: cannot tell which rows are new: {first_line(error)}")
            return None
        came = feed.where("not is_delete")
        if True not in kinds:
            return came.select(*table.names), schema_of(_schema(table, table.key)).to_frame()
        deleted = feed.where("is_delete").groupBy(*table.key).agg(F.max(_COMMIT).alias("deleted_in"))
        deleted = checkpoint(deleted)
        stays = F.coalesce(F.col("deleted_in") <= F.col(_COMMIT), F.lit(True))  # a commit deletes before it inserts
        came = came.join(deleted, list(table.key), "left").where(stays)
        return came.select(*table.names), deleted.select(*table.key)

    def merge(self, table: Table, rows: DataFrame, *, update: bool = False) -> None:
        """Inserts the rows whose key the table lacks, in one commit; `update` replaces those that it has.

        The commit is not made twice if its answer is lost. Rows that replace others of a local table fit in memory.
        """
        if self.is_new(table):  # an append is cheaper than a MERGE into an empty table
            self.append(table, rows)
            return
        if self.is_local:
            if update:
                few = collect(with_columns_of(table, rows))
                self.replace_rows(table, few.select(table.key), few)
            else:
                self._write_here(table, _without_known(rows, self.read(table), table))
            return
        with_columns_of(table, rows).createOrReplaceTempView(f"merged_{table.name}")
        matched = " WHEN MATCHED THEN UPDATE SET *" if update else ""
        self._change(
            table,
            f"MERGE INTO {self.name(table)} t USING merged_{table.name} s ON {_same_key(table)}{matched} "
            "WHEN NOT MATCHED THEN INSERT *",
        )

    def delete(self, table: Table, keys: DataFrame, where: str) -> None:
        """Deletes, in one commit, the rows t that match a row s of `keys`, which are distinct, on `where`."""
        view = f"deleted_{table.name}"
        keys.createOrReplaceTempView(view)
        self._change(table, f"MERGE INTO {self.name(table)} t USING {view} s ON {where} WHEN MATCHED THEN DELETE")

    def restore(self, table: Table, version: int) -> None:
        """Puts back the rows of an earlier version, in a new commit."""
        if self.is_local:
            local_commits.restore(self.location(table.name), version, self.check_lock)
        else:
            self._change(table, f"RESTORE TABLE {self.name(table)} TO VERSION AS OF {version}")

    def optimize(self, table: Table, *sorted_by: str) -> tuple[int, int]:
        """Compacts small files, and sorts rows by columns or as the table is clustered.

        Returns how many files it removed and how many it added.
        """
        metrics: list[Any] = []
        sorting = f" ZORDER BY ({', '.join(map(identifier, sorted_by))})" if sorted_by else ""
        self._change(table, f"OPTIMIZE {self.name(table)}{sorting}", metrics.extend)
        return metrics[-1]["metrics"]["numFilesRemoved"], metrics[-1]["metrics"]["numFilesAdded"]

    def vacuum(self, table: Table, hours: int) -> None:
        """Deletes the files that no version of the last `hours` needs."""
        with session_settings(self.spark, {_RETENTION_CHECK: str(hours >= _LONGEST_WITH_READERS).lower()}):
            self._change(table, f"VACUUM {self.name(table)} RETAIN {hours} HOURS")

    def commits(self, table: Table) -> Iterable[Commit]:
        """Yields the table's commits, newest first; from a local log, each is read when the caller needs it."""
        if self.is_local:
            return log.commits(self.location(table.name))
        if self.lock is not None and table.name in self.histories:
            return self.histories[table.name]
        rows = self._sql(f"DESCRIBE HISTORY {self.name(table)} LIMIT {_COMMITS}").collect()
        found = [Commit.of(row["version"], row["timestamp"], row.asDict()) for row in rows]
        self.histories[table.name] = found
        return found

    def commits_if_any(self, table: Table) -> Iterable[Commit]:
        """Returns the table's commits, newest first; none where it does not exist."""
        return self.commits(table) if self.is_local or self.has(table) else ()

    def newest_entry(self, table: Table) -> tuple[int, int | None] | None:
        """Returns the table's newest version and, in a local folder, the bytes of its entry in the log."""
        if self.is_local:
            entry = log.newest_entry(self.location(table.name))
            return None if entry is None else (entry.version, entry.size)
        return next(((commit.version, None) for commit in self.commits_if_any(table)), None)

    def versions(self, tables: Sequence[Table]) -> dict[str, int]:
        """Returns a version of each table with the same rows as its newest (`rows_version`)."""
        found = run_in_parallel(partial(rows_version, self.commits(table)) for table in tables)
        return {table.name: version for table, version in zip(tables, found, strict=True)}

    def is_new(self, table: Table) -> bool:
        """Returns whether the table was created and nothing was ever written to it."""
        newest = self.newest_entry(table)
        return newest is not None and newest[0] == 0

    def forget(self, *tables: Table) -> None:
        """Makes the next look at the tables' histories ask Spark again."""
        for table in tables:
            self.histories.pop(table.name, None)

    def locked_by(self, lock: Guard) -> Self:
        """Returns the warehouse for the run that holds the lock."""
        return replace(self, lock=lock, histories={})

    def _has_no_rows(self, table: Table) -> bool:
        return not self.files(table) if self.is_local else self.is_new(table)

    def _there(self, rows: Rows) -> DataFrame:
        return to_spark(self.spark, rows) if isinstance(rows, pl.DataFrame) else rows

    def _write_here(self, table: Table, rows: Rows, *, overwrite: bool = False) -> None:
        """Writes a table in a local folder without Spark's part of Delta."""
        rows = rows if isinstance(rows, pl.DataFrame) else with_columns_of(table, rows)
        local_commits.write(self.location(table.name), table, rows, self.check_lock, overwrite=overwrite)

    def _append_once(self, writer: DataFrameWriter) -> DataFrameWriter:
        """Makes the write an append that is not made twice if its answer is lost, as it can be on an object store."""
        return writer.mode("append").option("txnAppId", uuid4().hex).option("txnVersion", 0)

    def _write(self, table: Table, writer: DataFrameWriter) -> None:
        self.forget(table)
        writer = writer.format("delta")
        if self.catalog_schema:
            writer.saveAsTable(self.name(table))
        else:
            writer.save(self.location(table.name))

    def _change(self, table: Table, statement: str, use: Callable[[list[Any]], Any] = lambda _: None) -> None:
        """Runs a statement that can safely be repeated, and passes on the rows that it returns."""
        self.forget(table)
        self.commit(table, lambda: use(self._sql(statement).collect()))


def _schema(table: Table, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([table.arrow.field(name) for name in columns])


def _without_known(rows: DataFrame, known: DataFrame, table: Table) -> DataFrame:
    """Returns the rows whose key the table lacks."""
    keys = known.select(*table.key).toDF(*(f"known_{name}" for name in table.key))
    is_same = reduce(and_, (F.col(name).eqNullSafe(F.col(f"known_{name}")) for name in table.key))
    return rows.join(keys, is_same, "left_anti")


def _same_key(table: Table) -> str:
    """Returns the condition that rows t and s have the same key."""
    return " AND ".join(f"t.{key} <=> s.{key}" for key in table.key)
