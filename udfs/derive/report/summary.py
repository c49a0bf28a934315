"""Counts what a run found, for its summary."""

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from schemas.incidents import IncidentOutcome
from schemas.outcomes import Outcome, count_column
from schemas.replay import Verdict
from udfs.derive.report.findings import worst_incidents
from udfs.derive.report.messages import QUEUE, places, summed_harm
from udfs.derive.report.rows import Row, Rows, count, total

_LOST_BY = 3
"""Senders and queues that a summary names."""
_WORST_INCIDENTS = 5
"""Incidents that a summary tells; those that were repaired are not among them."""
Counts = dict[str, dict[str, int]]
"""Row counts by name (of a table, or `decoded_alone`) and by value of one column; a BOOLEAN has "true" and "false"."""


def counted(sums: pl.DataFrame, name: str, column: str) -> pl.DataFrame:
    """Returns how often each value of a column occurs, `count` in these sums: `name`, `value` as text, `count`."""
    return sums.select(pl.lit(name).alias("name"), pl.col(column).cast(pl.String).alias("value"), "count")


def counts(names: Iterable[str], parts: Iterable[pl.DataFrame]) -> Counts:
    """Returns rows of `counted`, added up, by name and value; the most frequent value comes first."""
    found: Counts = {name: {} for name in names}
    rows = pl.concat(parts).group_by("name", "value").agg(pl.col("count").sum())
    for name, value, many in rows.sort("count", "value", descending=[True, False]).iter_rows():
        found[name][value] = many
    return found


def judged(arrivals: pl.DataFrame) -> pl.DataFrame:
    """Returns the `count` of all verdicts per `verdict`, of the arrivals of `of_session`."""
    return arrivals.group_by("verdict").agg(pl.col("arrivals").sum().alias("count"))


class Told(NamedTuple):
    """Holds what a summary says of messages, findings and incidents."""

    sums: Row
    """Sums over SESSIONS: by outcome, `transactional`, `passing_through`, `missing_bytes`, and `judged` by a verdict.

    A sum is null without a value; `not_told` counts the sessions under the literal reading.
    """
    lost_by: Rows
    """The senders and queues with most `lost` messages."""
    places: Row
    """The row of `messages.places`."""
    kinds: Rows
    """Rows of `kinds_by_severity`."""
    incidents: Rows
    """Rows of `worst_incidents`, without those that were repaired."""


def told(sessions: pl.DataFrame, queues: pl.DataFrame, findings: pl.DataFrame, incidents: pl.DataFrame) -> Told:
    """Returns what a summary says; `queues` are rows of `harm_by_queue`, of all outcomes."""
    unrepaired = incidents.filter(pl.col("outcome") != IncidentOutcome.REPAIRED.value)
    return Told(
        _sums(sessions),
        _lost_by(queues),
        places(queues).row(0, named=True),
        kinds_by_severity(findings),
        worst_incidents(unrepaired, _WORST_INCIDENTS).to_dicts(),
    )


def kinds_by_severity(findings: pl.DataFrame) -> Rows:
    """Returns the `count` of findings per `severity` and `kind`, the most frequent first."""
    rows = findings.group_by("severity", "kind").agg(count().alias("count"))
    return rows.sort("count", "kind", "severity", descending=[True, False, False]).to_dicts()


def _sums(sessions: pl.DataFrame) -> Row:
    names = (*map(count_column, Outcome), "transactional", "passing_through", "missing_bytes")
    verdicts = pl.sum_horizontal(*(pl.col(verdict.value) for verdict in Verdict), ignore_nulls=False)
    found = sessions.select(
        *(total(name) for name in names),
        total(verdicts).alias("judged"),
        pl.col(Outcome.DELIVERED.value).null_count().cast(pl.Int64).alias("not_told"),
    )
    return found.row(0, named=True)


def _lost_by(queues: pl.DataFrame) -> Rows:
    of_queue = summed_harm(queues, *QUEUE).filter(pl.col("lost") > 0)
    worst = of_queue.sort("lost", *QUEUE, descending=[True, False, False]).head(_LOST_BY)
    return worst.select("lost", *QUEUE).to_dicts()
