"""Puts what was counted and chosen of a run's tables into its summary."""

from collections.abc import Iterable, Mapping
from typing import Any

from jobs.app.names import Names
from jobs.steps.headline import NOT_TOLD, headline, headline_figures, located, second
from schemas.outcomes import Outcome, count_column
from schemas.replay import Severity
from udfs.derive.report.rows import Row
from udfs.derive.report.summary import Counts, Told

_INCIDENT = (
    *("incident_id", "cause", "outcome", "lost", "pending", "stuck", "unknown", "ongoing", "destination_queues"),
    *("advice", "source_queue_manager", "session_id", "explanation"),
)
_SENDER = ("address", "messages", "accepted", "lost", "suspected")


def decoded(counts: Counts) -> dict[str, Any]:
    """Returns counts of messages, acks and packets that the reference decoded; quarantine by reason, and the books."""
    messages = counts["messages"]
    return {
        "messages": sum(messages.values()),
        "transactional_messages": messages.get("true", 0),
        "acks": counts["acks"],
        "decoded_alone": counts["decoded_alone"].get("true", 0),
        "quarantine": counts["quarantine"],
        "books": books(counts),
    }


def books(counts: Counts) -> dict[str, int]:
    """Returns how many books balance, and how many do not."""
    return {"balanced": counts["books"].get("true", 0), "unbalanced": counts["books"].get("false", 0)}


def outcomes_told(told: Told, names: Names) -> dict[str, Any]:
    """Returns messages by outcome (`outcomes`), the `lost` and `stuck` ones, `severities` of findings, `headline`.

    `lost_by` names the senders and queues with most lost messages, `worst_incidents` tells what happened and what to
    do, the worst first, and `findings_by_severity` counts the kinds of each severity.
    Under the literal reading, which tells none of this, the headline says so, and `lost` and `stuck` are None.
    """
    if told.sums["not_told"]:
        return {"headline": NOT_TOLD, "outcomes": {}, "lost": None, "lost_by": [], "stuck": None, "severities": {}}
    sums = {name: value or 0 for name, value in told.sums.items()}
    places = told.places | {"stuck": told.places["stuck"] or 0}
    by_severity: dict[str, dict[str, int]] = {severity.value: {} for severity in reversed(Severity)}
    for one in told.kinds:
        by_severity[one["severity"]][one["kind"]] = one["count"]
    severities = {severity.value: sum(by_severity[severity.value].values()) for severity in Severity}
    outcomes = {outcome.value: sums[count_column(outcome)] for outcome in Outcome}
    figures = headline_figures(
        outcomes,
        stuck=places["stuck"],
        missing_bytes=sums["missing_bytes"],
        unjudged=sums["transactional"] - sums["passing_through"] - sums["judged"],
        errors=severities[Severity.ERROR.value],
    )
    return {
        "headline": headline(located(figures, places, names)),
        "outcomes": {name: count for name, count in outcomes.items() if count},
        "lost": figures.lost,
        "lost_by": told.lost_by,
        "stuck": places["stuck"],
        "severities": {name: count for name, count in severities.items() if count},
        "findings_by_severity": {name: counts for name, counts in by_severity.items() if counts},
        "worst_incidents": [tell_incident(incident) for incident in told.incidents],
    }


def tell_incident(incident: Row) -> dict[str, Any]:
    """Returns what a summary says of an incident: what happened, where, since when, from which machines, what to do."""
    addresses = [
        {name: sender[name] for name in _SENDER}
        | {f"{name}_seen_at": sender[f"{name}_ns"] and second(sender[f"{name}_ns"]) for name in ("first", "last")}
        for sender in incident["senders"]
    ]
    return {name: incident[name] for name in _INCIDENT} | {
        "began_at": incident["began_ns"] and second(incident["began_ns"]),
        "ended_at": incident["ended_ns"] and second(incident["ended_ns"]),
        "addresses": addresses,
    }


def muted_counts(kinds: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Returns the number of muted findings by kind and by severity; each row counts those of one of both."""
    counts: dict[str, int] = {}
    for row in kinds:
        for name in (row["kind"], row["severity"]):
            counts[name] = counts.get(name, 0) + row["count"]
    return counts


def with_names(summary: dict[str, Any], names: Names) -> dict[str, Any]:
    """Returns the summary with the names of queue managers and queues beside the originals."""
    for row in summary.get("lost_by", ()):
        row |= {
            "sender_name": names.queue_manager(row["source_queue_manager"]),
            "queue_name": names.queue(row["destination_queue"]),
        }
    for row in summary.get("worst_incidents", ()):
        row |= {"session_names": names.session(row["session_id"])}
        for one in row["addresses"]:
            one |= {"name": names.queue_manager(one["address"])}
    return summary
