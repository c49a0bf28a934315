"""Counts where the way to a receiver was closed while packets waited."""

import polars as pl

from udfs.derive.columns import key_at, nanoseconds, timestamp
from udfs.derive.facts.directions import with_other_direction
from udfs.replay.words import NS

_SHUT_MS = 10_000
"""A TCP window of 0 that lasts less is ordinary flow control."""
_PAUSED_NS = 30 * NS
"""After a lack of memory the window doubles this often, [MS-MQQB] 3.1.3.2."""
_LONGEST_TIMEOUT_MS = 120_000  # AckTimeout, [MS-MQQB] 2.2.2.1
_PATIENCE_NS = 750_000
"""Of each ms of AckTimeout: then a SessionAck is overdue, as a receiver waits for half of AckTimeout at most."""
_STEP_NS = 15 * NS
"""Of the packets in a step of time one is looked at; no patience is shorter."""
_UNANSWERED, _PAUSED, _SHUT = "unanswered", "paused", "shut"
_CAUSES = (_UNANSWERED, _PAUSED, _SHUT)
_WINDOWS = ("stream_id", "stream_offset", "captured_ns", "window_size")


def find_ways(streams: pl.DataFrame, ends: pl.DataFrame, handshakes: pl.DataFrame) -> pl.DataFrame:
    """Returns the streams that count and whose other direction, `back`, was captured.

    `until_ns`: when the connection was last seen. `patience_ns`: after this time a SessionAck is overdue. `answering`:
    the address that `back` comes from. `is_whole`: no byte of `back` is missing, so that a SessionAck would be seen.
    The rows are those of whole connections.
    """
    seen = streams.select(
        "stream_id",
        nanoseconds(pl.col("window_shut_at")).alias("shut_ns"),
        nanoseconds(pl.col("connection_last_at")).alias("connection_ns"),
        pl.col("window_shut_ms").alias("shut_ms"),
    )
    timeouts = handshakes.group_by("stream_id").agg(pl.col("ack_timeout_ms").max().alias("timeout_ms"))
    both = with_other_direction(
        ends.join(seen, on="stream_id").join(timeouts, on="stream_id", how="left"),
        answering=pl.col("address"),
        is_whole=pl.col("missing_bytes") == 0,
        back_ns=pl.col("last_ns"),
        back_timeout_ms=pl.col("timeout_ms"),
    )
    timeout_ms = pl.max_horizontal("timeout_ms", "back_timeout_ms").fill_null(_LONGEST_TIMEOUT_MS)
    return both.select(
        *("stream_id", "back", "answering", "is_whole", "session_id", "connection_id", "shut_ns", "shut_ms"),
        pl.max_horizontal("last_ns", "back_ns", "connection_ns").alias("until_ns"),
        (timeout_ms * _PATIENCE_NS).alias("patience_ns"),
    )


def find_stalls(
    ways: pl.DataFrame, messages: pl.DataFrame, acks: pl.DataFrame, session_acks: pl.DataFrame
) -> dict[str, pl.DataFrame]:
    """Returns `stalls`, few rows, and the addresses that send SessionAcks, `answering`; all rows of whole connections.

    A row of `stalls` holds those of one `cause` and connection, on the way to one address: `length_ns` of the longest,
    if one `is_last`, and `since_ns` and `key` of the first. `ways` are those of `find_ways`.
    """
    packets = pl.concat([messages.select(_WINDOWS), acks.select(_WINDOWS)])
    headers = pl.concat([packets, session_acks.select(_WINDOWS)]).filter(pl.col("window_size").is_not_null())
    answering = ways.join(headers, left_on="back", right_on="stream_id", how="semi").select("answering").unique()
    timed = pl.col("captured_ns").is_not_null()
    packets, headers = packets.filter(timed), headers.filter(timed)
    found = pl.concat([_unanswered(packets, headers, ways), _paused(headers, ways), _shut(ways)])
    stalls = (
        found.sort("since_ns", "key")
        .group_by("session_id", "connection_id", "cause", "answering")
        .agg(pl.col("length_ns", "is_last").max(), pl.col("since_ns", "key").first())
    )
    return {"stalls": stalls, "answering": answering}


