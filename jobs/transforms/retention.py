"""Selects what maintenance may remove."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

_DAY_NS = 86_400 * 10**9
_KEPT = 2
"""States of each connection that are kept however old: a run resumes from the latest, or from the one before it."""


def outdated_states(states: DataFrame, days: int) -> DataFrame:
    """Returns keys (endpoints, capture_id) of states whose captures end more than `days` before the last capture.

    The two newest states of each connection are kept.
    """
    of_connection = Window.partitionBy("endpoints").orderBy(F.struct("first_ns", "last_ns", "capture_id").desc())
    newest = states.agg((F.max("last_ns") - days * _DAY_NS).alias("horizon"))
    return (
        states.select("endpoints", "capture_id", "last_ns", F.row_number().over(of_connection).alias("nth"))
        .join(F.broadcast(newest))
        .where((F.col("nth") > _KEPT) & (F.col("last_ns") < F.col("horizon")))
        .select("endpoints", "capture_id")
    )
