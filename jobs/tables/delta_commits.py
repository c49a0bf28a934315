"""Commits to Delta tables in folders without Spark, by delta-rs (the package `deltalake`).

Spark takes most of a second for each commit, and a small night makes some thirty. The rows of a commit are a file that
is written here and added to the table by delta-rs: a file has to be on the disk before the log names it, and delta-rs
waits for no disk. Tables in a folder have no features that delta-rs cannot write, such as clustering. A table in an
object store is committed here too, in a folder that repeats it (`mirror.py`).

A log is read from its newest checkpoint on. Without one, each night would read more commits than the last.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zlib import crc32

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.errors import PythonException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from jobs.cli.errors import ConflictError, JobError, first_line, known_error
from jobs.cli.logs import warn
from jobs.tables import log
from jobs.tables.declared import CheckLock, delta_schema
from jobs.tables.gone import Gone, with_values
from jobs.tables.log_files import FOLDER, LAST_CHECKPOINT
from jobs.tables.mirror import TakenError, alone_in, mirror_of
from jobs.tables.parquet_files import (
    FILE,
    About,
    read_files,
    sync,
    write_file,
    writing_files,
)
from jobs.tables.store_files import writing_objects
from jobs.tables.tasks import Made
from schemas.table import Table
from udfs.frames.derivation import to_arrow
from udfs.frames.rows import Pass

_FEATURES = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed"}
"""What a table may need of its writers so that delta-rs, and this module, can write it."""
_WRITERS = {"delta.minWriterVersion": "4"}
"""Writers have to heed CHECK constraints and the change data feed."""
_INVALID = re.compile("JobError: (.*)")
"""How Spark tells of a JobError in a task."""
_COLOURS = re.compile(r"\x1b\[\d*m|↳")
"""Marks for a terminal, which delta-rs puts between the parts of an error."""
_ATTEMPTS = 5
_FILE_ROWS = 200_000
"""Most rows of a file that this process writes."""
_FEW_ROWS, _MANY_FILES = 20_000, 8
"""Few rows in many files become one file: opening a file takes as long as reading a thousand rows."""
_CHECKPOINT_EVERY = 5
"""Versions after which a checkpoint is made; 10 is Delta's default, but a store is asked for each version since."""


def _once(by: str = "") -> dict[str, Any]:
    """Returns how delta-rs commits: after the version that was read or not at all, and not yet with a checkpoint."""
    return {
        "commit_properties": CommitProperties({"userMetadata": by} if by else None, max_commit_retries=0),
        "post_commithook_properties": PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
    }


_ONCE = _once()
_opened: dict[str, tuple[log.Entry | None, DeltaTable]] = {}
"""The tables that this process has opened, as they were when the log ended with this entry."""
_CURE = "Ingest the captures into a new warehouse."
_own_versions: dict[str, int] = {}
"""The newest version of each table that this process has made: if it is still the newest, no other run wrote since."""


def create(place: str, table: Table, properties: Mapping[str, str], *, again: bool = False) -> None:
    """Creates the table in the folder `place`, without rows, unless the folder holds it or something else.

    With `again`, it replaces the table that is there, and its rows.
    """
    folder = Path(place)
    if not again and folder.exists() and any(found.name != FOLDER for found in folder.iterdir()):
        return
    with alone_in(place), suppress(TakenError):  # another run has created it
        newest = next(iter(log.versions(place)), -1)
        try:
            DeltaTable.create(
                place,
                delta_schema(table),
                mode="overwrite" if again else "error",
                description=table.comment,
                configuration={**properties, **_WRITERS},
                raise_if_key_not_exists=False,
                **_ONCE,
            )
        except (DeltaError, OSError) as error:
            if again or not log.versions(place):  # else another run has created it
                raise _failure(place, error) from error
        else:
            _settle(place, newest + 1)
    sync(folder, folder.parent, folder.parent.parent)  # all may be new


