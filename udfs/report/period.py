"""Finds the period that a report is of, and how finely its picture shows it."""

from datetime import datetime
from typing import NamedTuple

import polars as pl

from schemas.ingest import CaptureReason, CaptureStatus
from udfs.frames.columns import nanoseconds

_MOST_STEPS = 120
"""Most steps of time with traffic in the picture of the period, unless that is longer than 120 days."""
_SECOND = 10**9
_STEP_NS = (_SECOND // 100, _SECOND // 10, *(_SECOND * s for s in (1, 5, 15, 60, 300, 900, 3600, 14_400)))
_DAY_NS = 86_400 * _SECOND
_BREAKS_OFF = (
    *(CaptureReason.TRUNCATED_RECORD_HEADER, CaptureReason.TRUNCATED_RECORD_BODY),
    *(CaptureReason.TRUNCATED_BLOCK, CaptureReason.TRUNCATED_COMPRESSION),
)
"""Why a file that is still being written is read only in part."""
_STILL_WRITTEN = pl.duration(minutes=10)
"""A file with a record as young as this when it was read was still being written."""


class Steps(NamedTuple):
    """Says where the picture of a period begins, and how long its steps are, in ns."""

    first_ns: int
    step_ns: int


def captured(captures: pl.DataFrame, since: datetime | None = None) -> tuple[int | None, int | None]:
    """Returns the times of the first record of the captures, from `since` on, and of the last, in ns since 1970."""
    began = pl.col("first_captured_at").min()
    first = pl.max_horizontal(began, pl.lit(since, captures["first_captured_at"].dtype))
    return captures.select(nanoseconds(first), nanoseconds(pl.col("last_captured_at").max())).row(0)


def not_read_again(captures: pl.DataFrame) -> pl.DataFrame:
    """Returns the captures without those whose file gave another one later, with all that they have.

    Such a file could not be read before, or it was read in part and has grown: by its name and first record it is the
    same.
    """
    is_readable, read_at = pl.col("status") != CaptureStatus.UNREADABLE.value, pl.col("ingested_at")
    was_read_later = ~is_readable & (read_at < read_at.filter(is_readable).max().over("uri"))
    has_grown = is_readable & (pl.col("size_bytes") < pl.col("size_bytes").max().over("uri", "first_captured_at"))
    had_less = has_grown & (pl.col("status") != CaptureStatus.OK.value)
    return captures.filter(~(was_read_later | had_less).fill_null(value=False))


def broken(captures: pl.DataFrame) -> int:
    """Returns how many of the captures cannot be read, or only in part."""
    return captures.filter(is_broken()).height


def is_broken() -> pl.Expr:
    """Returns whether a capture cannot be read, or only in part; not of a file that is still being written."""
    age = (pl.col("ingested_at") - pl.col("last_captured_at")).abs()
    is_written = pl.col("reason").is_in(_BREAKS_OFF) & (age < _STILL_WRITTEN)
    return (pl.col("status") != CaptureStatus.OK.value) & ~is_written.fill_null(value=False)


def has_no_times() -> pl.Expr:
    """Returns whether no record of a capture has a time."""
    return (pl.col("packet_count") > 0) & pl.col("first_captured_at").is_null()


def of_last_run(captures: pl.DataFrame) -> pl.DataFrame:
    """Returns the captures that were read by the last run that brought any."""
    return captures.filter(pl.col("ingested_at") == pl.col("ingested_at").max())


def begin_of_last_run(captures: pl.DataFrame) -> datetime | None:
    """Returns when the earliest capture of the last run begins, in whole seconds, rounded down; None without a time."""
    since: datetime | None = of_last_run(captures).select(pl.col("first_captured_at").min()).item()
    return since and since.replace(microsecond=0)


def steps(captures: pl.DataFrame, first_ns: int, last_ns: int) -> Steps:
    """Returns steps from the one with `first_ns` on, short enough for a period up to `last_ns`.

    The page draws times without captures short, so they do not count.
    """
    busy_ns = captures.select(nanoseconds(pl.col("last_captured_at")) - nanoseconds(pl.col("first_captured_at"))).sum()
    wanted = min(busy_ns.item() or last_ns - first_ns, last_ns - first_ns)
    step = next((length for length in _STEP_NS if wanted < length * _MOST_STEPS), _DAY_NS)
    return Steps(first_ns // step * step, step)
