"""Frames of tables from literal rows, and the findings that facts give; shared by the tests of what facts count."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from jobs.replaying.explaining import tell_facts

Row = dict[str, Any]
START = datetime(2026, 3, 2, 8, tzinfo=UTC)
SECOND = 1_000_000_000
START_NS = int(START.timestamp()) * SECOND


def after(seconds: float) -> datetime:
    """Returns the time so many seconds after the start."""
    return START + timedelta(seconds=seconds)


def after_ns(seconds: float) -> int:
    """Returns the same in ns since 1970."""
    return START_NS + round(seconds * SECOND)


def told(kind: type[Any], facts: pl.DataFrame) -> list[Row]:
    """Returns the rows of FINDINGS that the facts give, in order of their sentences."""
    found = tell_facts({kind: facts}).to_dicts()
    return sorted(found, key=lambda row: str(row["explanation"]))
