"""Chooses the findings and incidents that a report lists, and counts them."""

from collections.abc import Sequence

import polars as pl

from schemas.incidents import IncidentOutcome
from schemas.replay import FINDINGS, FindingKind
from udfs.derive.columns import count, count_distinct, count_if, nanoseconds
from udfs.derive.report.rows import SEVERITIES, first_of, place_in, with_nanoseconds

_HIDDEN = (FindingKind.RESEND_SCHEDULE.value,)
"""Kinds that the report leaves out: registry settings choose the intervals."""


def shown_findings(findings: pl.DataFrame) -> pl.DataFrame:
    """Returns the findings of the kinds that the report shows."""
    return findings.filter(~pl.col("kind").is_in(_HIDDEN))


def findings_by_kind(findings: pl.DataFrame) -> pl.DataFrame:
    """Returns `findings`, those of them `alone` (in no incident), `sessions` and `messages` per severity and kind."""
    return findings.group_by("severity", "kind").agg(
        count().alias("findings"),
        count_if(pl.col("incident_id").is_null()).alias("alone"),
        count_distinct("session_id").alias("sessions"),
        pl.col("messages").sum(),
    )


def worst_findings(findings: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Returns of each severity and kind the `limit` findings without an incident that concern the most messages.

    `found_ns` replaces `found_at`, and `place` is 1, 2, … within severity and kind.
    """
    order = ("messages", "found_at", *FINDINGS.key)
    alone = findings.filter(pl.col("incident_id").is_null())
    chosen = first_of(alone, ("severity", "kind"), order, [name == "messages" for name in order], limit)
    return with_nanoseconds(chosen, found_ns="found_at")


def findings_of_incidents(findings: pl.DataFrame, incidents: Sequence[str], limit: int) -> pl.DataFrame:
    """Returns the `limit` gravest findings of each of these incidents; columns as in `worst_findings`."""
    order = [place_in(SEVERITIES, "severity"), *map(pl.col, ("messages", "found_at", *FINDINGS.key))]
    told = findings.filter(pl.col("incident_id").is_in(list(incidents)))
    chosen = first_of(told, "incident_id", order, [place == 1 for place in range(len(order))], limit)
    return with_nanoseconds(chosen, found_ns="found_at")


def incident_counts(incidents: pl.DataFrame) -> pl.DataFrame:
    """Returns the number of `incidents` by `outcome`."""
    return incidents.group_by("outcome").agg(count().alias("incidents"))


def worst_incidents(incidents: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Returns the `limit` worst incidents: lost, stuck, otherwise pending, unknown, repaired; ongoing before over.

    `place` is 1, 2, …; `began_ns` and `ended_ns` replace the times, those of senders, too.
    """
    ascending = (place_in([outcome.value for outcome in IncidentOutcome], "outcome"),)
    worst = (pl.col("stuck") > 0, *map(pl.col, ("ongoing", "lost", "pending", "unknown", "repaired", "findings")))
    order = (*ascending, *worst, *map(pl.col, ("began_at", "incident_id")))
    descending = [0 < place <= len(worst) for place in range(len(order))]
    chosen = (
        incidents.sort(order, descending=descending, nulls_last=descending)
        .head(limit)
        .with_columns(
            pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias("place"),
            pl.col("senders").list.eval(_timed(pl.element())),
        )
    )
    return with_nanoseconds(chosen, began_ns="began_at", ended_ns="ended_at").drop("last_captured_at")


def _timed(sender: pl.Expr) -> pl.Expr:
    """Returns one of the `senders` of an incident with its times in nanoseconds."""
    kept = (sender.struct[name] for name in ("address", "messages", "accepted", "lost", "suspected"))
    return pl.struct(
        *kept, *(nanoseconds(sender.struct[f"{name}_seen_at"]).alias(f"{name}_ns") for name in ("first", "last"))
    )
