"""Shows the replay every conversation once, although captures at both ends of a connection hold it twice.

Also by clocks that never step back. One look finds whether there is anything to do; in most warehouses there is not.
"""

from typing import NamedTuple, Self

import polars as pl

from schemas.ingest import FramingReason, Stage
from udfs.derive.columns import nanoseconds, null, timestamp
from udfs.derive.conversations.clocks import find_steps, with_recorded_times, with_steps_undone, with_streams_in_time
from udfs.derive.conversations.copies import (
    choose_connections,
    known_connections,
    same_beginning,
    stream_copies,
    suspect_copies,
)
from udfs.derive.conversations.packets import compared_ways, identify_packets, same_packets
from udfs.derive.conversations.places import KEY, measure_skews, place_copies, unread_by_all, unreadable


class United(NamedTuple):
    """The replay's tables without copies; a row that only a copy has stands where its counting stream lacks it.

    Such a row has the stream, offset and clock of the counting stream. `restore` undoes this.
    """

    messages: pl.DataFrame
    streams: pl.DataFrame
    stream_gaps: pl.DataFrame
    quarantine: pl.DataFrame
    acks: pl.DataFrame
    handshakes: pl.DataFrame
    steps: pl.DataFrame | None = None
    """What `clocks.find_steps` returns, where the times are by clocks without these steps."""
    copies: pl.DataFrame | None = None
    """What `copies.stream_copies` returns; None without copies."""
    copied: pl.DataFrame | None = None
    """The copies' rows of STREAMS."""
    placed: pl.DataFrame | None = None
    """What `place_copies` returns."""
    skews: pl.DataFrame | None = None
    """Differences between captures' clocks, as `measure_skews` returns them; None where none was measured."""
    failing: bool = False
    """Some connections failed: STREAMS and HANDSHAKES tell which."""
    had_copies: bool = False
    """STREAMS names copies, maybe of an earlier replay."""

    def without_steps(self, steps: pl.DataFrame) -> Self:
        """Returns the tables with the steps back of the captures' clocks undone."""
        return self._replace(
            messages=with_steps_undone(self.messages, steps),
            streams=with_streams_in_time(self.streams, steps, self.messages, self.acks, self.handshakes),
            acks=with_steps_undone(self.acks, steps),
            steps=steps,
        )

    def without_copies(self, copies: pl.DataFrame, placed: pl.DataFrame, unread: pl.DataFrame) -> Self:
        """Returns the tables with each conversation once; `unread` is what `unread_by_all` returns."""
        missing = unread.filter("missing").drop("missing")
        unusable = unread.filter(~pl.col("missing")).drop("missing").with_columns(stage=pl.lit(Stage.FRAMING.value))
        involved = pl.concat(copies.select(stream_id=side) for side in ("stream_id", "copy_of"))
        return self._replace(
            messages=once(self.messages, copies, placed),
            streams=whole(self.streams, copies, missing),
            stream_gaps=_without(self.stream_gaps, involved, missing),
            quarantine=_without(unreadable(self.quarantine), involved, unusable),
            acks=once(self.acks, copies, placed),
            handshakes=named_by_copies(self.handshakes, copies),
            copies=copies,
            copied=self.streams.join(copies, on="stream_id"),
            placed=placed,
        )

    def restore(self, verdicts: pl.DataFrame) -> pl.DataFrame:
        """Returns VERDICTS with the keys of their messages and the times that were recorded."""
        if self.placed is not None:
            verdicts = with_own_keys(verdicts, self.placed)
        return verdicts if self.steps is None else with_recorded_times(verdicts, self.steps)

    def every_end(self, peers: pl.DataFrame) -> pl.DataFrame:
        """Returns ENDS: `peers` of the streams that count, and of their copies the same."""
        if self.copied is None:
            return peers
        own = self.copied.select(
            *("stream_id", "connection_id", "copy_of", "mid_stream", "recovered_bytes", "missing_bytes"),
            address="src_ip",
            first_ns=nanoseconds(pl.col("first_captured_at")),
            last_ns=nanoseconds(pl.col("last_captured_at")),
        )
        shared = peers.select(pl.col("stream_id").alias("copy_of"), pl.exclude(own.columns))
        return pl.concat([peers, own.join(shared, on="copy_of").select(peers.columns)])

    def renamed_copies(self, streams: pl.DataFrame) -> pl.DataFrame:
        """Returns the rows of STREAMS of which `copy_of` is not what it should be."""
        if self.copies is None:
            return streams.filter(pl.col("copy_of").is_not_null()).with_columns(copy_of=null(pl.String))
        now = self.copies.select("stream_id", now="copy_of")
        return (
            streams.join(now, on="stream_id", how="left")
            .filter(pl.col("copy_of").ne_missing(pl.col("now")))
            .with_columns(copy_of="now")
            .select(streams.columns)
        )

    def counted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns the rows of MESSAGES or ACKS that count, as they are in the table."""
        if self.copies is None or self.placed is None:
            return rows
        only = self.placed.select(stream_id="own_stream", stream_offset="own_offset")
        return pl.concat(
            [rows.join(self.copies, on="stream_id", how="anti"), rows.join(only, on=KEY, how="semi")],
        )


class Suspicion(NamedTuple):
    """Says what there may be to do, and which facts there are: one look at tables of few rows."""

    alike: bool
    """Two connections begin alike."""
    vague: bool
    """The beginning of a connection is not known, so that packets are compared."""
    clock_steps: bool
    """A capture's clock stepped back."""
    had_copies: bool
    """STREAMS names copies."""
    failing: bool
    """A connection failed: it was refused, carried nothing, was closed without an answer, or was of another version."""


