"""Marks tables as being written to, by a lock of the operating system that ends with its process."""

import fcntl
import hashlib
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

NAME = "running.lock"
_HASHED = 32
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class Mark:
    """Shows the runs of this machine, in all its containers, that one of them writes.

    Nobody else need see it. Where there is no file, or its file system has no such locks, nobody does.
    """

    file: Path | None
    machine: str = ""
    """Names this machine since it was started, once this run has the mark; empty where that proves nothing."""
    is_temporary: bool = False
    """Whether the file lies in this machine's temporary folder, because the tables are in no folder.

    The run deletes such a file when it ends. Each container of a machine may have another temporary folder, and so
    another file: therefore the file's text is part of the name of the machine.
    """
    _descriptor: int | None = None

    @classmethod
    def of_place(cls, place: str) -> Self:
        """Returns the mark of tables that are in no folder of this machine, as this user's runs see it."""
        name = hashlib.sha256(place.encode()).hexdigest()[:_HASHED]
        return cls(Path(tempfile.gettempdir(), f"msmq-replay-{os.getuid()}-{name}.lock"), is_temporary=True)

    def take(self) -> bool:
        """Takes the mark; returns False if another run on this machine has it."""
        if self.file is None or self._descriptor is not None:
            return True
        try:
            descriptor = os.open(
                self.file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600 if self.is_temporary else 0o666
            )
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
            text = self._text_of_file(descriptor) if self.is_temporary else ""
            self.machine = f"{_BOOT_ID.read_text().strip()} {text}".strip()
        return True

    @staticmethod
    def _text_of_file(descriptor: int) -> str:
        """Returns what tells the file from every other.

        Raises:
            PermissionError: it is another user's.
        """
        if os.fstat(descriptor).st_uid != os.getuid():
            raise PermissionError
        if not (found := os.pread(descriptor, 2 * _HASHED, 0)):
            found = uuid4().hex.encode()
            os.pwrite(descriptor, found, 0)
        return found.decode("ascii", "replace")

    def free(self) -> None:
        """Gives the mark up."""
        if self._descriptor is not None:
            if self.file is not None and self.is_temporary:
                self.file.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None
