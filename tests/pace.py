"""Bounds on time that hold on slow and on busy machines alike."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_COUNTED = 2_000_000


@cache
def _counting() -> float:
    """Return how many seconds of CPU time counting takes; once for all tests, as they allow for many times that."""
    began, total = time.process_time(), 0
    for number in range(_COUNTED):
        total += number
    return time.process_time() - began


@contextmanager
def bounded(times: int) -> Iterator[None]:
    """Fail where what is done inside takes more CPU time than so many times counting to two million does here.

    That is a tenth of a second, more or less; what should be linear and is quadratic takes thousands.
    """
    unit, began = _counting(), time.process_time()
    yield
    took = time.process_time() - began
    assert took < times * unit, f"{took:.1f} s, which is {took / unit:.0f} times what counting took"
