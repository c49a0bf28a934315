"""Undoes the steps back of a capture's clock, so that messages on several connections are in the order they came.

Where the clocks of two captures differ, it finds the messages whose order this leaves in doubt.
"""

from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import SO_FAR, nanoseconds, timestamp
from jobs.transforms.replay.scopes import with_flow

_PLACE = ("capture_id", "last_frame")
_PAIR = ("one_capture", "other_capture")


def find_steps(captures: DataFrame) -> DataFrame:
    """Returns per capture and step `first_frame`, `next_frame` and `behind_ns`, the sum of the steps up to there.

    From `first_frame` up to the record before `next_frame`, the capture's clock is `behind_ns` behind.
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
    return _with_lag(rows, steps).withColumn("captured_ns", F.col("captured_ns") + late).select(*rows.columns)


def with_recorded_times(verdicts: DataFrame, steps: DataFrame) -> DataFrame:
    """Returns VERDICTS with the times of the records; `acknowledged_at` moves with its message."""
    late = F.coalesce("behind_ns", F.lit(0))
    return (
        _with_lag(verdicts, steps)
        .withColumn("captured_ns", F.col("captured_ns") - late)
        .withColumn("acknowledged_at", timestamp(nanoseconds("acknowledged_at") - late))
        .select(*verdicts.columns)
    )


def with_streams_in_time(streams: DataFrame, steps: DataFrame, *packets: DataFrame) -> DataFrame:
    """Returns STREAMS whose first and last times are by a clock without steps, as their `packets` show it.

    A stream without packets takes the steps from the other direction. If the clock steps between the packets of a
    connection, the recorded times of segments have no order, so that the first and the last packet say when it was.
    """
    columns = ("stream_id", "stream_offset", "captured_ns", *_PLACE)
    rows = _with_lag(reduce(DataFrame.unionByName, (table.select(*columns) for table in packets)), steps)
    late_ns = F.coalesce("behind_ns", F.lit(0))
    rows = rows.withColumns({"late_ns": late_ns, "time_ns": F.col("captured_ns") + late_ns})
    places = rows.groupBy("stream_id").agg(
        F.min_by("late_ns", "stream_offset").alias("first_late"),
        F.max_by("late_ns", "stream_offset").alias("last_late"),
        F.min("time_ns").alias("first_ns"),
        F.max("time_ns").alias("last_ns"),
    )
    both = Window.partitionBy("connection_id")
    joined = streams.join(places, "stream_id", "left").withColumns(
        {
            "first_late": F.coalesce("first_late", F.max("first_late").over(both), F.lit(0)),
            "last_late": F.coalesce("last_late", F.max("last_late").over(both), F.lit(0)),
            "first_ns": F.coalesce("first_ns", F.min("first_ns").over(both)),
            "last_ns": F.coalesce("last_ns", F.max("last_ns").over(both)),
        }
    )
    joined = joined.withColumn("steps", F.min("first_late").over(both) < F.max("last_late").over(both))
    for end in ("first", "last"):
        recorded = nanoseconds(f"{end}_captured_at") + F.col(f"{end}_late")
        time_ns = F.coalesce(F.when(F.col("steps"), F.col(f"{end}_ns")), recorded)
        joined = joined.withColumn(f"{end}_captured_at", timestamp(time_ns))
    return joined.select(*streams.columns)


def _with_lag(rows: DataFrame, steps: DataFrame) -> DataFrame:
    """Adds `behind_ns` to rows by their capture and `last_frame`; null where the clock has not stepped."""
    later = steps.select(F.col("capture_id").alias("stepped"), "first_frame", "next_frame", "behind_ns")
    after = (
        (F.col("capture_id") == F.col("stepped"))
        & (F.col("last_frame") >= F.col("s.first_frame"))
        & (F.col("last_frame") < F.col("s.next_frame"))
    )
    named = [F.col(f"r.{name}").alias(name) for name in rows.columns]
    return rows.alias("r").join(F.broadcast(later.alias("s")), after, "left").select(*named, "s.behind_ns")


def disputed_messages(messages: DataFrame, flows: DataFrame, skews: DataFrame, placed: DataFrame) -> DataFrame:
    """Returns the keys and senders of the messages that may have come before or after another one of their scope.

    That message is on a connection in another capture, and nearer in time than the skew between the two captures
    (`skews`, of `conversations.measure_skews`). A stream has the clock of its capture; messages `placed` from a copy
    have it too. A stream that is in both captures is ordered by one clock, so it counts for neither. `flows` have their
    scopes.
    """
    own = messages.join(
        F.broadcast(placed.select("stream_id", "stream_offset")), ["stream_id", "stream_offset"], "anti"
    )
    of_one = F.col("capture_id") == F.col("one_capture")
    sides = (
        own.select("stream_id", "capture_id")
        .distinct()
        .join(F.broadcast(skews), of_one | (F.col("capture_id") == F.col("other_capture")))
        .groupBy("stream_id", *_PAIR, "skew_ns")
        .agg(F.min(of_one).alias("is_one"), F.max(of_one).alias("most"))
        .where("is_one = most")
        .drop("most")
    )
    in_pair, time, is_one = Window.partitionBy("scope_key", *_PAIR), F.col("captured_ns"), F.col("is_one")
    ones, others = F.when(is_one, time), F.when(~is_one, time)
    until, since = (
        in_pair.orderBy(order).rangeBetween(*SO_FAR) for order in (F.asc("captured_ns"), F.desc("captured_ns"))
    )
    before = F.when(is_one, F.max(others).over(until)).otherwise(F.max(ones).over(until))
    after = F.when(is_one, F.min(others).over(since)).otherwise(F.min(ones).over(since))
    timed = messages.where("captured_ns is not null").join(F.broadcast(sides), "stream_id")
    return (
        with_flow(timed, flows, "scope_key")
        .withColumn("apart_ns", F.least(time - before, after - time))
        .where("apart_ns < skew_ns")
        .select("source_queue_manager", "stream_id", "stream_offset")
        .distinct()
    )
