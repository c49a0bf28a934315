"""Reads new captures into captures, streams, stream_gaps, packets, quarantine and books.

A capture is known by its content: one that is in the table `captures` is not read again. Its row there is written last.
The next run rolls back what a killed run wrote (`jobs.warehouse.publish_lock`) and starts over.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql import SparkSession

from jobs.app.capture_listing import AS_INGESTED, Stamp, capture_files, changed_files, stamps
from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.errors import ChangedError, JobError
from jobs.app.logs import progress, warn
from jobs.app.parallel import run_in_parallel
from jobs.engine.on_spark import OnSpark, engine_of
from jobs.ingestion import flow
from jobs.steps import in_memory, reconcile
from jobs.steps.summary import ingest_summary
from jobs.warehouse.own_tables import require_own
from jobs.warehouse.store import Warehouse
from schemas.ingest import BOOKS, CAPTURES
from schemas.tables import INGESTED

_ATTEMPTS = 5


def run(spark: SparkSession, config: Config) -> Summary:
    """Reads new captures and returns the summary."""
    files = capture_files(config.captures)
    warehouse = Warehouse.of(spark, config)
    require_own(warehouse)
    with in_memory.hold(warehouse, config, stamps(files)) as (locked, lock):
        step(locked, config, files)
        lock.end_step()
        held = in_memory.with_few_messages(locked, config)
        reconcile.step(held, reconcile.INGESTED)
        return ingest_summary(engine_of(held), held.place)


def step(warehouse: Warehouse, config: Config, files: Sequence[str]) -> Mapping[str, Stamp]:
    """Reads the captures that are new, and starts over without the files that changed meanwhile.

    Returns the size and time of the files.

    Raises:
        JobError: files changed in every attempt, or another version made the tables.
    """
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
    """Ingests the captures whose content `captures` lacks.

    Raises:
        ChangedError: files changed since they were listed.
    """
    known = OnSpark(warehouse)
    ingested = known.bring(rows=known.read(CAPTURES, *AS_INGESTED))["rows"]
    changed = changed_files(ingested.to_dicts(), files)
    few = in_memory.are_few(config, {file: files[file] for file in changed})
    engine = OnSpark(warehouse, few)
    captures = flow.find_new_captures(engine, changed, config.ingest)
    if not captures:
        progress("ingest: nothing new")
        return
    size = sum(row["content_bytes"] for row in captures)
    progress(f"ingest: {len(captures)} new captures, {size / 1e6:.1f} MB")
    read = [row["uri"] for row in captures]
    flow.ingest(engine, captures, config.ingest, partial(_require_unchanged, files, read))


def _require_unchanged(files: Mapping[str, Stamp], read: list[str]) -> None:
    changed = {file for file, stamp in stamps(read).items() if stamp != files[file]}
    if changed:
        raise ChangedError(changed)
