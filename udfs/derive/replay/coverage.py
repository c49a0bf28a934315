"""Computes how much of a session the captures hold: the share of its bytes, and of its time."""

import polars as pl

from schemas.ingest import Stage
from udfs.derive.columns import PLACE, RANGE, count_if
from udfs.derive.frames import derives


def unread_ranges(stream_gaps: pl.DataFrame, quarantine: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id`, `stream_offset` and `length` of each range of stream bytes that is missing or unreadable."""
    return pl.concat([stream_gaps.select(RANGE), select_unreadable(quarantine).select(RANGE)])


def select_unreadable(quarantine: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of QUARANTINE that are runs of stream bytes."""
    return quarantine.filter(pl.col("stage").is_in([Stage.FRAMING.value, Stage.DECODE.value]))


@derives(("stream_id",), columns={"messages": (*PLACE, "captured_ns")})
def blind_spans(messages: pl.DataFrame, unread: pl.DataFrame) -> pl.DataFrame:
    """Returns the spans of a stream in which a message may be missing: `began_ns`, `ended_ns`, unread `length`.

    A span lies between the messages before and after an unread range; a time is null without such a message. `span` is
    the count of messages before it. `unread` are rows of `unread_ranges`.
    """
    is_unread = pl.col("length").is_not_null()
    message_ns = pl.when(~is_unread).then(pl.col("captured_ns"))
    at = messages.select("stream_id", "stream_offset", "captured_ns").join(unread, on="stream_id", how="semi")
    return (
        pl.concat([at, unread.select(RANGE)], how="diagonal")
        .sort("stream_id", "stream_offset", "length", "captured_ns")
        .select(
            "stream_id",
            "length",
            message_ns.cum_max().forward_fill().over("stream_id").alias("began_ns"),
            message_ns.cum_count().cast(pl.Int64).over("stream_id").alias("span"),
            message_ns.shift(-1).over("stream_id").alias("ended_ns"),
        )
        .filter(is_unread)
        .group_by("stream_id", "span")
        .agg(pl.col("began_ns").max(), pl.col("ended_ns").max(), pl.col("length").sum())
    )


def session_coverage(ends: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Returns `byte_coverage`, `time_coverage`, `mid_stream` and `missing_bytes` per session, as SESSIONS defines them.

    `ends` are rows of ENDS without copies, `spans` those of `blind_spans`. A span without a message before it begins
    with its stream; one without a message after it ends with it.
    """
    known, duration = pl.col("recovered_bytes") + pl.col("missing_bytes"), pl.col("last_ns") - pl.col("first_ns")
    blind_ns = pl.min_horizontal(pl.col("blind_ns").fill_null(0), duration)
    clear = pl.when(pl.col("blind_ns").is_null().all()).then(1.0).otherwise(1 - _share(blind_ns, duration))
    return (
        ends.join(_unread_by_stream(ends, spans), on="stream_id", how="left")
        .group_by("session_id")
        .agg(
            pl.col("missing_bytes").sum(),
            count_if("mid_stream"),
            (1 - _share(pl.col("unread_bytes"), known)).alias("byte_coverage"),
            pl.when(duration.is_not_null().all()).then(clear).alias("time_coverage"),
        )
    )


def _unread_by_stream(ends: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Returns `unread_bytes` and `blind_ns` of each stream with blind spans."""
    ended, began = pl.coalesce("ended_ns", "last_ns"), pl.coalesce("began_ns", "first_ns")
    return (
        spans.join(ends.select("stream_id", "first_ns", "last_ns"), on="stream_id")
        .group_by("stream_id")
        .agg(
            pl.col("length").sum().alias("unread_bytes"),
            pl.max_horizontal(ended - began, 0).sum().alias("blind_ns"),
        )
    )


def _share(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """Returns one sum as a share of another; null for none of nothing."""
    return part.sum() / pl.when(whole.sum() != 0).then(whole.sum())
