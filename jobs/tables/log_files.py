"""Names the files of a Delta table's log (Delta Transaction Log Protocol, "Delta Log Entries" and "Checkpoints")."""

import re
from collections.abc import Iterable, Iterator

FOLDER = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
_COMMIT = re.compile(r"(\d{20})\.json")


def commit_file(version: int) -> str:
    """Returns the name of the file of a commit."""
    return f"{version:020d}.json"


def commit_versions(names: Iterable[str]) -> Iterator[int]:
    """Yields the version of each file that is a commit."""
    return (int(match[1]) for name in names if (match := _COMMIT.fullmatch(name)))


def version_of(name: str) -> int:
    """Returns the version that a file belongs to; -1 for one of no version."""
    number = name.partition(".")[0]
    return int(number) if number.isdecimal() else -1
