"""Runs passes over rows that do not depend on one another, in several processes of this machine."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from typing import Self

import pyarrow as pa

from udfs.frames.rows import Pass


class Processes:
    """Several processes that run passes until the context ends.

    They are started afresh: a copy of this process would have its locks, but none of the threads that hold them.
    """

    def __init__(self, many: int, module: str) -> None:
        """Has them start and import the module of their passes, and does not wait for them."""
        self._pool = ProcessPoolExecutor(many, get_context("spawn"))
        for _ in range(many):
            self._pool.submit(import_module, module)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def run(self, work: Pass, rows: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the batches that a pass makes of each batch of rows, in their order.

        The pass must be one that can be pickled.

        Raises:
            BrokenProcessPool: a process was killed, as for lack of memory.
        """
        for made in self._pool.map(partial(_run_one, work), rows):
            yield from made


def cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_one(work: Pass, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    return list(work([rows]))
