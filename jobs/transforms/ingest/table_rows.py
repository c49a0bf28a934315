"""From indexed capture files to the rows of the ingest tables."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.transforms.expressions import timestamp
from schemas.ingest import CaptureStatus, Stage
from schemas.staging import SEGMENTS
from udfs import on_spark


def new_captures(index: DataFrame, captures: DataFrame) -> DataFrame:
    """The indexed files whose content is in no row of `captures`, each content once, by its first name."""
    by_name = Window.partitionBy("capture_id").orderBy("uri")
    return (
        index.join(captures.select("capture_id"), "capture_id", "left_anti")
        .withColumn("nth", F.row_number().over(by_name))
        .where("nth = 1")
        .drop("nth")
    )


def ranked(index: DataFrame) -> DataFrame:
    """Indexed files with `capture`, their rank in the order of capture times: the order segments are taken in."""
    in_time = Window.orderBy("first_ns", "last_ns", "capture_id")
    return index.withColumn("capture", F.row_number().over(in_time).cast("long"))


def splits(captures: DataFrame, only: DataFrame | None = None) -> DataFrame:
    """One row (capture, uri, compression, cursor, stop, only) per byte range of the ranked files.

    `only`: connections (packed) and captures (capture_id) to read, the others' segments are left out; all when None.
    """
    columns = ("capture", "uri", "compression")
    everything = captures.withColumn("only", F.lit(None).cast("array<binary>"))
    if only is not None:
        lists = only.groupBy("capture_id").agg(F.collect_set("packed").alias("only"))
        everything = captures.join(lists, "capture_id")
    cursors = everything.select(*columns, "only", F.posexplode("cursors").alias("split", "cursor"))
    following = Window.partitionBy("capture").orderBy("split")
    stop = F.lead(F.get_json_object("cursor", "$.offset").cast("long")).over(following)
    return cursors.select(*columns, "cursor", stop.alias("stop"), "only")


def segments(extracted: DataFrame) -> DataFrame:
    """Rows of SEGMENTS among those of EXTRACTED, or of reassembled fragments, that are segments."""
    return extracted.where("seq IS NOT NULL").select(SEGMENTS.names)


def capture_counts(extracted: DataFrame, fragments: DataFrame | None) -> DataFrame:
    """Rows (capture, segments, others): what each capture's records were; reassembled datagrams count as one more."""
    counts = extracted.where("others IS NOT NULL").select("capture", "segments", "others")
    if fragments is not None:
        whole = F.when(F.col("seq").isNotNull(), 1).otherwise(F.col("segments"))
        more = fragments.where("stage IS NULL").select(
            "capture", whole.alias("segments"), F.coalesce("others", F.lit(0))
        )
        counts = counts.union(more)
    return counts.groupBy("capture").agg(F.sum("segments").alias("segment_count"), F.sum("others").alias("other_count"))


def capture_rows(captures: DataFrame, counts: DataFrame) -> DataFrame:
    """Rows of CAPTURES for the ranked files, with what was counted in them."""
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


def packet_rows(assembled: DataFrame, confirmed: DataFrame, extracted: DataFrame, captures: DataFrame) -> DataFrame:
    """Rows of PACKETS: those framed while `captures` were extracted that are confirmed, and those framed later."""
    framed = assembled.where("packet is not null").select("packet.*")
    runs = extracted.where("packets is not null").select("capture", "frame", "packets")
    placed = _with_capture_id(runs.join(confirmed, ["capture", "frame"]), captures)
    return on_spark.unpack_runs(placed).unionByName(framed).withColumn("captured_at", timestamp(F.col("captured_ns")))


def quarantine_rows(assembled: DataFrame, faults: DataFrame, new: DataFrame) -> DataFrame:
    """Rows of QUARANTINE: runs of bytes in streams and segments, in captures and frames, and unreadable files."""
    of_streams = assembled.where("quarantine is not null").select("quarantine.*")
    of_records = faults.where("stage is not null").select(
        "stage",
        "reason",
        "detail",
        "capture",
        F.nullif("frame", F.lit(0)).alias("frame_number"),
        F.col("offset").alias("stream_offset"),
        "length",
        F.col("payload").alias("raw"),
    )
    found = of_streams.unionByName(_with_capture_id(of_records, new), allowMissingColumns=True)
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


def ping_rows(extracted: DataFrame, captures: DataFrame) -> DataFrame:
    """Rows of PINGS."""
    found = extracted.where("ping is not null").select("capture", "ping.*")
    return _with_capture_id(found, captures).withColumn("captured_at", timestamp(F.col("captured_ns")))


def unchanged(index: DataFrame, captures: DataFrame) -> DataFrame:
    """Indexed files that still hold the content of the row of `captures` with their name."""
    return index.join(captures.select("uri", "capture_id"), ["uri", "capture_id"], "left_semi")


def _with_capture_id(rows: DataFrame, captures: DataFrame) -> DataFrame:
    return rows.join(F.broadcast(captures.select("capture", "capture_id")), "capture", "left").drop("capture")
