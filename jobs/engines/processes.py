"""Runs a pass over rows that do not depend on one another, in several processes of this machine."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import pyarrow as pa

from udfs.frames.rows import Pass


def run_apart(work: Pass, rows: Sequence[pa.RecordBatch], processes: int) -> Iterator[pa.RecordBatch]:
    """Yields the batches that a pass makes of each batch of rows, in their order.

    The pass must be one that can be pickled. Processes are started afresh: a copy of this one would have its locks, but
    none of the threads that hold them.

    Raises:
        BrokenProcessPool: a process was killed, as for lack of memory.
    """
    with ProcessPoolExecutor(min(processes, len(rows)), get_context("spawn")) as pool:
        for made in pool.map(partial(_run_one, work), rows):
            yield from made


def cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_one(work: Pass, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    return list(work([rows]))
