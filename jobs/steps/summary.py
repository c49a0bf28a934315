"""Counts what a run found, from the tables."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.muted import Muted
from jobs.app.names import Names
from jobs.app.parallel import run_in_parallel
from jobs.report_page.advice import advice
from jobs.report_page.arrange import address
from jobs.steps.headline import NOT_TOLD, headline, headline_figures, located, second
from jobs.transforms.expressions import each
from jobs.transforms.report_lists import is_muted, places, worst_incidents
from jobs.warehouse.store import Warehouse
from schemas.incidents import INCIDENTS, IncidentOutcome
from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE
from schemas.messages import ACKS, DECODED_TABLES, MESSAGES
from schemas.outcomes import OUTCOMES, Outcome, count_column
from schemas.replay import FINDINGS, SESSIONS, VERDICTS, Severity, Verdict
from schemas.table import Table

_INGESTED = ((CAPTURES, "status"), (PACKETS, "packet_type"), (QUARANTINE, "reason"), (BOOKS, "balanced"))
_DECODED = (
    *((MESSAGES, "transactional"), (ACKS, "ack_type"), (QUARANTINE, "reason"), (BOOKS, "balanced")),
    *((table, "decoded_alone") for table in DECODED_TABLES),
)
_REPLAYED = ((VERDICTS, "verdict"), (FINDINGS, "kind"), (INCIDENTS, "outcome"))
_OUTCOMES = tuple(map(count_column, Outcome))
_CAPTURES = _INGESTED[:1]
_LOST_BY = 3
"""Senders and queues that a summary names."""
_WORST_INCIDENTS = 5
"""Incidents that a summary tells; those that were repaired are not among them."""

Counts = dict[str, dict[str, int]]
"""Row counts by table (or `decoded_alone`) and by value of one column; a BOOLEAN has "true" and "false"."""


def ingest_summary(warehouse: Warehouse) -> dict[str, Any]:
    """Returns the place of the tables, captures by status, packets by type, quarantine by reason, and the books."""
    counts = _counts(warehouse, _INGESTED)
    return {"tables": warehouse.place} | counts | {"books": _books(counts)}


def decode_summary(warehouse: Warehouse) -> dict[str, Any]:
    """Returns counts of messages, acks and packets that the reference decoded; quarantine by reason, and the books."""
    return _decoded(_counts(warehouse, _DECODED))


def replay_summary(warehouse: Warehouse, names: Names | None = None) -> dict[str, Any]:
    """Returns verdicts, findings by kind, incidents by outcome, what became of the messages, and the books."""
    counts = _counts(warehouse, (*_REPLAYED, (BOOKS, "balanced")))
    books = {"books": _books(counts)}
    return {table.name: counts[table.name] for table, _ in _REPLAYED} | outcome_summary(warehouse, names) | books


def summary(warehouse: Warehouse, names: Names | None = None) -> dict[str, Any]:
    """Returns all of these."""
    counts = _counts(warehouse, _CAPTURES + _DECODED + _REPLAYED)
    replayed = {table.name: counts[table.name] for table, _ in _REPLAYED}
    found = {"tables": warehouse.place, "captures": counts["captures"]} | _decoded(counts) | replayed
    return found | outcome_summary(warehouse, names)


def outcome_summary(warehouse: Warehouse, names: Names | None = None) -> dict[str, Any]:
    """Returns messages by outcome (`outcomes`), the `lost` and `stuck` ones, `severities` of findings, `headline`.

    `lost_by` names the senders and queues with most lost messages, `worst_incidents` tells what happened and what to
    do, the worst first, and `findings_by_severity` counts the kinds of each severity.
    Under the literal reading, which tells none of this, the headline says so, and `lost` and `stuck` are None.
    """
    sessions = warehouse.read(SESSIONS).agg(
        *each(F.sum, *_OUTCOMES, "transactional", "passing_through", "missing_bytes"),
        F.sum(sum((F.col(verdict.value) for verdict in Verdict), F.lit(0))).alias("judged"),
        F.count_if(F.col(Outcome.DELIVERED.value).isNull()).alias("not_told"),
    )
    by_queue = warehouse.read(OUTCOMES).groupBy("source_queue_manager", "destination_queue")
    of_queue = by_queue.agg(F.sum(F.when(F.col("lost"), F.col("numbers"))).alias("lost"))
    losers = F.collect_list(
        F.when(F.col("lost") > 0, F.struct(-F.col("lost"), "source_queue_manager", "destination_queue"))
    )
    worst = of_queue.agg(F.slice(F.sort_array(losers), 1, _LOST_BY).alias("lost_by"))
    row = sessions.crossJoin(worst).collect()[0].asDict()
    if row["not_told"]:
        return {"headline": NOT_TOLD, "outcomes": {}, "lost": None, "lost_by": [], "stuck": None, "severities": {}}
    kinds, at, incidents = run_in_parallel(
        rows.collect
        for rows in (
            warehouse.read(FINDINGS).groupBy("severity", "kind").count().orderBy(F.desc("count"), "kind"),
            places(warehouse.read(OUTCOMES)),
            worst_incidents(
                warehouse.read(INCIDENTS).where(F.col("outcome") != IncidentOutcome.REPAIRED.value), _WORST_INCIDENTS
            ),
        )
    )
    lost_by = row.pop("lost_by")
    row = {name: value or 0 for name, value in row.items()} | {"stuck": at[0]["stuck"]}
    by_severity: dict[str, dict[str, int]] = {severity.value: {} for severity in reversed(Severity)}
    for one in kinds:
        by_severity[one["severity"]][one["kind"]] = one["count"]
    severities = {severity.value: sum(by_severity[severity.value].values()) for severity in Severity}
    outcomes = {outcome.value: row[count_column(outcome)] for outcome in Outcome}
    figures = headline_figures(
        outcomes,
        stuck=row["stuck"],
        missing_bytes=row["missing_bytes"],
        unjudged=row["transactional"] - row["passing_through"] - row["judged"],
        errors=severities[Severity.ERROR.value],
    )
    return {
        "headline": headline(located(figures, at[0].asDict(), names or Names())),
        "outcomes": {name: count for name, count in outcomes.items() if count},
        "lost": figures.lost,
        "lost_by": [
            {"lost": -negative, "source_queue_manager": source, "destination_queue": queue}
            for negative, source, queue in lost_by
        ],
        "stuck": row["stuck"],
        "severities": {name: count for name, count in severities.items() if count},
        "findings_by_severity": {name: counts for name, counts in by_severity.items() if counts},
        "worst_incidents": [_told(incident.asDict(recursive=True)) for incident in incidents],
    }


def _told(incident: dict[str, Any]) -> dict[str, Any]:
    """Returns what a summary says of an incident: what happened, where, since when, from which machines, what to do."""
    seen = list(dict.fromkeys(filter(None, map(address, incident["witness"]))))
    addresses = [
        {name: sender[name] for name in ("address", "messages", "accepted", "lost", "suspected")}
        | {f"{name}_seen_at": sender[f"{name}_ns"] and second(sender[f"{name}_ns"]) for name in ("first", "last")}
        for sender in incident["senders"] or ()
    ]
    kept = ("incident_id", "cause", "outcome", "lost", "pending", "stuck", "unknown", "ongoing", "destination_queues")
    return {name: incident[name] for name in (*kept, "source_queue_manager", "session_id", "explanation")} | {
        "began_at": incident["began_ns"] and second(incident["began_ns"]),
        "ended_at": incident["ended_ns"] and second(incident["ended_ns"]),
        "addresses": addresses or [{"address": one, "suspected": False} for one in seen],
        "advice": incident["advice"] or advice(incident["cause"], incident["outcome"], one_address=len(seen) == 1),
    }


def with_muted(summary: dict[str, Any], warehouse: Warehouse, muted: Sequence[Muted]) -> dict[str, Any]:
    """Returns the summary with the findings by kind and by severity that are `muted`; as it is where nothing is."""
    if not muted:
        return summary
    known = is_muted([(one.kind, one.queue) for one in muted])
    rows = warehouse.read(FINDINGS).where(known).groupBy("kind", "severity").count().collect()
    counts: dict[str, int] = {}
    for row in rows:
        for name in (row["kind"], row["severity"]):
            counts[name] = counts.get(name, 0) + row["count"]
    return summary | {"muted": counts}


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


def _counts(warehouse: Warehouse, columns: tuple[tuple[Table, str], ...]) -> Counts:
    """Counts the rows of each table by the values of one column, in one query; the most frequent value comes first.

    `decoded_alone` is counted over all tables that have it.
    """
    names = [column if column == "decoded_alone" else table.name for table, column in columns]
    values = [
        warehouse.read(table).select(F.lit(name).alias("name"), F.col(column).cast("string").alias("value"))
        for name, (table, column) in zip(names, columns, strict=True)
    ]
    rows = reduce(DataFrame.unionAll, values).groupBy("name", "value").count()
    found: Counts = {name: {} for name in names}
    for row in rows.orderBy(F.desc("count"), "value").collect():
        found[row["name"]][row["value"]] = row["count"]
    return found
