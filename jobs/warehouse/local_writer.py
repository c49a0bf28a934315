"""Commits to Delta tables on a local file system without Spark: rows as Parquet, and the actions in the table's log.

Spark takes most of a second for each commit, and a small night makes some thirty. These are the commits that Delta's
own writer makes of the same rows (Delta Transaction Log Protocol: "Actions", "Per-file Statistics", "Requirements for
Writers"). A table that has a feature which they would have to heed is left to Delta.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import StructField, StructType

from jobs.app.errors import ConflictError, JobError
from jobs.warehouse import log
from jobs.warehouse.local_tables import nullable
from schemas.table import Table

Action = dict[str, Any]

_LOG = "_delta_log"
_CLUSTERING = "delta.clustering"
_FEATURES = ["appendOnly", "invariants", "checkConstraints", "domainMetadata", "clustering"]
_KEEPS_CHANGES = "changeDataFeed"
"""Asks for nothing here: if a commit only adds or removes whole files, readers see the changed rows in these."""
_ENABLES = "delta.enable"
"""Begins properties that need a feature in the table's protocol: Delta adds it when it sets one of them."""
_WITH_FEATURES = 7
"""Version of the protocol for writers from which on a table lists its features."""
_WITH_CHECKS = 3
_INDEXED = 32
"""Columns that Delta collects statistics of unless a table says which."""
_ATTEMPTS = 5
_CHECKPOINT_EVERY = 10
"""Versions from one checkpoint of Delta to the next."""


def create(place: str, table: Table, properties: Mapping[str, str]) -> None:
    """Creates the table in the folder `place`, without rows, unless the folder holds it or something else."""
    folder = Path(place)
    if folder.exists() and any(found.name != _LOG for found in folder.iterdir()):
        return
    protocol: Action = {"minReaderVersion": 1, "minWriterVersion": _WITH_CHECKS}
    if table.clustered_by or table.keeps_changes:
        features = [*_FEATURES, _KEEPS_CHANGES] if table.keeps_changes else _FEATURES
        protocol |= {"minWriterVersion": _WITH_FEATURES, "writerFeatures": features}
    metadata = {
        "id": str(uuid4()),
        "description": table.comment,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _schema(table),
        "partitionColumns": [],
        "configuration": dict(properties),
        "createdTime": _now(),
    }
    actions = [{"protocol": protocol}, {"metaData": metadata}]
    if table.clustered_by:
        columns = [[column] for column in table.clustered_by]
        clustering = json.dumps({"clusteringColumns": columns, "domainName": _CLUSTERING})
        actions.append({"domainMetadata": {"domain": _CLUSTERING, "configuration": clustering, "removed": False}})
    parameters = {
        "partitionBy": "[]",
        "clusterBy": json.dumps(table.clustered_by),
        "description": table.comment,
        "isManaged": "false",
        "properties": json.dumps(dict(properties)),
    }
    with suppress(FileExistsError):  # another run has created it
        _commit(place, 0, log.CREATE, parameters, actions)


def write(place: str, table: Table, rows: pa.Table, check_lock: Callable[[], None], *, overwrite: bool = False) -> bool:
    """Appends the rows to the table at this place, or replaces all its rows; returns whether it could.

    The lock is checked between the look at the log and the commit: a run that took this one for dead has either made a
    commit of its own by then, which takes the version, or the check fails.

    Raises:
        ConflictError: another run took this one for dead, or writes to the table all the time.
        JobError: a value is missing where none may be, or is not one of those that its column can have.
    """
    if _read_for_next(place) is None:
        return False
    _require_valid(table, rows)
    added = [{"add": _write_file(place, table, rows)}] if rows.num_rows else []
    parameters = {"mode": "Overwrite" if overwrite else "Append", "partitionBy": "[]"}

    def replaced(actions: list[Action]) -> list[Action]:
        return [*map(_remove, _files(actions).values()), *added] if overwrite else added

    return _commit_next(place, "WRITE", parameters, check_lock, replaced)


