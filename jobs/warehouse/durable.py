"""Waits until files are on the disk: what the system only holds in its memory is lost when the power fails."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from jobs.warehouse.log import FOLDER

_CLOCKS_DIFFER_S = 60
"""Seconds by which a file server's clock may be behind."""
_NOT_OF_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


def sync(*paths: Path) -> None:
    """Waits until the contents of these files, or the names in these folders, are on the disk.

    A folder that the file system does not write on request, or that may not be opened, is left to the system.
    """
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if not (path.is_dir() and error.errno in _NOT_OF_FOLDERS):
                raise


def settle(table: str, since: float) -> None:
    """Waits until what was written to the table at this place since a time is on the disk: its rows, then its log."""
    folder = Path(table)
    if not folder.is_dir():
        return
    written = list(_written(folder, since))
    for is_log in (False, True):
        files = [path for path in written if (path.parent.name == FOLDER) is is_log]
        sync(*files, *{path.parent for path in files})


def _written(folder: Path, since: float) -> Iterator[Path]:
    for path in folder.rglob("*"):
        try:
            if path.is_file() and path.stat().st_mtime >= since - _CLOCKS_DIFFER_S:
                yield path
        except FileNotFoundError:  # a file that Spark has renamed
            continue
