"""Measures how time and memory grow with an input: what a sender can multiply must cost no more than its bytes.

A test calls `assert_linear(work, make, n)`: `make(n)` builds an input and is not measured, `work(input)` is. Choose `n`
so that `work(make(n))` takes a tenth of a second or more: what takes less is lost in the noise and always passes.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")

_TIMES = 3.0
"""Twice the input may take less than this many times the cost: 2 when linear, 4 when quadratic."""
_LEAST_SECONDS, _LEAST_BYTES = 0.03, 1 << 20
"""Costs below these are taken for these."""
_ATTEMPTS = 4
_pools: list[pa.MemoryPool] = []
"""Kept for good: buffers that are still in use were taken from them."""


class Cost(NamedTuple, Generic[R]):
    """CPU seconds, bytes of memory at the peak beyond those at the start, and what the work returned."""

    seconds: float
    peak_bytes: int
    result: R


def measure(work: Callable[[T], R], given: T) -> Cost[R]:
    """Returns what `work(given)` costs. It runs twice: first for the memory, so that the timed run imports nothing."""
    peak = peak_bytes(work, given)
    gc.collect()
    gc.freeze()  # else a collection visits what all earlier tests left, and comes in the longer run only
    try:
        began = time.process_time()
        result = work(given)
        return Cost(time.process_time() - began, peak, result)
    finally:
        gc.unfreeze()


def peak_bytes(work: Callable[[T], object], given: T) -> int:
    """Returns the bytes of memory that `work(given)` takes at its peak, in Python, NumPy and Arrow."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    _pools.append(counted)
    gc.collect()
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        work(given)
        return tracemalloc.get_traced_memory()[1] + int(counted.max_memory())
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def assert_linear(work: Callable[[T], R], make: Callable[[int], T], n: int) -> tuple[Cost[R], Cost[R]]:
    """Fails where twice `n` takes _TIMES the CPU time or the memory, in each of some attempts; returns both costs.

    Other work on the machine can make one attempt slower, but not all in the same way.
    """
    small, large = make(n), make(2 * n)
    seen = []
    for _ in range(_ATTEMPTS):
        one, two = measure(work, small), measure(work, large)
        seconds = two.seconds / max(one.seconds, _LEAST_SECONDS)
        memory = two.peak_bytes / max(one.peak_bytes, _LEAST_BYTES)
        if seconds < _TIMES and memory < _TIMES:
            return one, two
        seen.append(f"{one.seconds:.2f} s, {two.seconds:.2f} s; {one.peak_bytes:,} B, {two.peak_bytes:,} B")
    raise AssertionError(f"from {n} to {2 * n} it takes {_TIMES:g} times as much, or more: " + " | ".join(seen))
