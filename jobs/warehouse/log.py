"""The log of a Delta table, read where it lies: Spark needs three queries to tell of one what its last commits did.

A commit is a file of JSON lines, named by its version; one of them is its `commitInfo` (Delta Transaction Log Protocol,
"Delta Log Entries" and "Commit Provenance Information").
"""

import json
import re
from typing import Any

from pyarrow import fs

from udfs.capture.files import locate

_COMMIT = re.compile(r"(\d{20})\.json")


def versions(table: str) -> list[int]:
    """The versions that the log of the table at this place has commits for, the newest first.

    Raises:
        OSError: the place cannot be listed.
    """
    filesystem, path = locate(_log(table))
    found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return sorted((int(match[1]) for info in found if (match := _COMMIT.fullmatch(info.base_name))), reverse=True)


def commit_info(table: str, version: int) -> dict[str, Any]:
    """What the commit says of itself; nothing where it does not.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON.
    """
    filesystem, path = locate(f"{_log(table)}/{version:020d}.json")
    with filesystem.open_input_stream(path) as file:
        data: bytes = file.read()
    for line in data.splitlines():
        if b'"commitInfo"' in line and (info := json.loads(line).get("commitInfo")):
            return dict(info)
    return {}


def _log(table: str) -> str:
    return f"{table}/_delta_log"
