"""Shows the replay every conversation once, although captures at both ends of a connection hold it twice.

Also by clocks that never step back. One look finds whether there is anything to do; in most warehouses there is not.
"""

from enum import StrEnum

import polars as pl

from schemas.ingest import Stage
from udfs.derive.columns import nanoseconds, timestamp
from udfs.derive.conversations.clocks import find_steps
from udfs.derive.conversations.copies import (
    choose_connections,
    known_connections,
    same_beginning,
    stream_copies,
    suspect_copies,
)
from udfs.derive.conversations.packets import vague_streams
from udfs.derive.conversations.places import between_captures, clock_differences, place_copies, unread_by_all
from udfs.derive.frames import Frames

COUNTING = "counting_stream"
"""The stream that counts, of a stream of which there are copies, and of each copy."""
_SIDES = ("stream_id", "copy_of")


class Suspicion(StrEnum):
    """Lists what there may be to do."""

    ALIKE = "alike"
    """Two connections begin alike."""
    VAGUE = "vague"
    """The beginning of a connection is not known, so that packets are compared."""
    CLOCK_STEPS = "clock_steps"
    """A capture's clock stepped back."""
    HAD_COPIES = "had_copies"
    """STREAMS names copies, maybe of an earlier replay."""


def suspect(streams: pl.DataFrame, handshakes: pl.DataFrame, captures: pl.DataFrame) -> Frames:
    """Returns every `Suspicion`, and what tables of few rows say of conversations.

    `streams` are the rows of STREAMS that carried bytes, without what was said of copies before, and `connections`
    their `known_connections`; `vague` are `vague_streams`, `alike` pairs with the `same_beginning`, and `steps` what
    `find_steps` returns.
    """
    with_bytes = streams.filter(pl.col("attempt").is_null()).drop("attempt", "copy_of")
    connections = known_connections(with_bytes, handshakes)
    alike, vague = suspect_copies(connections)
    found = {
        Suspicion.ALIKE: alike,
        Suspicion.VAGUE: vague,
        Suspicion.CLOCK_STEPS: captures["clock_steps"].count() > 0,
        Suspicion.HAD_COPIES: streams["copy_of"].count() > 0,
    }
    return {
        "suspicions": pl.DataFrame({"suspicion": [str(one) for one in found if found[one]]}, {"suspicion": pl.String}),
        "streams": with_bytes,
        "connections": connections,
        "vague": vague_streams(connections),
        "alike": same_beginning(connections),
        "steps": find_steps(captures),
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
    unread = unread_by_all(*ranges)
    missing = unread.filter("missing").drop("missing")
    return {
        "placed": place_copies(*ranges, messages, acks),
        "differences": between_captures(clock_differences(copies, messages, acks)),
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


def in_their_places(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of copies in the place and by the clock of the stream that counts. Right for any rows.

    The rows have that place, `at_stream` and `at_offset`, and `late_ns` of `place_copies`.
    """
    moved = rows.with_columns(
        stream_id="at_stream", stream_offset="at_offset", captured_ns=pl.col("captured_ns") - pl.col("late_ns")
    )
    return moved.drop("at_stream", "at_offset", "late_ns")


def with_own_keys(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns VERDICTS with the key and the recorded time of their messages. Right for any rows.

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


def rename_copies(streams: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of STREAMS of which `copy_of` is not what it should be. Right for all rows of any streams."""
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
