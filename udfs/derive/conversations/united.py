"""Shows the replay every conversation once, although captures at both ends of a connection hold it twice.

Also by clocks that never step back. One look finds whether there is anything to do; in most warehouses there is not.
"""

import polars as pl

from schemas.ingest import Stage
from udfs.derive.columns import PLACE, nanoseconds, timestamp
from udfs.derive.conversations.clocks import find_steps
from udfs.derive.conversations.copies import (
    choose_connections,
    known_connections,
    same_beginning,
    stream_copies,
)
from udfs.derive.conversations.packets import vague_streams
from udfs.derive.conversations.places import between_captures, clock_differences, place_copies, unread_by_all
from udfs.derive.frames import Frames, derives

COUNTING = "counting_stream"
"""The stream that counts, of a stream of which there are copies, and of each copy."""
_SIDES = ("stream_id", "copy_of")
_HANDSHAKE = ("stream_id", "handshake_type", "client_guid", "time_stamp_ms")


@derives(columns={"handshakes": _HANDSHAKE, "captures": ("capture_id", "clock_steps")})
def suspect(streams: pl.DataFrame, handshakes: pl.DataFrame, captures: pl.DataFrame) -> Frames:
    """Returns what tables of few rows say of conversations; mostly, there is nothing to do.

    `streams` are the rows of STREAMS that carried bytes, without what was said of copies before, and `connections`
    their `known_connections`; `vague` are `vague_streams`, `alike` pairs with the `same_beginning`, and `steps` what
    `find_steps` returns. `named` are the copies that STREAMS names, maybe since an earlier replay.
    """
    with_bytes = streams.filter(pl.col("attempt").is_null()).drop("attempt", "copy_of")
    connections = known_connections(with_bytes, handshakes)
    return {
        "streams": with_bytes,
        "connections": connections,
        "vague": vague_streams(connections),
        "alike": same_beginning(connections),
        "steps": find_steps(captures),
        "named": streams.select("stream_id", "copy_of").drop_nulls("copy_of"),
    }


def choose_streams(pairs: pl.DataFrame, connections: pl.DataFrame) -> Frames:
    """Returns the `stream_copies` of all pairs of connections, and COUNTING of all streams that these name."""
    copies = stream_copies(choose_connections(pairs, connections), connections)
    return {
        "copies": copies,
        "groups": pl.concat(copies.select(pl.col("copy_of").alias(COUNTING), stream_id=side) for side in _SIDES)
        .unique()
        .select("stream_id", COUNTING),
    }


@derives((COUNTING,), columns=dict.fromkeys(("messages", "acks"), (*PLACE, "captured_ns", "capture_id")))
def unite_streams(
    copies: pl.DataFrame,
    streams: pl.DataFrame,
    stream_gaps: pl.DataFrame,
    quarantine: pl.DataFrame,
    handshakes: pl.DataFrame,
    messages: pl.DataFrame,
    acks: pl.DataFrame,
) -> Frames:
    """Unites streams that count with their copies: all rows of any of these, to which COUNTING was added.

    It returns rows of STREAMS, STREAM_GAPS, QUARANTINE and HANDSHAKES in place of these; what `place_copies` and
    `between_captures` return; and as `copied` those columns of ENDS in which a copy differs from its stream.
    """
    ranges = (copies, streams, stream_gaps, quarantine)
    unread, differences = unread_by_all(*ranges), clock_differences(copies, messages, acks)
    missing = unread.filter("missing").drop("missing")
    return {
        "placed": place_copies(*ranges, messages, acks, differences),
        "differences": between_captures(differences),
        "streams": whole(streams.drop(COUNTING), copies, missing),
        "stream_gaps": missing,
        "quarantine": unread.filter(~pl.col("missing")).drop("missing").with_columns(stage=pl.lit(Stage.FRAMING.value)),
        "handshakes": named_by_copies(handshakes.drop(COUNTING), copies),
        "copied": streams.join(copies, on="stream_id").select(
            *("stream_id", "connection_id", "copy_of", "mid_stream", "recovered_bytes", "missing_bytes"),
            address="src_ip",
            first_ns=nanoseconds(pl.col("first_captured_at")),
            last_ns=nanoseconds(pl.col("last_captured_at")),
        ),
    }


@derives(("stream_id",))
def in_their_places(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of copies in the place and by the clock of the stream that counts.

    The rows have that place, `at_stream` and `at_offset`, and `late_ns` of `place_copies`.
    """
    moved = rows.with_columns(
        stream_id="at_stream", stream_offset="at_offset", captured_ns=pl.col("captured_ns") - pl.col("late_ns")
    )
    return moved.drop("at_stream", "at_offset", "late_ns")


@derives(("stream_id",))
def with_own_keys(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns VERDICTS with the key and the recorded time of their messages.

    The rows have the columns of what `place_copies` returns.
    """
    late = pl.col("late_ns")
    return verdicts.with_columns(
        stream_id="own_stream",
        stream_offset="own_offset",
        captured_ns=pl.col("captured_ns") + late,
        acknowledged_at=timestamp(nanoseconds(pl.col("acknowledged_at")) + late),
    ).drop("own_stream", "own_offset", "late_ns")


def with_copies(ends: pl.DataFrame, copied: pl.DataFrame) -> pl.DataFrame:
    """Returns ENDS: those of the streams that count, which are given, and of their copies the same."""
    shared = ends.select(pl.col("stream_id").alias("copy_of"), pl.exclude(copied.columns))
    return pl.concat([ends, copied.join(shared, on="copy_of").select(ends.columns)])


@derives(columns={"copies": ("stream_id", "copy_of")})
def rename_copies(streams: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of STREAMS of which `copy_of` is not what it should be."""
    now = copies.select("stream_id", now="copy_of")
    return (
        streams.join(now, on="stream_id", how="left")
        .filter(pl.col("copy_of").ne_missing(pl.col("now")))
        .with_columns(copy_of="now")
        .select(streams.columns)
    )


def whole(streams: pl.DataFrame, copies: pl.DataFrame, missing: pl.DataFrame) -> pl.DataFrame:
    """Returns the streams that count, with bytes, acknowledgments and beginning of both themselves and their copies.

    `missing` are ranges that no capture has.
    """
    begun = (
        streams.join(copies.filter(pl.col("ahead").is_not_null()), on="stream_id")
        .group_by(stream_id="copy_of")
        .agg(never_begun=pl.min("mid_stream"), acked=(pl.col("acked_bytes") - pl.col("ahead")).max())
    )
    lacking = missing.group_by("stream_id").agg(lacking=pl.sum("length"))
    lacks = pl.when(pl.col("never_begun").is_null()).then("missing_bytes").otherwise(pl.col("lacking").fill_null(0))
    return (
        streams.join(copies, on="stream_id", how="anti")
        .join(begun, on="stream_id", how="left")
        .join(lacking, on="stream_id", how="left")
        .with_columns(
            mid_stream=pl.col("mid_stream") & pl.col("never_begun").fill_null(value=True),
            missing_bytes=lacks,
            recovered_bytes=pl.col("recovered_bytes") + pl.col("missing_bytes") - lacks,
            acked_bytes=pl.max_horizontal("acked_bytes", "acked"),
        )
        .select(streams.columns)
    )


def named_by_copies(handshakes: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns the handshakes on the streams that count, those of copies among them."""
    named = handshakes.join(copies.select("stream_id", "copy_of"), on="stream_id", how="left")
    return named.with_columns(stream_id=pl.coalesce("copy_of", "stream_id")).drop("copy_of")
