"""Keeps tables where only Spark reads and writes them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial, reduce
from itertools import chain, repeat
from operator import add
from typing import Any, Self

import polars as pl
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.types import BinaryType, BooleanType, LongType, StructType

from jobs.cli.errors import ConflictError, UsageError, first_line
from jobs.cli.logs import progress
from jobs.cli.spark_session import FOR_LOGS, session_settings
from jobs.tables.declared import (
    CHANGES,
    Guard,
    definition,
    identifier,
    naming_conflicts,
    path_in,
    properties,
    property_list,
    string_literal,
)
from jobs.tables.gone import from_offsets
from jobs.tables.layout import DECLARATION
from jobs.tables.log import Commit
from jobs.tables.memory import Memory
from jobs.tables.running import Mark
from jobs.tables.spark_rows import cast_columns, collect, nullable, with_columns_of
from jobs.tables.warehouse import IS_DELETE, NewRows, Rows, Warehouse, columns_of
from schemas.table import Column, Table
from udfs.frames.tables import schema_of
from udfs.replay.order.sources import SOURCES

_NO_SCHEMA = re.compile(r"SCHEMA_NOT_FOUND|CATALOG_NOT_FOUND|REQUIRES_SINGLE_PART_NAMESPACE")
_NOT_EMPTY = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_MORE, _GONE, _IS_NEW = "_more", "_gone", "_is_new"
_PAGES = (3, 30, 500)
"""How many commits more are read from a table's history each time: each takes two requests to a store."""
_WRITER = "msmq-replay"
"""The name under which Delta keeps the number of the last append."""
_NO_VERSION = 1 << 53
"""A version that no table has."""


@dataclass(slots=True)
class _Known:
    """Holds what a run that has the publish lock knows of a table's history; nobody else may write."""

    version: int
    """The newest version when the run last looked."""
    commits: dict[int, Commit] = field(default_factory=dict)
    """Those that were read, or that the run has made, by version."""
    written: int | None = 0
    """Commits with rows that the run has made since, at most: a MERGE without a row to change makes none. None if it
    has made others, too."""
    is_current: bool = True
    """Nothing was written since, as far as this run has to look."""


