"""Reads new captures into captures, streams, stream_gaps, packets, quarantine, pings and books.

A capture is known by its content: one that is in the table `captures` is not read again. Its row there is written last.
The next run rolls back what a killed run wrote (`jobs.warehouse.publish_lock`) and starts over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from jobs.app.capture_listing import AS_INGESTED, Stamp, capture_files, changed_files, stamps
from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.errors import ChangedError, JobError, UsageError
from jobs.app.logs import progress, warn
from jobs.app.parallel import run_in_parallel
from jobs.app.spark_session import settings_for_size
from jobs.engine.engine import Engine, T
from jobs.engine.in_process import InProcess
from jobs.engine.of_warehouse import engine_of
from jobs.engine.on_spark import OnSpark
from jobs.ingestion import flow
from jobs.steps import in_memory, reconcile
from jobs.steps.summary import ingest_summary
from jobs.warehouse.store import Warehouse
from schemas.ingest import BOOKS, CAPTURES, INTERNAL_CONNECTIONS
from schemas.table import Table
from schemas.tables import INGESTED
from udfs.passes.options import IngestOptions

_OF_BEFORE = replace(INTERNAL_CONNECTIONS, name="connection_states")
_ATTEMPTS = 5


def run(spark: SparkSession, config: Config) -> Summary:
    """Reads new captures and returns the summary."""
    files = capture_files(config.captures)
    with in_memory.hold(Warehouse.of(spark, config), config, stamps(files)) as (held, lock):
        step(held, config, files)
        lock.end_step()
        reconcile.step(held, reconcile.INGESTED)
        return ingest_summary(engine_of(held), held.place)


def step(warehouse: Warehouse, config: Config, files: Sequence[str]) -> Mapping[str, Stamp]:
    """Reads the captures that are new, and starts over without the files that changed meanwhile.

    Returns the size and time of the files.

    Raises:
        JobError: files changed in every attempt. UsageError: the tables are too old to be continued.
    """
    if warehouse.has(_OF_BEFORE):
        raise UsageError(
            f"The tables in {warehouse.place} were made by a version of msmq-replay before 0.1.0, whose connections "
            "are in other tables. Ingest the captures into a new warehouse, or use that version."
        )
    with settings_for_size(warehouse.spark, 0):
        run_in_parallel(partial(warehouse.create, table, derived=table is BOOKS) for table in (*INGESTED, BOOKS))
    for _ in range(_ATTEMPTS):
        before = stamps(files)
        try:
            if files:
                _take_in(warehouse, before, config)
        except ChangedError as error:
            warn(f"ingest: {error}")
            files = [file for file in files if file not in error.files]
        else:
            return before
    raise JobError(f"ingest was begun {_ATTEMPTS} times, and files changed each time: run it again.")


def _take_in(warehouse: Warehouse, files: Mapping[str, Stamp], config: Config) -> None:
    """Ingests the captures that `captures` lacks.

    Raises:
        ChangedError: files changed since they were listed.
    """
    engine_there = engine_of(warehouse)
    changed = changed_files(engine_there.collect(engine_there.read(CAPTURES, *AS_INGESTED)), files)
    if warehouse.local is None:
        few = in_memory.are_few(warehouse, config, {file: files[file] for file in changed})
        _ingest(OnSpark(warehouse, few), warehouse, files, changed, config.ingest)
        return
    engine = InProcess(load=warehouse.read_local)
    _ingest(engine, warehouse, files, changed, config.ingest)
    run_in_parallel(partial(_write, warehouse, engine, table) for table in INGESTED if table is not CAPTURES)
    _write(warehouse, engine, CAPTURES)


def _write(warehouse: Warehouse, engine: InProcess, table: Table) -> None:
    """Writes what the engine changed of a table in memory."""
    if table.name not in engine.tables:
        return
    added = engine.added(table)
    if added is None:
        warehouse.replace_local(table, engine.read(table))
    else:
        warehouse.append_local(table, engine.read(table), added)


def _ingest(
    engine: Engine[T], warehouse: Warehouse, files: Mapping[str, Stamp], changed: Sequence[str], options: IngestOptions
) -> None:
    """Ingests those of the changed files whose content the engine's `captures` lacks."""
    with settings_for_size(warehouse.spark, 0):
        captures = flow.find_new_captures(engine, changed, options)
    if not captures:
        progress("ingest: nothing new")
        return
    size = sum(row["content_bytes"] for row in captures)
    progress(f"ingest: {len(captures)} new captures, {size / 1e6:.1f} MB")
    with settings_for_size(warehouse.spark, size):
        read = [row["uri"] for row in captures]
        flow.ingest(engine, captures, options, partial(_require_unchanged, files, read))


def _require_unchanged(files: Mapping[str, Stamp], read: list[str]) -> None:
    changed = {file for file, stamp in stamps(read).items() if stamp != files[file]}
    if changed:
        raise ChangedError(changed)
