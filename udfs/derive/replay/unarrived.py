"""Finds packets that were captured on their way, and need not have arrived."""

import polars as pl


def unarrived(streams: pl.DataFrame, packets: pl.DataFrame) -> pl.DataFrame:
    """Returns the keys of packets with bytes that their receiver's TCP never acknowledged, on closed connections.

    They were captured on their way, and need not have arrived. Where no acknowledgment was captured, nothing is known.
    """
    sent = pl.col("recovered_bytes") + pl.col("missing_bytes")
    cut = streams.filter("closed", pl.col("acked_bytes") < sent).select("stream_id", "acked_bytes")
    return (
        packets.select("stream_id", "stream_offset", "size")
        .join(cut, on="stream_id")
        .filter(pl.col("stream_offset") + pl.col("size") > pl.col("acked_bytes"))
        .select("stream_id", "stream_offset")
    )
