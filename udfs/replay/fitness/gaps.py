"""Counts the verdicts that are unknown because of each run of missing bytes: which gaps in the captures mattered."""

import polars as pl

from schemas.ingest import STREAM_GAPS
from schemas.replay import Reason
from udfs.frames.columns import PLACE, null
from udfs.frames.derivation import derives
from udfs.replay.order.marks import BEFORE_ALL, MOST_PAIRS

OF_VERDICTS = ("scope_key", "session_id", *PLACE, "replay_order", "captured_ns", "accepted", "reason")
"""Columns of VERDICTS that it needs."""
_BY_GAP = pl.col("reason").eq_missing(pl.lit(Reason.CAPTURE_GAP.value))
_ON_STREAM = ("scope_key", "stream_id")


@derives(in_parts=True)
def doubted_scopes(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns `scope_key` of the verdicts that are unknown because bytes are missing."""
    return verdicts.filter(_BY_GAP).select("scope_key").unique()


@derives(("scope_key",), shared=("silent",), columns={"verdicts": OF_VERDICTS})
def doubted_places(verdicts: pl.DataFrame, silent: pl.DataFrame) -> pl.DataFrame:
    """Returns where bytes make a verdict unknown: `stream_id`, and the offsets that they are `after` and `before`.

    A message moves the state unless it is refused. Bytes count right before the next message of the scope on their
    stream, or behind the last one there, or, on a stream without any (`silent`: `session_id`, `stream_id`, `first_ns`),
    when that began (`order.marks`). So what counts is whether the first message from there on that moves the state is
    unknown. `before` is null for bytes behind the last message.
    """
    moves = pl.col("accepted").fill_null(value=True)
    rows = verdicts.sort("scope_key", "replay_order").with_columns(
        pl.when(moves).then(_BY_GAP).backward_fill().over("scope_key").fill_null(value=False).alias("from_here")
    )
    rows = rows.with_columns(
        after=pl.col("stream_offset").shift(1).over(_ON_STREAM),
        is_last=pl.col("replay_order") == pl.col("replay_order").max().over(_ON_STREAM),
        from_next=pl.col("from_here").shift(-1).over("scope_key").fill_null(value=False),
    )
    offset, none = pl.col("stream_offset"), null(pl.Int64)
    between = rows.filter("from_here").select("stream_id", "after", before=offset)
    behind = rows.filter(pl.col("is_last") & pl.col("from_next")).select("stream_id", after=offset, before=none)
    began = pl.col("first_ns").fill_null(BEFORE_ALL)
    without = (
        rows.select("scope_key", "session_id")
        .unique()
        .join(silent, on="session_id")
        .join(rows, on=_ON_STREAM, how="anti")
        .filter(pl.len().over("session_id") <= MOST_PAIRS)  # else a range counts before every message of the scopes
        .with_columns(began=began)
        .sort("began")
    )
    timed = rows.select("scope_key", "from_here", at=pl.col("captured_ns").fill_null(BEFORE_ALL)).sort("at")
    later = without.join_asof(
        timed, left_on="began", right_on="at", by="scope_key", strategy="forward", check_sortedness=False
    )
    whole = later.filter(pl.col("from_here").fill_null(value=False)).select("stream_id", after=none, before=none)
    return pl.concat([between, behind, whole])


def fill_gaps(gaps: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of STREAM_GAPS whose `unknown_verdicts` are not what they should be, corrected."""
    begins = places.select("stream_id", at=pl.col("after").fill_null(-1), step=pl.lit(1, pl.Int64))
    ends = places.drop_nulls("before").select("stream_id", at="before", step=pl.lit(-1, pl.Int64))
    covered = (
        pl.concat([begins, ends])
        .group_by("stream_id", "at")
        .agg(pl.sum("step"))
        .sort("at")
        .with_columns(now=pl.col("step").cum_sum().over("stream_id"))
    )
    return (
        gaps.sort("stream_offset")
        .join_asof(
            covered.select("stream_id", "at", "now"),
            left_on="stream_offset",
            right_on="at",
            by="stream_id",
            check_sortedness=False,
        )
        .with_columns(pl.col("now").fill_null(0))
        .filter(pl.col("now").ne_missing(pl.col("unknown_verdicts")))
        .with_columns(unknown_verdicts="now")
        .select(STREAM_GAPS.names)
    )
