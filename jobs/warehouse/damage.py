"""Finds commits that a power failure took or tore, and sets them aside: of tables in folders of this machine.

A commit is damaged if it is no JSON, or if it is not what the publish lock recorded of it (`LockState.left`): Delta
itself takes an empty commit for one that changed nothing.
"""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import rmtree

from jobs.app.errors import JobError
from jobs.app.logs import warn
from jobs.app.parallel import run_in_parallel
from jobs.warehouse import log
from jobs.warehouse.durable import sync
from jobs.warehouse.lock_state import LockState

Left = Mapping[str, Sequence[int]]
"""By table: its newest version, and the bytes of that version's entry in its log."""


_ASIDE = "_damaged-"
_ENDING = ".damaged"
_UNCOMMITTED = ".json#"
"""Is in the name that delta-rs gives to an entry until it is committed."""
_PARQUET = b"PAR1"
"""Begins and ends a file of Parquet."""


def left(places: Mapping[str, str]) -> dict[str, list[int]]:
    """Returns what the tables at these places were left as."""
    found = run_in_parallel(partial(_left, place) for place in places.values())
    return {table: last for table, last in zip(places, found, strict=True) if last}


def _left(place: str) -> list[int]:
    newest = log.versions(place)[:1]
    return [*newest, *(log.size(place, version) or 0 for version in newest)]


def first_damaged(place: str, last: Sequence[int] | None, *, look_at_all: bool = False) -> int | None:
    """Returns the first version that is damaged, of the newest and of the one that was left last; None if none is.

    With `look_at_all`, of all that readers need, which are those from the newest checkpoint on.
    """
    versions = log.versions(place)
    needed = [version for version in versions if version >= _checkpoint(place)] if look_at_all else versions[:1]
    damaged = [version for version in needed if not log.is_whole(place, version)]
    if last is not None:
        version, size = last
        newest = versions[0] if versions else -1
        if newest < version:
            damaged.append(newest + 1)
        elif version in versions and log.size(place, version) != size:
            damaged.append(version)
    return min(damaged, default=None)


def require_whole(places: Mapping[str, str], last: Left) -> None:
    """Makes sure that no commit is damaged.

    Raises:
        DamagedError: one is.
    """
    for table, place in places.items():
        version = first_damaged(place, last.get(table))
        torn = list(map(_version, _torn_checkpoints(place)))
        if version is not None or torn:
            raise log.DamagedError(place, min(torn) if version is None else version)


def mend(
    places: Mapping[str, str], ingested: Collection[str], states: Callable[[], Sequence[LockState]]
) -> LockState | None:
    """Sets damaged commits of tables at these places aside.

    Rows of `ingested` tables cannot be derived again: if such were lost, returns the newest of the lock's `states` in
    which they were not there yet, ended by why a run has to go back to it. The states, newest first, are read when the
    log that they are in is mended.

    Raises:
        JobError: there is no such state, or nothing says which rows of a table count.
    """
    for place in places.values():
        _drop_torn_checkpoints(place)
    lost: dict[str, int] = {}
    _set_aside(places, {}, lost)
    known = states()
    _set_aside(places, known[0].left if known else {}, lost)
    gone = {table: version for table, version in lost.items() if table in ingested and version}
    if not gone:
        return None
    for state in known:
        if state.versions and all(state.versions.get(table, 0) < version for table, version in gone.items()):
            table = min(gone)
            return replace(state, ended=f"version {gone[table]} of {table} was damaged")
    raise JobError(
        f"Rows of {', '.join(sorted(gone))} are lost, and nothing says which. Ingest the captures into a new warehouse."
    )


def _drop_torn_checkpoints(place: str) -> None:
    """Deletes checkpoints that are no whole Parquet: they only repeat what the log says from the one before on.

    Raises:
        JobError: the log does not say it any more.
    """
    torn = _torn_checkpoints(place)
    if not torn:
        return
    whole = max(map(_version, {*_checkpoints(place)} - {*torn}), default=-1)
    versions = log.versions(place)
    if not {*range(whole + 1, max(map(_version, torn)) + 1)} <= {*versions}:
        raise JobError(
            f"The checkpoint {torn[0]} is damaged, and the table's log does not say any more what it held. Ingest the "
            "captures into a new warehouse."
        )
    for file in (*torn, Path(place, log.FOLDER, log.LAST_CHECKPOINT)):
        file.unlink(missing_ok=True)
    warn(f"{place}: deleted a damaged checkpoint, which the log repeats")


def _set_aside(places: Mapping[str, str], last: Left, lost: dict[str, int]) -> None:
    """Sets aside what is damaged beside what is `lost`, and adds it to that."""
    for table, place in places.items():
        version = first_damaged(place, last.get(table), look_at_all=True)
        if version is not None and version < lost.get(table, version + 1):
            set_aside(place, version)
            lost[table] = version


def set_aside(place: str, version: int) -> None:
    """Takes the damaged version and those after it out of the table's log; without a version before, all of it.

    Raises:
        JobError: the log has nothing before it, but there are rows.
    """
    folder = Path(place)
    if not folder.exists():
        return
    warn(f"{place}: version {version} is damaged, and set aside with what came after it")
    if version <= min(log.versions(place), default=0):
        if any(folder.glob("*.parquet")):
            raise JobError(
                f"The log of the table {place} is damaged from its first entry on, and nothing says which of its rows "
                "count. Ingest the captures into a new warehouse."
            )
        folder.rename(folder.with_name(f"{_ASIDE}{folder.name}-{time.time_ns()}"))
        sync(folder.parent)
        return
    entries = folder / log.FOLDER
    for entry in sorted(entries.iterdir(), reverse=True):
        number = _number(entry)
        if number is not None and number >= version and not entry.name.endswith(_ENDING):
            entry.rename(entry.with_name(f"{entry.name}.{time.time_ns()}{_ENDING}"))
    with suppress(FileNotFoundError):
        (entries / log.LAST_CHECKPOINT).unlink()  # only a hint
    sync(entries)


def _checkpoint(place: str) -> int:
    """Returns the version of the newest checkpoint in the table's log; -1 without one."""
    return max(map(_version, _checkpoints(place)), default=-1)


def _torn_checkpoints(place: str) -> list[Path]:
    """Returns the files of checkpoints in the table's log that are no whole Parquet."""
    return [file for file in _checkpoints(place) if not _is_parquet(file)]


def _checkpoints(place: str) -> list[Path]:
    return [file for file in Path(place, log.FOLDER).glob("*.checkpoint*.parquet") if not file.name.startswith(".")]


def _number(entry: Path) -> int | None:
    """Returns the version that a file in a log belongs to; None for a file of no version."""
    number = entry.name.lstrip(".").partition(".")[0]
    return int(number) if number.isdecimal() else None


def _version(checkpoint: Path) -> int:
    return int(checkpoint.name.partition(".")[0])


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        begins = file.read(len(_PARQUET))
        file.seek(-min(len(_PARQUET), path.stat().st_size), os.SEEK_END)
        return begins == _PARQUET == file.read()


def shorten(place: str) -> None:
    """Deletes of the table's log what comes before the newest checkpoint, was set aside, or was never committed."""
    first = _checkpoint(place)
    for entry in Path(place, log.FOLDER).iterdir():
        number = _number(entry)
        if (number is not None and number < first) or entry.name.endswith(_ENDING) or _UNCOMMITTED in entry.name:
            entry.unlink()
    sync(Path(place, log.FOLDER))


def forget(warehouse: str) -> None:
    """Deletes the tables that were set aside as a whole."""
    for folder in Path(warehouse).glob(f"{_ASIDE}*"):
        rmtree(folder)
