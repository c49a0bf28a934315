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
    """Returns a pass that turns PACKETS of an unknown type that cannot be decoded into rows of QUARANTINE.

    Of each packet, the first `raw_kept` bytes are kept.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in explain_undecodable()(batches):
            rows = to_frame(pa.Table.from_batches([batch])).with_columns(
                pl.col("raw").bin.slice(0, raw_kept),
                stage=pl.lit(Stage.DECODE.value),
                frame_number="last_frame",
                length="size",
            )
            yield from to_arrow(with_columns_of(QUARANTINE, rows)).cast(QUARANTINE.arrow).to_batches()

    return run
