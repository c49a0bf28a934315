"""Selects what maintenance may remove."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

_DAY_NS = 86_400 * 10**9
_KEPT = 2
"""States of each connection that are kept however old: a run resumes from the latest, or from the one before it."""


def without_outdated_states(connections: DataFrame, days: int) -> DataFrame:
    """Returns rows of INTERNAL_CONNECTIONS, without their states, of captures that end so many days before the last.

    The two newest states of each connection are kept.
    """
    states = connections.where("state is not null")
    of_connection = Window.partitionBy("endpoints").orderBy(F.struct("first_ns", "last_ns", "capture_id").desc())
    newest = states.agg((F.max("last_ns") - days * _DAY_NS).alias("horizon"))
    return (
        states.withColumn("nth", F.row_number().over(of_connection))
        .join(F.broadcast(newest))
        .where((F.col("nth") > _KEPT) & (F.col("last_ns") < F.col("horizon")))
        .withColumns({name: F.lit(None) for name in ("first_instance", "tails", "state")})
        .drop("nth", "horizon")
    )
