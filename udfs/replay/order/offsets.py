"""Finds by how much the clocks of captures differ that hold the same connections.

Each packet has the time of the capture that completed it. Two neighbours on a stream, of two captures, say how far one
clock is ahead at most: the later one did not come first. So do the packets of a handshake, each of which answers the
one before it, from the other direction: also those of two captures that have a direction each.

Captures that were made one after the other, but for a clock that was set in between, are in the order in which their
connections go on.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from schemas.ingest import PacketType
from udfs.frames.columns import PLACE, nanoseconds
from udfs.frames.derivation import derives
from udfs.replay.order.apart import captures_apart

_LEAST_NS = 250_000_000
"""Clocks that differ less are taken for equal."""
_OVERLAP_NS = 500_000_000
"""Captures that overlap less were made one after the other."""
_CLEARLY = 3
"""So many times as many connections have to go on from one capture to another as back."""
_MOST = 10_000
"""Changes from one capture to another that are looked at."""
_SPAN = ("capture_id", "first_ns", "last_ns")
OF_HANDSHAKE = ("stream_id", "handshake_type", "capture_id", "captured_ns")
"""The columns of HANDSHAKES that `find_answers` needs."""
_SCHEMA = {"capture_id": pl.String, "first_frame": pl.Int64, "behind_ns": pl.Int64}


def find_spans(captures: pl.DataFrame) -> pl.DataFrame:
    """Returns `capture_id`, `first_ns`, `last_ns` and `tap` of the captures, in order, if their clocks may differ.

    That is if any two were made at the same time, or if some are `captures_apart`, by their taps. A capture whose
    own clock steps back has no such times.
    """
    steady = captures.filter(pl.col("clock_steps").is_null())
    timed = steady.select(
        "capture_id",
        first_ns=nanoseconds(pl.col("first_captured_at")),
        last_ns=nanoseconds(pl.col("last_captured_at")),
    )
    in_order = timed.drop_nulls().sort("first_ns", "last_ns", "capture_id")
    apart = captures_apart(steady)
    return in_order.join(apart, on="capture_id", how="left").filter(_overlaps().any() | pl.lit(not apart.is_empty()))


def _overlaps() -> pl.Expr:
    """Returns whether a capture began before one of those before it had ended; they are in order."""
    return pl.col("last_ns").cum_max().shift(1) - pl.col("first_ns") > _OVERLAP_NS


def find_shared_streams(spans: pl.DataFrame, shown: pl.DataFrame) -> pl.DataFrame:
    """Returns `stream_id` of the streams in several captures that were made at the same time, or by several taps.

    `shown` are the `stream_id` and `capture_id` of all packets.
    """
    several = shown.join(spans, on="capture_id").filter(pl.len().over("stream_id") > 1)
    in_order = several.sort("first_ns", "last_ns", "capture_id")
    by_taps = pl.col("tap").n_unique() > 1
    return in_order.filter((_overlaps().any() | by_taps).over("stream_id")).select("stream_id").unique()


@derives(("stream_id",), columns={"packets": (*PLACE, "capture_id", "captured_ns")})
def find_neighbours(packets: pl.DataFrame) -> pl.DataFrame:
    """Returns where the packets of a stream change from one `capture_id` to another, from `before` to it.

    `ahead_ns` is by how much its clock is ahead of that of `before` at most. Where `before` goes on after a run of
    packets, `least_ns` is by how much at least; null elsewhere.
    """
    runs = (
        packets.drop_nulls("captured_ns")
        .sort(PLACE)
        .with_columns(run=pl.struct("stream_id", "capture_id").rle_id())
        .group_by("run", "stream_id", "capture_id", maintain_order=True)
        .agg(first_ns=pl.col("captured_ns").first(), last_ns=pl.col("captured_ns").last())
        .with_columns(
            pl.col("capture_id").shift(1).over("stream_id").alias("before"),
            pl.col("last_ns").shift(1).over("stream_id").alias("before_ns"),
            pl.col("capture_id").shift(-1).over("stream_id").alias("after"),
            pl.col("first_ns").shift(-1).over("stream_id").alias("after_ns"),
        )
    )
    goes_on = pl.when(pl.col("after") == pl.col("before"))
    return runs.drop_nulls("before").select(
        "before",
        "capture_id",
        ahead_ns=pl.col("first_ns") - pl.col("before_ns"),
        least_ns=goes_on.then(pl.col("last_ns") - pl.col("after_ns")),
    )


@derives(("connection_id",))
def find_answers(handshakes: pl.DataFrame) -> pl.DataFrame:
    """Returns where a packet of a handshake answers one of another capture, as `find_neighbours` does.

    `handshakes` are rows of HANDSHAKES with `connection_id` and `from_initiator` of their stream: the side that opened
    the connection says first that it wants to, then with which parameters, and the other one answers both [MS-MQQB
    1.3.1].
    """
    in_order = (
        handshakes.drop_nulls(("captured_ns", "from_initiator"))
        .sort("connection_id", pl.col("handshake_type") != PacketType.ESTABLISH_CONNECTION, ~pl.col("from_initiator"))
        .unique(("connection_id", "handshake_type", "from_initiator"), keep="none", maintain_order=True)
    )
    before, before_ns = (pl.col(name).shift(1).over("connection_id") for name in ("capture_id", "captured_ns"))
    ahead_ns = pl.col("captured_ns") - before_ns
    answers = in_order.select(before.alias("before"), "capture_id", ahead_ns=ahead_ns, least_ns=pl.lit(None, pl.Int64))
    return answers.filter(pl.col("before") != pl.col("capture_id"))


def find_offsets(spans: pl.DataFrame, neighbours: pl.DataFrame) -> pl.DataFrame:
    """Returns per capture by how much its clock is `behind_ns` that of the first capture with the same connections.

    The rows are of `clocks.find_steps`. One is left out where the clocks may be the same.
    """
    times = {capture: Span(first, last) for capture, first, last in spans.select(_SPAN).iter_rows()}
    changes: dict[tuple[str, str], list[Change]] = defaultdict(list)
    partners: dict[str, set[str]] = defaultdict(set)
    for before, capture, *change in _some(neighbours).rows():
        changes[before, capture].append(Change(*change))
        partners[before].add(capture)
        partners[capture].add(before)
    offsets: dict[str, int] = {}
    for capture, span in times.items():
        found = [(0, 0)]
        for other in sorted(partners[capture] & offsets.keys()):
            there, back = changes[other, capture], changes[capture, other]
            ahead = _ahead(there, back, span, times[other])
            found.append((len(there) + len(back), offsets[other] + ahead))
        offsets[capture] = max(found)[1]
    rows = [(capture, -1, -offset) for capture, offset in offsets.items() if offset]
    return pl.DataFrame(rows, _SCHEMA, orient="row")


def _some(neighbours: pl.DataFrame) -> pl.DataFrame:
    """Returns at most _MOST changes from each capture to another, the same ones whatever their order."""
    pair = ("before", "capture_id")
    nth, every = pl.int_range(pl.len()).over(pair), pl.len().over(pair) // _MOST + 1
    return neighbours.sort(neighbours.columns).filter(nth % every == 0)


class Change(NamedTuple):
    """Holds what a change from one capture to another says of their clocks, as `find_neighbours` does."""

    ahead_ns: int
    least_ns: int | None


class Span(NamedTuple):
    """Holds when the first and the last record of a capture were captured, in ns since 1970."""

    first: int
    last: int

    def overlap(self, other: "Span") -> int:
        """Returns for how long both seem to have been made, in ns; negative for apart."""
        return min(self.last, other.last) - max(self.first, other.first)

    def moved(self, ahead: int) -> "Span":
        """Returns when that was by a clock that this one is so far ahead of."""
        return Span(self.first - ahead, self.last - ahead)


class Bounds(NamedTuple):
    """Holds by how many ns a clock is ahead of another one `least`, and at `most`, each list in order."""

    least: list[int]
    most: list[int]

    def contradicted(self, ahead: int) -> int:
        """Returns how many bounds say that the clock is not so far ahead."""
        return len(self.least) - bisect_right(self.least, ahead) + bisect_left(self.most, ahead)

    def fit(self) -> int:
        """Returns what contradicts the fewest bounds, the least of these; 0 below what counts as a difference."""
        ahead = min((0, *self.least, *self.most), key=lambda one: (self.contradicted(one), abs(one)))
        return ahead if abs(ahead) > _LEAST_NS else 0


def _bounds(there: Sequence[Change], back: Sequence[Change]) -> Bounds:
    """Returns what the changes to a capture from another one say, and those back, of how far its clock is ahead."""
    least = [one.least_ns for one in there if one.least_ns is not None] + [-one.ahead_ns for one in back]
    most = [one.ahead_ns for one in there] + [-one.least_ns for one in back if one.least_ns is not None]
    return Bounds(sorted(least), sorted(most))


def _ahead(there: Sequence[Change], back: Sequence[Change], own: Span, other: Span) -> int:
    """Returns by how many ns the clock of a capture is ahead of that of another one that seems to begin before it.

    `there` are the changes from the other one to it, and `back` those from it to the other one. If the connections go
    on in one of them, it was made after the other. Else, where they seem to be made one after the other, a packet that
    was sent again fills what the first one lacks.
    """
    if own.overlap(other) <= _OVERLAP_NS:
        return own.last - other.first if _clearly(back, there) else 0
    bounds = _bounds(there, back)
    ahead = bounds.fit()
    if not ahead or 2 * own.moved(ahead).overlap(other) > min(own.last - own.first, other.last - other.first):
        return ahead
    # Nearly, they were made in turn: the bounds are too low by the time in which no connection went on.
    in_turn = own.last - other.first if ahead > 0 else own.first - other.last
    return in_turn if bounds.contradicted(in_turn) <= bounds.contradicted(ahead) else ahead


def _clearly(some: Sequence[Change], others: Sequence[Change]) -> bool:
    """Tells whether connections go on in one direction: a few packets that were sent again may seem to go back."""
    return len(some) > max(1, _CLEARLY * len(others))
