"""Reads and writes the rows of the Delta tables. Every read and write of a step goes through `Warehouse`."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import and_
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.errors import ConflictError, JobError, first_line
from jobs.app.logs import progress
from jobs.app.parallel import run_in_parallel
from jobs.transforms.expressions import with_columns_of
from jobs.warehouse import checkpoint, local_commits, local_parts, log
from jobs.warehouse.gone import Gone, with_values
from jobs.warehouse.local_files import Derive
from jobs.warehouse.local_tables import NO_GLOB, Memory, cast_columns, collect, nullable, to_spark
from jobs.warehouse.log import Commit, rows_version
from jobs.warehouse.tables import CONFLICT, Tables
from schemas.table import Table
from udfs.derive.tables import schema_of

_DELETED = ("delete", "update_preimage")
_CHANGES_GONE = re.compile(r"\[DELTA_|FILE_NOT_EXIST|FileNotFoundException")
"""Errors of the feed that PySpark has no class for."""
_COMMIT = "_commit_version"
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_COMMITS = 500
"""The newest commits that are read of a table's history."""
_LONGEST_WITH_READERS = 168
"""Hours that Delta wants files to be kept, so that no query under way loses one."""


class Changes(NamedTuple):
    """Holds how a table's rows differ from those of an earlier version."""

    came: DataFrame
    """Rows that were inserted since, and are there."""
    went: DataFrame | None
    """Keys of rows that were deleted since, of which some may have come again; None without any."""


