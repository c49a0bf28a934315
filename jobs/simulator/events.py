"""Simulated time: what is to happen when, and how often something goes wrong."""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any, Generic, TypeVar

MICROSECOND, MILLISECOND, SECOND = 1_000, 1_000_000, 1_000_000_000  # in ns
_Kind = TypeVar("_Kind")
Action = Callable[..., None]


def nothing() -> None:
    """Do nothing."""


class Events:
    """What is to happen, in order of simulated time; `now` is in ns since 1970."""

    def __init__(self, start_ns: int) -> None:
        """Begin at `start_ns` with nothing to do."""
        self.now = start_ns
        self._heap: list[tuple[int, int, Action, tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time_ns: int, action: Action, *arguments: Any) -> None:
        """Do this then; what is due at the same time is done in the order it was asked for."""
        self._count += 1
        heappush(self._heap, (time_ns, self._count, action, arguments))

    def after(self, delay_ns: int, action: Action, *arguments: Any) -> None:
        """Do this when the delay is over."""
        self.at(self.now + delay_ns, action, *arguments)

    def run(self) -> None:
        """Go on until nothing is left to do."""
        heap = self._heap
        while heap:
            self.now, _, action, arguments = heappop(heap)
            action(*arguments)

    def stop(self) -> None:
        """Leave everything undone."""
        self._heap.clear()


class Faults(Generic[_Kind]):
    """Strikes a share of all chances; every kind comes up once before any comes up again."""

    def __init__(self, rng: Random, share: float, kinds: Sequence[_Kind]) -> None:
        """Draw from these kinds."""
        self._random = rng.random
        self._share = share
        self._kinds = self._shuffled(rng, kinds)

    @staticmethod
    def _shuffled(rng: Random, kinds: Sequence[_Kind]) -> Iterator[_Kind]:
        while True:
            yield from rng.sample(kinds, len(kinds))

    def strike(self) -> _Kind | None:
        """The fault of this chance, if it has one."""
        return next(self._kinds) if self._random() < self._share else None
