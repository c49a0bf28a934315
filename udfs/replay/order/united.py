"""Shows the replay every conversation once, although captures at both ends of a connection hold it twice.

Also by clocks that never step back. One look finds whether there is anything to do; in most warehouses there is not.
"""

import polars as pl

from udfs.frames.columns import CAPTURES_OF_PAIR, PLACE, RANGE, nanoseconds
from udfs.frames.derivation import Frames, derives
from udfs.replay.order.apart import captures_apart
from udfs.replay.order.clocks import find_steps
from udfs.replay.order.copies import (
    find_taps,
    known_connections,
    same_beginning,
    stream_copies,
    vague_streams,
)
from udfs.replay.order.offsets import find_spans

COUNTING = "counting_stream"
"""The stream that counts, of a stream of which there are copies, and of each copy."""
_SIDES = ("stream_id", "copy_of")
_TOTALS = ("unread", "missing", "held")
_NONE, _ONE, _FAR = (pl.lit(n, pl.Int64) for n in (0, 1, 1 << 62))


def suspect(streams: pl.DataFrame, handshakes: pl.DataFrame, captures: pl.DataFrame) -> Frames:
    """Returns what tables of few rows say of conversations; mostly, there is nothing to do.

    `streams` are the rows of STREAMS that carried bytes, without what was said of copies before, and `connections`
    their `known_connections`; `vague` are `vague_streams`, `alike` pairs with the `same_beginning`; `steps`, `spans`
    and `apart` what `find_steps`, `find_spans` and `captures_apart` return. `named` are the copies that STREAMS names,
    maybe since an earlier replay.
    """
    with_bytes = streams.filter(pl.col("attempt").is_null()).drop("attempt", "copy_of")
    connections = known_connections(with_bytes, handshakes)
    return {
        "streams": with_bytes,
        "connections": connections,
        "vague": vague_streams(connections),
        "alike": same_beginning(connections),
        "steps": find_steps(captures),
        "spans": find_spans(captures),
        "apart": captures_apart(captures),
        "named": streams.select("stream_id", "copy_of").drop_nulls("copy_of"),
    }


def choose_streams(pairs: pl.DataFrame, connections: pl.DataFrame, shown: pl.DataFrame) -> Frames:
    """Returns the `stream_copies` of all pairs of connections, and COUNTING of all streams that these name.

    `shown` are the `stream_id` and `capture_id` of packets.
    """
    taps = find_taps(pairs, connections, shown)
    copies = stream_copies(pairs, connections.join(taps, on="connection_id", how="left"))
    groups = pl.concat(copies.select(pl.col("copy_of").alias(COUNTING), stream_id=side) for side in _SIDES)
    return {"copies": copies, "groups": groups.unique().select("stream_id", COUNTING)}


@derives((COUNTING,), columns=dict.fromkeys(("messages", "acks"), (*PLACE, "captured_ns", "capture_id")))
def unite_streams(
    copies: pl.DataFrame,
    streams: pl.DataFrame,
    unread: pl.DataFrame,
    handshakes: pl.DataFrame,
    messages: pl.DataFrame,
    acks: pl.DataFrame,
) -> Frames:
    """Unites streams that count with their copies: all rows of any of these, to which COUNTING was added.

    It returns rows of STREAMS, HANDSHAKES and `coverage.unread_ranges` in place of these; as `placed` and `differences`
    what `_placed` and `_between_captures` return; and as `copied` those columns of ENDS in which a copy differs from
    its stream.
    """
    packets = pl.concat(of.select(*PLACE, "captured_ns", "capture_id") for of in (messages, acks))
    of_copies = _moved(packets, copies)
    both = of_copies.join(packets, left_on=["at_stream", "at_offset"], right_on=PLACE, suffix="_counted")
    both = both.with_columns(ahead_ns=pl.col("captured_ns") - pl.col("captured_ns_counted"))
    late = both.group_by("stream_id").agg(late_ns=pl.median("ahead_ns").cast(pl.Int64))
    named = handshakes.drop(COUNTING).join(copies.select(_SIDES), on="stream_id", how="left")
    unread_by_all = _unread_by_all(copies, streams, unread)
    return {
        "placed": _placed(_lacked(of_copies, streams, unread), late),
        "differences": _between_captures(both),
        "streams": _whole(streams.drop(COUNTING), copies, unread_by_all.filter("missing")),
        "unread": unread_by_all,
        "handshakes": named.with_columns(stream_id=pl.coalesce("copy_of", "stream_id")).drop("copy_of"),
        "copied": _copied(streams, copies, late),
    }


def _copied(streams: pl.DataFrame, copies: pl.DataFrame, late: pl.DataFrame) -> pl.DataFrame:
    """Returns the columns of ENDS in which copies differ from their streams, and by how much their clock is ahead."""
    return (
        streams.join(copies, on="stream_id")
        .join(late, on="stream_id", how="left")
        .select(
            *("stream_id", "connection_id", "copy_of", "mid_stream", "recovered_bytes", "missing_bytes", "late_ns"),
            address="src_ip",
            first_ns=nanoseconds(pl.col("first_captured_at")),
            last_ns=nanoseconds(pl.col("last_captured_at")),
            receiver_last_ns=nanoseconds(pl.col("receiver_last_at")),
        )
    )


