"""Commits to Delta tables in folders of this machine without Spark, by delta-rs (the package `deltalake`).

Spark takes most of a second for each commit, and a small night makes some thirty. The rows of a commit are a file that
is written here and added to the table by delta-rs: a file has to be on the disk before the log names it, and delta-rs
waits for no disk. delta-rs cannot write a table that has some features, such as clustering: Spark writes that table.

A log is read from its newest checkpoint on: without checkpoints, each night would read more commits than the last.
"""

import errno
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from jobs.app.errors import ConflictError, JobError, first_line, known_error
from jobs.app.logs import warn
from jobs.warehouse import log
from jobs.warehouse.durable import sync
from jobs.warehouse.gone import Gone, with_values
from jobs.warehouse.local_files import FILE, FILE_OF_ROW, Derive, deriving_files, read_files, write_file, writing_files
from jobs.warehouse.spark_rows import nullable, to_spark
from schemas.table import LONG, STRING, Table, row
from udfs.derive.frames import to_arrow
from udfs.derive.tables import schema_of
from udfs.on_spark import map_arrow, tasks
from udfs.passes.options import Pass

_FEATURES = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed"}
"""What a table may need of its writers so that delta-rs, and this module, can write it."""
_WITH_CHECKS, _WITH_CHANGES = "3", "4"
"""Versions of the protocol from which on writers heed CHECK constraints, and the change data feed."""
_INVALID = re.compile("JobError: (.*)")
"""How Spark tells of a JobError in a task."""
_GROUP = row(file=STRING, row_group=LONG)
Read = Callable[[Sequence[str], pa.Schema], pl.DataFrame]
"""Returns the columns of a schema from files."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_COLOURS = re.compile(r"\x1b\[\d*m|↳")
"""Marks for a terminal, which delta-rs puts between the parts of an error."""
_ATTEMPTS = 5
_FILE_ROWS = 200_000
"""Most rows of a file that this process writes."""
_FEW_ROWS, _MANY_FILES = 20_000, 8
"""Few rows in many files become one file: opening a file takes as long as reading a thousand rows."""
_CHECKPOINT_EVERY = 10
"""Versions after which a checkpoint is made; Delta's own default."""
_ONCE: Any = {
    "commit_properties": CommitProperties(max_commit_retries=0),
    "post_commithook_properties": PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
}
"""How delta-rs commits: after the version that was read or not at all, and not yet with a checkpoint."""
_opened: dict[str, tuple[log.Entry | None, DeltaTable]] = {}
"""The tables that this process has opened, as they were when the log ended with this entry."""


def create(place: str, table: Table, properties: Mapping[str, str]) -> None:
    """Creates the table in the folder `place`, without rows, unless the folder holds it or something else."""
    folder = Path(place)
    if folder.exists() and any(found.name != log.FOLDER for found in folder.iterdir()):
        return
    needs = {"delta.minWriterVersion": _WITH_CHANGES if table.keeps_changes else _WITH_CHECKS}
    try:
        DeltaTable.create(
            place,
            Schema.from_json(_schema(table)),
            description=table.comment,
            configuration={**properties, **needs},
            raise_if_key_not_exists=False,
            **_ONCE,
        )
    except (DeltaError, OSError) as error:
        if not log.versions(place):  # else another run has created it
            raise _failure(place, error) from error
    _settle(place, 0)
    sync(folder, folder.parent, folder.parent.parent)  # all may be new


def write(
    place: str, table: Table, rows: pl.DataFrame | DataFrame, check_lock: Callable[[], None], *, overwrite: bool = False
) -> bool:
    """Appends the rows to the table at this place, or replaces all its rows; returns whether it could.

    Of rows on Spark, tasks write the files. The lock is checked between the look at the log and the commit: a run that
    took this one for dead has either made a commit of its own by then, which takes the version, or the check fails.

    Raises:
        ConflictError: another run took this one for dead, writes to the table all the time, or wrote to it before the
        rows of tasks could replace its.
        JobError: a value is missing where none may be, or is not one of those that its column can have.
    """
    delta = _open(place)
    if delta is None:
        return False
    if isinstance(rows, pl.DataFrame):
        if not overwrite and _is_scattered(table, delta):
            return replace_rows(place, table, with_values(rows.select(table.key).clear()), rows, check_lock)
        return _add(place, _written(place, table, rows), check_lock, overwrite=overwrite)
    version = delta.version()
    files = _written_in_tasks(rows, writing_files(place, table))
    if overwrite:
        _require_version(place, version)
    return _add(place, files, check_lock, overwrite=overwrite)


