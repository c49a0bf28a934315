"""Reads the commits of a Delta table: which there are, what each did, and when the rows last changed.

A log in a local folder is read directly, because DESCRIBE HISTORY takes Spark three queries. A commit is a file of JSON
lines named by its version; one line is its `commitInfo` (Delta Transaction Log Protocol, "Delta Log Entries" and
"Commit Provenance Information").
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from pyarrow import fs

from udfs.capture.files import locate

SET_PROPERTIES = "SET TBLPROPERTIES"
CREATE = "CREATE TABLE"
RESTORE = "RESTORE"
_UPKEEP = ("OPTIMIZE", "VACUUM START", "VACUUM END", SET_PROPERTIES, "UNSET TBLPROPERTIES")
"""Operations that leave a table's rows as they are."""
_COMMIT_FILE = re.compile(r"(\d{20})\.json")


class Commit(NamedTuple):
    """One commit of a table: its version, its time in UTC, the operation and its parameters."""

    version: int
    at: datetime
    operation: str
    parameters: Mapping[str, Any]

    @classmethod
    def of(cls, version: int, at: datetime, info: Mapping[str, Any]) -> Self:
        """Makes the commit from its `commitInfo` or from a row of DESCRIBE HISTORY."""
        return cls(version, at, info.get("operation") or "", info.get("operationParameters") or {})

    @property
    def changes_rows(self) -> bool:
        """Returns whether the table's rows may differ from those of the version before."""
        return self.operation not in _UPKEEP

    @property
    def restored(self) -> int | None:
        """The version whose rows a RESTORE put back; None for any other commit, and for a RESTORE to a time."""
        version = self.parameters.get("version") if self.operation == RESTORE else None
        return None if version in (None, "", "null") else int(version)


def rows_version(commits: Iterable[Commit]) -> int:
    """Returns a version with the same rows as the newest: where the rows last changed, or what a RESTORE put back.

    Equal results mean equal rows. The commits are in order, newest first; where they end too early, the result is a
    later version with these rows. -1 where there are no commits.
    """
    newest_of_interest: int | None = None
    version = -1
    for commit in commits:
        if newest_of_interest is not None and commit.version > newest_of_interest:
            continue
        version = commit.version
        if (restored := commit.restored) is not None:
            newest_of_interest = version = restored
        elif commit.changes_rows:
            return version
    return version


def versions(table: str) -> list[int]:
    """Lists the versions in the log of the table at this place, newest first.

    Raises:
        OSError: the place cannot be listed.
    """
    filesystem, path = locate(_log(table))
    found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return sorted((int(match[1]) for info in found if (match := _COMMIT_FILE.fullmatch(info.base_name))), reverse=True)


def commits(table: str) -> Iterator[Commit]:
    """Yields the commits of the table at this place, newest first; each is read when the caller needs it.

    Raises:
        OSError: the log cannot be listed or read.
        ValueError: a commit is not JSON.
    """
    for version in versions(table):
        filesystem, path = locate(f"{_log(table)}/{version:020d}.json")
        with filesystem.open_input_stream(path) as file:
            lines = [line for line in file.read().splitlines() if b'"commitInfo"' in line]
        info: dict[str, Any] = next(filter(None, (json.loads(line).get("commitInfo") for line in lines)), {})
        yield Commit.of(version, datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC), info)


def _log(table: str) -> str:
    return f"{table}/_delta_log"
