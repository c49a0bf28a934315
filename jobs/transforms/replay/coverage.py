"""Computes how much of a session the captures hold: the share of its bytes, and of its time."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import SO_FAR
from schemas.ingest import Stage


def unread_ranges(stream_gaps: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Returns `stream_id`, `stream_offset` and `length` of each range of stream bytes that is missing or unreadable."""
    columns = ("stream_id", "stream_offset", "length")
    return stream_gaps.select(*columns).unionByName(select_unreadable(quarantine).select(*columns))


def select_unreadable(quarantine: DataFrame) -> DataFrame:
    """Returns the rows of QUARANTINE that are runs of stream bytes."""
    return quarantine.where(F.col("stage").isin(Stage.FRAMING.value, Stage.DECODE.value))


def _blind_spans(messages: DataFrame, unread: DataFrame) -> DataFrame:
    """Returns the spans of a stream in which a message may be missing: `began_ns`, `ended_ns`, unread `length`.

    A span lies between the messages before and after an unread range; a time is null without such a message.
    """
    on_stream = Window.partitionBy("stream_id").orderBy("stream_offset")
    so_far = on_stream.rowsBetween(*SO_FAR)
    message_ns = F.when(F.col("length").isNull(), F.col("captured_ns"))
    return (
        messages.select("stream_id", "stream_offset", "captured_ns")
        .join(F.broadcast(unread.select("stream_id").distinct()), "stream_id", "left_semi")
        .unionByName(unread, allowMissingColumns=True)
        .select(
            "stream_id",
            "length",
            F.max(message_ns).over(so_far).alias("began_ns"),
            F.count(message_ns).over(so_far).alias("span"),
            F.lead("captured_ns").over(on_stream).alias("next_ns"),
            F.lead("length").over(on_stream).alias("next_length"),
        )
        .where(F.col("length").isNotNull())
        .groupBy("stream_id", "span")
        .agg(
            F.max("began_ns").alias("began_ns"),
            F.max(F.when(F.col("next_length").isNull(), F.col("next_ns"))).alias("ended_ns"),
            F.sum("length").alias("length"),
        )
    )


def session_coverage(messages: DataFrame, peers: DataFrame, stream_gaps: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Returns `byte_coverage`, `time_coverage`, `mid_stream` and `missing_bytes` per session, as SESSIONS defines them.

    A blind span without a message before it begins with its stream; one without a message after it ends with it.
    """
    duration = F.col("last_ns") - F.col("first_ns")
    blind = F.greatest(F.coalesce("ended_ns", "last_ns") - F.coalesce("began_ns", "first_ns"), F.lit(0))
    unread = (
        _blind_spans(messages, unread_ranges(stream_gaps, quarantine))
        .join(peers.select("stream_id", "first_ns", "last_ns"), "stream_id")
        .groupBy("stream_id")
        .agg(F.sum("length").alias("unread_bytes"), F.sum(blind).alias("blind_ns"))
    )
    known = F.col("recovered_bytes") + F.col("missing_bytes")
    read_share = 1 - F.sum(F.coalesce("unread_bytes", F.lit(0))) / F.nullif(F.sum(known), F.lit(0))
    blind_ns = F.sum(F.least(F.coalesce("blind_ns", F.lit(0)), duration))
    clear_share = F.when(F.count("blind_ns") == 0, F.lit(1.0)).otherwise(
        1 - blind_ns / F.nullif(F.sum(duration), F.lit(0))
    )
    return (
        peers.join(unread, "stream_id", "left")
        .groupBy("session_id")
        .agg(
            F.sum("missing_bytes").alias("missing_bytes"),
            F.count_if("mid_stream").alias("mid_stream"),
            read_share.alias("byte_coverage"),
            F.when(F.count_if(duration.isNull()) == 0, clear_share).alias("time_coverage"),
        )
    )
