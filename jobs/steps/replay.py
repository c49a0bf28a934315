"""Replays `messages` into `verdicts`, and derives the other tables of the replay from them.

The work is in `jobs.replaying.flow`. Senders keep their verdicts and transactions if nothing that these depend on has
changed (`jobs.steps.kept`).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from jobs.app import code_version
from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.logs import progress
from jobs.app.muted import read_muted
from jobs.app.names import Names
from jobs.app.parallel import run_in_parallel
from jobs.engine.in_process import InProcess
from jobs.engine.on_spark import OnSpark
from jobs.replaying.flow import Options, replay
from jobs.replaying.in_process import OnceInProcess
from jobs.replaying.sources import Sources
from jobs.replaying.windows import accept_in_memory, accept_on_spark
from jobs.steps import in_memory, previous_warehouse, reconcile
from jobs.steps.found import with_names
from jobs.steps.kept import find_kept
from jobs.steps.summary import replay_summary, with_muted
from jobs.warehouse.catalog import create_history
from jobs.warehouse.local_tables import LocalTable
from jobs.warehouse.provenance import derive
from jobs.warehouse.store import Warehouse
from schemas.ingest import CAPTURES, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES, SESSION_ACKS
from schemas.pings import PINGS
from schemas.replay import ENDS, STATES, Reading, Scope
from schemas.tables import REPLAYED

SOURCES = (MESSAGES, STREAMS, STREAM_GAPS, QUARANTINE, ACKS, HANDSHAKES, CAPTURES, PACKETS, SESSION_ACKS, PINGS)


def run(spark: SparkSession, config: Config) -> Summary:
    """Replays all sessions; returns the summary."""
    warehouse = Warehouse.of(spark, config)
    warehouse.require(MESSAGES, "decode")
    with in_memory.hold(warehouse, config) as (held, _):
        step(held, config)
        reconcile.step(held)
        names = Names.read(config.names_file)
        found = with_names(replay_summary(held, names), names)
        return with_muted(found, held, read_muted(config.muted_file))


def step(warehouse: Warehouse, config: Config) -> bool:
    """Replays all sessions, unless that was done for these versions and options; returns whether it was still to do."""
    warehouse.require(MESSAGES, "decode")
    resumed = previous_warehouse.version(warehouse.spark, config)
    recorded = {"reading": config.reading, "scope": config.scope, "continue_from": resumed}
    recorded["code"] = code_version.results_hash()
    options = Options(Reading(config.reading), Scope(config.scope))
    write = partial(_replay_here if warehouse.local else _replay_on_spark, warehouse, config, options, recorded)
    derived = derive(warehouse, "replay", (*REPLAYED, STREAMS), SOURCES, write, **recorded)
    if not derived:
        progress("replay: nothing new")
    if warehouse.catalog_schema:
        create_history(warehouse)
    return derived


def _replay_here(warehouse: Warehouse, config: Config, options: Options, _: Mapping[str, Any]) -> None:
    """Replays a warehouse that is held in memory. Judging all is cheaper than finding out who keeps what."""
    engine = InProcess(load=warehouse.read_local)
    states, ends = previous_warehouse.tables(warehouse.spark, config)
    sources = Sources(
        *map(engine.read, SOURCES),
        states_before=STATES.arrow.empty_table() if states is None else LocalTable.collect(states).arrow,
        ends_before=ENDS.arrow.empty_table() if ends is None else LocalTable.collect(ends).arrow,
    )
    once = OnceInProcess.of(sources)
    replay(engine, sources, once, accept_in_memory(warehouse.spark, options.reading), options)
    run_in_parallel(partial(warehouse.replace_local, table, engine.read(table)) for table in REPLAYED)
    _name_copies(warehouse, LocalTable(warehouse.spark, once.renamed_copies(sources.streams), STREAMS.spark).rows)


def _replay_on_spark(warehouse: Warehouse, config: Config, options: Options, recorded: Mapping[str, Any]) -> None:
    """Replays a warehouse in tasks."""
    engine = OnSpark(warehouse)
    states, ends = previous_warehouse.tables(warehouse.spark, config)
    sources = Sources(
        *map(engine.read, SOURCES),
        states_before=engine.table([], STATES.arrow) if states is None else states,
        ends_before=engine.table([], ENDS.arrow) if ends is None else ends,
    )
    once = unite(engine, sources)
    # Where conversations are united or clocks corrected, a message may move although its row has not changed.
    keep = {} if once.may_move else {"find_kept": partial(find_kept, warehouse, recorded)}
    replay(engine, sources, once, accept_on_spark(engine, options.reading), options, **keep)
    _name_copies(warehouse, once.renamed_copies(sources.streams))


def _name_copies(warehouse: Warehouse, changed: DataFrame) -> None:
    """Writes `copy_of` of STREAMS, where it is not as it was found."""
    if not (changed := warehouse.materialize(changed)).isEmpty():
        warehouse.create(STREAMS)
        warehouse.merge(STREAMS, changed, update=True)
