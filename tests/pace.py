"""Bounds on time that hold on slow and on busy machines alike."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

_COUNTED = 2_000_000


@contextmanager
def bounded(times: int) -> Iterator[None]:
    """Fail where what is done inside takes more CPU time than so many times counting to two million does here and now.

    That is a tenth of a second, more or less; what should be linear and is quadratic takes thousands.
    """
    began = time.process_time()
    total = 0
    for number in range(_COUNTED):
        total += number
    counted = time.process_time()
    yield
    took, unit = time.process_time() - counted, counted - began
    assert took < times * unit, f"{took:.1f} s, which is {took / unit:.0f} times what counting took"