def derive_in_tasks(
    spark: SparkSession, source: str, places: Mapping[Table, str], work: Derive, check_lock: Callable[[], None]
) -> bool:
    """Replaces the rows of the tables in these places by what `work` makes of batches of rows of the table at `source`.

    Tasks read its files, and write others, so that no row comes to the JVM. Returns whether it could.

    Raises:
        ConflictError, JobError: as `write` does.
    """
    there = files(source)
    opened = {table: _open(place) for table, place in places.items()}
    before = {table: delta.version() for table, delta in opened.items() if delta is not None}
    if there is None or len(before) < len(opened):
        return False
    groups = [{"file": one, "row_group": n} for one in there for n in range(pq.ParquetFile(one).num_row_groups)]
    rows = to_spark(spark, pl.DataFrame(groups, schema_of(_GROUP))).repartition(tasks(len(groups)))
    made = _written_in_tasks(rows, deriving_files(places, work))
    for table, version in before.items():
        _require_version(places[table], version)
        _add(places[table], [one for one in made if one["table"] == table.name], check_lock, overwrite=True)
    return True


def _require_version(place: str, version: int) -> None:
    if log.versions(place)[0] != version:
        raise ConflictError(f"Something else wrote {Path(place).name} at the same time.")


def _written_in_tasks(rows: DataFrame, work: Pass) -> list[dict[str, Any]]:
    """Returns the rows of FILE that a pass returns in tasks."""
    try:
        return [row.asDict() for row in map_arrow(rows, work, FILE).collect()]
    except PythonException as error:
        raise (JobError(found[1]) if (found := _INVALID.search(str(error))) else error) from error


def _add(place: str, files: Sequence[Mapping[str, Any]], check_lock: Callable[[], None], *, overwrite: bool) -> bool:
    """Commits rows of FILE, in addition to the table's files or in their place."""
    added = _added(files)

    def commit(delta: DeltaTable) -> None:
        delta.create_write_transaction(added, "overwrite" if overwrite else "append", delta.schema(), **_ONCE)

    return _commit(place, check_lock, commit)


def replace_rows(place: str, table: Table, gone: Gone, rows: pl.DataFrame, check_lock: Callable[[], None]) -> bool:
    """Deletes the rows that are `gone`, and appends others, in one commit; returns whether it could.

    Only files with a row that is gone are written again, or all if they are many with few rows; where there is nothing
    to do, nothing is committed.

    Raises:
        ConflictError: something else wrote to the table meanwhile. JobError: as `write` does.
    """
    read, before = open_table(place), files(place)
    if read is None or before is None:
        return False
    with_gone = _files_with(gone, place, table, read)
    if not with_gone and not rows.height:
        return True
    if _open(place) is None:
        return False

    def remaining(*paths: str) -> pl.DataFrame:
        there = read_files([file_at(place, path) for path in paths], table.arrow)
        return there.filter(~gone.find(there))

    if _is_scattered(table, read):
        with_gone = _add_actions(read).to_pylist()
        parts = [pl.concat([remaining(*(one["path"] for one in with_gone)), rows.select(table.names)])]
    else:
        parts = [rows, *(remaining(one["path"]) for one in with_gone)]
    added = [action for part in parts for action in _added(_written(place, table, part))]
    now_ms = time.time_ns() // 1_000_000
    removed = [RemoveAction(one["path"], True, now_ms, one["size_bytes"], {}) for one in with_gone]

    def commit(delta: DeltaTable) -> None:
        if {*(_files_of(place, delta) or ())} != {*before}:
            raise ConflictError(f"Something else wrote {table.name} at the same time.")
        delta.create_write_transaction([*added, *removed], "append", delta.schema(), **_ONCE)

    return _commit(place, check_lock, commit)


