"""Counts what shows how the traffic was captured, and who could not connect to whom."""

import polars as pl

from schemas.ingest import Attempt, FramingReason
from udfs.frames.columns import PLACE, count, count_distinct, count_if, key_at, row_key, timestamp
from udfs.frames.derivation import derives
from udfs.replay.findings.facts import FAILURES

_PATIENCE_S = 21
"""Seconds after which a sender gives up a SYN. Attempts in the last ones of a capture may still have been answered."""
_CLOSED, _REFUSED_SESSION, _OTHER_VERSION = list(FAILURES)[3:]
_PINGED = ("source", "destination")
_NO_ANSWER = (Attempt.NO_ANSWER.value, Attempt.SILENT.value)


def captured_twice(ends: pl.DataFrame) -> pl.DataFrame:
    """Returns rows for `captured_twice`, a row per session; `ends` are those of whole sessions."""
    return (
        ends.filter(pl.col("copy_of").is_not_null())
        .sort("first_ns", "stream_id", "copy_of")
        .group_by("session_id")
        .agg(
            count_distinct("connection_id").alias("messages"),
            pl.col("first_ns", "stream_id", "copy_of").first(),
        )
        .with_columns(timestamp(pl.col("first_ns")).alias("found_at"))
    )


@derives(in_parts=True)
def with_clock_steps(captures: pl.DataFrame) -> pl.DataFrame:
    """Returns the captures in which the clock stepped."""
    return captures.filter(pl.col("clock_steps").is_not_null())


