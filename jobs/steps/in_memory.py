"""Decides whether a warehouse is small enough to be processed in the driver's memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from jobs.app.capture_listing import Stamp
from jobs.app.spark_session import codegen_for_size
from jobs.steps.summary import captured_bytes
from jobs.warehouse.store import Warehouse

_COMPRESSED = (".gz", ".zst", ".zstd")
_RATIO = 10
"""How many times larger the content of a compressed capture may be."""


@contextmanager
def hold_if_small(warehouse: Warehouse, most: int, files: Mapping[str, Stamp] | None = None) -> Iterator[Warehouse]:
    """Yields the warehouse, held in memory if its captures and these files have at most `most` bytes.

    Spark's settings are those for the size.
    """
    size = captured_bytes(warehouse) + sum(_bytes(uri, stamp) for uri, stamp in (files or {}).items())
    with codegen_for_size(warehouse.spark, size):
        yield replace(warehouse, local={}) if size <= most else warehouse


def _bytes(uri: str, stamp: Stamp) -> int:
    return (stamp.size or 0) * (_RATIO if uri.endswith(_COMPRESSED) else 1)
