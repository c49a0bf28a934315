"""Counts what shows how the traffic was captured."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import row_key, timestamp


def captured_twice(ends: DataFrame) -> DataFrame:
    """Returns rows of CapturedTwice."""
    copies = ends.where("copy_of is not null").withColumn("at", F.struct("first_ns", "stream_id", "copy_of"))
    counted = copies.groupBy("session_id").agg(
        F.count_distinct("connection_id").alias("messages"), F.min("at").alias("first")
    )
    return counted.select("session_id", "messages", "first.*", timestamp(F.col("first.first_ns")).alias("found_at"))


def clock_steps(captures: DataFrame, messages: DataFrame) -> DataFrame:
    """Returns rows of ClockStepped."""
    stepped = captures.where("clock_steps is not null").withColumn("step", F.col("clock_steps")[0])
    frame, place = F.col("last_frame"), F.struct("last_frame", row_key().alias("key"))
    before, after = (F.when(when, place) for when in (frame < F.col("step.frame"), frame >= F.col("step.frame")))
    near = (
        messages.join(F.broadcast(stepped.select("capture_id", "step")), "capture_id")
        .groupBy("capture_id")
        .agg(F.max(before)["key"].alias("key_before"), F.min(after)["key"].alias("key_after"))
    )
    return stepped.join(near, "capture_id", "left").select(
        *("uri", "step.*", "key_before", "key_after"),
        F.col("first_captured_at").alias("found_at"),
        F.size("clock_steps").cast("long").alias("messages"),
    )
