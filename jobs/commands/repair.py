"""Finishes what a killed run left: rolls back what it wrote, and derives again what is out of date.

A commit that a power failure lost or tore is set aside. If its rows were derived, they are derived again; if they were
read from captures, what was written since that run began is rolled back, and the next `nightly` reads these again.

Captures are not needed: no table has rows of a capture that was not finished, and the next `nightly` reads it. With
`--captures` it is read at once. A table of `decode` or `replay` that was dropped is derived again. With `--take-over`,
it does not wait until a run on another machine counts as dead.
"""

from datetime import UTC, datetime

from pyspark.sql import SparkSession

from jobs.cli.capture_listing import files_if_any, stamps
from jobs.cli.command import Summary
from jobs.cli.config import Config
from jobs.cli.names import Names
from jobs.commands import decode, increments, ingest, naming, reconcile, replay
from jobs.commands.record_run import Run, record
from jobs.commands.summary import summary
from jobs.engines.on_spark import engine_of
from jobs.tables.own_tables import require_own
from jobs.tables.places import open_warehouse
from schemas.ingest import CAPTURES, PACKETS
from schemas.tables import NAMES


def run(spark: SparkSession, config: Config) -> Summary:
    """Brings all tables up to date; returns what was rolled back and derived, and the counts of the tables."""
    began_at, warehouse = datetime.now(UTC), open_warehouse(spark, config)
    require_own(warehouse, upgrades=True, mends=True)
    warehouse.require(CAPTURES, "ingest")
    warehouse.require(PACKETS, "ingest")
    files = files_if_any(config.captures)
    with increments.hold(warehouse, config, stamps(files), mends=True, takes_over=config.take_over) as (locked, lock):
        many = ingest.step(locked, config, files)
        lock.end_step()
        derived = {"decode": decode.step(locked, config)}
        lock.end_step()
        held = increments.with_few_messages(locked, config)
        derived |= {"replay": replay.step(held, config), "books": reconcile.step(held)}
        if any(derived.values()) or config.names_file or not all(map(held.has, NAMES)):  # else names would be lost
            derived["names"] = naming.step(held, Names.read(config.names_file))
        again = [step for step, was_derived in derived.items() if was_derived]
        found = summary(engine_of(held), held.place)
        record(held, config, Run(lock.run, "repair", began_at), found, many)
        return {"undone": lock.rolled_back, "derived_again": again} | found
