"""Says which cases of a test a merge needs; the others run in `make test-all` only."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def merge_needs(chosen: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Returns the cases as a test's parameters, all but the chosen ones slow; a case may be a tuple of arguments."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if case in chosen else pytest.mark.slow)
        for case in cases
    ]
