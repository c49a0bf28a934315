"""Reports what was read, what is pending, who is writing, and what failed and why; needs no lock.

Where the tables are in a folder, it needs no Spark.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from pyspark.sql import SparkSession

from jobs.cli import command
from jobs.cli.capture_listing import capture_files, most_messages
from jobs.cli.command import Summary
from jobs.cli.config import Config
from jobs.commands import decode, increments, reconcile
from jobs.commands.summary import ingest_summary
from jobs.engines.on_spark import engine_of
from jobs.tables import publish_lock
from jobs.tables.lock_state import Derived, LockState
from jobs.tables.memory import Memory
from jobs.tables.own_tables import require_own
from jobs.tables.places import needs_spark, open_warehouse
from jobs.tables.provenance import out_of_date
from jobs.tables.warehouse import Warehouse
from schemas.ingest import BOOKS, CAPTURES
from schemas.messages import DECODED_TABLES
from schemas.table import Table
from schemas.tables import NAMES, REPLAYED
from udfs.replay.order.sources import SOURCES
from udfs.report import naming

_DERIVED: dict[str, tuple[tuple[Table, ...], tuple[Table, ...]]] = {
    "decode": (DECODED_TABLES, decode.SOURCES),
    "books": ((BOOKS,), reconcile.REPLAYED),
    "replay": (REPLAYED, SOURCES),
    "names": (NAMES, naming.SOURCES),
}


def run(spark: SparkSession, config: Config) -> Summary:
    """Returns the state of the warehouse.

    With `--captures`, `pending` counts files whose name is in no row of `captures`.
    """
    warehouse = open_warehouse(spark, config)
    require_own(warehouse, reads=(BOOKS,), writes=False)
    warehouse.require(CAPTURES, "ingest")
    lock = publish_lock.read_state(warehouse)
    # Counting takes little memory, however many the rows are.
    memory = Memory(most_messages(config.in_memory_messages)) if not warehouse.needs_spark else None
    engine = engine_of(replace(warehouse, local=memory))
    with increments.reading(warehouse):
        captures = engine.collect(captures=engine.read(CAPTURES))["captures"]
        return ingest_summary(engine, warehouse.place) | {
            "first_captured_at": _text(captures["first_captured_at"].min()),
            "last_captured_at": _text(captures["last_captured_at"].max()),
            "last_ingested_at": _text(captures["ingested_at"].max()),
            "pending": _pending(warehouse, config, lock.derived if lock else {}, captures["uri"]),
            "runs": [] if lock is None or lock.is_released else [f"{lock.owner}: {_state(warehouse, lock, config)}"],
        }


def main(arguments: Sequence[str]) -> int:
    """Runs the command; starts Spark only where the tables need it."""
    return command.main_if_needed("status", run, needs_spark, arguments)


def _pending(warehouse: Warehouse, config: Config, derived: Derived, known: pl.Series) -> dict[str, Any]:
    """Returns why each step has something to do, and how many files have a name that is not in `captures`."""
    pending: dict[str, Any] = {}
    for step, (tables, sources) in _DERIVED.items():
        missing = [table.name for table in (*sources, *tables) if not warehouse.has(table)]
        stale = [] if missing else out_of_date(warehouse, derived, step, tables, sources)
        if missing:
            pending[step] = f"there is no table {', '.join(missing)}"
        elif stale:
            pending[step] = f"out of date: {', '.join(stale)}"
    if config.captures:
        pending["captures"] = len({*capture_files(config.captures)} - {*known})
    return pending


def _state(warehouse: Warehouse, lock: LockState, config: Config) -> str:
    if not publish_lock.is_dead(warehouse, lock):
        return lock.activity(config.claim_seconds)
    return f"did not finish ({lock.failure}); the next run, or repair, rolls back what it wrote"


def _text(time: Any) -> str | None:
    return None if time is None else f"{time:%Y-%m-%d %H:%M:%S}"
