"""Quarantines the packets that cannot be decoded."""

from collections.abc import Iterator

import polars as pl
import pyarrow as pa

from schemas.ingest import QUARANTINE, Stage
from udfs.derive.frames import to_arrow, to_frame
from udfs.derive.tables import with_columns_of
from udfs.passes.decode import explain_undecodable
from udfs.passes.options import Batches, Pass


def quarantine_packets(raw_kept: int) -> Pass:
    """Returns a pass that turns PACKETS of an unknown type that cannot be decoded into rows of QUARANTINE."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in explain_undecodable()(batches):
            rows = quarantine_undecodable(to_frame(pa.Table.from_batches([batch])), raw_kept)
            made = to_arrow(with_columns_of(QUARANTINE, rows))
            yield from made.cast(QUARANTINE.arrow).to_batches()

    return run


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
