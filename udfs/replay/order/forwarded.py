"""Tells copies, which an address translation makes, from connections on which a router sends messages on.

Both show the same packets, and those of one sender even at one difference of stream offsets. But in the place of a
packet that a copy has, the other connection has the same one, or lacks bytes; it has none there only if nothing was
captured of it then. A router also sends what others sent.
"""

import polars as pl

from udfs.frames.columns import count_if, nanoseconds
from udfs.frames.derivation import derives
from udfs.replay.order.copies import AHEAD, PAIR, WAYS, with_both

_DENIED = 0.1
"""Of the packets that two connections share, so many times as many may be on one of them alone."""


def places_in_others(
    pairs: pl.DataFrame, connections: pl.DataFrame, streams: pl.DataFrame, shown: pl.DataFrame, captures: pl.DataFrame
) -> pl.DataFrame:
    """Returns for each PAIR of connections, and both ways, where a packet of one stream stands on the `other` one.

    That is at its offset less `shift`. The other one has `size` bytes, its beginning was not captured if `mid_stream`,
    and the captures that show it last from `since_ns` to `until_ns`. Streams of which bytes are missing deny nothing,
    and are left out. `shown` are the `stream_id` and `capture_id` of packets.
    """
    both = with_both(pairs, connections.select("connection_id", *WAYS))
    sides = [
        both.select(*PAIR, stream_id=f"{own}_{way}", other=f"{other}_{way}", shift=sign * pl.col(ahead))
        for way, ahead in zip(WAYS, AHEAD, strict=True)
        for own, other, sign in (("x", "y", 1), ("y", "x", -1))
    ]
    times = captures.select(
        "capture_id",
        since_ns=nanoseconds(pl.col("first_captured_at")),
        until_ns=nanoseconds(pl.col("last_captured_at")),
    )
    made = shown.join(times, on="capture_id").group_by(other="stream_id").agg(pl.min("since_ns"), pl.max("until_ns"))
    whole = streams.filter(pl.col("missing_bytes") == 0)
    ends = whole.select("mid_stream", other="stream_id", size="recovered_bytes")
    return pl.concat(sides).drop_nulls().join(ends, on="other").join(made, on="other")


@derives(("other",), columns={"packets": ("other", "stream_offset", "packet")})
def count_denied(placed: pl.DataFrame, packets: pl.DataFrame, unread: pl.DataFrame) -> pl.DataFrame:
    """Returns per PAIR how many packets both streams have, `held`, and how many only one has, `denied`.

    Of the latter, those count that the `other` stream would show if it was a copy. `placed` are packets with the
    columns of `places_in_others`, `packets` those of the other streams, and `unread` rows of RANGE of these.
    """
    at = pl.col("stream_offset")
    is_before, is_behind = at < 0, at >= pl.col("size")
    was_captured = pl.col("captured_ns").is_between("since_ns", "until_ns")
    would_be = ~(is_before | is_behind) | was_captured | (is_before & ~pl.col("mid_stream"))
    there = packets.unique().with_columns(is_there=True)
    found = (
        _readable(placed.with_columns(stream_offset=at - pl.col("shift")), unread)
        .filter(would_be)
        .join(there, on=["other", "stream_offset", "packet"], how="left")
    )
    is_there = pl.col("is_there").is_not_null()
    return found.group_by(PAIR).agg(count_if(is_there).alias("held"), count_if(~is_there).alias("denied"))


def _readable(placed: pl.DataFrame, unread: pl.DataFrame) -> pl.DataFrame:
    """Returns the packets without those in whose places, up to the next one, the other stream has unread bytes."""
    following = pl.col("stream_offset").shift(-1).over(*PAIR, "other").fill_null(pl.Int64.max())
    ordered = placed.sort("stream_offset").with_columns(following=following).sort("following")
    ranges = unread.select("other", begin="stream_offset", end=pl.col("stream_offset") + pl.col("length")).sort("begin")
    last = ordered.join_asof(
        ranges, left_on="following", right_on="begin", by="other", allow_exact_matches=False, check_sortedness=False
    )
    return last.filter((pl.col("end") <= pl.col("stream_offset")).fill_null(value=True))


def without_forwarded(pairs: pl.DataFrame, denied: pl.DataFrame) -> pl.DataFrame:
    """Returns the pairs that are copies, by what `count_denied` returns."""
    sums = denied.group_by(PAIR).agg(pl.sum("held", "denied"))
    return pairs.join(sums.filter(pl.col("denied") > _DENIED * pl.col("held")), on=PAIR, how="anti")
