"""Keeps tables in folders of this machine: their rows are files that this process and Spark's tasks read and write.

Spark's part of Delta only compacts and cleans up: it takes most of a second for each commit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import and_
from pathlib import Path

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.types import StructType

from jobs.cli.errors import first_line
from jobs.cli.logs import progress
from jobs.tables import damage, delta_commits, log
from jobs.tables.declared import path_in, properties
from jobs.tables.gone import Gone, from_offsets, with_values
from jobs.tables.layout import constraints
from jobs.tables.log import Commit
from jobs.tables.mirror import fetch
from jobs.tables.parquet_files import About, count_rows, read_files, scan
from jobs.tables.running import NAME, Mark
from jobs.tables.spark_rows import NO_GLOB, checkpoint, with_columns_of
from jobs.tables.tasks import Made
from jobs.tables.warehouse import NewRows, Rows, Warehouse, as_polars, columns_of
from schemas.table import Column, Table
from schemas.tables import TABLES
from udfs.frames.columns import only_in_each
from udfs.frames.tables import schema_of


@dataclass(frozen=True)
class InFolder(Warehouse):
    """Implements `Warehouse` by delta-rs and the files of tables in a folder of this machine."""

    needs_spark = _clusters = False

    @property
    def own_logs(self) -> Mapping[str, str]:
        return {table.name: self._at(table) for table in TABLES}

    def mark(self) -> Mark:
        return Mark(Path(path_in(self.root, NAME)))

    def has(self, table: Table) -> bool:
        with suppress(OSError):
            return bool(log.versions(self._at(table)))
        return False

    def properties(self, table: Table) -> Mapping[str, str]:
        return delta_commits.read_properties(self._at(table))

    def columns(self, table: Table) -> StructType:
        return delta_commits.read_columns(self._at(table))

    def _add_columns(self, table: Table, columns: Sequence[Column]) -> None:
        delta_commits.add_columns(self._at(table), table, [column.name for column in columns])

    def _replace_checks(self, table: Table, checks: Mapping[str, str]) -> None:
        if checks:
            self.commit(table, lambda: self.set_properties(table, constraints(checks)))

    def _create(self, table: Table, *, exists: bool) -> None:
        self.check_lock()
        delta_commits.create(self._at(table), table, properties(table), again=exists)

    def set_properties(self, table: Table, pairs: Mapping[str, str], *, by: str = "") -> None:
        delta_commits.set_properties(self._at(table), pairs, by)

    def read(self, table: Table, *columns: str) -> DataFrame:
        return self._read_files(table, delta_commits.about_files(self._at(table)), columns)

    def _read_files(self, table: Table, files: Mapping[str, About], columns: Sequence[str] = ()) -> DataFrame:
        """Returns the rows of files of a table, for Spark to read: Delta would find them by a query each time."""
        del columns  # Spark reads those that are used
        fetch(files)
        if not files:
            return self.spark.createDataFrame([], table.spark)
        return self.spark.read.schema(table.spark).option(NO_GLOB, "false").parquet(*files)

    def count(self, table: Table) -> int | None:
        return delta_commits.count(self._at(table))

    def _read_columns(self, table: Table, schema: pa.Schema) -> pl.DataFrame:
        files = self._files(table)
        if self.local is None:
            return read_files(files, schema)

        def read_beside(known: pl.DataFrame, more: pa.Schema) -> pl.DataFrame:
            return pl.concat([known, read_files(files, more)], how="horizontal")

        return self.local.read_columns(table.name, files, schema, read_beside)

    def read_if_small(self, table: Table, most: int, *columns: str) -> pl.DataFrame | None:
        if delta_commits.size(self._at(table)) > most:
            return None
        return read_files(self._files(table), columns_of(table, columns or table.names))

    def scan_if_many(self, table: Table, most: int, *columns: str) -> pl.LazyFrame | None:
        count = self.count(table)
        if count is not None and count <= most:
            return None
        return scan(self._files(table), table.arrow).select(columns or table.names)

    def differences(
        self, table: Table, version: int, columns: Sequence[str], most: int | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """Reads only files that are in one of both versions; a later one with the same rows stands for `version`.

        None, too, where a file or a commit since is gone.
        """
        try:
            same = log.last_with_rows_of(version, self.commits(table))
            changed = delta_commits.changed_files(self._at(table), same)
            more, fewer = (sum(about.size for about in files.values()) for files in changed)
            if most is not None and more - fewer > most:
                return None
            if self.local is not None and count_rows([*chain(*changed)]) > self.local.most_settled:
                return None
            came, went = (read_files(files, columns_of(table, columns)) for files in changed)
        except OSError:  # VACUUM deleted a file, or Delta a commit
            return None
        return only_in_each(came, went, columns)

    def changes(self, table: Table, version: int) -> tuple[DataFrame, Rows] | None:
        """Reads only files that are in one of both versions, as `differences` does."""
        try:
            same = log.last_with_rows_of(version, self.commits(table))
            added, removed = delta_commits.changed_files(self._at(table), same)
            self._require(table, {**added, **removed})
        except OSError as error:
            progress(f"{table.name}: cannot tell which rows are new: {first_line(error)}")
            return None
        came = self._read_files(table, added)
        if not removed:
            return came, schema_of(columns_of(table, table.key)).to_frame()
        key = list(table.key)
        went = checkpoint(self._read_files(table, removed).exceptAll(came).select(*key))
        same_rows = self._read_files(table, removed, key).select(*key).join(went, key, "left_anti")
        return came.join(same_rows, key, "left_anti").select(*table.names), went

    def _require(self, table: Table, files: Collection[str]) -> None:
        """Makes sure that these files are there.

        Raises:
            FileNotFoundError: one is not.
        """
        del table
        for file in files:
            Path(file).stat()

    def _has_no_rows(self, table: Table) -> bool:
        return not self._files(table)

    def _replace_all(self, table: Table, *parts: NewRows) -> None:
        self._write(table, *parts, overwrite=True)

    def _replace_some(self, table: Table, gone: Rows, rows: NewRows) -> None:
        """Replaces rows by others of this process at once; those of Spark are appended to what is left."""
        few = rows if isinstance(rows, pl.DataFrame) else None
        self._delete(table, with_values(as_polars(gone)), few)
        if few is None:
            self.append(table, rows)

    def _append(self, table: Table, rows: NewRows) -> None:
        self._write(table, rows)

    def _merge(self, table: Table, rows: Rows, *, update: bool) -> None:
        """Merges rows; those of Spark that replace others fit in memory."""
        if update:
            few = rows if isinstance(rows, pl.DataFrame) else as_polars(with_columns_of(table, rows))
            self.replace_rows(table, few.select(table.key), few)
        elif isinstance(rows, pl.DataFrame):
            known = self._keys_near(table, rows)
            self.append(table, rows.join(known, on=list(table.key), how="anti", nulls_equal=True))
        else:
            self._write(table, _without_known(rows, self.read(table, *table.key), table))

    def delete_from_offset(self, table: Table, stale: Rows) -> None:
        self._delete(table, from_offsets(as_polars(stale), table))

    def restore(self, table: Table, version: int) -> None:
        delta_commits.restore(self._at(table), version, self.check_lock)

    def checkpoint(self, table: Table) -> None:
        delta_commits.checkpoint(self._at(table))

    def shorten_log(self, table: Table) -> None:
        damage.shorten(self._at(table))

    def commits(self, table: Table) -> Iterable[Commit]:
        """Yields the table's commits, newest first; each is read when the caller needs it."""
        return log.commits(self._at(table))

    def commits_if_any(self, table: Table) -> Iterable[Commit]:
        return self.commits(table)

    def newest_entry(self, table: Table) -> tuple[int, int | None] | None:
        entry = log.newest_entry(self._at(table))
        return None if entry is None else (entry.version, entry.size)

    def forget(self, *tables: Table) -> None:
        """Does nothing: each look reads the log."""

    def _at(self, table: Table) -> str:
        return path_in(self.root, table.name)

    def _files(self, table: Table) -> list[str]:
        """Returns the Parquet files that hold the rows of a table."""
        return delta_commits.files(self._at(table))

    def _keys_near(self, table: Table, near: pl.DataFrame) -> pl.DataFrame:
        """Returns the keys of a table that share the first column with one of few rows."""
        first = table.key[0]
        return read_files(self._files(table), columns_of(table, table.key), pl.col(first).is_in(near[first].implode()))

    def _write(self, table: Table, rows: NewRows, *others: NewRows, overwrite: bool = False) -> None:
        """Writes rows; those that tasks make are written by these tasks."""

        def made(part: NewRows) -> Made:
            return part if isinstance(part, Made) else Made.of(with_columns_of(table, self._as_spark(part)))

        written = rows if isinstance(rows, pl.DataFrame) and not others else [made(part) for part in (rows, *others)]
        delta_commits.write(self._at(table), table, written, self.check_lock, overwrite=overwrite)

    def _delete(self, table: Table, gone: Gone, rows: pl.DataFrame | None = None) -> None:
        """Deletes the rows that are gone, and appends others, in one commit."""
        others = schema_of(table.arrow).to_frame() if rows is None else rows
        delta_commits.replace_rows(self._at(table), table, gone, others, self.check_lock)


def _without_known(rows: DataFrame, known: DataFrame, table: Table) -> DataFrame:
    """Returns the rows whose key the table lacks."""
    keys = known.select(*table.key).toDF(*(f"known_{name}" for name in table.key))
    is_same = reduce(and_, (F.col(name).eqNullSafe(F.col(f"known_{name}")) for name in table.key))
    return rows.join(keys, is_same, "left_anti")
