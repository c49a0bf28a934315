"""Captures into captures, streams, stream_gaps, packets, quarantine and books.

A capture is known by its content: what is in the table `captures` is not read again. That row is written last, so a run
that was killed is simply done again, and the rows it left are found by their keys. When a new capture holds more of a
connection that earlier ones hold too, the connection is put together anew from all of them.
"""

import sys

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs import command
from jobs.command import Summary, progress
from jobs.config import Config
from jobs.errors import JobError
from jobs.sources import capture_files
from jobs.summary import ingest_summary
from jobs.transforms import books, ingest
from jobs.warehouse import Warehouse
from schemas.ingest import (
    BOOKS,
    CAPTURES,
    CONNECTION_CAPTURES,
    PACKETS,
    QUARANTINE,
    STREAM_GAPS,
    STREAMS,
    Law,
)
from udfs import columns
from udfs.options import IngestOptions

_TABLES = (CAPTURES, STREAMS, STREAM_GAPS, CONNECTION_CAPTURES, PACKETS, QUARANTINE, BOOKS)
_MOST_TASKS = 10_000


def run(spark: SparkSession, config: Config) -> Summary:
    """Read the captures that are new; returns the summary."""
    warehouse = Warehouse.of(spark, config)
    step(warehouse, config)
    return ingest_summary(warehouse)


def step(warehouse: Warehouse, config: Config) -> None:
    """Read the captures that are new."""
    files = capture_files(config.captures)
    for table in _TABLES:
        warehouse.create(table)
    progress(f"ingest: {len(files)} files to look at")
    if files and _take_in(warehouse, files, config.ingest):
        _balance(warehouse)


def _take_in(warehouse: Warehouse, files: list[str], options: IngestOptions) -> bool:
    """Ingest what is new in the files; returns whether anything was."""
    survey = _survey(warehouse.spark, files, options)
    new = ingest.ranked(ingest.new_captures(survey, warehouse.read(CAPTURES))).persist()
    count, size = new.agg(F.count("*"), F.coalesce(F.sum("size_bytes"), F.lit(0))).collect()[0]
    if not count:
        progress("ingest: nothing new")
        return False
    progress(f"ingest: {count} new captures, {size / 1e6:.1f} MB")
    captures = new
    rows = columns.assembled(_scan(captures, options), options).persist(StorageLevel.DISK_ONLY)
    shared = _shared_endpoints(warehouse, rows, new).persist()
    if not shared.isEmpty():
        captures, segments = _with_earlier(warehouse, new, shared, options)
        rows.unpersist()
        rows = columns.assembled(segments, options).persist(StorageLevel.DISK_ONLY)
    _publish(warehouse, rows, captures, captures.join(new.select("capture_id"), "capture_id", "left_semi"))
    for cached in (rows, shared, new, survey):
        cached.unpersist()
    return True


def _survey(spark: SparkSession, files: list[str], options: IngestOptions) -> DataFrame:
    listed = spark.createDataFrame([(file,) for file in files], "uri string")
    return columns.surveyed(listed.repartition(min(len(files), _MOST_TASKS)), options).persist()


def _scan(captures: DataFrame, options: IngestOptions) -> DataFrame:
    splits = ingest.splits(captures)
    tasks = captures.agg(F.coalesce(F.sum(F.size("cursors")), F.lit(0))).collect()[0][0]
    return columns.scanned(splits.repartition(max(1, min(tasks, _MOST_TASKS))), options)


def _publish(warehouse: Warehouse, rows: DataFrame, captures: DataFrame, new: DataFrame) -> None:
    """Write the tables, the one that says a capture is done last."""
    held = ingest.held_rows(rows, captures)
    warehouse.merge(CONNECTION_CAPTURES, held)
    stale = ingest.stale_streams(warehouse.read(STREAMS), held).persist()
    any_stale = not stale.isEmpty()
    for table, table_rows in (
        (STREAM_GAPS, ingest.gap_rows(rows)),
        (PACKETS, ingest.packet_rows(rows, captures)),
        (QUARANTINE, ingest.quarantine_rows(rows, captures, new)),
        (STREAMS, ingest.stream_rows(rows)),
    ):
        if any_stale:
            warehouse.delete(table, stale)
        warehouse.merge(table, table_rows)
        progress(f"ingest: wrote {table.name}")
    stale.unpersist()
    warehouse.merge(CAPTURES, ingest.capture_rows(new, rows))


def _shared_endpoints(warehouse: Warehouse, rows: DataFrame, new: DataFrame) -> DataFrame:
    """Endpoints, with the earlier captures that hold segments between them, of which the new ones hold more."""
    now = rows.where("held is not null").select("held.endpoints").distinct()
    earlier = warehouse.read(CONNECTION_CAPTURES).join(new.select("capture_id"), "capture_id", "left_anti")
    return earlier.join(now, "endpoints", "left_semi")


def _with_earlier(
    warehouse: Warehouse, new: DataFrame, shared: DataFrame, options: IngestOptions
) -> tuple[DataFrame, DataFrame]:
    """The new captures and those the shared connections began in, and the segments of both that are needed."""
    needed = warehouse.read(CAPTURES).join(shared.select("capture_id").distinct(), "capture_id", "left_semi")
    files = [row["uri"] for row in needed.select("uri").collect()]
    progress(f"ingest: connections go on from {len(files)} earlier captures, which are read again")
    earlier = ingest.unchanged(_survey(warehouse.spark, files, options), needed)
    if earlier.count() < len(files):
        lost = needed.join(earlier, "capture_id", "left_anti").select("uri").limit(3).collect()
        names = ", ".join(row["uri"] for row in lost)
        raise JobError(f"Connections go on from earlier captures that are gone or changed: put them back ({names}).")
    captures = ingest.ranked(new.drop("capture").unionByName(earlier)).persist()
    old = captures.join(earlier.select("capture_id"), "capture_id", "left_semi")
    between = shared.select(F.col("packed").alias("connection")).distinct()
    segments = _scan(captures.join(new.select("capture_id"), "capture_id", "left_semi"), options)
    return captures, segments.unionByName(_scan(old, options).join(between, "connection", "left_semi"))


def _balance(warehouse: Warehouse) -> None:
    captures, streams, packets, quarantine = map(warehouse.read, (CAPTURES, STREAMS, PACKETS, QUARANTINE))
    rows = books.record_books(captures, quarantine).unionAll(books.byte_books(streams, packets, quarantine))
    warehouse.replace(BOOKS, rows, f"law IN ('{Law.RECORDS}', '{Law.BYTES}')")


if __name__ == "__main__":
    sys.exit(command.main("ingest", run, sys.argv[1:]))
