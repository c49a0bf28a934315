"""Finds the period that a report is of, and the sequences and findings in it."""

from datetime import UTC, datetime

import polars as pl

from udfs.derive.columns import SEQUENCE, count_if, nanoseconds
from udfs.derive.report.rows import Row, Rows, in_period


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
