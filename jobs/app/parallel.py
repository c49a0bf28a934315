"""Independent work side by side: of a small night most is planning, which one thread does for one query at a time."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Done = TypeVar("Done")

_MOST_THREADS = 8


def run_in_parallel(works: Iterable[Callable[[], Done]]) -> list[Done]:
    """What each of the works returns, in their order; the first error once all have ended."""
    with ThreadPoolExecutor(_MOST_THREADS) as pool:
        return [future.result() for future in [pool.submit(work) for work in works]]
