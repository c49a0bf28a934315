"""Captures into captures, streams, stream_gaps, packets, quarantine, pings and books.

A capture is known by its content: what is in the table `captures` is not read again. That row is written last, so a run
that was killed is simply done again; what it left is undone first (`jobs.warehouse.publish_lock`). When a new
capture holds more of a
connection that earlier ones hold too, the connection is put together anew from all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.capture_listing import Stamp, capture_files, stamps
from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.errors import ChangedError, ConflictError, JobError
from jobs.app.logs import progress
from jobs.app.parallel import run_in_parallel
from jobs.app.spark_session import codegen_for_size
from jobs.steps import reconcile
from jobs.steps.summary import ingest_summary
from jobs.transforms.ingest import resume, table_rows
from jobs.warehouse import publish_lock
from jobs.warehouse.checkpoint import broadcast_if_small, checkpoint
from jobs.warehouse.store import Warehouse
from schemas.ingest import (
    BOOKS,
    CAPTURES,
    CONNECTION_CAPTURES,
    CONNECTION_STATES,
    PACKETS,
    QUARANTINE,
    STREAM_GAPS,
    STREAMS,
)
from schemas.pings import PINGS
from schemas.staging import SEGMENTS
from schemas.table import Table
from udfs import on_spark
from udfs.passes.options import CaptureFile, IngestOptions

_TABLES = (CAPTURES, STREAMS, STREAM_GAPS, CONNECTION_CAPTURES, CONNECTION_STATES, PACKETS, QUARANTINE, PINGS, BOOKS)
_OFTEN_NOTHING = (STREAM_GAPS, QUARANTINE, PINGS)
"""Tables that a night may have no rows for: asking costs less than a commit."""
_ATTEMPTS = 5


def run(spark: SparkSession, config: Config) -> Summary:
    """Read the captures that are new; returns the summary."""
    warehouse = Warehouse.of(spark, config)
    step(warehouse, config)
    reconcile.step(warehouse, reconcile.INGESTED)
    return ingest_summary(warehouse)


def step(warehouse: Warehouse, config: Config) -> Mapping[str, Stamp]:
    """Read the captures that are new; again from the start when another run published meanwhile.

    Returns the files that were looked at, as they were then.

    Raises:
        JobError: other runs were first every time.
    """
    files = capture_files(config.captures)
    with codegen_for_size(warehouse.spark, 0):
        run_in_parallel(partial(warehouse.create, table, derived=table is BOOKS) for table in _TABLES)
    progress(f"ingest: {len(files)} files to look at")
    for _ in range(_ATTEMPTS):
        version = publish_lock.settle(warehouse, config.claim_seconds)
        before = stamps(files)
        try:
            if files:
                _take_in(warehouse, before, config.ingest, version)
        except ChangedError as error:
            progress(f"ingest: {error}")
            files = [file for file in files if file not in error.files]
        except ConflictError as error:
            progress(f"ingest: {error} Looking again.")
        else:
            return before
    raise JobError(f"ingest was begun {_ATTEMPTS} times, and other runs were first each time: run it again.")


def _take_in(warehouse: Warehouse, files: Mapping[str, Stamp], options: IngestOptions, version: int) -> None:
    """Ingest what is new in the files since this version of `captures`.

    Raises:
        ChangedError: some of the files are no longer what they were when they were listed.
        ConflictError: another run published meanwhile.
    """
    with codegen_for_size(warehouse.spark, 0):
        index = _index(warehouse.spark, list(files), options)
        new = checkpoint(table_rows.ranked(table_rows.new_captures(index, warehouse.read(CAPTURES))))
        listed = _listed(new)
    if not listed:
        progress("ingest: nothing new")
        return
    size = sum(row["size_bytes"] for row in listed)
    progress(f"ingest: {len(listed)} new captures, {size / 1e6:.1f} MB")
    with codegen_for_size(warehouse.spark, size):
        found = _Found.of(new, listed, options)
        _require_unchanged(files, [row["uri"] for row in listed])
        assembled = _assemble(warehouse, found, options)
        with publish_lock.publishing(warehouse, version) as publishing:
            _publish(warehouse, found, assembled, publishing)


def _require_unchanged(files: Mapping[str, Stamp], read: list[str]) -> None:
    changed = {file for file, stamp in stamps(read).items() if stamp != files[file]}
    if changed:
        raise ChangedError(changed)


@dataclass(frozen=True, slots=True)
class _Found:
    """What captures hold, which connections, and where the captures lie, by rank."""

    captures: DataFrame
    files: dict[int, CaptureFile]
    extracted: DataFrame
    fragments: DataFrame | None
    now: DataFrame

    @classmethod
    def of(cls, captures: DataFrame, listed: list[Row], options: IngestOptions, only: DataFrame | None = None) -> Self:
        """Read the ranked captures, of each all connections or `only` some."""
        splits = table_rows.splits(captures, only).repartition(on_spark.tasks(sum(row["splits"] for row in listed)))
        extracted = checkpoint(on_spark.extract(splits, options))
        cut = extracted.where("fragment IS NOT NULL").select("fragment.*")
        fragments = None if cut.isEmpty() else checkpoint(on_spark.reassemble_datagrams(cut, options))
        files = {row["capture"]: CaptureFile(row["capture_id"], row["uri"]) for row in listed}
        found = cls(captures, files, extracted, fragments, extracted)
        return replace(found, now=checkpoint(resume.held(found.segments, captures)))

    @property
    def segments(self) -> DataFrame:
        """Segments as they were captured, framed runs, or put together of fragments."""
        captured = table_rows.segments(self.extracted)
        return captured if self.fragments is None else captured.union(table_rows.segments(self.fragments))

    @property
    def faults(self) -> DataFrame:
        """Rows among which those of faults are."""
        captured = self.extracted.select(SEGMENTS.names)
        return captured if self.fragments is None else captured.union(self.fragments)


@dataclass(frozen=True, slots=True)
class _Assembled:
    """Rows of ASSEMBLED, the states they went on from, and the places of all captures of their connections."""

    rows: DataFrame
    bases: DataFrame
    reached: DataFrame


def _assemble(warehouse: Warehouse, found: _Found, options: IngestOptions) -> _Assembled:
    """Put the connections together: those in order in one go, the others again with all their bytes."""
    states, captures = warehouse.read(CONNECTION_STATES), warehouse.read(CAPTURES)
    before, choices = run_in_parallel(
        (
            lambda: checkpoint(resume.earlier(warehouse.read(CONNECTION_CAPTURES), captures, found.now)),
            lambda: checkpoint(resume.states_before(states, captures, found.now)),
        )
    )
    bases = choices.where("nth = 1")
    late = checkpoint(resume.needed(before, bases).select("packed").distinct())
    in_order = found.segments.join(late.withColumnRenamed("packed", "connection"), "connection", "left_anti")
    bases = bases.join(late, "packed", "left_anti")
    begun = in_order.unionByName(resume.state_segments(bases), allowMissingColumns=True)
    rows = checkpoint(on_spark.assemble_streams(begun, found.files, options, final=False))
    flagged = rows.where("needs_payload is not null").select("needs_payload.*")
    flagged = flagged.unionByName(late.select("packed", F.lit(False).alias("rewind")))
    reached = before.select("packed", *resume.PLACE).unionByName(found.now.select("packed", *resume.PLACE))
    count = flagged.count()
    if not count:
        return _Assembled(rows, bases, reached)
    progress(f"ingest: {count} connections are looked at again with all their bytes")
    flagged = checkpoint(flagged)
    again = checkpoint(resume.bases_again(choices, flagged))
    again, more = _read_again(warehouse, found, flagged, resume.needed(before, again), again, options)
    begun = more.segments.unionByName(resume.state_segments(again), allowMissingColumns=True)
    redone = checkpoint(on_spark.assemble_streams(begun, more.files, options, final=True))
    done = rows.join(redone.select("endpoints").distinct(), "endpoints", "left_anti")
    kept = bases.join(flagged, "packed", "left_anti")
    return _Assembled(done.unionByName(redone), kept.unionByName(again), reached)


def _read_again(
    warehouse: Warehouse,
    found: _Found,
    flagged: DataFrame,
    needed: DataFrame,
    bases: DataFrame,
    options: IngestOptions,
) -> tuple[DataFrame, _Found]:
    """The states to begin from, and all segments of the flagged connections in the captures behind these.

    Where an earlier capture is gone, its connections go on from their latest state, as if nothing had come before.

    Raises:
        JobError: there is no such state either.
    """
    needed = checkpoint(needed.join(flagged, "packed", "left_semi").select("packed", "capture_id").distinct())
    captures = warehouse.read(CAPTURES).join(needed.select("capture_id").distinct(), "capture_id", "left_semi")
    files = [row["uri"] for row in captures.select("uri").collect()]
    old = found.captures.drop("capture").limit(0)
    if files:
        progress(f"ingest: connections go on from {len(files)} earlier captures, which are read again")
        old = checkpoint(table_rows.unchanged(_index(warehouse.spark, files, options), captures))
        gone = checkpoint(needed.join(old.select("capture_id"), "capture_id", "left_anti").select("packed").distinct())
        if not gone.isEmpty():
            latest = resume.latest(warehouse.read(CONNECTION_STATES), warehouse.read(CAPTURES), gone)
            if latest.count() < gone.count():
                raise JobError("Connections go on from earlier captures that are gone or changed: put them back.")
            progress("ingest: earlier captures are gone: late segments of their connections go to quarantine")
            bases = bases.join(gone, "packed", "left_anti").unionByName(latest, allowMissingColumns=True)
            needed = needed.join(gone, "packed", "left_anti")
    now = found.now.join(flagged, "packed", "left_semi").select("packed", "capture_id")
    ranked = checkpoint(table_rows.ranked(found.captures.drop("capture").unionByName(old)))
    return checkpoint(bases), _Found.of(ranked, _listed(ranked), options, needed.unionByName(now))


def _listed(captures: DataFrame) -> list[Row]:
    """Of each ranked capture: rank, identifier, place, size and number of splits."""
    return captures.select("capture", "capture_id", "uri", "size_bytes", F.size("cursors").alias("splits")).collect()


def _index(spark: SparkSession, files: list[str], options: IngestOptions) -> DataFrame:
    listed = spark.createDataFrame([(file,) for file in files], "uri string")
    return checkpoint(on_spark.index_files(listed.repartition(on_spark.tasks(len(files))), options))


def _publish(warehouse: Warehouse, found: _Found, assembled: _Assembled, publishing: publish_lock.Publishing) -> None:
    """Write the tables, the one that says a capture is done last."""
    rows = assembled.rows
    states = checkpoint(resume.state_rows(rows, assembled.reached))
    _delete_stale(warehouse, resume.stale_rows(warehouse.read(STREAMS), states, assembled.bases))
    confirmed = broadcast_if_small(rows.where("framed_run is not null").select("framed_run.*"))
    held = found.now.join(states.select("packed", "endpoints"), "packed")
    merges = [
        partial(_merge, warehouse, publishing, table, table_rows)
        for table, table_rows in (
            (CONNECTION_CAPTURES, held),
            (STREAMS, table_rows.stream_rows(rows)),
            (STREAM_GAPS, table_rows.gap_rows(rows)),
            (PACKETS, table_rows.packet_rows(rows, confirmed, found.extracted, found.captures)),
            (QUARANTINE, table_rows.quarantine_rows(rows, found.faults, found.captures)),
            (PINGS, table_rows.ping_rows(found.extracted, found.captures)),
        )
    ]
    run_in_parallel([*merges, partial(_merge_states, warehouse, publishing, states, found.now)])
    publishing.check()
    counts = table_rows.capture_counts(found.extracted, found.fragments)
    _merge(warehouse, publishing, CAPTURES, table_rows.capture_rows(found.captures, counts))


def _merge(warehouse: Warehouse, publishing: publish_lock.Publishing, table: Table, rows: DataFrame) -> None:
    if table in _OFTEN_NOTHING and rows.isEmpty():
        return
    warehouse.merge(table, rows, publishing.tag, empty=publishing.first)
    progress(f"ingest: wrote {table.name}")


def _merge_states(warehouse: Warehouse, publishing: publish_lock.Publishing, states: DataFrame, now: DataFrame) -> None:
    """Replace the states of connections that go on, and remove those that lack what is known `now`."""
    overtaken = resume.overtaken(warehouse.read(CONNECTION_STATES), now)
    overtaken = checkpoint(overtaken.join(states, ["endpoints", "capture_id"], "left_anti"))
    warehouse.merge(CONNECTION_STATES, states, publishing.tag, update=True, empty=publishing.first)
    if not overtaken.isEmpty():
        warehouse.delete(CONNECTION_STATES, overtaken)


def _delete_stale(warehouse: Warehouse, stale: DataFrame) -> None:
    """Remove the rows that the new ones replace: of streams that go on, what was provisional."""
    stale = checkpoint(stale)
    if stale.isEmpty():
        return
    behind = "t.stream_id = s.stream_id AND coalesce(t.stream_offset, -1) >= s.from_offset"
    deletes = [partial(warehouse.delete, table, stale, behind) for table in (STREAM_GAPS, PACKETS, QUARANTINE)]
    run_in_parallel([*deletes, partial(warehouse.delete, STREAMS, stale)])
