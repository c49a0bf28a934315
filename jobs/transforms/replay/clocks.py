"""Undoes the steps back of a capture's clock, so that messages on several connections are in the order they came."""

from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import SO_FAR, nanoseconds, timestamp

_PLACE = ("capture_id", "last_frame")


def find_steps(captures: DataFrame) -> DataFrame:
    """Returns per capture and step `first_frame`, `next_frame` and `behind_ns`, the sum of the steps up to there.

    The capture's clock is behind by so many ns from `first_frame` on, up to the record before `next_frame`.
    """
    in_file = Window.partitionBy("capture_id").orderBy("step.frame")
    return captures.select("capture_id", F.explode("clock_steps").alias("step")).select(
        "capture_id",
        F.col("step.frame").alias("first_frame"),
        F.coalesce(F.lead("step.frame").over(in_file), F.lit((1 << 63) - 1)).alias("next_frame"),
        (-F.sum("step.step_ns").over(in_file.rowsBetween(*SO_FAR))).alias("behind_ns"),
    )


def with_steps_undone(rows: DataFrame, steps: DataFrame) -> DataFrame:
    """Returns rows with `captured_ns` by a clock without steps; `steps` is what `find_steps` returns."""
    late = F.coalesce("behind_ns", F.lit(0))
    return _behind(rows, steps).withColumn("captured_ns", F.col("captured_ns") + late).select(*rows.columns)


def with_recorded_times(verdicts: DataFrame, steps: DataFrame) -> DataFrame:
    """Returns VERDICTS with the times of the records. `acknowledged_at` stays as long after the message as it was."""
    late = F.coalesce("behind_ns", F.lit(0))
    return (
        _behind(verdicts, steps)
        .withColumn("captured_ns", F.col("captured_ns") - late)
        .withColumn("acknowledged_at", timestamp(nanoseconds("acknowledged_at") - late))
        .select(*verdicts.columns)
    )


def with_streams_in_time(streams: DataFrame, steps: DataFrame, *packets: DataFrame) -> DataFrame:
    """Returns STREAMS with the times of their ends by a clock without steps, as that of their `packets` tells.

    Where a stream has no packet, those of the other direction tell it.
    """
    columns = ("stream_id", "stream_offset", *_PLACE)
    rows = _behind(reduce(DataFrame.unionByName, (table.select(*columns) for table in packets)), steps)
    late = rows.groupBy("stream_id").agg(
        F.min_by("behind_ns", "stream_offset").alias("first_late"),
        F.max_by("behind_ns", "stream_offset").alias("last_late"),
        F.lit(True).alias("known"),
    )
    both = Window.partitionBy("connection_id")
    joined = streams.join(late, "stream_id", "left")
    for end in ("first", "last"):
        own = F.when(F.col("known"), F.coalesce(f"{end}_late", F.lit(0)))
        shift = F.coalesce(own, F.max(f"{end}_late").over(both), F.lit(0))
        column = f"{end}_captured_at"
        joined = joined.withColumn(column, timestamp(nanoseconds(column) + shift))
    return joined.select(*streams.columns)


def _behind(rows: DataFrame, steps: DataFrame) -> DataFrame:
    """Adds `behind_ns` to rows by their capture and `last_frame`; null where the clock has not stepped."""
    later = steps.select(F.col("capture_id").alias("stepped"), "first_frame", "next_frame", "behind_ns")
    after = (
        (F.col("capture_id") == F.col("stepped"))
        & (F.col("last_frame") >= F.col("s.first_frame"))
        & (F.col("last_frame") < F.col("s.next_frame"))
    )
    named = [F.col(f"r.{name}").alias(name) for name in rows.columns]
    return rows.alias("r").join(F.broadcast(later.alias("s")), after, "left").select(*named, "s.behind_ns")
