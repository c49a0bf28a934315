"""Puts what only copies of a stream have in its place in the stream that counts, and compares the clocks of captures.

All but `skews_of` is right for any streams that count together with all their copies.
"""

import polars as pl

from udfs.derive.columns import CAPTURES_OF_PAIR, PLACE, RANGE
from udfs.derive.frames import derives
from udfs.derive.replay.coverage import select_unreadable

_TOTALS = ("unread", "missing", "held")
_NONE, _ONE, _FAR = (pl.lit(n, pl.Int64) for n in (0, 1, 1 << 62))


def place_copies(
    copies: pl.DataFrame,
    streams: pl.DataFrame,
    stream_gaps: pl.DataFrame,
    quarantine: pl.DataFrame,
    messages: pl.DataFrame,
    acks: pl.DataFrame,
    differences: pl.DataFrame,
) -> pl.DataFrame:
    """Returns the messages and acknowledgments that only copies have, each in the place where its stream lacks it.

    `stream_id` and `stream_offset` are that place, `own_stream` and `own_offset` the row's key, and `late_ns` is by how
    much the clock of the copy is ahead: the median of the `clock_differences`. A row is taken only where the stream
    that counts has no rows at all, and from one copy.
    """
    late = differences.group_by(own_stream="stream_id").agg(late_ns=pl.median("ahead_ns").cast(pl.Int64))
    return (
        _placed(_packets(messages, acks, copies.select("stream_id")), copies)
        .sort("at_offset")
        .join_asof(
            _lacking(copies, streams, stream_gaps, quarantine).sort("low"),
            left_on="at_offset",
            right_on="low",
            by="at_stream",
            check_sortedness=False,
        )
        .filter(pl.col("at_offset") < pl.col("high"))
        .sort(PLACE)
        .group_by("at_stream", "at_offset")
        .agg(own_stream=pl.first("stream_id"), own_offset=pl.first("stream_offset"))
        .select("own_stream", "own_offset", stream_id="at_stream", stream_offset="at_offset")
        .join(late, on="own_stream", how="left")
        .select(*PLACE, "own_stream", "own_offset", pl.col("late_ns").fill_null(0))
    )


@derives(CAPTURES_OF_PAIR)
def skews_of(differences: pl.DataFrame) -> pl.DataFrame:
    """Returns `one_capture`, `other_capture` and `skew_ns`, the median difference of their clocks in absolute value.

    `differences` are all rows of `between_captures` of these pairs.
    """
    ahead = pl.when(pl.col("capture_id") == pl.col("one_capture")).then("ahead_ns").otherwise(-pl.col("ahead_ns"))
    return (
        differences.group_by(CAPTURES_OF_PAIR)
        .agg(skew_ns=ahead.median().cast(pl.Int64).abs())
        .filter(pl.col("skew_ns") > 0)
    )


def between_captures(differences: pl.DataFrame) -> pl.DataFrame:
    """Returns the `clock_differences` of two captures, which are CAPTURES_OF_PAIR in the order of their names."""
    pair = ("capture_id", "counted_capture")
    one, other = CAPTURES_OF_PAIR
    return differences.filter(pl.col(pair[0]) != pl.col(pair[1])).with_columns(
        pl.min_horizontal(pair).alias(one), pl.max_horizontal(pair).alias(other)
    )


def clock_differences(copies: pl.DataFrame, messages: pl.DataFrame, acks: pl.DataFrame) -> pl.DataFrame:
    """Returns the packets of copies that the stream that counts has too: their `stream_id` and `capture_id`.

    `counted_capture` shows them there, and `ahead_ns` is by how much later the copy's capture does.
    """
    theirs = _packets(messages, acks, counting(copies)).rename(
        {"stream_id": "at_stream", "stream_offset": "at_offset", "capture_id": "counted_capture"}
    )
    return (
        _placed(_packets(messages, acks, copies.select("stream_id")), copies)
        .join(theirs, on=["at_stream", "at_offset"], suffix="_counted")
        .select(
            "stream_id",
            "capture_id",
            "counted_capture",
            ahead_ns=pl.col("captured_ns") - pl.col("captured_ns_counted"),
        )
    )


