"""Quarantines the packets that cannot be decoded."""

import polars as pl

from schemas.ingest import Stage


def quarantine_undecodable(explained: pl.DataFrame, raw_kept: int) -> pl.DataFrame:
    """Returns rows of QUARANTINE; `explained` are rows of PACKETS with the reason why each cannot be decoded.

    Of each packet, the first `raw_kept` bytes are kept.
    """
    return explained.select(
        pl.lit(Stage.DECODE.value).alias("stage"),
        "reason",
        "detail",
        "capture_id",
        "stream_id",
        pl.col("last_frame").alias("frame_number"),
        "stream_offset",
        pl.col("size").alias("length"),
        pl.col("raw").bin.slice(0, raw_kept),
    )
