"""Stands for stream bytes that a state left out: their length, and the CRC-32 that is stored of a body."""

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple


class Dropped(NamedTuple):
    """A run of bytes that were not kept, and zeros stand for them: offset, offset after it, CRC-32."""

    start: int
    end: int
    crc32: int

    def moved(self, gone: int) -> "Dropped":
        """Returns the run without so many bytes before it. If bytes of its own go, nobody asks for its CRC-32 again."""
        return Dropped(max(self.start - gone, 0), self.end - gone, self.crc32)


Run = bytes | Sequence[int]
"""Bytes, or length and CRC-32 of bytes that were not kept."""


def restore(runs: Sequence[Run]) -> tuple[bytes, list[Dropped]]:
    """Returns the data with zeros for what was dropped, and what that was."""
    parts: list[bytes] = []
    dropped: list[Dropped] = []
    at = 0
    for run in runs:
        if isinstance(run, bytes):
            parts.append(run)
        else:
            length, crc = run
            parts.append(bytes(length))
            dropped.append(Dropped(at, at + length, crc))
        at += len(parts[-1])
    return b"".join(parts), dropped


def crc32(content: memoryview, start: int, end: int, dropped: Sequence[Dropped]) -> int:
    """Returns the CRC-32 of the bytes from `start` to `end`; `dropped`: runs of the content, in order."""
    crc = 0
    first = bisect_right(dropped, start, key=lambda run: run.end)
    for run in dropped[first : bisect_left(dropped, end, key=lambda run: run.start)]:
        crc = zlib.crc32(content[start : run.start], crc)
        # CRC-32 is linear: what the bytes before add to it is the same whether zeros follow or other bytes.
        zeros = content[run.start : run.end]
        crc = zlib.crc32(zeros, crc) ^ zlib.crc32(zeros) ^ run.crc32
        start = run.end
    return zlib.crc32(content[start:end], crc)
