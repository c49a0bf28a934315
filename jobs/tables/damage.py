"""Finds commits that a power failure took or tore, and sets them aside: of tables in folders of this machine.

A commit is damaged if it is no JSON, or if it has not the size that the publish lock recorded (`LockState.sizes`).
Delta itself takes an empty commit for one that changed nothing.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from jobs.cli.errors import JobError
from jobs.cli.logs import warn
from jobs.tables import log
from jobs.tables.lock_state import LockState
from jobs.tables.log_files import FOLDER, LAST_CHECKPOINT, version_of
from jobs.tables.parquet_files import sync

_ENDING = ".damaged"
_UNCOMMITTED = ".json#"
"""Is in the name that delta-rs gives to an entry until it is committed."""
_PARQUET = b"PAR1"
"""Begins and ends a file of Parquet."""


def require_whole(places: Mapping[str, str], state: LockState | None) -> None:
    """Makes sure that no commit of the tables at these places is damaged, as far as the lock's state tells.

    Raises:
        DamagedError: one is.
    """
    for table, place in places.items():
        torn = [_number(checkpoint) for checkpoint in _checkpoints(place, whole=False)]
        damaged = _first_damaged(table, place, state)
        if damaged is not None or torn:
            raise log.DamagedError(place, min(torn) if damaged is None else damaged)


def is_damaged(place: str) -> bool:
    """Returns whether a commit or checkpoint of the table at this place is damaged, or its log lacks what there was."""
    no_log = not log.versions(place) and any(Path(place).glob("*.parquet"))
    return (
        no_log
        or bool(_checkpoints(place, whole=False))
        or _first_damaged("", place, None, look_at_all=True) is not None
    )


def _first_damaged(table: str, place: str, state: LockState | None, *, look_at_all: bool = False) -> int | None:
    """Returns the first version that is damaged, of the newest and of the one that was recorded; None if none is.

    With `look_at_all`, of all that readers need, which are those from the newest checkpoint on.
    """
    versions = log.versions(place)
    first = _first_needed(place) if look_at_all else max(versions, default=0)
    damaged = [version for version in versions if version >= first and not log.is_whole(place, version)]
    if state is not None and table in state.sizes:
        recorded, newest = state.versions[table], max(versions, default=-1)
        if newest < recorded:
            damaged.append(newest + 1)
        elif recorded in versions and log.entry(place, recorded).stat().st_size != state.sizes[table]:
            damaged.append(recorded)
    return min(damaged, default=None)


def mend(
    places: Mapping[str, str], ingested: Collection[str], states: Callable[[], Sequence[LockState]]
) -> LockState | None:
    """Sets damaged commits and checkpoints of tables at these places aside.

    Rows of `ingested` tables cannot be derived again: if such were lost, returns the newest of the lock's `states` in
    which they were not there yet, ended by why a run has to go back to it. The states, newest first, are read when the
    log that they are in is mended.

    Raises:
        JobError: there is no such state, or nothing says which rows of a table count; all is as it was.
    """
    aside = _Aside()
    try:
        undo = _mend(places, ingested, states, aside)
    except JobError:
        aside.put_back()
        raise
    aside.tell()
    return undo


@dataclass(slots=True)
class _Aside:
    """Sets entries of logs aside, and puts them back where it turns out that nothing can be mended."""

    moved: list[tuple[Path, Path]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def set(self, entries: Iterable[Path], why: str) -> None:
        """Takes entries out of a table's log, for a reason that `tell` gives."""
        for entry in entries:
            name = entry.with_name(f"{entry.name}.{time.time_ns()}{_ENDING}")
            self.moved.append((entry.rename(name), entry))
            sync(entry.parent)
        self.said.append(why)

    def put_back(self) -> None:
        """Puts all entries back."""
        for name, entry in reversed(self.moved):
            name.rename(entry)
            sync(entry.parent)

    def tell(self) -> None:
        """Warns of what was set aside, for good now."""
        for folder in {entry.parent for _, entry in self.moved}:
            with suppress(FileNotFoundError):
                (folder / LAST_CHECKPOINT).unlink()  # only a hint
        for why in self.said:
            warn(why)


def _mend(
    places: Mapping[str, str],
    ingested: Collection[str],
    states: Callable[[], Sequence[LockState]],
    aside: _Aside,
) -> LockState | None:
    for place in places.values():
        if torn := _checkpoints(place, whole=False):  # they only repeat what the log says
            aside.set(torn, f"{place}: set a damaged checkpoint aside")
    lost: dict[str, int] = {}
    known: Sequence[LockState] = ()
    for look in (False, True):
        known = states() if look else ()
        for table, place in places.items():
            version = _first_damaged(table, place, known[0] if known else None, look_at_all=True)
            if version is not None and version < lost.get(table, version + 1):
                _set_aside(place, version, aside)
                lost[table] = version
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


def _set_aside(place: str, first: int, aside: _Aside) -> None:
    """Takes the damaged version and those after it out of the table's log.

    Raises:
        JobError: the log has nothing before it, but there are rows.
    """
    versions = log.versions(place)
    if first <= min(versions, default=0) and any(Path(place).glob("*.parquet")):
        raise JobError(
            f"The log of the table {place} is damaged from its first entry on, and nothing says which of its rows "
            "count. Ingest the captures into a new warehouse."
        )
    after = [entry for entry in sorted(_entries(place), reverse=True) if _number(entry) >= first]
    aside.set(after, f"{place}: version {first} is damaged, and set aside with what came after it")


def shorten(place: str) -> None:
    """Deletes of the table's log what comes before the newest checkpoint, was set aside, or was never committed."""
    first, folder = _first_needed(place), Path(place, FOLDER)
    for entry in folder.iterdir():
        if entry.name.endswith(_ENDING) or _UNCOMMITTED in entry.name or -1 < _number(entry) < first:
            entry.unlink()
    sync(folder)


def _first_needed(place: str) -> int:
    """Returns the version of the newest checkpoint in the table's log; -1 without one."""
    return max(map(_number, _checkpoints(place)), default=-1)


def _checkpoints(place: str, *, whole: bool = True) -> list[Path]:
    """Returns the files of checkpoints in the table's log that are whole Parquet, or those that are not."""
    found = (entry for entry in _entries(place) if entry.match("*.checkpoint*.parquet"))
    return [entry for entry in found if not entry.name.startswith(".") and _is_parquet(entry) is whole]


def _entries(place: str) -> list[Path]:
    """Returns the files of the table's log that belong to a version and were not set aside."""
    folder = Path(place, FOLDER)
    entries = folder.iterdir() if folder.exists() else ()
    return [entry for entry in entries if _number(entry) >= 0 and not entry.name.endswith(_ENDING)]


def _number(entry: Path) -> int:
    """Returns the version that a file in a log belongs to; -1 for a file of no version."""
    return version_of(entry.name.lstrip("."))


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        begins = file.read(len(_PARQUET))
        file.seek(-min(len(_PARQUET), path.stat().st_size), os.SEEK_END)
        return begins == _PARQUET == file.read()
