"""Finds what stays as the last replay left it: the rows of senders of whose verdicts no source has changed."""

from collections.abc import Iterable, Mapping
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame

from jobs.app.logs import progress
from jobs.app.parallel import run_in_parallel
from jobs.replaying.flow import Kept
from jobs.replaying.inputs import Inputs
from jobs.transforms.changes import SENDER, Traffic, changed_senders
from jobs.warehouse.checkpoint import materialize
from jobs.warehouse.provenance import as_left, sources_read
from jobs.warehouse.store import Warehouse, conform, differing_rows
from schemas.ingest import QUARANTINE, STREAM_GAPS, STREAMS
from schemas.messages import ACKS, MESSAGES
from schemas.replay import ENDS, TRANSACTIONS, VERDICTS
from schemas.table import Table

_LEFT = (ENDS, VERDICTS, TRANSACTIONS)
_COMPARED = {
    STREAMS: ("stream_id", "closed", "acked_bytes"),
    STREAM_GAPS: STREAM_GAPS.names,
    QUARANTINE: ("stream_id", "stream_offset", "length", "stage"),
    ACKS: ACKS.names,
}
"""Columns that verdicts depend on, beside MESSAGES and ENDS: these have what counts of HANDSHAKES and other columns."""


def find_kept(warehouse: Warehouse, options: Mapping[str, Any], inputs: Inputs[DataFrame]) -> Kept[DataFrame]:
    """Returns what stays with these inputs, if the last replay had the same options."""
    read = sources_read(warehouse, "replay", _LEFT, **options)
    left = as_left(warehouse, "replay", _LEFT) if read else []
    new = _changed_streams(warehouse, read, inputs.every_end, left[0]) if left else None
    if new is None:
        return Kept()
    ends_before, verdicts, transactions = left
    traffic = Traffic(
        inputs.every_end.select(ENDS.names).unionByName(ends_before.select(ENDS.names)),
        _now_and_before(warehouse, MESSAGES, read, "stream_id", SENDER),
        _now_and_before(warehouse, ACKS, read, "stream_id", "source_guid", "queue_manager_address"),
        materialize(
            _union(rows.select("session_id", SENDER) for rows in (inputs.flows, inputs.legs, verdicts)).distinct()
        ),
    )
    changed = materialize(changed_senders(new, traffic))
    same = materialize(verdicts.select(SENDER).distinct().join(changed, SENDER, "left_anti"))
    progress(f"replay: {same.count()} senders keep their verdicts, {changed.count()} have something new")
    return Kept(same, *(rows.join(same, SENDER, "left_semi") for rows in (verdicts, transactions)))


def _changed_streams(
    warehouse: Warehouse, read: Mapping[str, int], ends: DataFrame, ends_before: DataFrame
) -> DataFrame | None:
    """Returns `stream_id` of the streams of which a row came, went or changed; None where that is not known."""
    messages = warehouse.changes(MESSAGES, read[MESSAGES.name])
    if messages is None:
        return None
    parts = [messages.came, differing_rows(conform(ends, ENDS), conform(ends_before, ENDS))]
    parts += [] if messages.went is None else [messages.went]
    for rows in run_in_parallel(
        partial(warehouse.compare, table, read[table.name], columns) for table, columns in _COMPARED.items()
    ):
        if rows is None:
            return None
        parts.append(rows)
    return materialize(_union(rows.select("stream_id") for rows in parts).distinct())


def _now_and_before(warehouse: Warehouse, table: Table, read: Mapping[str, int], *columns: str) -> DataFrame:
    """Returns these columns of the table's rows as they are now, and as the last replay read them."""
    now, before = (rows.select(*columns) for rows in (warehouse.read(table), warehouse.read(table, read[table.name])))
    return now.unionByName(before)


def _union(parts: Iterable[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, parts)