def window_stalled(stalls: pl.DataFrame, answering: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of WindowStalled, a row per session; both frames are those of `find_stalls` of all connections.

    A missing SessionAck says something only of an address that sends some.
    """
    length_ns, cause = pl.col("length_ns"), pl.col("cause")
    is_heard = pl.col("answering").is_in(answering["answering"].implode())
    return (
        stalls.filter((cause != _UNANSWERED) | is_heard)
        .sort("since_ns", "key")
        .group_by("session_id")
        .agg(
            pl.col("connection_id").n_unique().cast(pl.Int64).alias("messages"),
            pl.col("is_last").max(),
            pl.col("since_ns", "key").first(),
            *(length_ns.filter(cause == one).max().alias(f"{one}_ns") for one in _CAUSES),
        )
        .with_columns(timestamp(pl.col("since_ns")).alias("found_at"))
        .drop("since_ns")
    )


def _unanswered(packets: pl.DataFrame, headers: pl.DataFrame, ways: pl.DataFrame) -> pl.DataFrame:
    """Returns where packets waited too long for a SessionAck, whether or not the address sends any.

    Of the packets in a step of time only the last is looked at, which waited least.
    """
    whole, sent_ns = ways.filter("is_whole"), pl.col("captured_ns")
    last = (
        packets.join(whole, on="stream_id", how="semi")
        .sort("captured_ns", "stream_offset")
        .group_by("stream_id", (sent_ns // _STEP_NS).alias("step"))
        .agg(pl.col("captured_ns", "stream_offset").last())
    )
    answers = headers.select("stream_id", sent_ns.alias("ack_ns")).sort("ack_ns")
    answered = (
        last.join(whole, on="stream_id")
        .sort("captured_ns")
        .join_asof(
            answers,
            left_on="captured_ns",
            right_on="ack_ns",
            by_left="back",
            by_right="stream_id",
            strategy="forward",
            check_sortedness=False,
        )
    )
    waited = pl.coalesce("ack_ns", "until_ns") - sent_ns
    return answered.filter(waited > pl.col("patience_ns")).select(
        *_closed(_UNANSWERED, sent_ns, waited, pl.col("ack_ns").is_null(), pl.col("stream_offset"))
    )


def _paused(headers: pl.DataFrame, ways: pl.DataFrame) -> pl.DataFrame:
    """Returns where a receiver announced a window of one packet or none, until it announced a larger one."""
    is_small, at = pl.col("window_size") <= 1, pl.col("captured_ns")
    small = headers.filter(is_small).select("stream_id").unique()
    opened = pl.when(~is_small).then(at).backward_fill().over("stream_id")
    length = pl.coalesce("opened_ns", "end_ns") - at
    return (
        headers.join(small, on="stream_id", how="semi")
        .sort("captured_ns", "stream_offset")
        .with_columns(opened.alias("opened_ns"), at.max().over("stream_id").alias("end_ns"))
        .filter(is_small & (length >= _PAUSED_NS))
        .rename({"stream_id": "back"})
        .join(ways, on="back")
        .select(*_closed(_PAUSED, at, length, pl.col("opened_ns").is_null(), pl.lit(0)))
    )


def _shut(ways: pl.DataFrame) -> pl.DataFrame:
    """Returns the streams whose receiver's TCP announced a window of 0 for long."""
    length = pl.col("shut_ms") * (NS // 1000)
    is_last = pl.col("shut_ns") + length + NS >= pl.col("until_ns")
    return ways.filter(pl.col("shut_ms") >= _SHUT_MS).select(
        *_closed(_SHUT, pl.col("shut_ns"), length, is_last, pl.lit(0))
    )


def _closed(
    cause: str, since_ns: pl.Expr, length_ns: pl.Expr, is_last: pl.Expr, stream_offset: pl.Expr
) -> list[pl.Expr]:
    named = {"since_ns": since_ns, "length_ns": length_ns, "is_last": is_last}
    return [
        *(pl.col(name) for name in ("session_id", "connection_id", "answering")),
        pl.lit(cause).alias("cause"),
        *(column.alias(name) for name, column in named.items()),
        key_at("stream_id", stream_offset).alias("key"),
    ]
