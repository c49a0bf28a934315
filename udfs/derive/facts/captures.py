"""Counts what shows how the traffic was captured."""

import polars as pl

from udfs.derive.columns import row_key, timestamp


def captured_twice(ends: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of CapturedTwice, a row per session; `ends` are those of whole sessions."""
    return (
        ends.filter(pl.col("copy_of").is_not_null())
        .sort("first_ns", "stream_id", "copy_of")
        .group_by("session_id")
        .agg(
            pl.col("connection_id").n_unique().cast(pl.Int64).alias("messages"),
            pl.col("first_ns", "stream_id", "copy_of").first(),
        )
        .with_columns(timestamp(pl.col("first_ns")).alias("found_at"))
    )


def clock_steps(captures: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of ClockStepped, a row per capture; `messages` are at least those of the captures that have steps.

    `key_before` and `key_after` are of the messages next to the first step.
    """
    stepped = captures.filter(pl.col("clock_steps").is_not_null()).select(
        "capture_id",
        "uri",
        pl.col("clock_steps").list.first().struct.field("frame", "step_ns"),
        pl.col("first_captured_at").alias("found_at"),
        pl.col("clock_steps").list.len().cast(pl.Int64).alias("messages"),
    )
    near = messages.select("capture_id", "stream_id", "stream_offset", "last_frame").join(
        stepped.select("capture_id", "frame"), on="capture_id"
    )
    before = near.filter(pl.col("last_frame") < pl.col("frame"))
    after = near.filter(pl.col("last_frame") >= pl.col("frame"))
    place = pl.col("last_frame")
    last = (
        before.filter(place == place.max().over("capture_id"))
        .group_by("capture_id")
        .agg(row_key().max().alias("key_before"))
    )
    first = (
        after.filter(place == place.min().over("capture_id"))
        .group_by("capture_id")
        .agg(row_key().min().alias("key_after"))
    )
    return (
        stepped.join(last, on="capture_id", how="left")
        .join(first, on="capture_id", how="left")
        .select("uri", "frame", "step_ns", "key_before", "key_after", "found_at", "messages")
    )
