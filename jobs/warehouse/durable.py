"""Waits until files are on the disk: what the system only holds in its memory is lost when the power fails."""

import errno
import os
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
    folders = {Path(folder): names for folder, _, names in os.walk(table)}
    for folder in sorted(folders, key=lambda folder: folder.name == FOLDER):
        written = [folder / name for name in folders[folder] if _is_newer(f"{folder}/{name}", since)]
        sync(*written, *([folder] if written else ()))


def _is_newer(file: str, since: float) -> bool:
    try:
        return os.stat(file).st_mtime >= since - _CLOCKS_DIFFER_S  # noqa: PTH116 - a path for each would cost more
    except FileNotFoundError:  # Spark has renamed it
        return False