def suspect(
    streams: pl.DataFrame, connections: pl.DataFrame, quarantine: pl.DataFrame, captures: pl.DataFrame
) -> Suspicion:
    """Says what there may be to do; `connections` are the `known_connections` of STREAMS that carried bytes.

    Of QUARANTINE, only rows at the beginning of a stream (`stream_offset` 0) say something.
    """
    alike, vague = suspect_copies(connections)
    other_version = quarantine.filter(reason=FramingReason.BAD_VERSION.value, stream_offset=0)
    attempts = streams["attempt"].count() > 0
    return Suspicion(
        alike=alike,
        vague=vague,
        clock_steps=captures["clock_steps"].count() > 0,
        had_copies=streams["copy_of"].count() > 0,
        failing=connections["failing"].any() or attempts or not other_version.is_empty(),
    )


def unite(tables: United, captures: pl.DataFrame) -> United:
    """Returns the tables with every conversation once, by clocks that never step back."""
    streams = with_bytes(tables.streams)
    connections = known_connections(streams, tables.handshakes)
    found = suspect(tables.streams, connections, tables.quarantine, captures)
    tables = tables._replace(streams=streams, had_copies=found.had_copies, failing=found.failing)
    if found.clock_steps:
        tables = tables.without_steps(find_steps(captures))
    copies = find_copies(tables, connections, alike=found.alike, vague=found.vague)
    if copies is None:
        return tables
    ranges = (copies, tables.streams, tables.stream_gaps, tables.quarantine)
    placed = place_copies(*ranges, tables.messages, tables.acks)
    skews = measure_skews(copies, tables.messages, tables.acks)
    united = tables.without_copies(copies, placed, unread_by_all(*ranges))
    return united if skews.is_empty() else united._replace(skews=skews)


def with_bytes(streams: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of STREAMS that carried bytes, without what was said of copies before."""
    return streams.filter(pl.col("attempt").is_null()).drop("attempt", "copy_of")


def find_copies(tables: United, connections: pl.DataFrame, *, alike: bool, vague: bool) -> pl.DataFrame | None:
    """Returns the streams that are copies, and of which; None without any.

    `alike`: connections begin alike; `vague`: the beginning of one is not known, so that packets are compared.
    """
    parts = [same_beginning(connections)] if alike else []
    if vague:
        packets = identify_packets(tables.messages, tables.acks)
        ways = compared_ways(connections, packets)
        parts += [] if ways.is_empty() else [same_packets(ways, packets)]
    pairs = pl.concat(parts) if parts else pl.DataFrame()
    return None if pairs.is_empty() else stream_copies(choose_connections(pairs, connections), connections)


def with_own_keys(verdicts: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
    """Returns VERDICTS with the key and the recorded time of their messages."""
    own = verdicts.select(KEY).join(placed, on=KEY, how="left", maintain_order="left")
    late = own["late_ns"].fill_null(0)
    return verdicts.with_columns(
        stream_id=own["own_stream"].fill_null(own["stream_id"]),
        stream_offset=own["own_offset"].fill_null(own["stream_offset"]),
        captured_ns=pl.col("captured_ns") + late,
        acknowledged_at=timestamp(nanoseconds(pl.col("acknowledged_at")) + late),
    )


def once(rows: pl.DataFrame, copies: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows without those of copies, and with those that only copies have in their place."""
    there = placed.select(
        "late_ns", stream_id="own_stream", stream_offset="own_offset", at_stream="stream_id", at_offset="stream_offset"
    )
    moved = rows.join(there, on=KEY).with_columns(
        stream_id="at_stream", stream_offset="at_offset", captured_ns=pl.col("captured_ns") - pl.col("late_ns")
    )
    return pl.concat([rows.join(copies, on="stream_id", how="anti"), moved.select(rows.columns)])


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


def _without(ranges: pl.DataFrame, involved: pl.DataFrame, instead: pl.DataFrame) -> pl.DataFrame:
    """Returns the ranges of bytes of streams that are not involved, and others in place of the rest."""
    return pl.concat([ranges.join(involved, on="stream_id", how="anti"), instead], how="diagonal")
