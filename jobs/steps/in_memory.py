"""Decides whether a warehouse is small enough to be processed in the driver's memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.capture_listing import Stamp, capture_files, stamps
from jobs.app.config import Config
from jobs.app.spark_session import codegen_for_size
from jobs.warehouse import local_writer, log
from jobs.warehouse.store import Warehouse
from jobs.warehouse.tables import path_in
from schemas.ingest import CAPTURES

_COMPRESSED = (".gz", ".zst", ".zstd")
_RATIO = 10
"""How many times larger the content of a compressed capture may be."""


def is_small(config: Config) -> bool:
    """Returns whether it is known without Spark that the warehouse will be held in memory."""
    if config.catalog_schema or "://" in config.warehouse:
        return False
    ingested = _bytes_ingested(path_in(config.warehouse, CAPTURES.name))
    if ingested is None:
        return False
    return ingested + _bytes_of(stamps(capture_files(config.captures))) <= config.in_memory_bytes


@contextmanager
def hold_if_small(warehouse: Warehouse, most: int, files: Mapping[str, Stamp] | None = None) -> Iterator[Warehouse]:
    """Yields the warehouse, held in memory if its captures and these files have at most `most` bytes.

    Spark's settings are those for the size.
    """
    size = _bytes_captured(warehouse) + _bytes_of(files or {})
    with codegen_for_size(warehouse.spark, size):
        yield replace(warehouse, local={}) if size <= most else warehouse


def _bytes_of(files: Mapping[str, Stamp]) -> int:
    return sum((stamp.size or 0) * (_RATIO if uri.endswith(_COMPRESSED) else 1) for uri, stamp in files.items())


def _bytes_captured(warehouse: Warehouse) -> int:
    """Returns the size of all ingested captures."""
    place = warehouse.log_place(CAPTURES)
    size = None if place is None else _bytes_ingested(place)
    if size is None and warehouse.has(CAPTURES) and not warehouse.is_new(CAPTURES):
        size = warehouse.read(CAPTURES).agg(F.sum("size_bytes")).collect()[0][0]
    return size or 0


def _bytes_ingested(place: str) -> int | None:
    """Returns the size of the captures in the table at a place; None if Spark has to read it."""
    if not log.versions(place):
        return 0
    rows = local_writer.read(place, pa.schema([("size_bytes", pa.int64())]))
    return None if rows is None else sum(rows["size_bytes"].to_pylist())
