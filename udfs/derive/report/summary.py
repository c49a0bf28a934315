"""Counts what a run found, for its summary."""

import polars as pl

from schemas.incidents import Cause, IncidentOutcome
from schemas.outcomes import Outcome, count_column
from schemas.replay import Verdict
from udfs.derive.columns import count, nanoseconds
from udfs.derive.outcomes.counts import NOT_READ, SINCE, sum_if_any
from udfs.derive.report.findings import worst_incidents
from udfs.derive.report.messages import QUEUE, summed_harm
from udfs.derive.report.rows import Row, Rows
from udfs.replay.advice import machines_of

_NAMED = {"senders": "source_queue_managers", "queues": "destination_queues"}
_LOST_BY = 3
"""Senders and queues that a summary names."""
_WORST_INCIDENTS = 5
"""Incidents that a summary tells."""


def kinds_by_severity(findings: pl.DataFrame) -> Rows:
    """Returns the `count` of findings per `severity` and `kind`, the most frequent first."""
    rows = findings.group_by("severity", "kind").agg(count().alias("count"))
    return rows.sort("count", "kind", "severity", descending=[True, False, False]).to_dicts()


def sums_of_sessions(sessions: pl.DataFrame) -> Row:
    """Returns sums over SESSIONS: messages by outcome, `passing_through`, and `unjudged`.

    These are transactional messages without a verdict that were not passing through. `is_told` says that what became
    of messages is told: not under the literal reading. `accepted_not_read_messages` is null where it is in all of them,
    and `accepted_not_read_since_ns` the first time; `senders` and `queues` count what judged messages name.
    """
    judged = pl.sum_horizontal(verdict.value for verdict in Verdict)
    found = sessions.select(
        pl.col(*map(count_column, Outcome), "confirmed", "passing_through").sum(),
        (pl.col("transactional_messages") - pl.col("passing_through") - judged).sum().alias("unjudged"),
        pl.col(Outcome.DELIVERED.value).is_not_null().all().alias("is_told"),
        sum_if_any(NOT_READ).alias(NOT_READ),
        nanoseconds(pl.col(SINCE).min()).alias(f"{SINCE}_ns"),
        *(pl.col(names).list.explode().drop_nulls().n_unique().alias(name) for name, names in _NAMED.items()),
    )
    return found.row(0, named=True)


def lost_by(queues: pl.DataFrame) -> Rows:
    """Returns the senders and queues with most `lost` messages, of `harm_by_queue`."""
    of_queue = summed_harm(queues, *QUEUE).filter(pl.col("lost") > 0)
    worst = of_queue.sort("lost", *QUEUE, descending=[True, False, False]).head(_LOST_BY)
    return worst.select("lost", *QUEUE).to_dicts()


def machines_to_blame(incidents: pl.DataFrame) -> list[str]:
    """Returns `machines_of` the incidents with harm, the worst first: messages lost, stuck, or never acknowledged.

    A receiver that was replaced is one, too.
    """
    is_harm = pl.any_horizontal(pl.col("lost_messages", "stuck_messages", "unacknowledged") > 0)
    harm = incidents.filter(is_harm | (pl.col("cause") == Cause.RECEIVER_REPLACED.value))
    return list(dict.fromkeys(one for row in worst_incidents(harm, harm.height).to_dicts() for one in machines_of(row)))


def unrepaired_incidents(incidents: pl.DataFrame) -> Rows:
    """Returns the rows of `worst_incidents` that a summary tells: those that were not repaired."""
    unrepaired = incidents.filter(pl.col("outcome") != IncidentOutcome.REPAIRED.value)
    return worst_incidents(unrepaired, _WORST_INCIDENTS).to_dicts()
