"""Replays `messages` into `verdicts`, and derives the other tables of the replay from them.

The work is in `udfs.replay.flow`.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import polars as pl
from pyspark.sql import SparkSession

from jobs.cli import code_version
from jobs.cli.command import Summary
from jobs.cli.config import Config
from jobs.cli.logs import progress
from jobs.cli.names import Names
from jobs.cli.spark_session import FOR_NARROW_ROWS, session_settings
from jobs.commands import increments, naming, reconcile
from jobs.commands.record_run import Run, record
from jobs.commands.summary import replay_summary, with_names
from jobs.engines.in_process import InProcess
from jobs.engines.on_spark import OnSpark, engine_of, load
from jobs.engines.windows import add_states_in_memory, with_states
from jobs.tables.memory import Memory
from jobs.tables.own_tables import require_own
from jobs.tables.places import open_warehouse
from jobs.tables.provenance import derive
from jobs.tables.warehouse import Warehouse
from schemas.ingest import CAPTURES
from schemas.messages import MESSAGES
from schemas.replay import VERDICTS, Reading, Scope
from schemas.runs import RUNS
from schemas.table import Table
from schemas.tables import REPLAYED
from udfs.frames.columns import SEQUENCE
from udfs.frames.engine import Engine
from udfs.frames.parallel import run_in_parallel
from udfs.replay.fitness.flow import FILLED, filled_rows
from udfs.replay.fitness.gaps import OF_VERDICTS
from udfs.replay.flow import Options, replay
from udfs.replay.order.conversations import unite
from udfs.replay.order.sources import SOURCES, read_sources
from udfs.replay.settled.flow import LastReplay
from udfs.replay.settled.resume_points import TooManyToJudge


def run(spark: SparkSession, config: Config) -> Summary:
    """Replays all sessions; returns the summary."""
    began_at, names = datetime.now(UTC), Names.read(config.names_file)
    warehouse = open_warehouse(spark, config)
    require_own(warehouse, reads=SOURCES)
    warehouse.require(MESSAGES, "decode")
    with increments.hold(warehouse, config) as (locked, lock):
        held = increments.with_few_messages(locked, config)
        step(held, config)
        reconcile.step(held)
        naming.step(held, names)
        engine = engine_of(held)
        found = with_names(replay_summary(engine, names), names)
        held.create(RUNS)
        record(held, config, Run(lock.run, "replay", began_at), found | _counts(engine), 0)
        return found


def _counts(engine: Engine[Any]) -> Summary:
    return {"captures": {"read": engine.count(engine.read(CAPTURES))}, "messages": engine.count(engine.read(MESSAGES))}


def step(warehouse: Warehouse, config: Config) -> bool:
    """Replays all sessions, unless that was done for these versions and options; returns whether it was still to do."""
    warehouse.require(MESSAGES, "decode")

    def write(read: Mapping[str, int]) -> None:
        if warehouse.local is None or not _replay_in_memory(warehouse, warehouse.local, config, read):
            with session_settings(warehouse.spark, FOR_NARROW_ROWS):
                _replay_on_spark(replace(warehouse, local=None), config)

    derived = derive(warehouse, "replay", (*REPLAYED, *FILLED), SOURCES, write, **recorded_options(config))
    if not derived:
        progress("replay: nothing new")
    return derived


def recorded_options(config: Config) -> dict[str, Any]:
    """Returns what the lock records of a replay beside versions."""
    return {"reading": config.reading, "scope": config.scope, "code": code_version.results_hash()}


class LastInWarehouse(NamedTuple):
    """Implements `LastReplay`: what the last replay left in a warehouse, and what has changed since."""

    warehouse: Warehouse
    read_versions: Mapping[str, int]
    """Versions of the sources that it read."""

    def read(self, table: Table, *columns: str) -> pl.DataFrame | pl.LazyFrame:
        """Returns the rows that it left."""
        return load(self.warehouse, table, *columns)

    def changes(self, table: Table, *columns: str) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """Returns the rows of a source that came since, and those that went; None where nothing tells."""
        return self.warehouse.differences(table, self.read_versions[table.name], columns)


def _replay_in_memory(warehouse: Warehouse, memory: Memory, config: Config, read: Mapping[str, int]) -> bool:
    """Replays in this process, unless more messages are to be judged than it has the memory for; returns whether."""
    if not (read or increments.can_judge_all(warehouse)):
        return False
    try:
        write_here(warehouse, replay_here(warehouse, config, LastInWarehouse(warehouse, read) if read else None))
    except TooManyToJudge as why:
        progress(f"replay: {why}: Spark's tasks judge all")
        memory.tables.clear()  # the tasks write other rows
        return False
    return True


class Replayed(NamedTuple):
    """Holds what a replay in this process has made."""

    engine: InProcess
    """Holds the rows of the tables: all, or of some only those of the sequences that are `gone`."""
    gone: Mapping[Table, pl.DataFrame]
    """By table, the sequences whose earlier rows go; a table that is not there is replaced whole."""
    filled: Mapping[Table, pl.DataFrame]
    """What `filled_rows` returns."""


def replay_here(warehouse: Warehouse, config: Config, last: LastReplay | None = None) -> Replayed:
    """Replays a warehouse that is held in memory, and writes nothing; without a `last` replay, all is judged."""
    engine = InProcess(load=partial(load, warehouse))
    united = unite(engine, read_sources(engine))
    most = None if warehouse.local is None else warehouse.local.most_to_judge
    gone = replay(united, _options(config), last, add_states_in_memory(warehouse.spark), most)
    return Replayed(engine, gone, filled_rows(united, _settled_verdicts(engine, gone.get(VERDICTS), last)))


def _settled_verdicts(engine: InProcess, gone: pl.DataFrame | None, last: LastReplay | None) -> Any:
    """Returns the verdicts of the last replay that stay, as `filled_rows` takes them; None where all were judged."""
    if last is None or gone is None:
        return None
    verdicts = last.read(VERDICTS, *dict.fromkeys((*OF_VERDICTS, *SEQUENCE)))
    return engine.select(engine.join(verdicts, gone, SEQUENCE, "anti"), *OF_VERDICTS)


def write_here(warehouse: Warehouse, made: Replayed) -> None:
    """Writes what a replay in this process has made."""
    run_in_parallel(
        partial(warehouse.replace_rows, table, made.gone.get(table), made.engine.read(table)) for table in REPLAYED
    )
    for table, rows in made.filled.items():
        if rows.height:
            warehouse.create(table)
            warehouse.replace_rows(table, rows.select(table.key), rows)


def _options(config: Config) -> Options:
    return Options(Reading(config.reading), Scope(config.scope))


def _replay_on_spark(warehouse: Warehouse, config: Config) -> None:
    """Replays a warehouse in tasks."""
    engine = OnSpark(warehouse)
    united = unite(engine, read_sources(engine))
    replay(united, _options(config), add_states=with_states)
    for table, rows in filled_rows(united).items():
        if engine.count(kept := engine.keep(rows)):
            warehouse.create(table)
            warehouse.merge(table, engine.as_spark(kept), update=True)