def write(
    place: str,
    table: Table,
    rows: pl.DataFrame | Sequence[Made],
    check_lock: CheckLock,
    *,
    overwrite: bool = False,
) -> None:
    """Appends the rows to the table at this place, or replaces all its rows.

    Rows that tasks make, in several parts or one, are written by these, to the store if the table is in one. The lock
    is checked between the look at the log and the commit: a run that took this one for dead has either made a commit of
    its own by then, which takes the version, or the check fails.

    Raises:
        ConflictError: another run took this one for dead, writes to the table all the time, or wrote to it before the
        rows of tasks could replace its.
        JobError: a value is missing where none may be, or is not one of those that its column can have.
    """
    delta = open_table(place)
    if not isinstance(rows, pl.DataFrame):
        version, mirror = delta.version(), mirror_of(place)
        work = writing_files(place, table) if mirror is None else writing_objects(mirror.uri, table)
        files = _written_in_tasks(rows, work)
        if overwrite and log.versions(place)[0] != version:
            raise ConflictError(f"Something else wrote {Path(place).name} at the same time.")
        _add(place, _actions(files), check_lock, overwrite=overwrite)
    elif not overwrite and _is_scattered(table, delta):
        replace_rows(place, table, with_values(rows.select(table.key).clear()), rows, check_lock)
    else:
        _add(place, _added(place, _written(place, table, rows)), check_lock, overwrite=overwrite)


def _written_in_tasks(parts: Sequence[Made], work: Pass) -> list[dict[str, Any]]:
    """Returns the rows of FILE that a pass returns in tasks."""
    files = [part.followed_by(work, FILE).rows() for part in parts]
    try:
        return [row.asDict() for row in reduce(DataFrame.union, files).collect()]
    except PythonException as error:
        raise (JobError(found[1]) if (found := _INVALID.search(str(error))) else error) from error


def _add(place: str, added: Sequence[AddAction], check_lock: CheckLock, *, overwrite: bool) -> None:
    """Commits files that are there, in addition to the table's files or in their place."""

    def commit(delta: DeltaTable) -> None:
        delta.create_write_transaction(added, "overwrite" if overwrite else "append", delta.schema(), **_ONCE)

    _commit(place, check_lock, commit)


def replace_rows(place: str, table: Table, gone: Gone, rows: pl.DataFrame, check_lock: CheckLock) -> None:
    """Deletes the rows that are `gone`, and appends others, in one commit.

    Only files with a row that is gone are written again, or all if they are many with few rows; where there is nothing
    to do, nothing is committed.

    Raises:
        ConflictError: something else wrote to the table meanwhile. JobError: as `write` does.
    """
    read, before = open_table(place), files(place)
    with_gone = _files_with(gone, place, table, read)
    if not with_gone and not rows.height:
        return

    def remaining(*paths: str) -> pl.DataFrame:
        there = read_files([_file_at(place, path) for path in paths], table.arrow)
        return there.filter(~gone.find(there))

    if _is_scattered(table, read):
        with_gone = _add_actions(read).to_pylist()
        parts = [pl.concat([remaining(*(one["path"] for one in with_gone)), rows.select(table.names)])]
    else:
        parts = [rows, *(remaining(one["path"]) for one in with_gone)]
    added = [action for part in parts for action in _added(place, _written(place, table, part))]
    now_ms = time.time_ns() // 1_000_000
    removed = [RemoveAction(one["path"], True, now_ms, one["size_bytes"], {}) for one in with_gone]

    def commit(delta: DeltaTable) -> None:
        if {*_files_of(place, delta)} != {*before}:
            raise ConflictError(f"Something else wrote {table.name} at the same time.")
        delta.create_write_transaction([*added, *removed], "append", delta.schema(), **_ONCE)

    _commit(place, check_lock, commit)


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
    perhaps = {_file_at(place, one["path"]): one for one in known.to_pylist() if gone.may_be_in(one)}
    return [one for file, one in perhaps.items() if gone.find(read_files([file], schema)).any()]