@dataclass(frozen=True, slots=True)
class Warehouse(Tables):
    """Reads and writes the rows of tables."""

    histories: dict[str, list[Commit]] = field(default_factory=dict, repr=False, compare=False)
    """Histories that were read by Spark. They stay true because this run holds the publish lock: nobody else writes."""
    local: Memory | None = field(default=None, repr=False, compare=False)
    """The tables that this run has read or written, if the warehouse is small enough to be held in memory."""

    def read(self, table: Table) -> DataFrame:
        """Returns the table's rows."""
        return self._read_files(table) if self.local is None else to_spark(self.spark, self.read_local(table))

    def _read_files(self, table: Table) -> DataFrame:
        """Returns the rows of a table; in a local folder without Delta, which finds its files by a query each time."""
        place = self.log_place(table)
        files = local_commits.files(place) if place is not None else None
        if files is None:
            return Tables.read(self, table)
        if not files:
            return self.spark.createDataFrame([], table.spark)
        return self.spark.read.schema(table.spark).option(NO_GLOB, "false").parquet(*files)

    def read_local(self, table: Table, *columns: str) -> pl.DataFrame:
        """Returns the rows of a table of a warehouse that is held in memory; with columns, these at least."""
        held = self._memory.tables
        if table.name in held:
            return held[table.name]
        rows = self._read_here(table, columns or table.names)
        if rows is None:
            rows = collect(with_columns_of(table, Tables.read(self, table)).select(*(columns or table.names)))
        if not columns:
            held[table.name] = rows
        return rows

    def append_local(self, table: Table, whole: pl.DataFrame, added: pl.DataFrame) -> None:
        """Appends rows, in one commit, to a table of a warehouse that is held in memory; it then holds `whole`."""
        self._memory.tables[table.name] = whole
        self.append_few(table, added)

    def replace_local(self, table: Table, whole: pl.DataFrame) -> None:
        """Replaces all rows of a table of a warehouse that is held in memory, in one commit."""
        # The rows that were there, which may be many, are read only where none comes.
        is_needless = not whole.height and not self.read_local(table).height
        self._memory.tables[table.name] = whole
        if not is_needless and not self._write_here(table, whole, overwrite=True):
            self.replace(table, to_spark(self.spark, whole))

    def replace(self, table: Table, rows: DataFrame, where: str = "true") -> None:
        """Replaces the rows that match `where`, in one commit.

        Raises:
            ConflictError: something else wrote some of these rows at the same time, or this run lost the publish lock.
        """
        self.check_lock()
        rows = conform(rows, table)
        if where == "true" and self._write_in_tasks(table, rows, overwrite=True):
            return
        writer = rows.write
        if self.is_new(table):  # so that Delta need not find out what is to be replaced
            writer = self._append_once(writer, table)
        else:
            writer = writer.mode("overwrite")
            if where != "true" or table.clustered_by:  # a plain overwrite drops the clustering
                writer = writer.option("replaceWhere", where)
        try:
            self._write(table, writer)
        except Exception as error:
            if CONFLICT.search(str(error)):
                raise ConflictError(f"Something else wrote {table.name} at the same time.") from error
            raise

    def derive_in_tasks(self, source: Table, tables: Sequence[Table], work: Derive) -> bool:
        """Replaces all rows of local tables by what `work` makes of batches of another's; returns whether it could."""
        places = {table: place for table in (source, *tables) if (place := self.log_place(table)) is not None}
        if len(places) <= len(tables):
            return False
        self.forget(*tables)
        return local_commits.derive_in_tasks(self.spark, places.pop(source), places, work, self.check_lock)

    def read_if_small(self, table: Table, most: int) -> pl.DataFrame | None:
        """Returns the rows of a table in a local folder whose files have at most `most` bytes; None of another one."""
        place = self.log_place(table)
        return None if place is None else local_commits.read(place, table.arrow, most)

    def replace_few(self, table: Table, rows: pl.DataFrame) -> None:
        """Replaces all rows of a table by few rows of this process, in one commit; none by none in no commit."""
        place = self.log_place(table)
        if place is not None and not rows.height and local_commits.files(place) == []:
            return
        if not self._write_here(table, rows, overwrite=True):
            self.replace(table, to_spark(self.spark, rows))

    def read_keys(self, table: Table, near: pl.DataFrame) -> pl.DataFrame | None:
        """Returns the keys of a local table that share the first column with one of few rows; None of another table."""
        place = self.log_place(table)
        return None if place is None else local_parts.read_keys(place, table, near)

    def append_few(self, table: Table, rows: pl.DataFrame) -> None:
        """Appends few rows of this process, in one commit; none in no commit."""
        if rows.height and not self._write_here(table, rows):
            few = to_spark(self.spark, rows)
            self.commit(lambda: self._write(table, self._append_once(few.write, table)))

    def delete_here(self, table: Table, gone: Gone) -> bool:
        """Deletes the rows that are gone, in one commit, or finds none; returns whether this process could."""
        place = self.log_place(table)
        none = schema_of(table.arrow).to_frame()
        if place is None:
            return False
        return local_commits.replace_rows(place, table, gone, none, self.check_lock) or not local_commits.has_any(
            place, table, gone
        )

    def replace_rows(self, table: Table, gone: pl.DataFrame, rows: pl.DataFrame) -> None:
        """Replaces the rows that have the values of one of `gone` in its columns by few others.

        This process does so in one commit, Spark in two.
        """
        if self.local is not None:
            self.local.tables.pop(table.name, None)
        place, same_values = self.log_place(table), with_values(gone)
        if place is not None and local_commits.replace_rows(place, table, same_values, rows, self.check_lock):
            return
        if gone.height and (place is None or local_commits.has_any(place, table, same_values)):
            same = " AND ".join(f"t.{name} = s.{name}" for name in gone.columns)
            self.delete(table, to_spark(self.spark, gone), same)
        self.append_few(table, rows)

    def differences(
        self, table: Table, version: int, columns: Sequence[str], most: int | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """Returns the rows of a local table that came and that went since a version, as far as these columns say.

        None where a file or the log of that version is gone, where Spark has to find out, or with over `most` bytes.
        """
        place = self.log_place(table)
        return None if place is None else local_parts.differences(place, table, version, columns, most)

    def append(self, table: Table, rows: DataFrame, step: str) -> None:
        """Appends rows whose keys the table lacks, in one commit; the step does so once in a run."""
        rows = conform(rows, table)
        if not self._write_in_tasks(table, rows):
            self.commit(lambda: self._write(table, self._append_once(rows.write, table, step)))

    def changes(self, table: Table, version: int) -> Changes | None:
        """Returns how the rows of a table that `keeps_changes` differ from those of an earlier version.

        None where Delta cannot tell: VACUUM has deleted a file that it needs, or the log or the changes begin later,
        or the platform has no change data feed.
        """
        reader = self.spark.read.option("readChangeFeed", "true").option("startingVersion", version + 1)
        is_delete = F.col("_change_type").isin(*_DELETED)
        try:
            feed = reader.table(self.name(table)).withColumn("is_delete", is_delete)
            kinds = {row["is_delete"] for row in feed.groupBy("is_delete").count().collect()}  # opens all files
        except Exception as error:
            if not _is_lost_version(table, error):
                raise
            return None
        came = feed.where("not is_delete")
        if True not in kinds:
            return Changes(came.select(*table.names), None)
        deleted = feed.where("is_delete").groupBy(*table.key).agg(F.max(_COMMIT).alias("deleted_in"))
        deleted = checkpoint.materialize(deleted)
        stays = F.coalesce(F.col("deleted_in") <= F.col(_COMMIT), F.lit(True))  # a commit deletes before it inserts
        came = came.join(deleted, list(table.key), "left").where(stays)
        return Changes(came.select(*table.names), deleted.select(*table.key))

    def merge(self, table: Table, rows: DataFrame, *, update: bool = False) -> None:
        """Inserts the rows whose key the table lacks, in one commit; `update` replaces those that it has.

        The commit is not made twice if its answer is lost.
        """
        rows = conform(rows, table)
        if self.local is not None:
            self.local.tables.pop(table.name, None)
        if self.is_new(table):  # an append is cheaper than a MERGE into an empty table
            self.append(table, rows, "first")
            return
        if not update and self._write_in_tasks(table, _without_known(rows, self.read(table), table)):
            return
        rows.createOrReplaceTempView(f"merged_{table.name}")
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
        place = self.log_place(table)
        if place is None or not local_commits.restore(place, version, self.check_lock):
            self._change(table, f"RESTORE TABLE {self.name(table)} TO VERSION AS OF {version}")

    def optimize(self, table: Table) -> tuple[int, int]:
        """Compacts small files and sorts clustered rows; returns how many files it removed and how many it added."""
        metrics: list[Any] = []
        self._change(table, f"OPTIMIZE {self.name(table)}", metrics.extend)
        return metrics[-1]["metrics"]["numFilesRemoved"], metrics[-1]["metrics"]["numFilesAdded"]

    def vacuum(self, table: Table, hours: int) -> None:
        """Deletes the files that no version of the last `hours` needs."""
        with self._setting(_RETENTION_CHECK, str(hours >= _LONGEST_WITH_READERS).lower()):
            self._change(table, f"VACUUM {self.name(table)} RETAIN {hours} HOURS")

    def is_clustered(self, table: Table) -> bool:
        """Returns whether OPTIMIZE sorts the table's rows."""
        return bool(self._sql(f"DESCRIBE DETAIL {self.name(table)}").collect()[0]["clusteringColumns"])

    def checkpoint(self, table: Table) -> None:
        """Makes a checkpoint of the newest version of a table in a folder of this machine: the log can begin there."""
        jvm: Any = self.spark._jvm  # noqa: SLF001 - there is no statement for it
        session: Any = self.spark._jsparkSession  # noqa: SLF001
        jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, self.log_place(table)).checkpoint()

    def commits(self, table: Table) -> Iterable[Commit]:
        """Yields the table's commits, newest first; from a local log, each is read when the caller needs it."""
        place = self.log_place(table)
        if place is not None:
            return log.commits(place)
        if self.lock is not None and table.name in self.histories:
            return self.histories[table.name]
        rows = self._sql(f"DESCRIBE HISTORY {self.name(table)} LIMIT {_COMMITS}").collect()
        found = [Commit.of(row["version"], row["timestamp"], row.asDict()) for row in rows]
        self.histories[table.name] = found
        return found

    def commits_if_any(self, table: Table) -> Iterable[Commit]:
        """Returns the table's commits, newest first; none where it does not exist."""
        return self.commits(table) if self.log_place(table) is not None or self.has(table) else ()

    def versions(self, tables: Sequence[Table]) -> dict[str, int]:
        """Returns a version of each table with the same rows as its newest (`rows_version`)."""
        found = run_in_parallel(partial(rows_version, self.commits(table)) for table in tables)
        return {table.name: version for table, version in zip(tables, found, strict=True)}

    def is_new(self, table: Table) -> bool:
        """Returns whether the table was created and nothing was ever written to it."""
        version = -1
        for commit in self.commits(table):
            version = commit.version
            if commit.changes_rows and commit.operation != log.CREATE:
                return False
        return version == 0  # else older commits are no longer in the log

    @property
    def _memory(self) -> Memory:
        if self.local is None:
            raise JobError("This warehouse is not held in memory.")
        return self.local

    def forget(self, *tables: Table) -> None:
        """Makes the next look at the tables' histories ask Spark again."""
        for table in tables:
            self.histories.pop(table.name, None)

    def _read_here(self, table: Table, columns: Sequence[str]) -> pl.DataFrame | None:
        """Reads columns of a table without Spark, if it lies in a local folder and has nothing unusual, or is new."""
        place, schema = self.log_place(table), pa.schema([table.arrow.field(name) for name in columns])
        if place is not None:
            return local_commits.read(place, schema, read=partial(self._memory.read_columns, table.name))
        return schema_of(schema).to_frame() if self.is_new(table) else None

    def _write_here(self, table: Table, rows: pl.DataFrame, *, overwrite: bool = False) -> bool:
        """Writes without Spark, if the table lies in a local folder and has nothing unusual; returns whether it did."""
        place = self.log_place(table)
        return place is not None and local_commits.write(place, table, rows, self.check_lock, overwrite=overwrite)

    def _write_in_tasks(self, table: Table, rows: DataFrame, *, overwrite: bool = False) -> bool:
        """Writes without Spark's part of Delta, if the table lies in a local folder; returns whether it did."""
        place = self.log_place(table)
        return place is not None and local_commits.write_in_tasks(
            place, table, rows, self.check_lock, overwrite=overwrite
        )

    def _append_once(self, writer: DataFrameWriter, table: Table, step: str = "first") -> DataFrameWriter:
        """Makes the write an append that is not made twice if its answer is lost, as it can be on an object store.

        Delta then looks for the transaction in the whole log, which takes a query.
        """
        writer = writer.mode("append")
        if self.log_place(table) is not None:
            return writer
        run = "first" if self.lock is None else self.lock.run
        return writer.option("txnAppId", f"{run} {step} {table.name}").option("txnVersion", 0)

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
        self.commit(lambda: use(self._sql(statement).collect()))

    @contextmanager
    def _setting(self, key: str, value: str) -> Iterator[None]:
        """Makes a setting of the session for a while, if the platform permits: serverless Databricks does not."""
        try:
            self.spark.conf.set(key, value)
        except PySparkException:
            yield
            return
        try:
            yield
        finally:
            self.spark.conf.unset(key)


def _is_lost_version(table: Table, error: Exception) -> bool:
    """Returns whether the error means that rows of an earlier version are gone, and says so."""
    is_lost = isinstance(error, PySparkException) or _CHANGES_GONE.search(str(error)) is not None
    if is_lost:
        progress(f"{table.name}: cannot tell which rows are new: {first_line(error)}")
    return is_lost


def _without_known(rows: DataFrame, known: DataFrame, table: Table) -> DataFrame:
    """Returns the rows whose key the table lacks."""
    keys = known.select(*table.key).toDF(*(f"known_{name}" for name in table.key))
    is_same = reduce(and_, (F.col(name).eqNullSafe(F.col(f"known_{name}")) for name in table.key))
    return rows.join(keys, is_same, "left_anti")


def _same_key(table: Table) -> str:
    """Returns the condition that rows t and s have the same key."""
    return " AND ".join(f"t.{key} <=> s.{key}" for key in table.key)


def conform(rows: DataFrame, table: Table) -> DataFrame:
    """Returns the rows with the table's columns in its order, each cast to its type; nested fields are nullable."""
    return cast_columns(rows, {of.name: nullable(of.dataType) for of in table.spark})
