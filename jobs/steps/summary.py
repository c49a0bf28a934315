"""Counts what a run found, from the tables."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.muted import Muted
from jobs.app.names import Names
from jobs.app.parallel import run_in_parallel
from jobs.steps.found import books, decoded, muted_counts, outcomes_told
from jobs.transforms.expressions import each
from jobs.transforms.report_lists import is_muted, places, worst_incidents
from jobs.warehouse.store import Warehouse
from schemas.incidents import INCIDENTS, IncidentOutcome
from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE
from schemas.messages import ACKS, DECODED_TABLES, MESSAGES
from schemas.outcomes import OUTCOMES, Outcome, count_column
from schemas.replay import FINDINGS, SESSIONS, VERDICTS, Verdict
from schemas.table import Table
from udfs.derive.report.summary import Counts, Told

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


def ingest_summary(warehouse: Warehouse) -> dict[str, Any]:
    """Returns the place of the tables, captures by status, packets by type, quarantine by reason, and the books."""
    counts = _counts(warehouse, _INGESTED)
    return {"tables": warehouse.place} | counts | {"books": books(counts)}


def decode_summary(warehouse: Warehouse) -> dict[str, Any]:
    """Returns counts of messages, acks and packets that the reference decoded; quarantine by reason, and the books."""
    return decoded(_counts(warehouse, _DECODED))


def replay_summary(warehouse: Warehouse, names: Names | None = None) -> dict[str, Any]:
    """Returns verdicts, findings by kind, incidents by outcome, what became of the messages, and the books."""
    counts = _counts(warehouse, (*_REPLAYED, (BOOKS, "balanced")))
    replayed = {table.name: counts[table.name] for table, _ in _REPLAYED}
    return replayed | outcome_summary(warehouse, names) | {"books": books(counts)}


def summary(warehouse: Warehouse, names: Names | None = None) -> dict[str, Any]:
    """Returns all of these."""
    counts = _counts(warehouse, _CAPTURES + _DECODED + _REPLAYED)
    replayed = {table.name: counts[table.name] for table, _ in _REPLAYED}
    found = {"tables": warehouse.place, "captures": counts["captures"]} | decoded(counts) | replayed
    return found | outcome_summary(warehouse, names)


def outcome_summary(warehouse: Warehouse, names: Names | None = None) -> dict[str, Any]:
    """Returns what became of the messages, as `found.outcomes_told` puts it."""
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
    sums = sessions.crossJoin(worst).collect()[0].asDict()
    lost_by = [
        {"lost": -negative, "source_queue_manager": source, "destination_queue": queue}
        for negative, source, queue in sums.pop("lost_by")
    ]
    if sums["not_told"]:
        return outcomes_told(Told(sums, lost_by, {"stuck": 0}, [], []), names or Names())
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
    told = Told(
        sums,
        lost_by,
        at[0].asDict(),
        [row.asDict() for row in kinds],
        [row.asDict(recursive=True) for row in incidents],
    )
    return outcomes_told(told, names or Names())


def with_muted(summary: dict[str, Any], warehouse: Warehouse, muted: Sequence[Muted]) -> dict[str, Any]:
    """Returns the summary with the findings by kind and by severity that are `muted`; as it is where nothing is."""
    if not muted:
        return summary
    known = is_muted([(one.kind, one.queue) for one in muted])
    rows = warehouse.read(FINDINGS).where(known).groupBy("kind", "severity").count().collect()
    return summary | {"muted": muted_counts(row.asDict() for row in rows)}


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