@dataclass(frozen=True)
class ThroughSpark(Warehouse):
    """Implements `Warehouse` by Spark's Delta, for a folder that a URI names."""

    needs_spark = _clusters = True
    known: dict[str, _Known] = field(default_factory=dict, repr=False, compare=False)
    """By the table's name; empty where no lock is held."""
    rows_read: Memory = field(default_factory=lambda: Memory(0), repr=False, compare=False)
    """Columns of tables that were read into this process while the run had the publish lock."""

    @property
    def own_logs(self) -> Mapping[str, str]:
        return {}

    def mark(self) -> Mark:
        return Mark.of_place(self.place)

    def has(self, table: Table) -> bool:
        try:
            return bool(self.read(table).schema)  # a Connect client asks the server only for the schema
        except AnalysisException:
            return False

    def properties(self, table: Table) -> Mapping[str, str]:
        rows = self.spark.sql(f"SHOW TBLPROPERTIES {self.name(table)}").collect()
        return {row["key"]: row["value"] for row in rows}

    def properties_if_any(self, table: Table) -> Mapping[str, str] | None:
        try:
            found = self.properties(table)
        except AnalysisException:
            return None
        return found if DECLARATION in found or self.has(table) else None

    def columns(self, table: Table) -> StructType:
        return self.read(table).schema

    def _add_columns(self, table: Table, columns: Sequence[Column]) -> None:
        added = ", ".join(map(definition, columns))
        self.spark.sql(f"ALTER TABLE {self.name(table)} ADD COLUMNS ({added})")

    def _replace_checks(self, table: Table, checks: Mapping[str, str]) -> None:
        """Adds or replaces one after another: Spark has no statement that replaces one."""
        alter = f"ALTER TABLE {self.name(table)}"
        for name, check in checks.items():
            self._change(table, f"{alter} DROP CONSTRAINT IF EXISTS {identifier(name)}")
            self._change(table, f"{alter} ADD CONSTRAINT {identifier(name)} CHECK ({check})")

    def _create(self, table: Table, *, exists: bool) -> None:
        verb = "REPLACE TABLE" if exists else "CREATE TABLE IF NOT EXISTS"
        columns = ", ".join(definition(column) for column in table)
        # A replay asks what has changed in its sources.
        told = properties(table) | ({CHANGES: "true"} if table in SOURCES else {})
        clustering = f"CLUSTER BY ({', '.join(map(identifier, table.clustered_by))})" if table.clustered_by else ""
        statement = (
            f"{verb} {self.name(table)} ({columns}) USING delta {clustering} "
            f"COMMENT {string_literal(table.comment)} TBLPROPERTIES ({property_list(told)})"
        )
        try:
            self.commit(table, lambda: self.spark.sql(statement))
        except AnalysisException as error:
            if _NO_SCHEMA.search(str(error)):
                raise UsageError(
                    f"There is no schema {self.root}, or this user may not use it: CREATE SCHEMA {self.root}"
                ) from error
            if _NOT_EMPTY not in str(error):
                raise

    def set_properties(self, table: Table, pairs: Mapping[str, str], *, by: str = "") -> None:
        self._note_change(table)
        with naming_conflicts(table), session_settings(self.spark, {_USER_METADATA: by} if by else {}):
            self.spark.sql(f"ALTER TABLE {self.name(table)} SET TBLPROPERTIES ({property_list(pairs)})")

    def read(self, table: Table, *columns: str) -> DataFrame:
        del columns  # Spark reads those that are used
        return self.spark.read.table(self.name(table))

    def count(self, table: Table) -> int | None:
        return self.read(table).count() if self.has(table) else 0

    def _read_columns(self, table: Table, schema: pa.Schema) -> pl.DataFrame:
        if self.is_new(table):
            return schema_of(schema).to_frame()

        def read(known: pl.DataFrame, more: pa.Schema) -> pl.DataFrame:
            """Reads a table that is read a second time whole, but for bytes: queries are dearer than columns."""
            others = [of.name for of in table.spark if of.dataType != BinaryType()] if known.width else []
            names = dict.fromkeys((*known.columns, *others, *more.names))
            return collect(with_columns_of(table, self.read(table)).select(*names))

        if self.lock is not None:
            return self.rows_read.read_columns(table.name, self._version(table), schema, read)
        if self.local is not None:
            return self.local.read_columns(table.name, (), schema, read)
        return read(pl.DataFrame(), schema)

    def _version(self, table: Table) -> tuple[str]:
        """Returns the version of which a run with the publish lock remembers what it has read."""
        return (str(self._look(table).version),)

    def read_if_small(self, table: Table, most: int, *columns: str) -> pl.DataFrame | None:
        is_known = self.lock is not None and self.rows_read.has_read(table.name, self._version(table))
        if not (is_known or self.is_new(table)):
            (detail,) = self.spark.sql(f"DESCRIBE DETAIL {self.name(table)}").collect()
            if detail["sizeInBytes"] > most:
                return None
        return self._read_columns(table, columns_of(table, columns or table.names))

    def scan_if_many(self, table: Table, most: int, *columns: str) -> pl.LazyFrame | None:
        """Returns None: Spark has to read all rows."""

    def differences(
        self, table: Table, version: int, columns: Sequence[str], most: int | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """Sums up what the change data feed says of each row: that it came, or went, more often than the other.

        None, too, where neither `most` bytes nor this process's memory is a limit, and where Delta keeps no changes
        since then: from now on it does.
        """
        most_rows = None if self.local is None else self.local.most_settled
        if most is None and most_rows is None:
            return None
        if (newest := self.newest_entry(table)) is None or newest[0] <= version:
            none = schema_of(columns_of(table, columns)).to_frame()
            return none, none
        try:
            feed = self._feed(table, version)
            if most is not None and _bytes_that_came(feed, columns) > most:
                return None
            more = F.when(F.col(IS_DELETE), -1).otherwise(1)
            summed = feed.groupBy(*columns).agg(F.sum(more).alias(_MORE)).where(F.col(_MORE) != 0)
            found = collect(summed if most_rows is None else summed.limit(most_rows + 1))
        except Exception as error:  # noqa: BLE001 - PySpark has no class for some of them
            progress(f"{table.name}: cannot tell which rows are new: {first_line(error)}")
            self._keep_changes()
            return None
        if most_rows is not None and found.height > most_rows:
            return None
        came, went = (found.filter(is_so).drop(_MORE) for is_so in (pl.col(_MORE) > 0, pl.col(_MORE) < 0))
        return came, went

    def _keep_changes(self) -> None:
        """Makes Delta keep the changes of all that a replay reads, unless it does."""
        for table in filter(self.has, SOURCES):
            if self.properties(table).get(CHANGES) != "true":
                self.commit(table, partial(self.set_properties, table, {CHANGES: "true"}))

    def _has_no_rows(self, table: Table) -> bool:
        return self.is_new(table)

    def _replace_all(self, table: Table, *parts: NewRows) -> None:
        rows = reduce(DataFrame.unionByName, map(self._as_spark, parts))
        if self.is_new(table):  # so that Delta need not find out what is to be replaced
            writer = self._append_once(table, rows)
        else:
            writer = with_columns_of(table, rows).write.mode("overwrite")
            if table.clustered_by:  # a plain overwrite drops the clustering
                writer = writer.option("replaceWhere", "true")
        with naming_conflicts(table):
            self._write(table, writer)

    def _replace_some(self, table: Table, gone: Rows, rows: NewRows) -> None:
        if self.is_new(table) or (isinstance(gone, pl.DataFrame) and gone.is_empty()):
            self.append(table, rows)
            return
        is_same, write = " AND ".join(f"t.{name} = s.{name}" for name in gone.columns), self.append
        if isinstance(gone, pl.DataFrame) and isinstance(rows, pl.DataFrame) and rows.height:
            with suppress(ConflictError):
                self._replace_at_once(table, gone, rows, is_same)
                return
            write = self.merge  # a commit whose answer was lost may have inserted the rows
        self._delete(table, gone, is_same)
        write(table, rows)

    def merge_from_offset(self, table: Table, stale: Rows, rows: Rows) -> None:
        if isinstance(stale, pl.DataFrame) and isinstance(rows, pl.DataFrame) and rows.height:
            first = stale.group_by("stream_id").agg(pl.min("from_offset"))
            is_new = from_offsets(stale, table).find(rows)  # whatever has their keys now is deleted
            with suppress(ConflictError):
                self._replace_at_once(table, first, rows.with_columns(is_new.alias(_IS_NEW)), _is_stale(table))
                return
        super().merge_from_offset(table, stale, rows)

    def _replace_at_once(self, table: Table, gone: pl.DataFrame, rows: pl.DataFrame, is_same: str) -> None:
        """Deletes the rows t that match a row s of those that are `gone`, and inserts others, in one commit.

        Of rows with the column _IS_NEW, others than these are inserted only if the table lacks their key.

        Raises:
            ConflictError: something else wrote to the table at the same time, or the answer to the commit was lost.
        """
        is_gone, view = pl.lit(value=True).alias(_GONE), f"replaced_{table.name}"
        both = pl.concat([rows.with_columns(~is_gone), gone.with_columns(is_gone)], how="diagonal_relaxed")
        types = {of.name: nullable(of.dataType) for of in table.spark} | {_GONE: BooleanType()}
        matches, delete = f"{is_same} AND s.{_GONE}", "WHEN MATCHED THEN DELETE"
        if _IS_NEW in rows.columns:
            # Rows of one stream at most match, so that Spark joins by it.
            is_known = f"NOT s.{_IS_NEW} AND {_has_key_of(table)}"
            matches = f"t.stream_id <=> s.stream_id AND CASE WHEN s.{_GONE} THEN {is_same} ELSE {is_known} END"
            delete = f"WHEN MATCHED AND s.{_GONE} THEN DELETE"
            types |= {_IS_NEW: BooleanType(), "from_offset": LongType()}
        cast_columns(self._as_spark(both), types).createOrReplaceTempView(view)
        self.check_lock()
        with naming_conflicts(table), self._writing(table):
            self.spark.sql(
                f"MERGE INTO {self.name(table)} t USING {view} s ON {matches} {delete} "
                f"WHEN NOT MATCHED AND NOT s.{_GONE} THEN INSERT *"
            ).collect()

    def _append(self, table: Table, rows: NewRows) -> None:
        writer = self._append_once(table, rows)
        super().commit(table, lambda: self._write(table, writer))

    def _append_once(self, table: Table, rows: NewRows) -> DataFrameWriter:
        """Returns an append that is not made twice if its answer is lost, as it can be on an object store.

        Delta makes no write with a number that is not above the last one. Here, the next version is the number.
        """
        newest = self.newest_entry(table)
        number = 0 if newest is None else newest[0] + 1
        writer = with_columns_of(table, self._as_spark(rows)).write.mode("append")
        return writer.option("txnAppId", _WRITER).option("txnVersion", number)

    def _merge(self, table: Table, rows: Rows, *, update: bool) -> None:
        with_columns_of(table, self._as_spark(rows)).createOrReplaceTempView(f"merged_{table.name}")
        matched = " WHEN MATCHED THEN UPDATE SET *" if update else ""
        self._change_rows(
            table,
            f"MERGE INTO {self.name(table)} t USING merged_{table.name} s ON {_has_key_of(table)}{matched} "
            "WHEN NOT MATCHED THEN INSERT *",
        )

    def delete_from_offset(self, table: Table, stale: Rows) -> None:
        self._delete(table, stale, _is_stale(table))

    def _delete(self, table: Table, keys: Rows, where: str) -> None:
        """Deletes, in one commit, the rows t that match a row s of `keys`, which are distinct, on `where`."""
        view = f"deleted_{table.name}"
        self._as_spark(keys).createOrReplaceTempView(view)
        self._change_rows(table, f"MERGE INTO {self.name(table)} t USING {view} s ON {where} WHEN MATCHED THEN DELETE")

    def _change_rows(self, table: Table, statement: str) -> None:
        """Runs a statement that changes rows in one commit, or in none, and can safely be repeated."""
        with self._writing(table):
            super().commit(table, lambda: self.spark.sql(statement).collect())

    def restore(self, table: Table, version: int) -> None:
        self._change(table, f"RESTORE TABLE {self.name(table)} TO VERSION AS OF {version}")

    def checkpoint(self, table: Table) -> None:
        """Does nothing: Spark makes checkpoints."""

    def shorten_log(self, table: Table) -> None:
        """Does nothing: Spark deletes old commits."""

    def commits(self, table: Table) -> Iterable[Commit]:
        if self.lock is None:
            found = self._history(table, _PAGES[0])
            known = _Known(max(found), found)
        else:
            known = self._look(table)
        pages = chain(_PAGES, repeat(_PAGES[-1]))
        for version in range(known.version, -1, -1):
            if version not in known.commits:
                known.commits |= self._history(table, known.version - version + next(pages))
                if version not in known.commits:  # Delta has deleted it
                    return
            yield known.commits[version]

    def _history(self, table: Table, most: int) -> dict[int, Commit]:
        """Returns the table's newest commits by version."""
        rows = self.spark.sql(f"DESCRIBE HISTORY {self.name(table)} LIMIT {most}").collect()
        return {row["version"]: Commit.of(row["version"], row["timestamp"], row.asDict()) for row in rows}

    def _look(self, table: Table) -> _Known:
        """Returns what a run that has the publish lock knows of a table's history, after a look if need be.

        The version of a table that is not there is -1.
        """
        known = self.known.get(table.name, _Known(-1, written=None, is_current=False))
        if known.is_current:
            return known
        newest = self._newest_version(table)
        if known.written is not None and newest == known.version + known.written:
            made, now = range(known.version + 1, newest + 1), datetime.now(UTC)
            known.commits |= {version: Commit(version, now, "WRITE", {}) for version in made}
        self.known[table.name] = known = _Known(newest, known.commits)
        return known

    def _newest_version(self, table: Table) -> int:
        """Returns the newest version of a table, which Delta names to who asks for one that is not there.

        That takes no job, but DESCRIBE HISTORY takes as long as a commit.
        """
        try:
            bool(self.spark.read.option("versionAsOf", _NO_VERSION).table(self.name(table)).schema)
        except Exception as error:  # noqa: BLE001 - PySpark has no class for that of a folder that is not there
            parameters = error.getMessageParameters() if isinstance(error, AnalysisException) else None
            if (latest := (parameters or {}).get("latest")) is not None:
                return int(latest)
        return max(self._history(table, 1)) if self.has(table) else -1

    def commits_if_any(self, table: Table) -> Iterable[Commit]:
        return self.commits(table) if self.lock is not None or self.has(table) else ()

    def newest_entry(self, table: Table) -> tuple[int, int | None] | None:
        newest = self._newest_version(table) if self.lock is None else self._look(table).version
        return None if newest < 0 else (newest, None)

    def forget(self, *tables: Table) -> None:
        for known in filter(None, (self.known.get(table.name) for table in tables)):
            known.is_current = False

    def without_compiling(self) -> AbstractContextManager[None]:
        return session_settings(self.spark, FOR_LOGS)

    def locked_by(self, lock: Guard) -> Self:
        return replace(self, lock=lock, known={}, rows_read=Memory(0))

    def commit(self, table: Table, work: Callable[[], Any]) -> None:
        self._note_change(table)
        super().commit(table, work)

    def _note_change(self, table: Table) -> None:
        """Notes a commit without rows, or that there may be one."""
        if known := self.known.get(table.name):
            known.written, known.is_current = None, False

    def _write(self, table: Table, writer: DataFrameWriter) -> None:
        with self._writing(table):
            self._save(table, writer.format("delta"))

    @contextmanager
    def _writing(self, table: Table) -> Iterator[None]:
        """Notes a commit with rows, or that there may be one."""
        self.forget(table)
        yield
        known = self.known.get(table.name)
        if known is not None and known.written is not None:
            known.written, known.is_current = known.written + 1, False

    def _save(self, table: Table, writer: DataFrameWriter) -> None:
        writer.save(path_in(self.root, table.name))


def _has_key_of(table: Table) -> str:
    """Returns the condition that rows t and s have one key."""
    return " AND ".join(f"t.{key} <=> s.{key}" for key in table.key)


def _is_stale(table: Table) -> str:
    """Returns the condition that a row t is in the stream of a row s, from its `from_offset` on."""
    offset = "coalesce(t.stream_offset, -1) >= s.from_offset" if "stream_offset" in table.names else "true"
    return f"t.stream_id = s.stream_id AND {offset}"


def _bytes_that_came(feed: DataFrame, columns: Sequence[str]) -> int:
    """Returns how many bytes the rows that came have more than those that went, in binary columns."""
    wide = [F.octet_length(of.name) for of in feed.select(*columns).schema if of.dataType == BinaryType()]
    size = reduce(add, wide, F.lit(0))
    (found,) = feed.agg(F.sum(F.when(F.col(IS_DELETE), -size).otherwise(size)).alias("size")).collect()
    return int(found["size"] or 0)
