"""How much of a session the captures hold: the share of its bytes, and of its time."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from schemas.ingest import Stage


def unread_ranges(stream_gaps: DataFrame, quarantine: DataFrame) -> DataFrame:
    """`stream_id`, `stream_offset`, `length` of every run of stream bytes that is missing or became no row."""
    unreadable = quarantine.where(F.col("stage").isin(Stage.FRAMING.value, Stage.DECODE.value))
    columns = ("stream_id", "stream_offset", "length")
    return stream_gaps.select(*columns).unionByName(unreadable.select(*columns))


def dark_times(messages: DataFrame, runs: DataFrame) -> DataFrame:
    """Per stream with runs: `unread_bytes`, and the `dark_ns` in which a message may have been missed.

    One row per span, which lies between the message before a run and the one after it: `began_ns` and `ended_ns`, null
    where no message is there.
    """
    on_stream = Window.partitionBy("stream_id").orderBy("stream_offset")
    seen = F.when(F.col("length").isNull(), F.col("captured_ns"))
    return (
        messages.select("stream_id", "stream_offset", "captured_ns")
        .join(F.broadcast(runs.select("stream_id").distinct()), "stream_id", "left_semi")
        .unionByName(runs, allowMissingColumns=True)
        .select(
            "stream_id",
            "length",
            F.max(seen).over(on_stream.rowsBetween(Window.unboundedPreceding, Window.currentRow)).alias("began_ns"),
            F.count(seen).over(on_stream.rowsBetween(Window.unboundedPreceding, Window.currentRow)).alias("span"),
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


def session_coverage(messages: DataFrame, ends: DataFrame, stream_gaps: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Per session: `byte_coverage`, `time_coverage`, `mid_stream` and `missing_bytes`, as SESSIONS defines them.

    A span without a message before it begins with its stream, one without a message behind it ends with its stream.
    """
    lasting = F.col("last_ns") - F.col("first_ns")
    dark = F.greatest(F.coalesce("ended_ns", "last_ns") - F.coalesce("began_ns", "first_ns"), F.lit(0))
    unread = (
        dark_times(messages, unread_ranges(stream_gaps, quarantine))
        .join(ends.select("stream_id", "first_ns", "last_ns"), "stream_id")
        .groupBy("stream_id")
        .agg(F.sum("length").alias("unread_bytes"), F.sum(dark).alias("dark_ns"))
    )
    known = F.col("recovered_bytes") + F.col("missing_bytes")
    share = 1 - F.sum(F.coalesce("unread_bytes", F.lit(0))) / F.nullif(F.sum(known), F.lit(0))
    time = F.sum(lasting)
    whole = F.count("dark_ns") == 0
    clear = 1 - F.sum(F.least(F.coalesce("dark_ns", F.lit(0)), lasting)) / F.nullif(time, F.lit(0))
    return (
        ends.join(unread, "stream_id", "left")
        .groupBy("session_id")
        .agg(
            F.sum("missing_bytes").alias("missing_bytes"),
            F.count_if("mid_stream").alias("mid_stream"),
            share.alias("byte_coverage"),
            F.when(F.count_if(lasting.isNull()) == 0, F.when(whole, F.lit(1.0)).otherwise(clear)).alias(
                "time_coverage"
            ),
        )
    )