def counting(copies: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id` of the streams that count, of which there are copies."""
    return copies.select(stream_id="copy_of").unique()


def _packets(messages: pl.DataFrame, acks: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """Returns place, time and capture of the packets of some streams."""
    return pl.concat(
        table.select(*PLACE, "captured_ns", "capture_id").join(streams, on="stream_id", how="semi")
        for table in (messages, acks)
    )


def _placed(rows: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of copies with `at_stream` and `at_offset`, their place in the stream that counts."""
    known = copies.filter(pl.col("ahead").is_not_null())
    return rows.join(known.select("stream_id", "ahead", at_stream="copy_of"), on="stream_id").select(
        *rows.columns, "at_stream", at_offset=pl.col("stream_offset") - pl.col("ahead")
    )


def _lacking(
    copies: pl.DataFrame, streams: pl.DataFrame, stream_gaps: pl.DataFrame, quarantine: pl.DataFrame
) -> pl.DataFrame:
    """Returns `at_stream`, `low` and `high` of offsets of streams that count at which they have no rows.

    An offset is in such a range if it is below `high` of the last one with a `low` not above it.
    """
    low = pl.col("stream_offset")
    size = pl.col("recovered_bytes") + pl.col("missing_bytes")
    parts = [
        streams.select("stream_id", low=-_FAR, high=_NONE),
        streams.select("stream_id", low=size, high=_FAR),
        stream_gaps.select("stream_id", low=low, high=low + pl.col("length")),
        select_unreadable(quarantine).select("stream_id", low=low, high=low + pl.col("length")),
    ]
    return (
        pl.concat(parts)
        .join(counting(copies), on="stream_id", how="semi")
        .filter(pl.col("low") < pl.col("high"))
        .sort("low", "high")
        .select("low", at_stream="stream_id", high=pl.col("high").cum_max().over("stream_id"))
    )


def unread_by_all(
    copies: pl.DataFrame, streams: pl.DataFrame, stream_gaps: pl.DataFrame, quarantine: pl.DataFrame
) -> pl.DataFrame:
    """Returns `stream_id`, `stream_offset`, `length` and `missing` of what neither a stream nor a copy of it has.

    `missing`: no capture has the bytes of the stream that counts; else they are in quarantine.
    """
    gaps = stream_gaps.select(*RANGE, missing=_ONE)
    ranges = pl.concat([gaps, select_unreadable(quarantine).select(*RANGE, missing=_NONE)])
    own = ranges.join(counting(copies), on="stream_id", how="semi").with_columns(unread=_ONE, held=_NONE)
    size = pl.col("recovered_bytes") + pl.col("missing_bytes")
    extents = streams.select("stream_id", stream_offset=_NONE, length=size, held=_ONE)
    held = _placed(pl.concat([extents, ranges.select(*RANGE, held=-_ONE)]), copies).select(
        "length", "held", stream_id="at_stream", stream_offset="at_offset", unread=_NONE, missing=_NONE
    )
    place = pl.col("stream_offset")
    return (
        pl.concat([*_changes(own), *_changes(held)])
        .group_by(PLACE)
        .agg(pl.sum(*_TOTALS))
        .sort(place)
        .with_columns(
            (place.shift(-1) - place).over("stream_id").alias("length"), pl.col(*_TOTALS).cum_sum().over("stream_id")
        )
        .filter(pl.col("unread") > 0, pl.col("held") == 0, pl.col("length") > 0)
        .select(*RANGE, pl.col("missing") > 0)
    )


def _changes(ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns by how much the totals rise at the start of each range, and at its end."""
    end = pl.col("stream_offset") + pl.col("length")
    return ranges.select(*PLACE, *_TOTALS), ranges.select("stream_id", end.alias("stream_offset"), -pl.col(*_TOTALS))
