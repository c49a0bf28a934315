"""Judges all messages once more, and puts right what the nights have left wrong.

A night judges what is new or open, and keeps the other rows (`udfs.derive.settled`). Its tables are those of a replay
of everything, unless that decision has an error. Nothing else would find this before the next version judges all.
"""

from collections.abc import Mapping, Sequence
from itertools import starmap

import polars as pl

from jobs.app import code_version
from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.logs import progress, warn
from jobs.replaying.sources import SOURCES
from jobs.steps.replay import Replayed, recorded_options, replay_here, write_here
from jobs.warehouse.provenance import derive, sources_read
from jobs.warehouse.store import Warehouse
from schemas.ingest import STREAMS
from schemas.replay import VERDICTS
from schemas.tables import REPLAYED
from udfs.derive.columns import SEQUENCE, only_in_each
from udfs.derive.frames import Frames

_NAMED = 3
"""Sequences that are named."""


def step(warehouse: Warehouse, config: Config) -> Summary:
    """Judges all messages, and writes the tables of the replay if a row differs; returns how many rows do, by table.

    Where it judges nothing it says why.

    Raises:
        ConflictError: something that does not take the publish lock wrote to a source meanwhile.
    """
    if why := _why_not(warehouse, config):
        progress(f"maintain: no message is judged again: {why}")
        return {"not_judged_again": why}
    summary: Summary = {}

    def write(_: object) -> None:
        made = replay_here(warehouse, config)
        there = {table.name: warehouse.read_local(table) for table in REPLAYED}
        found = differences(there, made)
        judged = made.engine.read(VERDICTS).height
        summary["judged_again"] = judged
        summary["rows_gone"], summary["rows_new"] = (
            {name: rows[which].height for name, rows in found.items()} for which in (0, 1)
        )
        if found:
            write_here(warehouse, made)
            _tell(found)
        else:
            progress(f"maintain: {judged:,} messages are judged again: the tables of the replay are right")

    derive(warehouse, "replay", (*REPLAYED, STREAMS), SOURCES, write, always=True, **recorded_options(config))
    return summary


def differences(there: Frames, made: Replayed) -> dict[str, tuple[pl.DataFrame, pl.DataFrame]]:
    """Returns the rows that only the tables have, and those that only the replay made; by name, where there are any."""
    tables = {name: _compared(rows, made.engine.tables[name]) for name, rows in there.items()}
    if made.renamed is not None:
        tables[STREAMS.name] = made.renamed, made.renamed
    return {name: rows for name, rows in tables.items() if any(only.height for only in rows)}


def _compared(there: pl.DataFrame, made: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the rows that only the first table has, and those that only the second has; order does not matter."""
    one, other = (
        rows.with_columns(row_hash=rows.hash_rows()).with_columns(copy=pl.int_range(pl.len()).over("row_hash"))
        for rows in (there, made)
    )
    return only_in_each(one, other, ("row_hash", "copy"))


def _why_not(warehouse: Warehouse, config: Config) -> str:
    """Returns why nothing can or need be judged again; an empty text if nothing speaks against it."""
    if not all(warehouse.has(table) for table in (*SOURCES, *REPLAYED)):
        return "nothing was replayed yet"
    read = sources_read(warehouse, "replay", REPLAYED, **recorded_options(config))
    if not read:
        return "the last replay was of another version or had other options, or its tables were changed since"
    if warehouse.versions(SOURCES) != read:
        return "the last replay has not read what came since"
    if warehouse.local is None:
        return "with more messages than in_memory_messages every replay judges all of them"
    return ""


def _tell(found: Mapping[str, tuple[pl.DataFrame, pl.DataFrame]]) -> None:
    """Warns of rows that were wrong, and names some of their sequences."""
    tables = ", ".join(f"{name} ({gone.height:,} gone, {new.height:,} new)" for name, (gone, new) in found.items())
    rows = [one.select(SEQUENCE) for both in found.values() for one in both if {*SEQUENCE} <= {*one.columns}]
    named = _first_sequences(rows)
    warn(
        f"maintain: a replay of all messages makes other rows, which replace those of {tables}."
        + (f" Sequences: {'; '.join(named)}." if named else "")
        + f" Please report this line: it is a bug of msmq-replay {code_version.VERSION}."
    )


def _first_sequences(rows: Sequence[pl.DataFrame]) -> list[str]:
    """Returns the names of the first sequences in these rows."""
    if not rows:
        return []
    found = pl.concat(rows).drop_nulls().unique().sort(SEQUENCE).head(_NAMED)
    return list(starmap("{1} of {0}".format, found.rows()))
