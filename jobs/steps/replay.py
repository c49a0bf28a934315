"""Replays `messages` into `verdicts`, and derives the other tables of the replay from them.

The work is in `jobs.replaying.flow`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from jobs.app import code_version
from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.errors import UsageError
from jobs.app.logs import progress
from jobs.app.names import Names
from jobs.app.parallel import run_in_parallel
from jobs.engine.in_process import InProcess
from jobs.engine.on_spark import OnSpark, engine_of
from jobs.replaying.conversations import unite
from jobs.replaying.flow import BY_SEQUENCE, Options, replay
from jobs.replaying.settled import LastReplay
from jobs.replaying.sources import SOURCES, read_sources
from jobs.replaying.windows import accept_in_memory, with_states
from jobs.steps import in_memory, reconcile
from jobs.steps.summary import replay_summary, with_names
from jobs.warehouse import publish_lock
from jobs.warehouse.catalog import create_history
from jobs.warehouse.provenance import derive
from jobs.warehouse.spark_rows import collect
from jobs.warehouse.store import Warehouse
from schemas.ingest import STREAMS
from schemas.messages import MESSAGES
from schemas.replay import ENDS, STATES, Reading, Scope
from schemas.table import Table
from schemas.tables import REPLAYED


def run(spark: SparkSession, config: Config) -> Summary:
    """Replays all sessions; returns the summary."""
    warehouse = Warehouse.of(spark, config)
    warehouse.require(MESSAGES, "decode")
    with in_memory.hold(warehouse, config) as (locked, _):
        held = in_memory.with_few_messages(locked, config)
        step(held, config)
        reconcile.step(held)
        names = Names.read(config.names_file)
        return with_names(replay_summary(engine_of(held), names), names)


def step(warehouse: Warehouse, config: Config) -> bool:
    """Replays all sessions, unless that was done for these versions and options; returns whether it was still to do."""
    warehouse.require(MESSAGES, "decode")
    resumed = previous_version(warehouse, config)
    recorded = recorded_options(config, resumed)

    def write(read: Mapping[str, int]) -> None:
        if warehouse.local is None:
            _replay_on_spark(warehouse, config)
        else:
            last = LastInWarehouse(warehouse, read) if read and not resumed else None
            write_here(warehouse, replay_here(warehouse, config, last))

    derived = derive(warehouse, "replay", (*REPLAYED, STREAMS), SOURCES, write, **recorded)
    if not derived:
        progress("replay: nothing new")
    if warehouse.catalog_schema:
        create_history(warehouse)
    return derived


def recorded_options(config: Config, resumed: Sequence[Any]) -> dict[str, Any]:
    """Returns what the lock records of a replay beside versions; `resumed` says where an earlier warehouse ended."""
    recorded = {"reading": config.reading, "scope": config.scope, "continue_from": resumed}
    return recorded | {"code": code_version.results_hash()}


class LastInWarehouse(NamedTuple):
    """Implements `LastReplay`: what the last replay left in a warehouse, and what has changed since."""

    warehouse: Warehouse
    read_versions: Mapping[str, int]
    """Versions of the sources that it read."""

    def read(self, table: Table, *columns: str) -> pl.DataFrame:
        """Returns the rows that it left."""
        return self.warehouse.read_local(table, *columns)

    def changes(self, table: Table, *columns: str) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """Returns the rows of a source that came since, and those that went; None where nothing tells."""
        return self.warehouse.differences(table, self.read_versions[table.name], columns)


class Replayed(NamedTuple):
    """Holds what a replay in this process has made."""

    engine: InProcess
    """Holds the rows of the tables: all, or of those BY_SEQUENCE what was judged."""
    gone: pl.DataFrame | None
    """The sequences that were judged again; None where all were."""
    renamed: pl.DataFrame | None
    """Rows of STREAMS of which `copy_of` was not what it should be."""


def replay_here(warehouse: Warehouse, config: Config, last: LastReplay | None = None) -> Replayed:
    """Replays a warehouse that is held in memory, and writes nothing; without a `last` replay, all is judged."""
    engine = InProcess(load=warehouse.read_local)
    before = [None if rows is None else collect(rows) for rows in _previous_tables(warehouse, config)]
    sources = read_sources(engine, *before)
    united = unite(engine, sources)
    gone = replay(engine, sources, united, _options(config), last, accept_in_memory(warehouse.spark))
    return Replayed(engine, gone, united.renamed_copies(sources.streams))


def write_here(warehouse: Warehouse, made: Replayed) -> None:
    """Writes what a replay in this process has made."""
    gone = {table: made.gone if table in BY_SEQUENCE else None for table in REPLAYED}
    run_in_parallel(partial(warehouse.replace_rows, table, gone[table], made.engine.read(table)) for table in REPLAYED)
    if made.renamed is not None and made.renamed.height:
        warehouse.create(STREAMS)
        warehouse.replace_rows(STREAMS, made.renamed.select(STREAMS.key), made.renamed)


def _options(config: Config) -> Options:
    return Options(Reading(config.reading), Scope(config.scope))


def _replay_on_spark(warehouse: Warehouse, config: Config) -> None:
    """Replays a warehouse in tasks."""
    engine = OnSpark(warehouse)
    sources = read_sources(engine, *_previous_tables(warehouse, config))
    united = unite(engine, sources)
    replay(engine, sources, united, _options(config), accept=with_states)
    renamed = united.renamed_copies(sources.streams)
    if renamed is not None and engine.count(renamed := engine.keep(renamed)):
        warehouse.create(STREAMS)
        warehouse.merge(STREAMS, engine.there(renamed), update=True)


def _previous_tables(warehouse: Warehouse, config: Config) -> tuple[DataFrame | None, DataFrame | None]:
    """Reads the receivers' STATES and the streams' ENDS of the warehouse that this one continues, if it does."""
    previous = _previous_warehouse(warehouse, config)
    return (previous.read(STATES), previous.read(ENDS)) if previous else (None, None)


def previous_version(warehouse: Warehouse, config: Config) -> list[Any]:
    """Returns the place and the versions of these tables; an empty list where there is no previous warehouse.

    Raises:
        UsageError: the previous warehouse lacks the tables, as one of an older version does, or is this one.
    """
    previous = _previous_warehouse(warehouse, config)
    if not previous:
        return []
    publish_lock.require_whole(previous.folder, previous.catalog_schema)
    for table in (STATES, ENDS):
        previous.require(table, "replay", " there")
    return [previous.place, previous.versions([STATES, ENDS])]


def _previous_warehouse(warehouse: Warehouse, config: Config) -> Warehouse | None:
    """Returns the previous warehouse: a folder if this one is a folder, a schema if this one is a schema."""
    place = config.continue_from
    if not place:
        return None
    spark = warehouse.spark
    previous = Warehouse(spark, catalog_schema=place) if warehouse.catalog_schema else Warehouse(spark, place)
    if previous.place == warehouse.place:
        raise UsageError(f"A warehouse cannot continue itself: give --continue-from another place than {place}.")
    return previous
