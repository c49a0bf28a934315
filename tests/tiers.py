"""Says which cases of a test a merge needs; the others run in `make test-all` only."""

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest


def merge_needs(chosen: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Returns the cases as a test's parameters, all but the chosen ones slow; a case may be a tuple of arguments."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if case in chosen else pytest.mark.slow)
        for case in cases
    ]


def seeds(chosen: Collection[int], cases: Iterable[int] = ()) -> list[Any]:
    """Returns seeds of random histories as a test's parameters; by hand, SEEDS=0:500 asks for others."""
    asked = os.environ.get("SEEDS")
    return list(range(*map(int, asked.split(":")))) if asked else merge_needs(chosen, cases or chosen)