@derives(("capture_id",), columns={"messages": ("capture_id", *PLACE, "last_frame")})
def clock_steps(captures: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Returns rows for `clock_stepped`, a row per capture, from those `with_clock_steps` and their messages.

    `key_before` and `key_after` are of the messages next to the first step back.
    """
    is_back = pl.element().struct.field("step_ns") < 0
    back = pl.col("clock_steps").list.eval(pl.element().filter(is_back))
    stepped = captures.select(
        "capture_id",
        "uri",
        back.list.first().struct.field("frame", "step_ns"),
        pl.col("first_captured_at").alias("found_at"),
        back.list.len().cast(pl.Int64).alias("messages"),
    )
    near = messages.select("capture_id", "last_frame", *PLACE, row_key().alias("key")).join(
        stepped.select("capture_id", "frame"), on="capture_id"
    )
    key, is_before = pl.col("key"), pl.col("last_frame") < pl.col("frame")
    keys = (
        near.sort("last_frame", *PLACE)
        .group_by("capture_id")
        .agg(key.filter(is_before).last().alias("key_before"), key.filter(~is_before).first().alias("key_after"))
    )
    return stepped.join(keys, on="capture_id", how="left")


def cannot_connect(
    streams: pl.DataFrame,
    handshakes: pl.DataFrame,
    quarantine: pl.DataFrame,
    captures: pl.DataFrame,
) -> pl.DataFrame:
    """Returns rows for `cannot_connect`, a row per client and server, as STREAMS and QUARANTINE show.

    A connection worked if it carried bytes in both directions. Attempts in the last seconds of the captures may still
    have been answered: they are only counted, as `waiting`. A session may be refused in the handshake or by closing the
    connection ([MS-MQQB] 3.1.5.3.1).
    """
    tries = _connections(streams, handshakes, quarantine)
    failure, pair = pl.col("failure"), ("client", "server")
    worked = tries.filter(failure.is_null()).group_by(pair).agg(pl.col("last_at").max().alias("worked_at"))
    last_try = captures["last_captured_at"].max()
    too_late = failure.is_in(_NO_ANSWER) & (
        pl.col("last_at") > pl.lit(last_try, captures.schema["last_captured_at"]) - pl.duration(seconds=_PATIENCE_S)
    )
    since_it_worked = (pl.col("last_at") > pl.col("worked_at")).fill_null(True)
    return (
        tries.filter(failure.is_not_null())
        .with_columns(is_waiting=too_late.fill_null(value=False))
        .with_columns(waiting=count_if("is_waiting").over(pair))
        .filter(~pl.col("is_waiting"))
        .join(worked, on=pair, how="left")
        .sort("first_at", "key")
        .group_by(*pair, "worked_at", pl.concat_str(*pair, separator="->").alias("session_id"))
        .agg(
            count().alias("messages"),
            count_if(since_it_worked).alias("lately"),
            pl.col("first_at").min().alias("found_at"),
            pl.col("last_at").max(),
            pl.first("key", "waiting"),
            *(count_if(failure == name).alias(name) for name in FAILURES),
        )
        .select(
            *(*pair, "worked_at", "session_id", "messages", "lately", "waiting", "found_at", "last_at", "key"),
            pl.struct(*FAILURES).alias("failures"),
        )
    )


def unanswered_pings(captures: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """Returns rows for `unanswered_pings`, a row per source and destination, as CAPTURES counts them.

    `connected_at` is when the last connection began on which the source sent bytes to the destination.
    """
    pings = captures.select(pl.col("pings").explode().struct.unnest()).drop_nulls("source")
    unanswered = pl.col("requests") - pl.col("answers")
    connected = streams.filter("from_initiator", pl.col("attempt").is_null()).group_by(
        source="src_ip", destination="dst_ip"
    )
    return (
        pings.group_by(_PINGED)
        .agg(pl.sum("requests", "answers"), pl.min("first_ns"), pl.max("last_ns", "answered_ns"))
        .filter(unanswered > 0)
        .join(connected.agg(pl.max("first_captured_at").alias("connected_at")), on=_PINGED, how="left")
        .with_columns(
            pl.concat_str(*_PINGED, separator="->").alias("session_id"),
            unanswered.alias("messages"),
            timestamp(pl.col("first_ns")).alias("found_at"),
            timestamp(pl.col("last_ns")).alias("last_at"),
            timestamp(pl.col("answered_ns")).alias("answered_at"),
        )
    )


def _connections(streams: pl.DataFrame, handshakes: pl.DataFrame, quarantine: pl.DataFrame) -> pl.DataFrame:
    """Returns `client`, `server`, `first_at`, `last_at`, `key` and `failure` (null for none) of each connection.

    A connection that was closed without an answer counts only where the captures show that its receiver acknowledged
    bytes; and one that had no answer, only where they show what receivers send at all. One of which only the server's
    bytes were captured worked.
    """
    connection, mid_stream = pl.col("connection_id"), pl.col("mid_stream")
    refusals = handshakes.filter("connection_refused")
    bad_version = pl.col("reason") == FramingReason.BAD_VERSION.value
    of_other_version = quarantine.filter(bad_version, pl.col("stream_offset") == 0)
    answered = streams.filter(~pl.col("from_initiator"))["connection_id"]
    refused = streams.join(refusals, on="stream_id", how="semi")["connection_id"]
    other_version = streams.filter(~mid_stream).join(of_other_version, on="stream_id", how="semi")["connection_id"]
    closed = (
        (~connection.is_in(answered.implode()) & pl.col("closed") & ~mid_stream)
        & pl.col("acked_bytes").is_not_null()
        & (pl.col("missing_bytes") == 0)  # else the captures miss the answer, too
    )
    last_at = pl.col("last_captured_at").max().over("connection_id")
    by_client = pl.col("from_initiator")
    return (
        streams.with_columns(last_at=last_at, by_server_alone=(~by_client).all().over("connection_id"))
        .filter(by_client | pl.col("by_server_alone"))
        .filter(pl.lit(_shows_servers(streams)) | pl.col("attempt").ne_missing(pl.lit(Attempt.NO_ANSWER.value)))
        .select(
            "last_at",
            pl.when(by_client).then("src_ip").otherwise("dst_ip").alias("client"),
            pl.when(by_client).then("dst_ip").otherwise("src_ip").alias("server"),
            pl.col("first_captured_at").alias("first_at"),
            key_at("stream_id", pl.lit(0)).alias("key"),
            pl.when(connection.is_in(refused.implode()))
            .then(pl.lit(_REFUSED_SESSION))
            .when(connection.is_in(other_version.implode()))
            .then(pl.lit(_OTHER_VERSION))
            .when(pl.col("attempt").is_not_null())
            .then("attempt")
            .when(closed)
            .then(pl.lit(_CLOSED))
            .alias("failure"),
        )
    )


def _shows_servers(streams: pl.DataFrame) -> bool:
    """Returns whether captures show what servers send, or hold no byte of a client that one could have answered."""
    asked = streams.filter("from_initiator", pl.col("attempt").is_null())
    is_answered = not streams["from_initiator"].all() or asked["acked_bytes"].count() > 0
    return asked.is_empty() or is_answered
