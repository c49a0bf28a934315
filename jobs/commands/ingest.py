"""Reads new captures into captures, streams, stream_gaps, packets, quarantine and books.

A capture is known by its content: one that is in the table `captures` is not read again. Its row there is written last.
The next run rolls back what a killed run wrote (`jobs.tables.publish_lock`) and starts over.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import polars as pl
from pyspark.sql import SparkSession

from jobs.cli.capture_listing import AS_INGESTED, Stamp, capture_files, changed_files, files_if_any, stamps
from jobs.cli.code_version import VERSION
from jobs.cli.command import Summary
from jobs.cli.config import Config
from jobs.cli.errors import ChangedError, JobError
from jobs.cli.logs import progress, warn
from jobs.commands import increments, reconcile
from jobs.commands.summary import ingest_summary
from jobs.engines.on_spark import OnSpark, engine_of
from jobs.engines.processes import Processes
from jobs.tables.own_tables import require_own
from jobs.tables.places import open_warehouse
from jobs.tables.warehouse import Warehouse
from schemas.ingest import BOOKS, CAPTURES
from schemas.tables import KEPT
from udfs.frames.engine import Row
from udfs.frames.parallel import run_in_parallel
from udfs.ingest import flow
from udfs.ingest.captures import rank
from udfs.replay.words import one_or_many

AS_READ = ("capture_id", "ports", "overlap", "read_by")
"""Columns of `captures` that say how a capture was read."""
_ATTEMPTS = 5


def run(spark: SparkSession, config: Config) -> Summary:
    """Reads new captures, and others again if that is asked for; returns the summary."""
    files = files_to_read(config)
    warehouse = open_warehouse(spark, config)
    require_own(warehouse, upgrades=True)
    with increments.hold(warehouse, config, stamps(files)) as (locked, lock):
        step(locked, config, files)
        lock.end_step()
        held = increments.with_few_messages(locked, config)
        reconcile.step(held, reconcile.INGESTED)
        return ingest_summary(engine_of(held), held.place)


def files_to_read(config: Config) -> list[str]:
    """Returns the files that --captures and --again name."""
    return capture_files((*config.captures, *config.again))


def step(warehouse: Warehouse, config: Config, files: Sequence[str]) -> int:
    """Reads the captures that are new; returns how many.

    Raises:
        JobError: files changed in every attempt, or another version made the tables.
    """
    new, at = find_new(warehouse, config, files), None
    with new.processes or nullcontext():
        for increment in new.increments:
            at = take_in(warehouse, config, new, increment, at)
    return sum(map(len, new.increments))


class New(NamedTuple):
    """Holds what is new among files."""

    files: Mapping[str, Stamp]
    """Size and time of all of them."""
    fits: bool
    """Whether the new captures fit in the memory of this process, all at once or one increment after another."""
    increments: Sequence[Sequence[Row]]
    """Rows of the captures that are new, in the order of their times: each part fits in memory, if it can."""
    processes: Processes | None
    """Other processes of this machine that read them, too, and that run until they are told to end."""


def find_new(warehouse: Warehouse, config: Config, files: Sequence[str]) -> New:
    """Creates tables that are not there, and finds the captures whose content `captures` lacks, or to read again."""
    run_in_parallel(partial(warehouse.create, table, derived=table is BOOKS) for table in (*KEPT, BOOKS))
    found = stamps(files)
    known = OnSpark(warehouse)
    ingested = known.collect(rows=known.read(CAPTURES, *AS_INGESTED, *AS_READ))["rows"]
    again = files_if_any(config.again)
    changed = changed_files(ingested.to_dicts(), found, again)
    new = {file: found[file] for file in changed}
    fits = increments.fit(warehouse, config, new)
    processes = increments.processes(sum(stamp.size or 0 for stamp in new.values())) if fits else None
    engine = OnSpark(warehouse, fits, processes)
    captures = flow.find_new_captures(engine, changed, config.ingest, again)
    repeated = {row["capture_id"] for row in captures if row["again"]}
    for why in _read_otherwise(ingested.filter(~pl.col("capture_id").is_in(repeated)), config):
        warn(f"ingest: {why}")
    if not captures:
        progress("ingest: nothing new")
    return New(found, fits, increments.increments(warehouse, config, captures), processes)


def _read_otherwise(known: pl.DataFrame, config: Config) -> list[str]:
    """Returns a sentence for each option under which captures in the tables were read with another value.

    `known` has the columns AS_READ. Of captures that a release before 1.0 read, no value is known.
    """
    counted = {
        "--ports": known["ports"].list.sort().cast(pl.List(pl.String)).list.join(","),
        "--overlap": known["overlap"],
        "release": known["read_by"],
    }
    now = {"--ports": ",".join(map(str, sorted(config.ports))), "--overlap": config.overlap, "release": VERSION}
    return [
        f"{one_or_many(many, '1 capture was', f'{many:,} captures were')} read with {name} {value}, this run has "
        f"{now[name]}: nightly --again FILE reads captures again that are still there."
        for name, values in counted.items()
        for value, many in values.drop_nulls().value_counts(sort=True).iter_rows()
        if value != now[name]
    ]


def take_in(
    warehouse: Warehouse,
    config: Config,
    new: New,
    captures: Sequence[Row],
    ingested_ns: int | None = None,
) -> int | None:
    """Reads some of the `new` captures into the tables, and starts over without those whose file changed meanwhile.

    Returns when the run wrote its first captures: `ingested_ns`, if it has written some before.

    Raises:
        JobError: files changed in every attempt.
    """
    for _ in range(_ATTEMPTS):
        if not captures:
            return ingested_ns
        size = sum(row["content_bytes"] for row in captures)
        repeated = sum(row["again"] for row in captures)
        also = f", {repeated} of them read before" if repeated else ""
        progress(f"ingest: {len(captures)} new captures{also}, {size / 1e6:.1f} MB")
        read = [row["uri"] for row in captures]
        fits = 0 < increments.limit(warehouse, config) >= size
        engine = OnSpark(warehouse, fits, new.processes)
        try:
            unchanged = partial(_require_unchanged, new.files, read)
            return flow.ingest(engine, rank(captures), config.ingest, unchanged, ingested_ns)
        except flow.LateError as error:
            raise JobError(str(error)) from error
        except ChangedError as error:
            warn(f"ingest: {error}")
            captures = [row for row in captures if row["uri"] not in error.files]
    raise JobError(f"ingest was begun {_ATTEMPTS} times, and files changed each time: run it again.")


def _require_unchanged(files: Mapping[str, Stamp], read: Sequence[str]) -> None:
    changed = {file for file, stamp in stamps(read).items() if stamp != files[file]}
    if changed:
        raise ChangedError(changed)
