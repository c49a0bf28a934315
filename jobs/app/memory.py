"""Says how many bytes of captures this machine's memory is enough for, and how many bytes captures have."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from jobs.app.capture_listing import Stamp
from udfs.capture.files import content_bytes

FEW_BYTES = 16 << 20
"""Bytes of captures that every machine has memory for."""
_SHARE = 32
"""Captures in memory may have a 32nd of the machine's memory: Python takes nine times the size of small messages."""
_BYTES_A_MESSAGE = 1 << 12
"""Memory that Python takes for a message while it replays (`tests/bench_memory.py`)."""
_REPLAY_SHARE = 2
"""A replay may take half of the machine's memory."""
_CONTAINER = Path("/sys/fs/cgroup/memory.max")


def most_in_memory(asked: int) -> int:
    """Returns how many of the bytes of captures asked for the memory of this machine, or of its container, may hold."""
    return min(asked, max(_of_machine() // _SHARE, FEW_BYTES))


def most_messages(asked: int) -> int:
    """Returns how many of the messages asked for this machine has the memory to replay in one process."""
    return min(asked, _of_machine() // _REPLAY_SHARE // _BYTES_A_MESSAGE)


def _of_machine() -> int:
    """Returns the bytes of memory of this machine, or of its container."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # there is no container, or it may use all
        machine = min(machine, int(_CONTAINER.read_text()))
    return machine


def bytes_of(files: Mapping[str, Stamp], limit: int) -> int:
    """Returns the size of the files, and more than `limit` when it is more: what is compressed counts expanded."""
    size = sum(stamp.size or 0 for stamp in files.values())
    for uri, stamp in files.items():
        if size > limit:
            break
        with suppress(OSError):  # a file that is gone or cannot be read adds nothing
            size += content_bytes(uri, limit - size + (stamp.size or 0) + 1) - (stamp.size or 0)
    return size
