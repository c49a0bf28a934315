"""Marks a folder of tables as being written to, by a lock of the operating system that ends with its process."""

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

NAME = "running.lock"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class Mark:
    """Shows the runs of this machine, in all its containers, that one of them writes.

    Nobody else need see it. Where there is no file, or its file system has no such locks, nobody does.
    """

    file: Path | None
    machine: str = ""
    """Names this machine since it was started, once this run has the mark; empty where that proves nothing."""
    _descriptor: int | None = None

    def take(self) -> bool:
        """Takes the mark; returns False if another run on this machine has it."""
        if self.file is None or self._descriptor is not None:
            return True
        try:
            descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:
            self.file = None
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            is_taken = isinstance(error, BlockingIOError)
            self.file = self.file if is_taken else None
            return not is_taken
        self._descriptor = descriptor
        with suppress(OSError):
            self.machine = _BOOT_ID.read_text().strip()
        return True

    def free(self) -> None:
        """Gives the mark up."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
