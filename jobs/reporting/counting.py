"""Counts the rows of tables by the values of a column, and takes the sums of a summary, the same on each engine."""

from collections.abc import Mapping, Sequence

import polars as pl

from jobs.engine.engine import Engine, T
from jobs.reporting.few import Few, frames
from schemas.outcomes import OUTCOMES
from schemas.table import Table
from udfs.derive.frames import ONE, to_frame
from udfs.derive.report.findings import is_muted
from udfs.derive.report.of_session import queue_sums
from udfs.derive.report.rows import count
from udfs.derive.report.summary import Counts, Told, counted, counts, told


def count_rows(
    engine: Engine[T], columns: Sequence[tuple[Table, str]], known: Mapping[Table, pl.DataFrame] | None = None
) -> Counts:
    """Counts the rows of each table by the values of one column; `decoded_alone` is counted over all that have it.

    `known` are sums that were taken before: `count` per value.
    """
    known = known or {}
    missing = [(table, column) for table, column in columns if table not in known]
    sums = {f"{table.name} {column}": engine.sum_up(engine.read(table), [column]) for table, column in missing}
    found = frames(engine.bring(**sums)) | {
        f"{table.name} {name}": known[table] for table, name in columns if table in known
    }
    named = {pair: pair[1] if pair[1] == "decoded_alone" else pair[0].name for pair in columns}
    parts = (counted(found[f"{table.name} {column}"], name, column) for (table, column), name in named.items())
    return counts(named.values(), parts)


def tell(engine: Engine[T], few: Few, queues: pl.DataFrame | None) -> Told:
    """Returns what a summary says; `queues` are the `harm_by_queue` of all outcomes, if they are known."""
    if queues is None:
        queues = to_frame(engine.gather(queue_sums(), outcomes=engine.read(OUTCOMES))[ONE])
    return told(few["sessions"], queues, few["findings"], few["incidents"])


def count_muted(findings: pl.DataFrame, known: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Returns how many findings are of these kinds and queues, by kind and by severity."""
    muted = findings.filter(is_muted(known))
    found = (muted.group_by(name).agg(count().alias("count")) for name in ("kind", "severity"))
    return {value: many for rows in found for value, many in rows.iter_rows()}
