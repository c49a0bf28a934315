"""Counts what each capture shows and lacks: what a conclusion can rest on."""

import polars as pl

from schemas.ingest import CAPTURES, PacketType
from udfs.frames.columns import count, count_if
from udfs.replay.fitness.amiss import amiss

FILLED = (
    *("connection_count", "from_start_count", "one_way_count", "missing_bytes", "message_count"),
    "acknowledgment_count",
)
"""Columns of CAPTURES that a replay fills in."""
_ACKNOWLEDGMENTS = (PacketType.ORDER_ACK.value, PacketType.FINAL_ACK.value)


def fill_captures(
    captures: pl.DataFrame, streams: pl.DataFrame, connections: pl.DataFrame, packets: pl.DataFrame
) -> pl.DataFrame:
    """Returns the rows of CAPTURES in which FILLED is not what it should be, filled in.

    `connections` are of INTERNAL_CONNECTIONS (endpoints, capture_id); `packets` has how many packets there are
    (`count`) per capture_id and packet_type. A capture has the connections between its endpoints that were there in its
    time.
    """
    found = (
        captures.select("capture_id", begins="first_captured_at", ends="last_captured_at")
        .join(connections.select("capture_id", "endpoints").unique(), on="capture_id")
        .join(_connections(streams), on="endpoints")
        .filter(
            ((pl.col("last_at") >= pl.col("begins")) & (pl.col("first_at") <= pl.col("ends"))).fill_null(value=True)
        )
        .group_by("capture_id")
        .agg(
            count().alias("connection_count"),
            count_if("from_start").alias("from_start_count"),
            count_if("one_way").alias("one_way_count"),
            pl.col("missing_bytes").sum(),
        )
    )
    kind, many = pl.col("packet_type"), pl.col("count")
    completed = packets.group_by("capture_id").agg(
        many.filter(kind == PacketType.USER_MESSAGE.value).sum().alias("message_count"),
        many.filter(kind.is_in(_ACKNOWLEDGMENTS)).sum().alias("acknowledgment_count"),
    )
    filled = (
        captures.drop(FILLED)
        .join(found, on="capture_id", how="left")
        .join(completed, on="capture_id", how="left")
        .with_columns(pl.col(FILLED).fill_null(0))
        .select(captures.columns)
    )
    return filled.join(captures, on=("capture_id", *FILLED), how="anti", nulls_equal=True).select(CAPTURES.names)


def _connections(streams: pl.DataFrame) -> pl.DataFrame:
    """Returns a row per connection: its `endpoints`, times, `missing_bytes`, whether its SYN and both ways are held.

    A connection without a byte is not `one_way`.
    """
    return (
        streams.group_by("connection_id")
        .agg(
            pl.col("first_captured_at").min().alias("first_at"),
            pl.max_horizontal("last_captured_at", "connection_last_at").max().alias("last_at"),
            pl.col("missing_bytes").sum(),
            (~pl.col("mid_stream")).any().alias("from_start"),
            ((pl.len() == 1) & pl.col("attempt").is_null().all()).alias("one_way"),
        )
        .with_columns(endpoints=pl.col("connection_id").str.replace("#[^#]*$", ""))
    )


def with_amiss(captures: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of CAPTURES with what is `amiss` with each, a list of texts."""
    found = [amiss(capture) for capture in captures.iter_rows(named=True)]
    return captures.with_columns(amiss=pl.Series(found, dtype=pl.List(pl.String)))
