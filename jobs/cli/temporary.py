"""Makes folders for temporary files that only their user can open, and that no run leaves behind."""

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from jobs.cli.errors import JobError, known_error

_PREFIX = "msmq-replay-run-"
_ATTEMPTS = 5
_LOCKED: list[int] = []
"""Descriptors of this process's folders. The system frees their locks when it ends, however it ends."""


def private_folder() -> Path:
    """Returns a new folder that only this user can open; deletes those of processes that were killed.

    Raises:
        JobError: it cannot be made.
    """
    try:
        return _new_folder()
    except OSError as error:
        raise known_error(error) or JobError(f"No folder for temporary files can be made: {error}") from error


def _new_folder() -> Path:
    _delete_left_over()
    for _ in range(_ATTEMPTS):
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(BlockingIOError, FileNotFoundError):  # another process is just deleting it, as nobody held it
            descriptor = _lock(folder)
            if folder.exists():
                _LOCKED.append(descriptor)
                return folder
            os.close(descriptor)
    raise OSError("Other processes delete every folder for temporary files at once.")


def _delete_left_over() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is held, or another user's, or gone
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                descriptor = _lock(folder)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(descriptor)


def _lock(folder: Path) -> int:
    """Returns a descriptor that locks the folder; raises BlockingIOError if another process does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
