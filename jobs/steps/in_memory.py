"""Decides whether a warehouse is small enough to be processed in the driver's memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.capture_listing import Stamp
from jobs.app.config import Config
from jobs.app.spark_session import codegen_for_size
from jobs.warehouse import local_writer, log, publish_lock
from jobs.warehouse.publish_lock import PublishLock
from jobs.warehouse.store import Warehouse
from jobs.warehouse.tables import local_place
from schemas.ingest import CAPTURES

_COMPRESSED = (".gz", ".zst", ".zstd")
_RATIO = 10
"""How many times larger the content of a compressed capture may be."""


def is_small(config: Config, files: Mapping[str, Stamp]) -> bool:
    """Returns whether it is known without Spark that the warehouse with these files will be held in memory."""
    size = _bytes_ingested(local_place(config.warehouse, config.catalog_schema, CAPTURES))
    return size is not None and size + _bytes_of(files) <= config.in_memory_bytes


@contextmanager
def hold(
    warehouse: Warehouse, config: Config, files: Mapping[str, Stamp] | None = None
) -> Iterator[tuple[Warehouse, PublishLock]]:
    """Holds the publish lock; yields it and the warehouse to write to, which is held in memory if it is small."""
    with (
        publish_lock.hold(warehouse, config.claim_seconds) as (locked, lock),
        hold_if_small(locked, config, files) as held,
    ):
        yield held, lock


@contextmanager
def hold_if_small(
    warehouse: Warehouse, config: Config, files: Mapping[str, Stamp] | None = None
) -> Iterator[Warehouse]:
    """Yields the warehouse, held in memory if its captures and these files have at most `in_memory_bytes`.

    Spark's settings are those for the size.
    """
    size = _bytes_ingested(warehouse.log_place(CAPTURES))
    if size is None and warehouse.has(CAPTURES) and not warehouse.is_new(CAPTURES):
        size = warehouse.read(CAPTURES).agg(F.sum("size_bytes")).collect()[0][0]
    size = (size or 0) + _bytes_of(files or {})
    with codegen_for_size(warehouse.spark, size):
        yield replace(warehouse, local={}) if size <= config.in_memory_bytes else warehouse


def _bytes_of(files: Mapping[str, Stamp]) -> int:
    return sum((stamp.size or 0) * (_RATIO if uri.endswith(_COMPRESSED) else 1) for uri, stamp in files.items())


def _bytes_ingested(place: str | None) -> int | None:
    """Returns the size of the captures in the table at a place of this machine; None if Spark has to read it."""
    if place is None:
        return None
    if not log.versions(place):
        return 0
    rows = local_writer.read(place, pa.schema([("size_bytes", pa.int64())]))
    return None if rows is None else sum(rows["size_bytes"].to_pylist())
