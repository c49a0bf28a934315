"""Finds the period that a report is of, and the sequences and findings in it."""

from collections.abc import Sequence
from datetime import UTC, datetime

import polars as pl

from udfs.derive.columns import SEQUENCE, count_if, nanoseconds
from udfs.derive.report.rows import Row, Rows, in_period

_MOST_STEPS = 120
"""Most steps of time with traffic in the picture of the period, unless that is longer than 120 days."""
_SECOND = 10**9
_STEP_NS = (_SECOND // 100, _SECOND // 10, *(_SECOND * s for s in (1, 5, 15, 60, 300, 900, 3600, 14_400)))
_DAY_NS = 86_400 * _SECOND


def last_run(captures: pl.DataFrame) -> pl.DataFrame:
    """Returns one row, `since`: the earliest record of the captures that the last run read; none without captures."""
    return (
        captures.group_by("ingested_at")
        .agg(pl.col("first_captured_at").min().alias("since"))
        .sort("ingested_at", descending=True, nulls_last=True)
        .head(1)
    )


def begin_of_last_run(captures: pl.DataFrame) -> datetime | None:
    """Returns `last_run` in whole seconds, rounded down; None without a time."""
    since: datetime | None = next(iter(last_run(captures)["since"]), None)
    return since and since.replace(microsecond=0)


def extent(sessions: pl.DataFrame, since: datetime | None) -> Row:
    """Returns the `sessions` of the period, `first_ns` and `last_ns` of their messages, `cut`: some are older."""
    began, ended = pl.col("first_captured_at"), pl.col("last_captured_at")
    begin = pl.lit(None if since is None else since.astimezone(UTC), sessions.schema["first_captured_at"])
    within = in_period(since, "last_captured_at")
    found = sessions.select(
        within.alias("within"),
        (began < begin).fill_null(value=False).alias("before"),
        pl.max_horizontal(began, begin).alias("first"),
        ended.alias("last"),
    ).select(
        count_if("within").alias("sessions"),
        nanoseconds(pl.col("first").filter("within").min()).alias("first_ns"),
        nanoseconds(pl.col("last").filter("within").max()).alias("last_ns"),
        pl.col("before").any().alias("cut"),
    )
    return found.row(0, named=True)


def busy_hours(captures: pl.DataFrame) -> Rows:
    """Returns `first_ns` and `last_ns` of the captures that begin in each hour."""
    return (
        captures.filter(pl.col("first_captured_at").is_not_null())
        .group_by(pl.col("first_captured_at").dt.truncate("1h").alias("hour"))
        .agg(pl.col("first_captured_at").min().alias("first"), pl.col("last_captured_at").max().alias("last"))
        .select(nanoseconds(pl.col("first")).alias("first_ns"), nanoseconds(pl.col("last")).alias("last_ns"))
        .to_dicts()
    )


def steps(extent: Row, busy_hours: Sequence[Row] = ()) -> tuple[int, int]:
    """Returns where the picture of the period begins, and the length of its steps, in ns.

    `busy_hours` are rows of `busy_hours`. The page draws the times between them short, so they do not count.
    """
    first, last = extent["first_ns"] or 0, extent["last_ns"] or 0
    busy_ns, until = 0, first
    for row in sorted(busy_hours, key=lambda row: row["first_ns"]):
        begin, end = max(row["first_ns"], until), min(row["last_ns"], last)
        busy_ns, until = busy_ns + max(end - begin, 0), max(until, end)
    wanted = busy_ns or last - first
    step = next((length for length in _STEP_NS if wanted < length * _MOST_STEPS), _DAY_NS)
    return first // step * step, step


def findings_of_period(findings: pl.DataFrame, sequences: pl.DataFrame, since: datetime | None) -> pl.DataFrame:
    """Returns the findings of sequences that have a message from `since` on, however early they began."""
    heard = sequences.select(*SEQUENCE, pl.col("last_captured_at").alias("heard"))
    joined = findings.join(heard, on=SEQUENCE, how="left").with_columns(pl.coalesce("heard", "found_at").alias("heard"))
    return joined.filter(in_period(since, "heard")).drop("heard")


def chosen_sequences(
    sequences: pl.DataFrame, scopes: pl.DataFrame | None = None, since: datetime | None = None
) -> pl.DataFrame:
    """Returns the sequences with a message from `since` on, of these scopes (`scope_key`; None for all).

    The scopes are those in which the sessions of a report have a message. A sequence is chosen whole or not at all, so
    that the choice changes no outcome.
    """
    if scopes is not None:
        sequences = sequences.join(scopes, on="scope_key", how="semi")
    return sequences.filter(in_period(since, "last_captured_at"))
