"""Runs independent queries side by side: a small night is mostly planning, which Spark does on the calling thread."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Done = TypeVar("Done")

_MOST_THREADS = 8


def run_in_parallel(works: Iterable[Callable[[], Done]]) -> list[Done]:
    """Returns what each function returns, in order; raises the first error once all have ended."""
    with ThreadPoolExecutor(_MOST_THREADS) as pool:
        return [future.result() for future in [pool.submit(work) for work in works]]
