"""Finds the stream bytes that the captures lack or that are unreadable, and which share of a session they are."""

import polars as pl

from schemas.ingest import Stage
from udfs.frames.columns import RANGE, count_if


def unread_ranges(stream_gaps: pl.DataFrame, quarantine: pl.DataFrame) -> pl.DataFrame:
    """Returns the RANGE of stream bytes that are `missing`, or else unreadable."""
    both = ((stream_gaps, True), (select_unreadable(quarantine), False))
    return pl.concat(rows.select(*RANGE, missing=pl.lit(is_missing)) for rows, is_missing in both)


def select_unreadable(quarantine: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of QUARANTINE that are runs of stream bytes."""
    return quarantine.filter(pl.col("stage").is_in([Stage.FRAMING.value, Stage.DECODE.value]))


def session_coverage(ends: pl.DataFrame, unread: pl.DataFrame) -> pl.DataFrame:
    """Returns `byte_coverage`, `mid_stream_connections` and `missing_bytes` per session, as SESSIONS defines them.

    `ends` are rows of ENDS without copies, `unread` those of `unread_ranges`.
    """
    every_byte = (pl.col("recovered_bytes") + pl.col("missing_bytes")).sum()
    return (
        ends.join(unread.group_by("stream_id").agg(pl.sum("length")), on="stream_id", how="left")
        .group_by("session_id")
        .agg(
            pl.col("missing_bytes").sum(),
            count_if("mid_stream").alias("mid_stream_connections"),
            (1 - pl.sum("length") / pl.when(every_byte != 0).then(every_byte)).alias("byte_coverage"),
        )
    )