def _is_scattered(table: Table, delta: DeltaTable) -> bool:
    """Returns whether few rows are in so many files that one file for all of them is better."""
    rows = _add_actions(delta)["num_records"]
    is_few = not rows.null_count and (pc.sum(rows).as_py() or 0) <= _FEW_ROWS
    return is_few and len(rows) >= _MANY_FILES and not table.keeps_changes


def _files_with(gone: Gone, place: str, table: Table, delta: DeltaTable) -> list[Mapping[str, Any]]:
    """Returns `path` and `size_bytes` of the files with rows that are gone."""
    schema = pa.schema([table.arrow.field(name) for name in gone.columns])
    there = pa.table(delta.get_add_actions(flatten=True))
    ends = [f"{end}.{name}" for name in gone.values for end in ("min", "max")]
    known = there.select(["path", "size_bytes", *(name for name in ends if name in there.column_names)])
    # The least and greatest value in the log are those of the file, or further apart.
    perhaps = {file_at(place, one["path"]): one for one in known.to_pylist() if gone.may_be_in(one)}
    rows = read_files([*perhaps], schema.append(FILE_OF_ROW))
    return [perhaps[file] for file in rows.filter(gone.find(rows))[FILE_OF_ROW.name].unique(maintain_order=True)]


def _written(place: str, table: Table, rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Writes rows to files; returns rows of FILE.

    Many rows are sorted by TxSequenceID, so that those of recent sequences, which a night replaces, are in few files.
    """
    if rows.height > _FILE_ROWS and "tx_sequence_id" in table.names:
        rows = rows.sort("tx_sequence_id", maintain_order=True)
    parts = rows.select(table.names).iter_slices(_FILE_ROWS) if rows.height else ()
    return [write_file(place, table, to_arrow(part)) for part in parts]


def file_at(place: str, path: str) -> str:
    """Returns the name of a file that the log of the table at this place calls `path`."""
    return f"{place.rstrip('/')}/{unquote(path)}"


def _added(files: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [AddAction(one["name"], one["size"], {}, one["modified_ms"], True, one["statistics"]) for one in files]


def restore(place: str, version: int, check_lock: Callable[[], None]) -> bool:
    """Puts back the rows that the table at this place had in the version; returns whether it could.

    It leaves to Spark what it would do otherwise: where columns have changed since, or a file is gone.

    Raises:
        ConflictError: another run took this one for dead, or writes to the table all the time.
    """
    delta, before = _open(place), open_table(place, version)  # the log may begin later
    if delta is None or before is None or before.schema() != delta.schema():
        return False
    if not all(Path(place, file).exists() for file in before.get_add_actions().column("path").to_pylist()):
        return False
    return _commit(place, check_lock, lambda delta: delta.restore(version, **_ONCE) and None)


def read(place: str, schema: pa.Schema, most: int | None = None, reader: Read = read_files) -> pl.DataFrame | None:
    """Reads the table at this place with the columns of the schema.

    None where it has to be read by Spark, or where its files have more than `most` bytes.
    """
    delta = open_table(place)
    if delta is not None and most is not None and sum(_add_actions(delta)["size_bytes"].to_pylist()) > most:
        return None
    there = _files_of(place, delta)
    if delta is None or there is None or not {*schema.names} <= {one.name for one in delta.schema().fields}:
        return None
    return reader(there, schema)


def files(place: str, version: int | None = None) -> list[str] | None:
    """Returns the Parquet files that hold the table's rows, in a version; None where these alone do not say them."""
    return _files_of(place, open_table(place, version))


def _files_of(place: str, delta: DeltaTable | None) -> list[str] | None:
    # A later reader has deletion vectors, or other names of columns.
    if delta is None or delta.protocol().min_reader_version != 1 or delta.metadata().partition_columns:
        return None
    return [file_at(place, path) for path in _add_actions(delta)["path"].to_pylist()]


def count(place: str) -> int | None:
    """Returns how many rows the table at this place has, by its log; None where the log does not tell."""
    delta = open_table(place)
    counts = None if delta is None else _add_actions(delta)["num_records"]
    return None if counts is None or counts.null_count else pc.sum(counts).as_py() or 0


def _add_actions(delta: DeltaTable) -> pa.Table:
    """Returns a row for each file of the table, with its `path` and `size_bytes`."""
    return pa.table(delta.get_add_actions())


def set_properties(place: str, pairs: Mapping[str, str]) -> bool:
    """Sets properties of the table at this place, in the version after the one that it reads; returns whether it could.

    Raises:
        ConflictError: another run made that version.
    """

    def commit(delta: DeltaTable) -> None:
        delta.alter.set_table_properties(dict(pairs), raise_if_not_exists=False, **_ONCE)

    return _commit(place, lambda: None, commit, attempts=1)


def read_properties(place: str) -> dict[str, str] | None:
    """Returns the properties of the table at this place; None where Spark has to read them."""
    delta = open_table(place)
    return None if delta is None else dict(delta.metadata().configuration)


def _commit(
    place: str, check_lock: Callable[[], None], commit: Callable[[DeltaTable], None], attempts: int = _ATTEMPTS
) -> bool:
    """Makes the version after the one that it reads; reads again if another run has made it. Returns whether it could.

    Raises:
        ConflictError: each time, another run has made it. JobError: delta-rs cannot commit.
    """
    for _ in range(attempts):
        delta = _open(place)
        if delta is None:
            return False
        own = _opened.pop(place)  # so that nobody else makes it go on with the log
        check_lock()
        version = delta.version() + 1
        try:
            commit(delta)
        except (DeltaError, OSError) as error:
            if log.versions(place)[0] < version:
                raise _failure(place, error) from error
        else:
            _settle(place, version)
            _opened[place] = own
            if version % _CHECKPOINT_EVERY == 0:
                _checkpoint(place)
            return True
    raise ConflictError(f"Something else wrote {place} at the same time.")


def _checkpoint(place: str) -> None:
    """Makes a checkpoint of the newest version, and deletes commits before one that are past their retention.

    The commits stand without it.
    """
    delta, entries = open_table(place), Path(place, log.FOLDER)
    if delta is None:
        return
    try:
        delta.create_checkpoint()
        sync(*entries.glob(f"{delta.version():020d}.checkpoint*"), entries / log.LAST_CHECKPOINT, entries)
        delta.cleanup_metadata()
    except (DeltaError, OSError) as error:
        warn(f"{place}: no checkpoint could be made: {first_line(error)}")


def _open(place: str) -> DeltaTable | None:
    """Returns the table as it is; None where Spark has to write it."""
    delta = open_table(place)
    if delta is None:
        return None
    protocol = delta.protocol()
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    return delta if features <= _FEATURES else None


def open_table(place: str, version: int | None = None) -> DeltaTable | None:
    """Returns the table in a version, by default the newest; None where delta-rs cannot tell it.

    The newest is one object as long as this process runs, and goes on with the log: a month of commits takes longer
    to read than most tables.
    """
    try:
        if version is not None:
            return DeltaTable(place, version=version)
        newest = log.newest_entry(place)
        known, delta = _opened.pop(place, (None, None))
        if known and newest and delta and newest.version > known.version:
            delta.update_incremental()
        elif delta is None or newest != known:  # another table may stand in its place
            delta = DeltaTable(place)
        _opened[place] = newest, delta
    except DeltaError:
        return None
    return delta


def _failure(place: str, error: Exception) -> JobError:
    """Says why delta-rs could not commit; it cannot where a file cannot have a second name."""
    if full := known_error(error):
        return full
    one, other = (Path(place, log.FOLDER, f".{uuid4()}.{end}") for end in ("one", "other"))
    why = " ".join(_COLOURS.sub("", str(error)).split())
    try:
        one.touch()
        os.link(one, other)
    except OSError as refusal:
        if refusal.errno in _NO_LINKS:
            why = (
                "its file system has no hard links, without which two runs could overwrite each other's commits. Put "
                "the warehouse on another file system."
            )
    finally:
        one.unlink(missing_ok=True)
        other.unlink(missing_ok=True)
    return JobError(f"{place} cannot be committed to: {why}")


def _settle(place: str, version: int) -> None:
    sync(log.entry(place, version), log.entry(place, version).parent)


def _schema(table: Table) -> str:
    """Returns the table's Spark schema with the columns' comments, as JSON."""
    return StructType(
        [
            StructField(of.name, nullable(of.dataType), of.nullable, {"comment": column.comment})
            for column, of in zip(table, table.spark, strict=True)
        ]
    ).json()
