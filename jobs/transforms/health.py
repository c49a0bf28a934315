"""Tells how well transactional messages went, per pair of queue managers and queue, and what changed."""

from datetime import datetime
from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import has_outcome, optional
from schemas.outcomes import Outcome
from schemas.replay import Verdict

_KEY = ("session_id", "destination_queue")
_LATENCIES = {"ack": "ack_latency_ms", "final_ack": "final_ack_latency_ms"}
_FIGURES = {"body_size": "long"} | dict.fromkeys(_LATENCIES.values(), "double")
_SLOWER_TIMES, _SLOWER_MS = 2.0, 1_000.0
"""An OrderAck is due within ten seconds, so small latencies vary by chance."""
_WORSE_SHARE = 0.05


class Change(StrEnum):
    """Lists what may have changed against the nights before, the most urgent first."""

    WORSE = "worse"
    NEW = "new"
    GONE = "gone"


def health(verdicts: DataFrame, outcomes: DataFrame, since: datetime | None, limit: int) -> DataFrame:
    """Returns one row per session and queue, at most `limit`: the changed ones first, then those with most messages.

    `messages` were accepted or are refused for now or for good; `bytes` are of their bodies. `at_once` is the share (0
    to 1) accepted at their first arrival, `repeats` counts arrivals of messages that the receiver had. `ack_…` and
    `final_ack_…`: median, 95th percentile and maximum of the ms from accepted messages to their OrderAck and FinalAck.
    What begins with `before_` is of the traffic before `since`, and `change` is a `Change` against it; null for none,
    and without `since`.
    """
    now = F.lit(True) if since is None else F.coalesce(F.col("at") >= F.lit(since), F.lit(True))
    never = has_outcome((Outcome.PASSED_BY, Outcome.GIVEN_UP, Outcome.PENDING, Outcome.DISPLACED))
    late = has_outcome([Outcome.DELIVERED_AFTER_REFUSAL])
    accepted = F.coalesce("accepted", F.lit(False))
    arrivals = (
        verdicts.select(
            *(*_KEY, "verdict", F.col("captured_at").alias("at"), accepted.alias("taken")),
            *(optional(verdicts, name, kind).alias(name) for name, kind in _FIGURES.items()),
        )
        .groupBy(*_KEY, now.alias("now"))
        .agg(
            F.count_if("taken").alias("accepted"),
            F.sum(F.when(F.col("taken"), F.col("body_size"))).alias("bytes"),
            F.count_if(F.col("verdict") == Verdict.DUPLICATE.value).alias("repeats"),
            *(
                figure
                for name, column in _LATENCIES.items()
                for figure in _percentiles(name, F.when(F.col("taken"), F.col(column)))
            ),
        )
    )
    became = (
        outcomes.where(never | late)
        .select(*_KEY, never.alias("never"), F.coalesce("accepted_at", "last_seen_at").alias("at"))
        .groupBy(*_KEY, now.alias("now"))
        .agg(F.count_if("never").alias("never"), F.count_if(~F.col("never")).alias("late"))
    )
    sums = (
        arrivals.join(became, [*_KEY, "now"], "left")
        .fillna(0, ["never", "late", "bytes"])
        .withColumn("messages", F.col("accepted") + F.col("never"))
        .withColumn("at_once", F.try_divide(F.col("accepted") - F.col("late"), F.col("messages")))
        .drop("accepted", "never", "late")
    )
    figures = [name for name in sums.columns if name not in (*_KEY, "now")]
    both = sums.groupBy(*_KEY).agg(
        *(F.max(F.when(F.col("now"), F.col(name))).alias(name) for name in figures),
        *(F.max(F.when(~F.col("now"), F.col(name))).alias(f"before_{name}") for name in figures),
    )
    order = F.array(*(F.lit(change.value) for change in Change))
    rows = both.withColumn("change", _change() if since is not None else F.lit(None).cast("string"))
    return rows.orderBy(
        F.col("change").isNull(), F.array_position(order, F.col("change")), F.desc("messages"), *_KEY
    ).limit(limit)


def _percentiles(name: str, latency: Column) -> list[Column]:
    return [
        F.percentile_approx(latency, 0.5).alias(f"{name}_median_ms"),
        F.percentile_approx(latency, 0.95).alias(f"{name}_p95_ms"),
        F.max(latency).alias(f"{name}_most_ms"),
    ]


def _change() -> Column:
    slower = (F.col("ack_p95_ms") > _SLOWER_TIMES * F.col("before_ack_p95_ms")) & (
        F.col("ack_p95_ms") > F.col("before_ack_p95_ms") + _SLOWER_MS
    )
    repeated, repeated_before = (
        F.try_divide(F.col(f"{when}repeats"), F.col(f"{when}messages")) for when in ("", "before_")
    )
    worse = (
        slower
        | (F.col("at_once") < F.col("before_at_once") - _WORSE_SHARE)
        | (repeated > repeated_before + _WORSE_SHARE)
    )
    return (
        F.when(F.col("before_messages").isNull(), Change.NEW.value)
        .when(F.col("messages").isNull(), Change.GONE.value)
        .when(worse, Change.WORSE.value)
    )
