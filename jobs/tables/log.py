"""Reads the commits of a Delta table: which there are, what each did, and when the rows last changed.

A log in a folder of this machine is read directly, because DESCRIBE HISTORY takes Spark three queries; that of a table
in an object store is fetched first. A commit is a file of JSON lines named by its version; one line is its
`commitInfo` (Delta Transaction Log Protocol, "Delta Log Entries" and "Commit Provenance Information").
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, Self

from jobs.cli.errors import JobError
from jobs.tables.log_files import FOLDER, commit_file, commit_versions
from jobs.tables.mirror import mirror_of

SET_PROPERTIES = "SET TBLPROPERTIES"
_UPKEEP = (
    *("OPTIMIZE", "CLUSTER BY", "VACUUM START", "VACUUM END", SET_PROPERTIES, "UNSET TBLPROPERTIES"),
    *("ADD COLUMN", "ADD COLUMNS", "ADD CONSTRAINT", "DROP CONSTRAINT", "UPGRADE PROTOCOL"),
)
"""Operations that leave a table's rows as they are."""


class DamagedError(JobError):
    """Names a commit that cannot be read: it is empty or cut, as a power failure can leave it."""

    def __init__(self, table: str, version: int) -> None:
        super().__init__(
            f"Version {version} of the table {table} is damaged, as a power failure can leave it: its entry in the "
            "table's log is lost, empty or cut. Run msmq-replay repair."
        )


class Commit(NamedTuple):
    """Holds a commit of a table: its version, its time in UTC, the operation and its parameters."""

    version: int
    at: datetime
    operation: str
    parameters: Mapping[str, Any]
    user_metadata: str = ""
    """Text that the writer added to the commit, such as which process it was; empty for none."""

    @classmethod
    def of(cls, version: int, at: datetime, info: Mapping[str, Any]) -> Self:
        """Makes the commit from its `commitInfo` or from a row of DESCRIBE HISTORY."""
        parameters = info.get("operationParameters") or {}
        return cls(version, at, info.get("operation") or "", parameters, info.get("userMetadata") or "")

    @property
    def changes_rows(self) -> bool:
        """Returns whether the table's rows may differ from those of the version before."""
        return self.operation not in _UPKEEP


def rows_version(commits: Iterable[Commit]) -> int:
    """Returns the version in which the rows last changed, of commits in order, newest first; -1 without commits.

    Equal results mean equal rows. Where the commits end too early, the result is a later version with these rows.
    """
    version = -1
    for commit in commits:
        version = commit.version
        if commit.changes_rows:
            break
    return version


def last_with_rows_of(version: int, commits: Iterable[Commit]) -> int:
    """Returns the last version up to which no commit changed the rows of this one; commits are in order, newest first.

    Files that OPTIMIZE made of others are in it.
    """
    later = list(takewhile(lambda commit: commit.version > version, commits))
    if later and later[-1].version != version + 1:  # the log does not tell any more what came next
        return version
    same = takewhile(lambda commit: not commit.changes_rows, reversed(later))
    return max((commit.version for commit in same), default=version)


def versions(table: str) -> list[int]:
    """Lists the versions in the log of the table at this place, newest first.

    Raises:
        OSError: the place cannot be listed.
    """
    if (mirror := mirror_of(table)) is not None:
        return mirror.versions()
    folder = Path(table, FOLDER)
    names = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 - names are enough
    return sorted(commit_versions(names), reverse=True)


class Entry(NamedTuple):
    """Tells the entry of a commit in a log from others: its version, bytes, and when it was written, ns since 1970."""

    version: int
    size: int
    written_ns: int


def newest_entry(table: str) -> Entry | None:
    """Returns what tells the newest entry in the log of the table in this folder of this machine; None without one."""
    for version in versions(table)[:1]:
        status = entry(table, version).stat()
        return Entry(version, status.st_size, status.st_mtime_ns)
    return None


def commits(table: str) -> Iterator[Commit]:
    """Yields the commits of the table at this place, newest first; each is read when the caller needs it.

    Raises:
        OSError: the log cannot be listed or read.
        DamagedError: a commit is not JSON.
    """
    for version in versions(table):
        lines = [line for line in _lines(table, version) if b'"commitInfo"' in line]
        try:
            info: dict[str, Any] = next(filter(None, (json.loads(line).get("commitInfo") for line in lines)), {})
        except ValueError as error:
            raise DamagedError(table, version) from error
        if not lines and not is_whole(table, version):
            raise DamagedError(table, version)
        yield Commit.of(version, datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC), info)


def is_whole(table: str, version: int) -> bool:
    """Returns whether a commit of the table at this place is lines of JSON: not empty, zeros, or cut."""
    try:
        return all(isinstance(json.loads(line), dict) for line in _lines(table, version))
    except (DamagedError, ValueError):
        return False


def _lines(table: str, version: int) -> list[bytes]:
    """Returns the lines of a commit; a line ends with a line feed only, whatever characters JSON contains."""
    if (mirror := mirror_of(table)) is not None:
        mirror.fetch([f"{FOLDER}/{commit_file(version)}"])
    lines = [line for line in entry(table, version).read_bytes().split(b"\n") if line.strip()]
    if not lines:
        raise DamagedError(table, version)
    return lines


def entry(table: str, version: int) -> Path:
    """Returns the file of a commit of the table in this folder of this machine."""
    return Path(table, FOLDER, commit_file(version))
