"""Checkpoints DataFrames on the executors' disks, so that later queries are planned without what computed the rows."""

import re

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast

from jobs.warehouse.local_tables import collect, to_spark

_REFUSAL = re.compile("not.?supported|unsupported|not.?implemented|not.?available", re.IGNORECASE)
MOST_ROWS = 100_000
"""Rows of some hundred bytes that a broadcast join may send to each task."""


def checkpoint(rows: DataFrame) -> DataFrame:
    """Checkpoints the rows and cuts their lineage.

    Where the platform refuses to keep rows, as serverless Databricks does, the driver holds them.
    """
    try:
        # Columns of their own: without adaptive execution, Spark fails to tell those of a checkpoint from those of the
        # rows it was made of, where both are joined.
        return rows.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY).toDF(*rows.columns)
    except PySparkException as refusal:
        if not _REFUSAL.search(str(refusal)):
            raise
        return to_spark(rows.sparkSession, collect(rows))


def broadcast_if_small(rows: DataFrame, most: int = MOST_ROWS) -> DataFrame:
    """Marks at most `most` checkpointed rows for a broadcast join, which does not shuffle its other side."""
    return rows if rows.limit(most + 1).count() > most else broadcast(rows)


def materialize(rows: DataFrame, most: int = MOST_ROWS) -> DataFrame:
    """Checkpoints rows that several queries read."""
    return broadcast_if_small(checkpoint(rows), most)
