"""Counts where the way to a receiver was closed while packets waited."""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import key_at, nanoseconds, optional, timestamp
from jobs.transforms.replay.peers import with_other_direction
from udfs.replay.words import NS

_SHUT_MS = 10_000
"""A TCP window of 0 that lasts less is ordinary flow control."""
_PAUSED_NS = 30 * NS
"""After a lack of memory the window doubles this often, [MS-MQQB] 3.1.3.2."""
_LONGEST_TIMEOUT_MS = 120_000  # AckTimeout, [MS-MQQB] 2.2.2.1
_PATIENCE_NS = 750_000
"""Of each ms of AckTimeout: then a SessionAck is overdue, as a receiver waits for half of AckTimeout at most."""
_STEP_NS = 15 * NS
"""Packets and SessionAcks are compared in steps of time, which are no longer than the shortest patience."""
_UNANSWERED, _PAUSED, _SHUT = "unanswered", "paused", "shut"
_CAUSES = (_UNANSWERED, _PAUSED, _SHUT)
_WINDOWS = ("stream_id", "stream_offset", "captured_ns", "window_size")


def window_stalled(
    streams: DataFrame,
    ends: DataFrame,
    messages: DataFrame,
    acks: DataFrame,
    session_acks: DataFrame,
    handshakes: DataFrame,
) -> DataFrame:
    """Returns rows of WindowStalled."""
    ways = _ways(streams, ends, handshakes)
    packets = messages.select(*_WINDOWS).unionByName(acks.select(*_WINDOWS))
    headers = packets.unionByName(session_acks.select(*_WINDOWS)).where("window_size is not null")
    found = reduce(DataFrame.unionByName, (_unanswered(packets, headers, ways), _paused(headers, ways), _shut(ways)))
    lengths = (F.max(F.when(F.col("cause") == cause, F.col("length_ns"))).alias(f"{cause}_ns") for cause in _CAUSES)
    stalled = found.groupBy("session_id").agg(
        F.count_distinct("connection_id").alias("messages"),
        F.max("is_last").alias("is_last"),
        F.min(F.struct("since_ns", "key")).alias("first"),
        *lengths,
    )
    return stalled.select("*", timestamp(F.col("first.since_ns")).alias("found_at"), "first.key")


def _ways(streams: DataFrame, ends: DataFrame, handshakes: DataFrame) -> DataFrame:
    """Returns the streams that count and whose other direction, `back`, was captured.

    `until_ns`: when the connection was last seen. `patience_ns`: after this time a SessionAck is overdue. `answering`:
    the address that `back` comes from. `is_whole`: no byte of `back` is missing, so that a SessionAck would be seen.
    """
    shut_ns, connection_ns = (
        nanoseconds(optional(streams, name, "timestamp")).alias(alias)
        for name, alias in (("window_shut_at", "shut_ns"), ("connection_last_at", "connection_ns"))
    )
    seen = streams.select(
        "stream_id", shut_ns, connection_ns, optional(streams, "window_shut_ms", "long").alias("shut_ms")
    )
    timeouts = handshakes.groupBy("stream_id").agg(F.max("ack_timeout_ms").alias("timeout_ms"))
    one = ends.where("copy_of is null").join(seen, "stream_id").join(timeouts, "stream_id", "left")
    both = with_other_direction(
        one,
        answering=F.col("address"),
        is_whole=F.col("missing_bytes") == 0,
        back_ns=F.col("last_ns"),
        back_timeout_ms=F.col("timeout_ms"),
    )
    timeout_ms = F.coalesce(F.greatest("timeout_ms", "back_timeout_ms"), F.lit(_LONGEST_TIMEOUT_MS))
    return both.select(
        *("stream_id", "back", "answering", "is_whole", "session_id", "connection_id", "shut_ns", "shut_ms"),
        F.greatest("last_ns", "back_ns", "connection_ns").alias("until_ns"),
        (timeout_ms * _PATIENCE_NS).alias("patience_ns"),
    )


def _unanswered(packets: DataFrame, headers: DataFrame, ways: DataFrame) -> DataFrame:
    """Returns where packets waited too long for a SessionAck, of addresses that send some.

    Of the packets in a step of time only the last is looked at, which waited least.
    """
    step = F.call_function("div", F.col("captured_ns"), F.lit(_STEP_NS)).alias("step")
    sent = packets.groupBy("stream_id", step).agg(F.max(F.struct("captured_ns", "stream_offset")).alias("last"))
    seen = headers.groupBy(F.col("stream_id").alias("back"), step).agg(
        F.min("captured_ns").alias("first_ack"), F.max("captured_ns").alias("last_ack")
    )
    seen = seen.join(ways.select("back", "stream_id", "answering"), "back").drop("back")
    later = Window.partitionBy("stream_id").orderBy("step").rowsBetween(1, Window.unboundedFollowing)
    sent_ns = F.col("last.captured_ns")
    steps = (
        sent.join(seen.drop("answering"), ["stream_id", "step"], "full")
        .withColumn("next_ack", F.min("first_ack").over(later))
        .withColumn("ack_ns", F.when(F.col("last_ack") >= sent_ns, F.col("last_ack")).otherwise(F.col("next_ack")))
    )
    waited = F.coalesce("ack_ns", "until_ns") - sent_ns
    return (
        ways.where("is_whole")
        .join(seen.select("answering").distinct(), "answering", "left_semi")
        .join(steps, "stream_id")
        .where(waited > F.col("patience_ns"))
        .select(*_closed(_UNANSWERED, sent_ns, waited, F.col("ack_ns").isNull(), F.col("last.stream_offset")))
    )


def _paused(headers: DataFrame, ways: DataFrame) -> DataFrame:
    """Returns where a receiver announced a window of one packet or none, until it announced a larger one."""
    is_small = F.col("window_size") <= 1
    small = headers.where(is_small).select("stream_id").distinct()
    of_stream = Window.partitionBy("stream_id").orderBy("captured_ns", "stream_offset")
    opened = F.min(F.when(~is_small, F.col("captured_ns"))).over(of_stream.rowsBetween(0, Window.unboundedFollowing))
    last = F.max("captured_ns").over(Window.partitionBy("stream_id"))
    length = F.coalesce("opened_ns", "last_ns") - F.col("captured_ns")
    return (
        headers.join(small, "stream_id", "left_semi")
        .select("*", opened.alias("opened_ns"), last.alias("last_ns"))
        .where(is_small)
        .withColumnRenamed("stream_id", "back")
        .join(ways, "back")
        .where(length >= _PAUSED_NS)
        .select(*_closed(_PAUSED, F.col("captured_ns"), length, F.col("opened_ns").isNull(), F.lit(0)))
    )


def _shut(ways: DataFrame) -> DataFrame:
    """Returns the streams whose receiver's TCP announced a window of 0 for long."""
    length = F.col("shut_ms") * (NS // 1000)
    is_last = F.col("shut_ns") + length + NS >= F.col("until_ns")
    return ways.where(F.col("shut_ms") >= _SHUT_MS).select(*_closed(_SHUT, F.col("shut_ns"), length, is_last, F.lit(0)))


def _closed(cause: str, since_ns: Column, length_ns: Column, is_last: Column, stream_offset: Column) -> list[Column]:
    key = key_at("stream_id", stream_offset)
    named = {"since_ns": since_ns, "length_ns": length_ns, "is_last": is_last, "key": key}
    return [
        F.col("session_id"),
        F.col("connection_id"),
        F.lit(cause).alias("cause"),
        *(column.alias(name) for name, column in named.items()),
    ]
