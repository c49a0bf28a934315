"""Tells how well transactional messages went, per pair of queue managers and queue, and what changed."""

from datetime import datetime
from enum import StrEnum

import polars as pl

from schemas.outcomes import Outcome
from schemas.replay import Verdict
from udfs.derive.columns import count_if
from udfs.derive.frames import derives
from udfs.derive.outcomes.counts import has_outcome
from udfs.derive.report.rows import in_period, place_in

_KEY = ("session_id", "destination_queue")
HEALTH = (
    *("session_id", "destination_queue", "captured_at", "verdict", "accepted", "body_size"),
    *("ack_latency_ms", "final_ack_latency_ms"),
)
"""Columns of VERDICTS that tell it."""
_LATENCIES = {"ack": "ack_latency_ms", "final_ack": "final_ack_latency_ms"}
_PERCENTILES = {"median": 0.5, "p95": 0.95}
FIGURES = (
    *("bytes", "repeats"),
    *(f"{latency}_{name}_ms" for latency in _LATENCIES for name in (*_PERCENTILES, "most")),
    *("messages", "at_once"),
)
"""Columns of `health` beside its key and `change`; each is there again with `before_`."""
_SLOWER_TIMES, _SLOWER_MS = 2.0, 1_000.0
"""An OrderAck is due within ten seconds, so small latencies vary by chance."""
_WORSE_SHARE = 0.05


class Change(StrEnum):
    """Lists what may have changed against the nights before, the most urgent first."""

    WORSE = "worse"
    NEW = "new"
    GONE = "gone"


@derives(("session_id",), columns={"verdicts": HEALTH, "outcomes": (*_KEY, "outcome", "accepted_at", "last_seen_at")})
def health(verdicts: pl.DataFrame, outcomes: pl.DataFrame, since: datetime | None, limit: int) -> pl.DataFrame:
    """Returns one row per session and queue, at most `limit`: the changed ones first, then those with most messages.

    `messages` were accepted or are refused for now or for good; `bytes` are of their bodies. `at_once` is the share (0
    to 1) accepted at their first arrival, `repeats` counts arrivals of messages that the receiver had. `ack_…` and
    `final_ack_…`: median, 95th percentile and maximum of the ms from accepted messages to their OrderAck and FinalAck.
    Columns that begin with `before_` are of the traffic before `since`; `change` is a `Change` against it, null for
    none and without `since`.
    """
    sums = (
        _arrivals(verdicts, since)
        .join(_became(outcomes, since), on=[*_KEY, "now"], how="left")
        .with_columns(pl.col("never", "late").fill_null(0))
        .with_columns((pl.col("accepted") + pl.col("never")).alias("messages"))
        .with_columns(
            pl.when(pl.col("messages") != 0)
            .then((pl.col("accepted") - pl.col("late")) / pl.col("messages"))
            .alias("at_once")
        )
    )
    both = sums.group_by(_KEY).agg(
        *(pl.col(name).filter("now").first() for name in FIGURES),
        *(pl.col(name).filter(~pl.col("now")).first().alias(f"before_{name}") for name in FIGURES),
    )
    change = pl.lit(None, pl.String) if since is None else _change()
    return changed_first(both.with_columns(change.alias("change")), limit)


def changed_first(rows: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Returns the first `limit` rows of `health`, of all or of some sessions, in its order."""
    return (
        rows.with_columns(place_in(list(Change), "change").alias("urgency"))
        .sort(
            *("urgency", "messages", *_KEY),
            descending=[False, True, False, False],
            nulls_last=[True, True, False, False],
        )
        .head(limit)
        .drop("urgency")
    )


def _arrivals(verdicts: pl.DataFrame, since: datetime | None) -> pl.DataFrame:
    taken = pl.col("accepted").fill_null(value=False)
    return verdicts.group_by(*_KEY, in_period(since).alias("now")).agg(
        count_if(taken).alias("accepted"),
        pl.col("body_size").filter(taken).sum().alias("bytes"),
        count_if(pl.col("verdict") == Verdict.DUPLICATE.value).alias("repeats"),
        *(figure for name, column in _LATENCIES.items() for figure in _figures(name, pl.col(column).filter(taken))),
    )


def _figures(name: str, latency: pl.Expr) -> list[pl.Expr]:
    """Returns percentiles, each the least value that so large a share does not exceed, and the maximum."""
    return [
        *(latency.quantile(share, "equiprobable").alias(f"{name}_{of}_ms") for of, share in _PERCENTILES.items()),
        latency.max().alias(f"{name}_most_ms"),
    ]


def _became(outcomes: pl.DataFrame, since: datetime | None) -> pl.DataFrame:
    never = has_outcome((Outcome.PASSED_BY, Outcome.GIVEN_UP, Outcome.PENDING, Outcome.DISPLACED))
    late = has_outcome([Outcome.DELIVERED_AFTER_REFUSAL])
    return (
        outcomes.filter(never | late)
        .with_columns(pl.coalesce("accepted_at", "last_seen_at").alias("at"))
        .group_by(*_KEY, in_period(since, "at").alias("now"))
        .agg(count_if(never).alias("never"), count_if(late).alias("late"))
    )


def _change() -> pl.Expr:
    slower = (pl.col("ack_p95_ms") > _SLOWER_TIMES * pl.col("before_ack_p95_ms")) & (
        pl.col("ack_p95_ms") > pl.col("before_ack_p95_ms") + _SLOWER_MS
    )
    repeated, repeated_before = (
        pl.when(pl.col(f"{when}messages") != 0).then(pl.col(f"{when}repeats") / pl.col(f"{when}messages"))
        for when in ("", "before_")
    )
    worse = (
        slower
        | (pl.col("at_once") < pl.col("before_at_once") - _WORSE_SHARE)
        | (repeated > repeated_before + _WORSE_SHARE)
    )
    return (
        pl.when(pl.col("before_messages").is_null())
        .then(pl.lit(Change.NEW.value))
        .when(pl.col("messages").is_null())
        .then(pl.lit(Change.GONE.value))
        .when(worse)
        .then(pl.lit(Change.WORSE.value))
    )