def restore(place: str, version: int, check_lock: Callable[[], None]) -> bool:
    """Puts back the rows that the table at this place had in the version; returns whether it could.

    It leaves to Delta what it would do otherwise: where columns have changed since, or a file is gone.

    Raises:
        ConflictError: another run took this one for dead, or writes to the table all the time.
    """

    def changes(actions: list[Action]) -> list[Action] | None:
        before = [action for action in actions if action["version"] <= version]
        wanted, there = _files(before), _files(actions)
        back = [{"add": add | {"dataChange": True}} for path, add in wanted.items() if path not in there]
        is_whole = all(Path(place, add["add"]["path"]).exists() for add in back)
        is_same = _metadata(before)["schemaString"] == _metadata(actions)["schemaString"]
        gone = [_remove(add) for path, add in there.items() if path not in wanted]
        return [*gone, *back] if is_whole and is_same else None

    return _commit_next(place, log.RESTORE, {"version": str(version)}, check_lock, changes)


def read(place: str, schema: pa.Schema) -> pa.Table | None:
    """Reads the table at this place with the columns of the schema; None where it has to be read by Delta.

    A column that a file lacks, because it was added to the table later, is null there.
    """
    actions = _read(place)
    if actions is None or not all(map(_is_plain, files := _files(actions))):
        return None
    parts = [pq.read_table(Path(place, name), columns=schema.names) for name in files]
    return pa.concat_tables([schema.empty_table(), *(_conform(part, schema) for part in parts)])


def set_properties(place: str, pairs: Mapping[str, str]) -> bool:
    """Sets properties of the table at this place, in the version after the one that it reads; returns whether it could.

    Raises:
        ConflictError: another run made that version.
    """
    actions = _read_for_next(place)
    if actions is None:
        return False
    metadata = _metadata(actions)
    before = metadata["configuration"]
    if any(before.get(key) != value for key, value in pairs.items() if key.startswith(_ENABLES)):
        return False
    metadata["configuration"] = before | pairs
    parameters = {"properties": json.dumps(dict(pairs))}
    try:
        _commit(place, actions[-1]["version"] + 1, log.SET_PROPERTIES, parameters, [{"metaData": metadata}])
    except FileExistsError as error:
        raise ConflictError(f"Something else wrote {place} at the same time.") from error
    return True


def read_properties(place: str) -> dict[str, str] | None:
    """Returns the properties of the table at this place; None where its log has to be read by Delta."""
    actions = _read(place)
    return None if actions is None else dict(_metadata(actions)["configuration"])


def _metadata(actions: list[Action]) -> Action:
    """Returns what the log says last of the table as a whole."""
    return dict(next(action["metaData"] for action in reversed(actions) if "metaData" in action))


def _commit_next(
    place: str,
    operation: str,
    parameters: Mapping[str, str],
    check_lock: Callable[[], None],
    change: Callable[[list[Action]], list[Action] | None],
) -> bool:
    """Commits what `change` makes of the table's actions, unless that is None; returns whether it did."""
    for _ in range(_ATTEMPTS):
        actions = _read_for_next(place)
        new = None if actions is None else change(actions)
        if actions is None or new is None:
            return False
        check_lock()
        with suppress(FileExistsError):
            _commit(place, actions[-1]["version"] + 1, operation, parameters, new)
            return True
    raise ConflictError(f"Something else writes {place} all the time.")


def _read_for_next(place: str) -> list[Action] | None:
    """Returns the table's actions, unless Delta has to make the next version because it writes a checkpoint with it."""
    actions = _read(place)
    return None if actions is None or (actions[-1]["version"] + 1) % _CHECKPOINT_EVERY == 0 else actions


def _read(place: str) -> list[Action] | None:
    """Returns the actions of the table's log in order, each with its `version`.

    Returns None where the log does not begin with version 0, or the table has a feature that is not known here.
    """
    versions = log.versions(place)[::-1]
    if not versions or versions != list(range(len(versions))):
        return None
    actions = [action for version in versions for action in _actions(place, version)]
    known = all(_is_known(action["protocol"]) for action in actions if "protocol" in action)
    return actions if known else None


def _actions(place: str, version: int) -> Iterator[Action]:
    for line in Path(place, _LOG, f"{version:020d}.json").read_text().splitlines():
        yield {"version": version} | json.loads(line)


def _is_known(protocol: Action) -> bool:
    features = {*protocol.get("writerFeatures", ()), *protocol.get("readerFeatures", ())}
    version = protocol["minWriterVersion"]
    return features <= {*_FEATURES, _KEEPS_CHANGES} and (version <= _WITH_CHECKS or version == _WITH_FEATURES)


