"""Joins each stream with the other direction of its connection."""

import polars as pl


def with_other_direction(ends: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    """Returns the streams of which the other direction was captured, with its stream, `back`, and columns of it.

    `ends` are rows of ENDS, of which copies do not count. All streams of a connection have to be there.
    """
    counting = ends.filter(pl.col("copy_of").is_null())
    other = counting.select("connection_id", pl.col("stream_id").alias("back"), **columns)
    return counting.join(other, on="connection_id").filter(pl.col("stream_id") != pl.col("back"))
