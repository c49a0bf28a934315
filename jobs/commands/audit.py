"""Judges all messages once more, and puts right what the nights have left wrong.

A night judges what is new or open, and keeps the other rows (`udfs.replay.settled`). Its tables are those of a replay
of everything, unless that decision has an error. Nothing else would find this before the next version judges all.
"""

import polars as pl

from jobs.cli import code_version
from jobs.cli.command import Summary
from jobs.cli.config import Config
from jobs.cli.logs import progress, warn
from jobs.commands import increments
from jobs.commands.replay import Replayed, recorded_options, replay_here, write_here
from jobs.tables.provenance import derive, sources_read
from jobs.tables.warehouse import Warehouse
from schemas.replay import VERDICTS
from schemas.tables import REPLAYED
from udfs.frames.columns import only_in_each
from udfs.frames.derivation import Frames
from udfs.replay.fitness.flow import FILLED
from udfs.replay.order.sources import SOURCES


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
        if not found:
            progress(f"maintain: {judged:,} messages are judged again: the tables of the replay are right")
            return
        write_here(warehouse, made)
        tables = (f"{name} ({gone.height:,} gone, {new.height:,} new)" for name, (gone, new) in found.items())
        warn(
            f"maintain: a replay of all messages makes other rows, which replace those of {', '.join(tables)}. "
            f"Please report this line: it is a bug of msmq-replay {code_version.VERSION}."
        )

    derive(warehouse, "replay", (*REPLAYED, *FILLED), SOURCES, write, always=True, **recorded_options(config))
    return summary


def differences(there: Frames, made: Replayed) -> dict[str, tuple[pl.DataFrame, pl.DataFrame]]:
    """Returns the rows that only the tables have, and those that only the replay made; by name, where there are any."""
    tables = {name: _compared(rows, made.engine.tables[name]) for name, rows in there.items()}
    tables |= {table.name: (rows, rows) for table, rows in made.filled.items()}
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
    if not increments.can_judge_all(warehouse):
        return "there are more packets than in_memory_messages, or than there is memory for"
    read = sources_read(warehouse, "replay", REPLAYED, **recorded_options(config))
    if not read or warehouse.versions(SOURCES) != read:
        return "the tables are not what a replay with this version and these options made of all that was decoded"
    return ""
