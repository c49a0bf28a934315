"""From surveyed capture files to the rows of the ingest tables."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from schemas.ingest import CaptureStatus, Stage


def timestamp(nanoseconds: Column) -> Column:
    """The timestamp, in whole microseconds, of nanoseconds since 1970."""
    whole = nanoseconds - F.pmod(nanoseconds, F.lit(1000))
    return F.timestamp_micros((whole / 1000).cast("long"))


def new_captures(survey: DataFrame, captures: DataFrame) -> DataFrame:
    """The surveyed files whose content is in no row of `captures`, each content once, by its first name."""
    by_name = Window.partitionBy("capture_id").orderBy("uri")
    return (
        survey.join(captures.select("capture_id"), "capture_id", "left_anti")
        .withColumn("nth", F.row_number().over(by_name))
        .where("nth = 1")
        .drop("nth")
    )


def ranked(survey: DataFrame) -> DataFrame:
    """Surveyed files with `capture`, their rank in the order of capture times: the order segments are taken in."""
    in_time = Window.orderBy("first_ns", "last_ns", "capture_id")
    return survey.withColumn("capture", F.row_number().over(in_time).cast("long"))


def splits(captures: DataFrame) -> DataFrame:
    """One row (capture, uri, compression, cursor, stop) per byte range of the ranked files."""
    cursors = captures.select("capture", "uri", "compression", F.posexplode("cursors").alias("split", "cursor"))
    following = Window.partitionBy("capture").orderBy("split")
    return cursors.select(
        "capture",
        "uri",
        "compression",
        "cursor",
        F.lead(F.get_json_object("cursor", "$.offset").cast("long")).over(following).alias("stop"),
    )


def capture_rows(captures: DataFrame, assembled: DataFrame) -> DataFrame:
    """Rows of CAPTURES for the ranked files, with what was counted in them."""
    counts = (
        assembled.where("counts is not null")
        .select("counts.*")
        .groupBy("capture")
        .agg(F.sum("segments").alias("segment_count"), F.sum("others").alias("other_count"))
    )
    return captures.join(counts, "capture", "left").select(
        "capture_id",
        "uri",
        "size_bytes",
        "format",
        "compression",
        "status",
        "reason",
        "packet_count",
        F.coalesce("segment_count", F.lit(0)).alias("segment_count"),
        F.coalesce("other_count", F.lit(0)).alias("other_count"),
        timestamp(F.col("first_ns")).alias("first_captured_at"),
        timestamp(F.col("last_ns")).alias("last_captured_at"),
        F.current_timestamp().alias("ingested_at"),
    )


def stream_rows(assembled: DataFrame) -> DataFrame:
    """Rows of STREAMS."""
    return (
        assembled.where("stream is not null")
        .select("stream.*")
        .withColumn("first_captured_at", timestamp(F.col("first_ns")))
        .withColumn("last_captured_at", timestamp(F.col("last_ns")))
    )


def gap_rows(assembled: DataFrame) -> DataFrame:
    """Rows of STREAM_GAPS."""
    return assembled.where("gap is not null").select("gap.*")


def packet_rows(assembled: DataFrame, captures: DataFrame) -> DataFrame:
    """Rows of PACKETS, the rank of their capture replaced by its identifier."""
    packets = assembled.where("packet is not null").select("packet.*")
    return _with_capture_id(packets, captures).withColumn("captured_at", timestamp(F.col("captured_ns")))


def held_rows(assembled: DataFrame, captures: DataFrame) -> DataFrame:
    """Rows of CONNECTION_CAPTURES."""
    return _with_capture_id(assembled.where("held is not null").select("held.*"), captures)


def quarantine_rows(assembled: DataFrame, captures: DataFrame, new: DataFrame) -> DataFrame:
    """Rows of QUARANTINE for runs of bytes in captures, frames, segments and streams, and for unreadable new files."""
    found = _with_capture_id(assembled.where("quarantine is not null").select("quarantine.*"), captures)
    unreadable = new.where(F.col("status") == CaptureStatus.UNREADABLE.value).select(
        F.lit(Stage.CAPTURE.value).alias("stage"),
        "reason",
        "detail",
        "capture_id",
        F.lit(0).cast("long").alias("stream_offset"),
        F.col("size_bytes").alias("length"),
        "raw",
    )
    return found.unionByName(unreadable, allowMissingColumns=True)


def stale_streams(streams: DataFrame, held: DataFrame) -> DataFrame:
    """Identifiers of the streams between endpoints that were just put together (anew)."""
    endpoints = F.substring_index("connection_id", "#", 1)
    return streams.join(held, endpoints == held["endpoints"], "left_semi").select("stream_id").distinct()


def unchanged(survey: DataFrame, captures: DataFrame) -> DataFrame:
    """Surveyed files that still hold the content of the row of `captures` with their name."""
    return survey.join(captures.select("uri", "capture_id"), ["uri", "capture_id"], "left_semi")


def _with_capture_id(rows: DataFrame, captures: DataFrame) -> DataFrame:
    return rows.join(F.broadcast(captures.select("capture", "capture_id")), "capture", "left").drop("capture")