def _files(actions: list[Action]) -> dict[str, Action]:
    """Returns what the log says of each file of the newest version that these actions make, by its path."""
    files: dict[str, Action] = {}
    for action in actions:
        if "add" in action:
            files[action["add"]["path"]] = action["add"]
        elif "remove" in action:
            files.pop(action["remove"]["path"], None)
    return files


def _is_plain(path: str) -> bool:
    """Returns whether the path is a name in the table's folder that needs no decoding."""
    return re.fullmatch(r"[\w.-]+", path) is not None


def _conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    there = rows.schema.names
    columns = [
        rows[field.name].cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema)


def _remove(add: Action) -> Action:
    """Returns the action that removes a file."""
    about = {"path": add["path"], "deletionTimestamp": _now(), "dataChange": True}
    return {"remove": about | {"extendedFileMetadata": True, "partitionValues": {}, "size": add["size"]}}


def _write_file(place: str, table: Table, rows: pa.Table) -> Action:
    """Writes the rows to a file in the folder, and returns what an `add` says of it."""
    name = f"part-00000-{uuid4()}-c000.zstd.parquet"
    file = Path(place, name)
    pq.write_table(rows, file, compression="zstd", coerce_timestamps="us", store_schema=False)
    found = file.stat()
    return {
        "path": name,
        "partitionValues": {},
        "size": found.st_size,
        "modificationTime": found.st_mtime_ns // 1_000_000,
        "dataChange": True,
        "stats": json.dumps(_statistics(table, rows)),
    }


def _commit(place: str, version: int, operation: str, parameters: Mapping[str, str], actions: list[Action]) -> None:
    """Adds a version to the table's log.

    Raises:
        FileExistsError: somebody else has added it.
    """
    folder = Path(place, _LOG)
    folder.mkdir(parents=True, exist_ok=True)
    info = {
        "timestamp": _now(),
        "operation": operation,
        "operationParameters": parameters,
        "isolationLevel": "Serializable",
        "isBlindAppend": operation != log.RESTORE and not any("remove" in action for action in actions),
        "engineInfo": "msmq-replay",
        "txnId": str(uuid4()),
    }
    written, committed = folder / f".{uuid4()}.tmp", folder / f"{version:020d}.json"
    written.write_text("".join(json.dumps(action) + "\n" for action in ({"commitInfo": info}, *actions)))
    try:
        os.link(written, committed)  # fails, unlike a rename, where the version exists
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if committed.exists():
            raise FileExistsError(committed) from None
        written.rename(committed)
    finally:
        written.unlink(missing_ok=True)


def _schema(table: Table) -> str:
    """Returns the table's Spark schema with the columns' comments, as JSON."""
    return StructType(
        [
            StructField(column.name, nullable(column.type), column.nullable, {"comment": column.comment})
            for column in table
        ]
    ).json()


def _require_valid(table: Table, rows: pa.Table) -> None:
    """Holds the rows to the table's NOT NULL and CHECK constraints."""
    for column in table:
        values = rows[column.name]
        if values.null_count and not column.nullable:
            raise JobError(f"A row of {table.name} has no {column.name}.")
        if column.values is not None:
            known = pc.is_in(values.drop_null(), value_set=pa.array(list(map(str, column.values)), values.type))
            if not pc.all(known, min_count=0).as_py():
                raise JobError(f"A row of {table.name} has a {column.name} that is not one of its values.")


def _statistics(table: Table, rows: pa.Table) -> dict[str, Any]:
    """Returns the number of rows and, of the columns that Delta skips files by, least, greatest and missing values."""
    least, greatest, missing = {}, {}, {}
    for name in table.statistics_columns or table.names[:_INDEXED]:
        column = rows[name]
        if pa.types.is_nested(column.type):
            continue
        missing[name] = column.null_count
        if not (pa.types.is_boolean(column.type) or pa.types.is_binary(column.type)):
            ends = pc.min_max(column).as_py()
            if ends["min"] is not None:
                least[name], greatest[name] = _plain(ends["min"]), _plain(ends["max"])
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": missing}


def _plain(value: Any) -> Any:
    """Returns a statistic as the protocol writes it; a time is cut to milliseconds, as readers of Delta expect."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    return int(value) if isinstance(value, Decimal) else value


def _now() -> int:
    return time.time_ns() // 1_000_000
