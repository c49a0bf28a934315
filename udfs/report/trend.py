"""Counts what became of messages by the day on which they were first seen, over all that the tables hold."""

import polars as pl

from schemas.outcomes import NOT_KNOWN, Outcome
from udfs.frames.columns import count_if
from udfs.frames.derivation import derives
from udfs.report.rows import Row, Rows

_DAYS = 31
"""Days that a report shows, the last ones."""
_HARM = ("lost", "stuck", "unacknowledged", "unknown")
OF_TREND = ("first_seen_at", "witness", "outcome", "lost", "stuck", "numbers")
"""Columns of OUTCOMES that `harm_by_day` needs."""


@derives(in_parts=True, columns={"outcomes": OF_TREND})
def harm_by_day(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Returns per `day` (UTC) how many messages are lost, stuck, never acknowledged, or unknown, as is known by now.

    A number that was never seen belongs to the day of the first packet that proves it.
    """
    shown_at = pl.col("witness").list.eval(pl.element().struct["captured_at"]).list.min()
    day = pl.coalesce("first_seen_at", shown_at).dt.strftime("%Y-%m-%d").alias("day")
    numbers, outcome = pl.col("numbers"), pl.col("outcome")
    return outcomes.group_by(day).agg(
        numbers.filter("lost").sum().alias("lost"),
        count_if("stuck").alias("stuck"),
        numbers.filter(outcome == Outcome.UNACKNOWLEDGED.value).sum().alias("unacknowledged"),
        numbers.filter(outcome.is_in([one.value for one in NOT_KNOWN])).sum().alias("unknown"),
    )


def trend(captures: pl.DataFrame, harm: pl.DataFrame) -> Rows:
    """Returns the last days with captures, the latest first: each `day`, its `arrivals`, and its `harm_by_day`.

    `arrivals` are the messages in the captures that begin on that day, resent ones too. `share` is a day's harm in
    comparison with the worst day, between 0 and 1. `harm` may have several rows for a day.
    """
    began = pl.col("first_captured_at").dt.strftime("%Y-%m-%d").alias("day")
    volume = captures.group_by(began).agg(pl.col("message_count").sum().alias("arrivals"))
    summed = harm.group_by("day").agg(pl.col(_HARM).sum())
    days = volume.join(summed, on="day", how="full", coalesce=True).drop_nulls("day")
    shown = (
        days.with_columns(pl.col("arrivals", *_HARM).fill_null(0)).sort("day", descending=True).head(_DAYS).to_dicts()
    )
    most = max((_harm_of(one) for one in shown), default=0)
    return [one | {"share": _harm_of(one) / most if most else 0.0} for one in shown]


def _harm_of(day: Row) -> int:
    return sum(day[name] for name in _HARM)
