"""Counts what captures lack of the traffic that they show, and puts it into words."""

from typing import NamedTuple

import polars as pl

from udfs.capture.names import OF_SERIES
from udfs.frames.columns import count_if, way_back
from udfs.replay.words import counted, one_or_many
from udfs.report.period import broken, has_no_times

_MANY = 10
"""One in so many streams began before the captures where that is worth telling of all of them."""


class Lacks(NamedTuple):
    """Counts what captures lack: bytes of streams, and the rest of `broken` captures, which cannot be read in whole.

    `missing_files` are those of `count_missing_files`; what is in `damaged` segments may not be what was sent; so many
    captures are `untimed`, as their records have no time. Of so many `streams` with bytes, only `one_way` was captured:
    nothing of their receiver; and `begun` are those that began before the captures. So many segments are `cut` short.
    """

    missing_bytes: int = 0
    broken: int = 0
    one_way: int = 0
    begun: int = 0
    streams: int = 0
    missing_files: int = 0
    damaged: int = 0
    untimed: int = 0
    cut: int = 0

    @property
    def is_one_way(self) -> bool:
        """Returns whether the captures hold no way back at all."""
        return 0 < self.streams == self.one_way


NOTHING_LACKS = Lacks()


def find_lacks(ends: pl.DataFrame, captures: pl.DataFrame) -> Lacks:
    """Returns what `captures` lack, whose streams have rows of ENDS without copies.

    A few streams that began before the captures are not counted: a warehouse always has some.
    """
    found = Lacks(**ends.select(_of_streams()).row(0, named=True), **_of_captures(captures))
    return found if found.begun * _MANY >= found.streams else found._replace(begun=0)


def lacks_of_sessions(ends: pl.DataFrame, captures: pl.DataFrame) -> dict[str, str]:
    """Returns what `captures` lack of each session and of its way back, in words, by `session_id`; see `find_lacks`."""
    of_captures = _of_captures(captures)
    ways = pl.concat([ends, ends.filter(pl.col("sender") != pl.col("receiver")).with_columns(way_back())])
    rows = ways.group_by("session_id").agg(_of_streams()).iter_rows(named=True)
    return {row.pop("session_id"): in_words(Lacks(**row, **of_captures)) for row in rows}


def count_missing_files(captures: pl.DataFrame) -> int:
    """Returns how many files are missing in the midst of series of captures, as their names show.

    Wireshark and dumpcap name a file of a series after its number and the second in which it began. A number that is
    lower than the one before begins another series. Files without a frame are one capture, so where there is one,
    nothing is known.
    """
    if (captures["packet_count"] == 0).any():
        return 0
    parts = captures.select(pl.col("uri").str.extract_groups(OF_SERIES)).unnest("uri").drop_nulls("number")
    jump = pl.col("number").cast(pl.Int64).diff().over("series", order_by=["began", "number"])
    return int(parts.select((jump - 1).clip(0).sum()).item())


def _of_captures(captures: pl.DataFrame) -> dict[str, int]:
    damaged = int(captures["damaged_count"].sum())
    untimed = captures.filter(has_no_times()).height
    files = count_missing_files(captures)
    cut = int(captures["cut_count"].sum())
    return {"broken": broken(captures), "missing_files": files, "damaged": damaged, "untimed": untimed, "cut": cut}


def _of_streams() -> list[pl.Expr]:
    has_bytes = pl.col("recovered_bytes") > 0
    return [
        pl.col("missing_bytes").sum(),
        count_if(has_bytes & pl.col("last_ns").is_not_null() & pl.col("receiver_last_ns").is_null()).alias("one_way"),
        count_if(has_bytes & pl.col("mid_stream")).alias("begun"),
        count_if(has_bytes).alias("streams"),
    ]


def in_words(lacks: Lacks) -> str:
    """Returns what captures lack, to be put after "lack"; an empty text for nothing."""
    of_streams = f" of {counted(lacks.streams, 'stream')}"
    missing = lacks.missing_bytes
    parts = [f"{missing:,} {one_or_many(missing, 'byte', 'bytes')}"] if missing else []
    parts += [f"{counted(lacks.missing_files, 'file')} of their series"] if lacks.missing_files else []
    parts += [f"what cannot be read of {counted(lacks.broken, 'capture')}"] if lacks.broken else []
    parts += [f"what was sent in {counted(lacks.damaged, 'damaged segment')}"] if lacks.damaged else []
    parts += [f"the times of {counted(lacks.untimed, 'capture')}"] if lacks.untimed else []
    parts += [f"the way back of {lacks.one_way}{of_streams}"] if lacks.one_way else []
    parts += [f"the beginning of {lacks.begun}{of_streams}"] if lacks.begun else []
    *first, last = parts or [""]
    return f"{', '.join(first)} and {last}" if first else last


def incomplete(lacks: Lacks) -> str:
    """Returns a sentence on what captures lack that may have held deliveries and acknowledgments; or an empty text."""
    what = "which may hold deliveries and acknowledgments of these messages, and other losses"
    alike = (
        " What is in a damaged segment may look like another message: some may not be lost." if lacks.damaged else ""
    )
    return f"The captures lack {words}, {what}.{alike}" if (words := in_words(lacks)) else ""
