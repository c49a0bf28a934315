"""Aggregates that sequences and sessions share."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from schemas.replay import Verdict


def verdict_counts() -> list[Column]:
    """Returns a count per verdict, under its name."""
    return [F.count_if(F.col("verdict") == verdict.value).alias(verdict.value) for verdict in Verdict]


def first_and_last_time() -> list[Column]:
    """Returns the times of the first and the last message."""
    return [F.min("captured_at").alias("first_captured_at"), F.max("captured_at").alias("last_captured_at")]
