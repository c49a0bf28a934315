"""Reads what a command line names on this machine: one small file, and nothing that blocks or never ends."""

import stat
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 64 << 20
"""More than any such file needs."""
NOT_REGULAR = "it is a folder, a pipe or a device, and no regular file"


def is_other_than_file(path: Path) -> bool:
    """Returns whether there is something under the name that is no regular file; links are followed.

    Raises:
        OSError: that cannot be told.
    """
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def read_local(path: Path) -> bytes:
    """Returns the bytes of a file.

    Raises:
        OSError: it cannot be read, is no regular file, or has more than MOST_BYTES.
    """
    if is_other_than_file(path):
        raise OSError(NOT_REGULAR)
    with path.open("rb") as file:
        return read_all(file)


def read_all(file: BinaryIO) -> bytes:
    """Returns what is left of a file.

    Raises:
        OSError: it cannot be read, or has more than MOST_BYTES.
    """
    data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(f"it has more than {MOST_BYTES >> 20} MiB")
    return data
