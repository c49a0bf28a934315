"""Identifies a process, so that a later run can tell whether it is still there."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_SPACES = ("pid", "time")
_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat after the name, which may hold spaces and parentheses."""
_ENDED = ("Z", "X", "x")
"""States of a process that has ended, and that its parent has not collected yet."""


class Process(NamedTuple):
    """Names one process of all that ever ran in one place."""

    place: str
    """The machine since it was started, and the namespaces in which its processes have their numbers and times. An
    empty text if they are not known."""
    pid: int
    started: int
    """In ticks since the machine was started."""

    @classmethod
    def own(cls) -> "Process":
        """Returns this process; without a place where the system does not tell it."""
        pid = os.getpid()
        with suppress(OSError, ValueError):
            boot = Path(_PROC, "sys/kernel/random/boot_id").read_text().strip()
            links = [link for name in _SPACES if (link := Path(_PROC, "self/ns", name)).is_symlink()]
            spaces = [str(link.readlink()) for link in links]
            number, _, rest = Path(_PROC, "self/stat").read_text().partition(" ")
            if int(number) == pid and spaces:  # else /proc is that of another namespace
                return cls(" ".join((boot, *spaces)), pid, int(_fields(rest)[_STARTED]))
        return cls("", pid, 0)

    def is_gone(self) -> bool:
        """Returns whether the process is known to have ended; False for one of another place, which nobody can know."""
        if not self.place or self.place != Process.own().place:
            return False
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:  # it is another user's
            pass
        try:
            fields = _fields(Path(_PROC, str(self.pid), "stat").read_text())
        except OSError:  # processes of other users may be hidden
            return False
        return fields[_STATE] in _ENDED or int(fields[_STARTED]) != self.started


def _fields(stat: str) -> list[str]:
    return stat.rpartition(")")[2].split()
