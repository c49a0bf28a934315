"""Decides whether a warehouse, or what a step needs of it, is small enough for the driver's memory."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import polars as pl
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.capture_listing import AS_INGESTED, Stamp, changed_files
from jobs.app.config import Config
from jobs.app.memory import FEW_BYTES, bytes_of, most_in_memory, most_messages
from jobs.app.spark_session import settings_for_size
from jobs.warehouse import local_commits, log, publish_lock
from jobs.warehouse.local_tables import Memory
from jobs.warehouse.publish_lock import PublishLock
from jobs.warehouse.store import Warehouse
from jobs.warehouse.tables import local_place
from schemas.ingest import CAPTURES
from schemas.messages import ACKS, MESSAGES

_SIZES = ("content_bytes", "size_bytes")
"""Columns with the size of a capture; the first is null where an earlier version wrote the row."""


def size_in_process(config: Config, files: Mapping[str, Stamp]) -> int | None:
    """Returns the bytes of captures that a night with these files holds in memory, if it is known to need no tasks."""
    captures, *others = (local_place(config.warehouse, config.catalog_schema, of) for of in (CAPTURES, MESSAGES, ACKS))
    size, most = _bytes_ingested(captures), limit(config, captures)
    if size is None or captures is None:
        return None
    size += bytes_of(files, most)
    if size <= most:
        return size
    known = local_commits.read(captures, pa.schema([CAPTURES.arrow.field(name) for name in AS_INGESTED]))
    if known is None or not _have_few_messages(others, config):
        return None
    size = bytes_of({file: files[file] for file in changed_files(known.to_dicts(), files)}, most)
    return size if size <= most else None


@contextmanager
def hold(
    warehouse: Warehouse, config: Config, files: Mapping[str, Stamp] | None = None, *, mends: bool = False
) -> Iterator[tuple[Warehouse, PublishLock]]:
    """Holds the publish lock; yields it and the warehouse to write to, which is held in memory if it is small.

    It `mends` a warehouse of which commits were lost or damaged, or fails there.
    """
    with (
        publish_lock.hold(warehouse, config.claim_seconds, mends=mends) as (locked, lock),
        hold_if_small(locked, config, files) as held,
    ):
        yield held, lock


@contextmanager
def hold_if_small(
    warehouse: Warehouse, config: Config, files: Mapping[str, Stamp] | None = None
) -> Iterator[Warehouse]:
    """Yields the warehouse, held in memory if its captures and these files have at most the bytes of `limit`.

    Spark's settings are those for the size.
    """
    place = warehouse.log_place(CAPTURES)
    most = limit(config, place)
    size = _bytes(warehouse) + bytes_of(files or {}, most)
    is_small = size <= most
    with settings_for_size(warehouse.spark, size):
        yield replace(warehouse, local=Memory()) if is_small else warehouse


def are_few(warehouse: Warehouse, config: Config, files: Mapping[str, Stamp]) -> bool:
    """Returns whether this process has the memory for these captures, whatever the warehouse holds."""
    most = limit(config, warehouse.log_place(CAPTURES))
    return bool(most) and bytes_of(files, most) <= most


def with_few_messages(warehouse: Warehouse, config: Config) -> Warehouse:
    """Returns the warehouse to replay and to report on, which is held in memory where its messages are few enough.

    They may be few although the captures are many: a replay needs neither these nor the packets' bytes.
    """
    if warehouse.local is not None:
        return warehouse
    are_few = _have_few_messages([warehouse.log_place(table) for table in (MESSAGES, ACKS)], config)
    return replace(warehouse, local=Memory()) if are_few else warehouse


def _have_few_messages(places: Sequence[str | None], config: Config) -> bool:
    """Returns whether the tables at these places are known to have so few rows that this process may replay them."""
    counts = [None if place is None else local_commits.count(place) for place in places]
    return None not in counts and sum(filter(None, counts)) <= most_messages(config.in_memory_messages)


def has_outgrown(warehouse: Warehouse, config: Config) -> bool:
    """Returns whether the captures of the warehouse have too many bytes for it to be held in memory."""
    return _bytes(warehouse) > limit(config, warehouse.log_place(CAPTURES))


def _bytes(warehouse: Warehouse) -> int:
    """Returns the size of the captures in the table."""
    size = _bytes_ingested(warehouse.log_place(CAPTURES))
    if size is None and warehouse.has(CAPTURES) and not warehouse.is_new(CAPTURES):
        rows = warehouse.read(CAPTURES)
        sizes = [name for name in _SIZES if name in rows.columns]  # an older table has only one
        size = rows.agg(F.sum(F.coalesce(*sizes))).collect()[0][0]
    return size or 0


def limit(config: Config, place: str | None) -> int:
    """Returns up to how many bytes of captures a warehouse is held in memory.

    That is at most a share of the machine's memory; and few if the tables come and go through Spark.
    """
    return most_in_memory(config.in_memory_bytes if place else min(config.in_memory_bytes, FEW_BYTES))


def _bytes_ingested(place: str | None) -> int | None:
    """Returns the size of the captures in the table at a place of this machine; None if Spark has to read it."""
    if place is None:
        return None
    if not log.versions(place):
        return 0
    rows = local_commits.read(place, pa.schema([(name, pa.int64()) for name in _SIZES]))
    return None if rows is None else rows.select(pl.coalesce(pl.all()).sum()).item() or 0