def _moved(rows: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of copies with `at_stream` and `at_offset`, their place in the stream that counts."""
    known = copies.filter(pl.col("ahead").is_not_null())
    return rows.join(known.select("stream_id", "ahead", at_stream="copy_of"), on="stream_id").select(
        *rows.columns, "at_stream", at_offset=pl.col("stream_offset") - pl.col("ahead")
    )


def _lacked(of_copies: pl.DataFrame, streams: pl.DataFrame, unread: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of copies in whose place the stream that counts has no rows at all."""
    low, size = pl.col("stream_offset"), pl.col("recovered_bytes") + pl.col("missing_bytes")
    ranges = unread.select("stream_id", low=low, high=low + pl.col("length"))
    around = (streams.select("stream_id", low=a, high=b) for a, b in ((-_FAR, _NONE), (size, _FAR)))
    return (
        of_copies.sort("at_offset")
        .join_asof(
            pl.concat([ranges, *around]).sort("low"),
            left_on="at_offset",
            right_on="low",
            by_left="at_stream",
            by_right="stream_id",
            check_sortedness=False,
        )
        .filter(pl.col("at_offset") < pl.col("high"))
    )


def _placed(only_copied: pl.DataFrame, late: pl.DataFrame) -> pl.DataFrame:
    """Returns the messages and acknowledgments that only copies have, from one copy each.

    `stream_id` and `stream_offset` are the place in the stream that counts, `own_stream` and `own_offset` the row's
    key, and `late_ns` is by how much the clock of the copy is ahead: the median over the packets that both have.
    """
    return (
        only_copied.join(late, on="stream_id", how="left")
        .sort(PLACE)
        .unique(["at_stream", "at_offset"], keep="first", maintain_order=True)
        .select(
            own_stream="stream_id",
            own_offset="stream_offset",
            stream_id="at_stream",
            stream_offset="at_offset",
            late_ns=pl.col("late_ns").fill_null(0),
        )
    )


def _between_captures(both: pl.DataFrame) -> pl.DataFrame:
    """Returns the packets that two captures have, CAPTURES_OF_PAIR: `ahead_ns`: how much later the second does."""
    pair = ("capture_id_counted", "capture_id")
    one, other = CAPTURES_OF_PAIR
    in_order = pl.when(pl.col(pair[0]) < pl.col(pair[1]))
    return both.filter(pl.col(pair[0]) != pl.col(pair[1])).select(
        pl.min_horizontal(pair).alias(one),
        pl.max_horizontal(pair).alias(other),
        in_order.then("ahead_ns").otherwise(-pl.col("ahead_ns")),
    )


def _unread_by_all(copies: pl.DataFrame, streams: pl.DataFrame, unread: pl.DataFrame) -> pl.DataFrame:
    """Returns the unread ranges of the streams that count, without what a copy has."""
    ranges = unread.select(*RANGE, pl.col("missing").cast(pl.Int64))
    own = ranges.join(copies, on="stream_id", how="anti").with_columns(unread=_ONE, held=_NONE)
    size = pl.col("recovered_bytes") + pl.col("missing_bytes")
    extents = streams.select("stream_id", stream_offset=_NONE, length=size, held=_ONE)
    held = _moved(pl.concat([extents, ranges.select(*RANGE, held=-_ONE)]), copies).select(
        "length", "held", stream_id="at_stream", stream_offset="at_offset", unread=_NONE, missing=_NONE
    )
    place = pl.col("stream_offset")
    return (
        pl.concat([*_changes(own), *_changes(held)])
        .group_by(PLACE)
        .agg(pl.sum(*_TOTALS))
        .sort(place)
        .with_columns(
            (place.shift(-1) - place).over("stream_id").alias("length"), pl.col(*_TOTALS).cum_sum().over("stream_id")
        )
        .filter(pl.col("unread") > 0, pl.col("held") == 0, pl.col("length") > 0)
        .select(*RANGE, pl.col("missing") > 0)
    )


def _changes(ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns by how much the totals rise at the start of each range, and at its end."""
    end = pl.col("stream_offset") + pl.col("length")
    return ranges.select(*PLACE, *_TOTALS), ranges.select("stream_id", end.alias("stream_offset"), -pl.col(*_TOTALS))


def _whole(streams: pl.DataFrame, copies: pl.DataFrame, missing: pl.DataFrame) -> pl.DataFrame:
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


def with_copies(ends: pl.DataFrame, copied: pl.DataFrame) -> pl.DataFrame:
    """Returns ENDS: those of the streams that count, which are given, and of their copies the same.

    Times of copies are by the clocks of the streams that count. A direction without packets that compare the clocks
    takes the difference of the other one.
    """
    late_ns = pl.coalesce("late_ns", pl.col("late_ns").max().over("connection_id"), 0)
    copied = copied.with_columns(pl.col("first_ns", "last_ns", "receiver_last_ns") - late_ns).drop("late_ns")
    shared = ends.select(pl.col("stream_id").alias("copy_of"), pl.exclude(copied.columns))
    return pl.concat([ends, copied.join(shared, on="copy_of").select(ends.columns)])


@derives(shared=("copies",), in_parts=True)
def on_counting_streams(rows: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows with the stream that counts as `stream_id` where it is a copy; `copies` name both.

    A machine has another address on either side of a translation: only that on the stream that counts is its own.
    """
    named = rows.join(copies.select(_SIDES), on="stream_id", how="left", maintain_order="left")
    return named.with_columns(stream_id=pl.coalesce("copy_of", "stream_id")).select(rows.columns)


def rename_copies(streams: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of STREAMS of which `copy_of` is not what it should be."""
    now = copies.select("stream_id", now="copy_of")
    return (
        streams.join(now, on="stream_id", how="left")
        .filter(pl.col("copy_of").ne_missing(pl.col("now")))
        .with_columns(copy_of="now")
        .select(streams.columns)
    )
