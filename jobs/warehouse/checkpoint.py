"""Checkpoints DataFrames on the executors' disks, so that later queries are planned without what computed the rows."""

from collections.abc import Callable

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast

Materialize = Callable[[DataFrame], DataFrame]
"""Computes rows that several queries read: as one plan, they would be planned and computed for each reader."""

_MOST_ROWS = 100_000  # of some hundred bytes each


def checkpoint(rows: DataFrame, *, eager: bool = True) -> DataFrame:
    """Checkpoints the rows and cuts their lineage: now or, unless `eager`, when they are first read."""
    return rows.localCheckpoint(eager, storageLevel=StorageLevel.DISK_ONLY)


def broadcast_if_small(rows: DataFrame) -> DataFrame:
    """Marks at most 100,000 checkpointed rows for a broadcast join, so that the other side is not shuffled."""
    return rows if rows.limit(_MOST_ROWS + 1).count() > _MOST_ROWS else broadcast(rows)


def materialize(rows: DataFrame) -> DataFrame:
    """Checkpoints rows that several queries read."""
    return broadcast_if_small(checkpoint(rows))
