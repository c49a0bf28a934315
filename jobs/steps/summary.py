"""Counts what a run found, from the tables, and says what became of the messages."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from jobs.app.names import Names
from jobs.engine.engine import Engine, T
from jobs.reporting.few import SUMMARIZED, read_few
from jobs.reporting.flow import accepted
from jobs.steps.headline import NOT_TOLD, headline, headline_figures, located, second
from schemas.incidents import INCIDENTS, Cause
from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE
from schemas.messages import ACKS, DECODED_TABLES, MESSAGES
from schemas.outcomes import OUTCOMES, Outcome, count_column
from schemas.replay import FINDINGS, VERDICTS, Severity
from schemas.table import Table
from udfs.derive.frames import ONE
from udfs.derive.report.messages import QUEUE, accepted_counts, conflicts, harm_by_queue, places
from udfs.derive.report.rows import Row, with_nanoseconds
from udfs.derive.report.summary import (
    kinds_by_severity,
    lost_by,
    machines_to_blame,
    sums_of_sessions,
    unrepaired_incidents,
)
from udfs.replay.advice import machines_of

Counts = dict[str, dict[str, int]]
"""Row counts by name (of a table, or `decoded_alone`) and by value of one column; a BOOLEAN has "true" and "false"."""
_INGESTED = ((CAPTURES, "status"), (PACKETS, "packet_type"), (QUARANTINE, "reason"), (BOOKS, "balanced"))
_DECODED = (
    *((MESSAGES, "transactional"), (ACKS, "ack_type"), (QUARANTINE, "reason"), (BOOKS, "balanced")),
    *((table, "decoded_alone") for table in DECODED_TABLES),
)
_REPLAYED = ((VERDICTS, "verdict"), (FINDINGS, "kind"), (INCIDENTS, "outcome"))
_CAPTURES = _INGESTED[:1]


def ingest_summary(engine: Engine[T], place: str) -> dict[str, Any]:
    """Returns the place of the tables, captures by status, packets by type, quarantine by reason, and the books."""
    counts = _count_rows(engine, _INGESTED)
    return {"tables": place} | counts | {"books": _books(counts)}


def decode_summary(engine: Engine[T]) -> dict[str, Any]:
    """Returns counts of messages, acks and packets that the reference decoded; quarantine by reason, and the books."""
    return _decoded(_count_rows(engine, _DECODED))


def replay_summary(engine: Engine[T], names: Names | None = None) -> dict[str, Any]:
    """Returns verdicts, findings by kind, incidents by outcome, what became of the messages, and the books."""
    counts = _count_rows(engine, (*_REPLAYED, (BOOKS, "balanced")))
    books = {"books": _books(counts)}
    return {table.name: counts[table.name] for table, _ in _REPLAYED} | outcome_summary(engine, names) | books


def summary(engine: Engine[T], place: str, names: Names | None = None) -> dict[str, Any]:
    """Returns all of these."""
    counts = _count_rows(engine, _CAPTURES + _DECODED + _REPLAYED)
    replayed = {table.name: counts[table.name] for table, _ in _REPLAYED}
    found = {"tables": place, "captures": counts["captures"]} | _decoded(counts) | replayed
    return found | outcome_summary(engine, names)


def outcome_summary(engine: Engine[T], names: Names | None = None) -> dict[str, Any]:
    """Returns messages by outcome (`outcomes`), the `lost` and `stuck` ones, `severities` of findings, `headline`.

    `lost_by` names the senders and queues with most lost messages, `worst_incidents` tells what happened, where to
    go and what to do, the worst first, and `findings_by_severity` counts the kinds of each severity.
    Under the literal reading, which tells none of this, the headline says so, and `lost` and `stuck` are None.
    """
    few = read_few(engine, *SUMMARIZED)
    sums = sums_of_sessions(few["sessions"])
    if sums["not_told"]:
        return {"headline": NOT_TOLD, "outcomes": {}, "lost": None, "lost_by": [], "stuck": None, "severities": {}}
    harm = engine.read(OUTCOMES, *QUEUE, "lost", "stuck", "numbers", "first_seen_at")
    queues = engine.gather(harm_by_queue, outcomes=harm)[ONE]
    where = places(queues).row(0, named=True)
    row = {name: value or 0 for name, value in sums.items()}
    by_severity: dict[str, dict[str, int]] = {severity.value: {} for severity in reversed(Severity)}
    for one in kinds_by_severity(few["findings"]):
        by_severity[one["severity"]][one["kind"]] = one["count"]
    severities = {severity.value: sum(by_severity[severity.value].values()) for severity in Severity}
    outcomes = {outcome.value: row[count_column(outcome)] for outcome in Outcome}
    figures = headline_figures(
        outcomes,
        stuck=where["stuck"],
        missing_bytes=row["missing_bytes"],
        unjudged=row["transactional"] - row["passing_through"] - row["judged"],
        errors=severities[Severity.ERROR.value],
    )
    incidents = few["incidents"]
    since = _accepted_since(engine, incidents)
    return {
        "headline": headline(located(figures, where, machines_to_blame(incidents), names or Names())),
        "outcomes": {name: count for name, count in outcomes.items() if count},
        "lost": figures.lost,
        "lost_by": lost_by(queues),
        "stuck": where["stuck"],
        "severities": {name: count for name, count in severities.items() if count},
        "findings_by_severity": {name: counts for name, counts in by_severity.items() if counts},
        "worst_incidents": [_told(one, since) for one in unrepaired_incidents(incidents)],
    }


def _accepted_since(engine: Engine[T], incidents: pl.DataFrame) -> dict[str, Row]:
    """Returns what was accepted since numbers were used again, by their sender.

    `accepted_since` is that time, and `accepted_from` has the messages of each address.
    """
    since = with_nanoseconds(conflicts(incidents), since_ns="since").to_dicts()
    counts = accepted_counts(accepted(engine, incidents, 0)["counts"]).to_dicts()
    rows = sorted(counts, key=lambda row: row["address"] or "")
    return {
        sender: {
            "accepted_since": since_ns and second(since_ns),
            "accepted_from": [
                {name: row[name] for name in ("address", "messages")}
                for row in rows
                if row["source_queue_manager"] == sender
            ],
        }
        for sender, since_ns in ((row["source_queue_manager"], row["since_ns"]) for row in since)
    }


def _told(incident: Row, accepted_since: Mapping[str, Row]) -> Row:
    """Returns what a summary says of an incident: what happened, where, since when, from which machines, what to do.

    Where numbers were used again, also what was `accepted_since`, by sender.
    """
    addresses = [
        {name: sender[name] for name in ("address", "messages", "accepted", "lost", "suspected")}
        | {f"{name}_seen_at": sender[f"{name}_ns"] and second(sender[f"{name}_ns"]) for name in ("first", "last")}
        for sender in incident["senders"]
    ]
    kept = (
        *("incident_id", "cause", "outcome", "lost", "pending", "stuck", "unknown", "ongoing", "destination_queues"),
        *("advice", "source_queue_manager", "session_id", "explanation"),
    )
    return {name: incident[name] for name in kept} | {
        "began_at": incident["began_ns"] and second(incident["began_ns"]),
        "ended_at": incident["ended_ns"] and second(incident["ended_ns"]),
        "addresses": addresses,
        "go_to": [{"address": one} for one in machines_of(incident)],
        **(
            accepted_since.get(incident["source_queue_manager"], {}) if incident["cause"] == Cause.NUMBER_REUSED else {}
        ),
    }


def _count_rows(engine: Engine[T], columns: Sequence[tuple[Table, str]]) -> Counts:
    """Counts the rows of each table by the values of one column, the most frequent value first.

    `decoded_alone` is counted over all tables that have it.
    """
    sums = {f"{table.name} {column}": engine.sum_up(engine.read(table, column), [column]) for table, column in columns}
    found = engine.bring(**sums)
    counts: dict[str, Counter[Any]] = {}
    for table, column in columns:
        rows = found[f"{table.name} {column}"]
        of_name = counts.setdefault(column if column == "decoded_alone" else table.name, Counter())
        of_name.update(dict(rows.select(pl.col(column).cast(pl.String), "count").iter_rows()))
    return {
        name: dict(sorted(of_name.items(), key=lambda one: (-one[1], one[0] is not None, one[0])))
        for name, of_name in counts.items()
    }


def with_names(summary: dict[str, Any], names: Names) -> dict[str, Any]:
    """Returns the summary with the names of queue managers and queues beside the originals."""
    for row in summary.get("lost_by", ()):
        row |= {
            "sender_name": names.queue_manager(row["source_queue_manager"]),
            "queue_name": names.queue(row["destination_queue"]),
        }
    for row in summary.get("worst_incidents", ()):
        row |= {"session_names": names.session(row["session_id"])}
        for one in (*row["addresses"], *row["go_to"], *row.get("accepted_from", ())):
            one |= {"name": names.queue_manager(one["address"])}
    return summary


def _decoded(counts: Counts) -> dict[str, Any]:
    messages = counts["messages"]
    return {
        "messages": sum(messages.values()),
        "transactional_messages": messages.get("true", 0),
        "acks": counts["acks"],
        "decoded_alone": counts["decoded_alone"].get("true", 0),
        "quarantine": counts["quarantine"],
        "books": _books(counts),
    }


def _books(counts: Counts) -> dict[str, int]:
    return {"balanced": counts["books"].get("true", 0), "unbalanced": counts["books"].get("false", 0)}