def _written(place: str, table: Table, rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Writes rows to files; returns rows of FILE.

    Many rows are sorted by TxSequenceID, so that those of recent sequences, which a night replaces, are in few files.
    """
    if rows.height > _FILE_ROWS and "tx_sequence_id" in table.names:
        rows = rows.sort("tx_sequence_id", maintain_order=True)
    parts = rows.select(table.names).iter_slices(_FILE_ROWS) if rows.height else ()
    return [write_file(place, table, to_arrow(part)) for part in parts]


def _file_at(place: str, path: str) -> str:
    """Returns the name of a file that the log of the table at this place calls `path`."""
    return f"{place.rstrip('/')}/{unquote(path)}"


def _added(place: str, files: Sequence[Mapping[str, Any]]) -> list[AddAction]:
    """Returns what a commit says of files that this process has written; puts them into the store of the table."""
    if (mirror := mirror_of(place)) is not None:
        mirror.put(one["name"] for one in files)
    return _actions(files)


def _actions(files: Sequence[Mapping[str, Any]]) -> list[AddAction]:
    return [AddAction(one["name"], one["size"], {}, one["modified_ms"], True, one["statistics"]) for one in files]


def restore(place: str, version: int, check_lock: CheckLock) -> None:
    """Puts back the columns, properties and rows that the table at this place had in the version.

    Raises:
        ConflictError: another run took this one for dead, or writes to the table all the time.
        JobError: a file is gone.
    """

    def commit(delta: DeltaTable) -> None:
        if (mirror := mirror_of(place)) is not None:
            mirror.fetch_log(version)
            then = _add_actions(DeltaTable(place, version))["path"].to_pylist()
            mirror.require({*map(unquote, then)} - {*map(unquote, _add_actions(delta)["path"].to_pylist())})
        delta.restore(version, ignore_missing_files=mirror is not None, **_ONCE)

    _commit(place, check_lock, commit)


def read(place: str, schema: pa.Schema) -> pl.DataFrame:
    """Reads the table at this place with the columns of the schema."""
    return read_files(files(place), schema)


def size(place: str) -> int:
    """Returns how many bytes the files of the table at this place have."""
    return sum(_add_actions(open_table(place))["size_bytes"].to_pylist())


def files(place: str) -> list[str]:
    """Returns the Parquet files that hold the table's rows."""
    return _files_of(place, open_table(place))


def changed_files(place: str, version: int) -> tuple[dict[str, About], dict[str, About]]:
    """Returns the files that hold rows now and held none in a version, and the other way round.

    Raises:
        OSError: the log does not tell any more what the version had.
    """
    try:
        if (mirror := mirror_of(place)) is not None:
            mirror.fetch_log(version)
        then = _about_files(place, DeltaTable(place, version))
    except DeltaError as error:
        raise OSError(f"{place}: nothing tells what version {version} had: {first_line(error)}") from error
    now = about_files(place)
    return {file: now[file] for file in sorted({*now} - {*then})}, {
        file: then[file] for file in sorted({*then} - {*now})
    }


def about_files(place: str) -> dict[str, About]:
    """Returns the files that hold the rows of the table at this place."""
    return _about_files(place, open_table(place))


def _about_files(place: str, delta: DeltaTable) -> dict[str, About]:
    actions = _add_actions(delta)
    sizes, counts = actions["size_bytes"].to_pylist(), actions["num_records"].to_pylist()
    found = [About(size, count or 0) for size, count in zip(sizes, counts, strict=True)]
    return dict(zip(_files_of(place, delta), found, strict=True))


def _files_of(place: str, delta: DeltaTable) -> list[str]:
    return [_file_at(place, path) for path in _add_actions(delta)["path"].to_pylist()]


def count(place: str) -> int | None:
    """Returns how many rows the table at this place has, by its log; None where that does not tell, 0 without one."""
    if not log.versions(place):
        return 0
    counts = _add_actions(open_table(place))["num_records"]
    return None if counts.null_count else pc.sum(counts).as_py() or 0


def _add_actions(delta: DeltaTable) -> pa.Table:
    """Returns a row for each file of the table, with its `path` and `size_bytes`."""
    return pa.table(delta.get_add_actions())


def set_properties(place: str, pairs: Mapping[str, str], by: str = "") -> None:
    """Sets properties of the table at this place, in the version after the one that it reads; `by` is user metadata.

    Raises:
        ConflictError: another run made that version.
    """

    def commit(delta: DeltaTable) -> None:
        delta.alter.set_table_properties(dict(pairs), raise_if_not_exists=False, **_once(by))

    _commit(place, lambda **_: None, commit, attempts=1)


def add_columns(place: str, table: Table, names: Collection[str]) -> None:
    """Adds columns of the declared table, in the version after the one that it reads.

    Raises:
        ConflictError: another run made that version.
    """

    def commit(delta: DeltaTable) -> None:
        delta.alter.add_columns([field for field in delta_schema(table).fields if field.name in names], **_ONCE)

    _commit(place, lambda **_: None, commit, attempts=1)


def read_columns(place: str) -> StructType:
    """Returns the columns of the table at this place."""
    return StructType.fromJson(json.loads(open_table(place).schema().to_json()))


def read_properties(place: str) -> dict[str, str]:
    """Returns the properties of the table at this place."""
    return dict(open_table(place).metadata().configuration)


def _commit(place: str, check_lock: CheckLock, commit: Callable[[DeltaTable], None], attempts: int = _ATTEMPTS) -> None:
    """Makes the version after the one that it reads; reads again if another run has made it.

    Raises:
        ConflictError: each time, another run has made it. JobError: delta-rs cannot commit.
    """
    for _ in range(attempts):
        with alone_in(place):
            delta = open_table(place)
            own = _opened.pop(place)  # so that nobody else makes it go on with the log
            check_lock(surely=_own_versions.get(place) != delta.version())
            version = delta.version() + 1
            try:
                commit(delta)
            except (DeltaError, OSError) as error:
                if log.versions(place)[0] < version:
                    raise _failure(place, error) from error
                continue
            with suppress(TakenError):
                _settle(place, version)
                _opened[place], _own_versions[place] = own, version
                if (version + crc32(Path(place).name.encode())) % _CHECKPOINT_EVERY == 0:  # not all on one night
                    checkpoint(place)
                return
    raise ConflictError(f"Something else wrote {place} at the same time.")


def checkpoint(place: str) -> None:
    """Makes a checkpoint of the newest version, and deletes commits before one that are past their retention.

    The commits stand without it.
    """
    delta, entries = open_table(place), Path(place, FOLDER)
    try:
        delta.create_checkpoint()
        if (mirror := mirror_of(place)) is not None:
            mirror.put_checkpoint(delta.version())
            return
        sync(*entries.glob(f"{delta.version():020d}.checkpoint*"), entries / LAST_CHECKPOINT, entries)
        delta.cleanup_metadata()
    except (DeltaError, OSError, JobError) as error:
        warn(f"{place}: no checkpoint could be made: {first_line(error)}")


def open_table(place: str) -> DeltaTable:
    """Returns the table in its newest version.

    It is one object as long as this process runs, and goes on with the log: a month of commits takes longer to read
    than most tables.

    Raises:
        JobError: delta-rs cannot read or write it.
    """
    try:
        with alone_in(place):
            newest = log.newest_entry(place)
            known, delta = _opened.pop(place, (None, None))
            if known and newest and delta and newest.version > known.version:
                delta.update_incremental()
            elif delta is None or newest != known:  # another table may stand in its place
                delta = DeltaTable(place)
    except DeltaError as error:
        raise JobError(f"{place} cannot be read: {_plain_text(error)}. {_CURE}") from error
    protocol = delta.protocol()
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    # A later reader has deletion vectors, or other names of columns.
    if protocol.min_reader_version != 1 or features - _FEATURES or delta.metadata().partition_columns:
        raise JobError(f"{place} has features that another program or version gave it. {_CURE}")
    _opened[place] = newest, delta
    return delta


def _failure(place: str, error: Exception) -> JobError:
    """Says why delta-rs could not commit, and of the one cause that its words do not name."""
    return known_error(error) or JobError(
        f"{place} cannot be committed to: {_plain_text(error)}. If its file system has no hard links, two runs could "
        "overwrite each other's commits: put the warehouse on another."
    )


def _plain_text(error: Exception) -> str:
    return " ".join(_COLOURS.sub("", str(error)).split()).rstrip(".")


def _settle(place: str, version: int) -> None:
    """Makes a commit last: on the disk, or in the store, which raises TakenError if it has another of the version."""
    if (mirror := mirror_of(place)) is not None:
        mirror.put_commit(version)
        return
    sync(log.entry(place, version), log.entry(place, version).parent)
