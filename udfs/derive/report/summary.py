"""Counts what a run found, for its summary."""

from collections.abc import Iterable

import polars as pl

from schemas.incidents import IncidentOutcome
from schemas.outcomes import Outcome, count_column
from schemas.replay import Verdict
from udfs.derive.report.findings import worst_incidents
from udfs.derive.report.messages import QUEUE, places, summed_harm
from udfs.derive.report.rows import Row, Rows, count, total

Counts = dict[str, dict[str, int]]
"""Row counts by name (of a table, or `decoded_alone`) and by value of one column; a BOOLEAN has "true" and "false"."""


def counted(rows: pl.DataFrame, name: str, column: str) -> pl.DataFrame:
    """Returns how often each value of a column occurs: `name`, `value` as text, `count`. Counts of parts add up."""
    return rows.group_by(pl.col(column).cast(pl.String).alias("value")).agg(count().alias("count")).select(
        pl.lit(name).alias("name"), "value", "count"
    )  # fmt: skip


def counts(names: Iterable[str], parts: Iterable[pl.DataFrame]) -> Counts:
    """Returns rows of `counted` by name and value; the most frequent value comes first."""
    found: Counts = {name: {} for name in names}
    rows = pl.concat(parts).group_by("name", "value").agg(pl.col("count").sum())
    for name, value, many in rows.sort("count", "value", descending=[True, False]).iter_rows():
        found[name][value] = many
    return found


def judged(arrivals: pl.DataFrame) -> pl.DataFrame:
    """Returns `counted` rows of all verdicts, of the arrivals of `of_session`."""
    values = arrivals.group_by(pl.col("verdict").alias("value")).agg(pl.col("arrivals").sum().alias("count"))
    return values.select(pl.lit("verdicts").alias("name"), "value", "count")


def became(sessions: pl.DataFrame) -> Row:
    """Returns sums over SESSIONS, by column; `judged`: messages with a verdict; `not_told`: under the literal reading.

    `not_told` counts sessions. A sum is null without a value.
    """
    names = (*map(count_column, Outcome), "transactional", "passing_through", "missing_bytes")
    verdicts = pl.sum_horizontal(*(pl.col(verdict.value) for verdict in Verdict), ignore_nulls=False)
    found = sessions.select(
        *(total(name) for name in names),
        total(verdicts).alias("judged"),
        pl.col(Outcome.DELIVERED.value).null_count().cast(pl.Int64).alias("not_told"),
    )
    return found.row(0, named=True)


def lost_by(queues: pl.DataFrame, limit: int) -> Rows:
    """Returns the senders and queues with most `lost` messages, of `harm_by_queue` rows."""
    of_queue = summed_harm(queues, *QUEUE).filter(pl.col("lost") > 0)
    worst = of_queue.sort("lost", *QUEUE, descending=[True, False, False]).head(limit)
    return worst.select("lost", *QUEUE).to_dicts()


def kinds_by_severity(findings: pl.DataFrame) -> Rows:
    """Returns the `count` of findings per `severity` and `kind`, the most frequent first."""
    rows = findings.group_by("severity", "kind").agg(count().alias("count"))
    return rows.sort("count", "kind", "severity", descending=[True, False, False]).to_dicts()


def told_incidents(incidents: pl.DataFrame, limit: int) -> Rows:
    """Returns the worst incidents that were not repaired."""
    return worst_incidents(incidents.filter(pl.col("outcome") != IncidentOutcome.REPAIRED.value), limit).to_dicts()


def harm(queues: pl.DataFrame) -> Row:
    """Returns the row of `places`, of `harm_by_queue` rows."""
    return places(queues).row(0, named=True)
