"""Rows that are computed once and kept, on disk: what reads them is planned without what made them."""

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast

_FEW = 100_000  # rows of some hundred bytes


def checkpoint(rows: DataFrame, *, eager: bool = True) -> DataFrame:
    """The rows, computed once: now or, unless `eager`, when they are first read."""
    return rows.localCheckpoint(eager, storageLevel=StorageLevel.DISK_ONLY)


def broadcast_if_small(rows: DataFrame) -> DataFrame:
    """Settled rows: few of them are sent to every task that joins them, so that the many stay in place."""
    return rows if rows.limit(_FEW + 1).count() > _FEW else broadcast(rows)
