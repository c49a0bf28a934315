"""The kinds of findings that tell how the traffic was captured."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import key_at, row_key
from jobs.transforms.findings.model import NS, counted, one_or_many, sentence
from schemas.replay import FindingKind, Severity


def captured_twice(ends: DataFrame) -> DataFrame:
    """Returns the findings on connections that were captured at both ends of an address translation, per session."""
    copies = ends.where("copy_of is not null").withColumn("at", F.struct("first_ns", "stream_id", "copy_of"))
    return (
        copies.groupBy("session_id")
        .agg(F.count_distinct("connection_id").alias("messages"), F.min("at").alias("first"))
        .select(
            F.lit(FindingKind.CAPTURED_TWICE.value).alias("kind"),
            F.lit(Severity.INFO.value).alias("severity"),
            F.expr("timestamp_micros(first.first_ns div 1000)").alias("found_at"),
            "session_id",
            "messages",
            sentence(
                "{} captured twice, at both ends of an address translation, and {} once. The first is {}; its copy is "
                "{}.",
                counted("messages", "connection was", "connections were"),
                one_or_many("messages", "counts", "count"),
                "first.copy_of",
                "first.stream_id",
            ).alias("explanation"),
            F.array(*(key_at(stream, F.lit(0)) for stream in ("first.copy_of", "first.stream_id"))).alias("witness"),
        )
    )


def clock_stepped(captures: DataFrame, messages: DataFrame) -> DataFrame:
    """Returns the findings on captures whose clock stepped back, with the messages next to the first step."""
    stepped = captures.where("clock_steps is not null").select(
        "capture_id", "uri", "first_captured_at", "clock_steps", F.col("clock_steps")[0].alias("step")
    )
    frame, key = F.col("last_frame"), row_key()
    near = (
        messages.join(F.broadcast(stepped.select("capture_id", "step")), "capture_id")
        .groupBy("capture_id")
        .agg(
            F.max_by(F.when(frame < F.col("step.frame"), key), F.when(frame < F.col("step.frame"), frame)).alias(
                "before"
            ),
            F.min_by(F.when(frame >= F.col("step.frame"), key), F.when(frame >= F.col("step.frame"), frame)).alias(
                "after"
            ),
        )
    )
    return stepped.join(near, "capture_id", "left").select(
        F.lit(FindingKind.CLOCK_STEPPED.value).alias("kind"),
        F.lit(Severity.WARNING.value).alias("severity"),
        F.col("first_captured_at").alias("found_at"),
        F.size("clock_steps").cast("long").alias("messages"),
        sentence(
            "The clock of capture {} stepped back {}, first by {} s at record {}. The replay undoes this; the tables "
            "show the times that were recorded.",
            "uri",
            counted(F.size("clock_steps"), "time", "times"),
            F.round(-F.col("step.step_ns") / NS, 1),
            "step.frame",
        ).alias("explanation"),
        F.array("before", "after").alias("witness"),
    )
