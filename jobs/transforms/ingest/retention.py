"""What upkeep may remove."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.transforms.ingest.resume import place

_DAY_NS = 86_400 * 10**9
_KEPT = 2
"""States of each connection that are kept however old: a run goes on from the latest, or from the one before it."""


def outdated_states(states: DataFrame, days: int) -> DataFrame:
    """Keys (endpoints, capture_id) of states more than so many days of capture time behind the newest of all.

    The two newest of each connection are kept.
    """
    of_connection = Window.partitionBy("endpoints").orderBy(place().desc())
    newest = states.agg((F.max("last_ns") - days * _DAY_NS).alias("horizon"))
    return (
        states.select("endpoints", "capture_id", "last_ns", F.row_number().over(of_connection).alias("nth"))
        .join(F.broadcast(newest))
        .where((F.col("nth") > _KEPT) & (F.col("last_ns") < F.col("horizon")))
        .select("endpoints", "capture_id")
    )
