"""Runs simulated time, and decides how often something goes wrong."""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any, Generic, TypeVar

MICROSECOND, MILLISECOND, SECOND = 1_000, 1_000_000, 1_000_000_000  # in ns
_Kind = TypeVar("_Kind")
Action = Callable[..., None]


def nothing(*_: Any) -> None:
    """Does nothing."""


class Events:
    """Runs actions in order of simulated time; `now` is in ns since 1970."""

    def __init__(self, start_ns: int) -> None:
        """Starts at `start_ns` without any action."""
        self.now = start_ns
        self._heap: list[tuple[int, int, Action, tuple[Any, ...]]] = []
        self._count = self._idle = 0

    def at(self, time_ns: int, action: Action, *arguments: Any) -> None:
        """Schedules an action; actions at one time run in the order in which they were scheduled."""
        self._count += 1
        heappush(self._heap, (time_ns, self._count, action, arguments))

    def after(self, delay_ns: int, action: Action, *arguments: Any) -> None:
        """Schedules an action after a delay."""
        self.at(self.now + delay_ns, action, *arguments)

    def while_busy(self, delay_ns: int, action: Action, *arguments: Any) -> None:
        """Schedules an action after a delay; it does not take place when only such actions are left."""
        self._idle += 1
        self.after(delay_ns, self._run_idle, action, *arguments)

    def _run_idle(self, action: Action, *arguments: Any) -> None:
        self._idle -= 1
        action(*arguments)

    def run(self) -> None:
        """Runs until no action is left, or only those of `while_busy`."""
        heap = self._heap
        while len(heap) > self._idle:
            self.now, _, action, arguments = heappop(heap)
            action(*arguments)

    def stop(self) -> None:
        """Drops all actions that are left."""
        self._heap.clear()
        self._idle = 0


class Faults(Generic[_Kind]):
    """Draws faults for a share of all chances; every kind comes up once before any comes up again."""

    def __init__(self, rng: Random, share: float, kinds: Sequence[_Kind]) -> None:
        """Draws from these kinds."""
        self._random = rng.random
        self._share = share
        self._kinds = self._shuffled(rng, kinds)

    @staticmethod
    def _shuffled(rng: Random, kinds: Sequence[_Kind]) -> Iterator[_Kind]:
        while True:
            yield from rng.sample(kinds, len(kinds))

    def strike(self) -> _Kind | None:
        """Returns the fault of this chance, or None."""
        return next(self._kinds) if self._random() < self._share else None
