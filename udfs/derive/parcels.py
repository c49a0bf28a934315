"""Packs rows into parcels, so that Spark shuffles some thousands of these and not millions of rows.

A *bucket* has all rows of some groups, of all tables. A *parcel* is some rows of one table in one bucket, as compressed
Arrow.
"""

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from itertools import groupby
from operator import itemgetter

import polars as pl
import pyarrow as pa

from schemas.table import BINARY, LONG, STRING, row
from udfs.derive.frames import Frames
from udfs.passes.options import Batches

PARCEL = row(bucket=LONG, name=STRING, rows=BINARY)
_BUCKET = "bucket of the row"


def pack(
    name: str, frames: Iterable[pl.DataFrame], empty: pl.DataFrame, by: Sequence[str], buckets: int
) -> Iterator[pa.RecordBatch]:
    """Yields rows of PARCEL: those of the table of this name, with the columns of `empty`.

    Rows with equal values in the columns `by`, which are a group, are in one of so many buckets in all tables.
    """
    bucket = pl.struct(by).hash(seed=0) % buckets if by else pl.lit(0)
    for rows in frames:
        needed = rows.with_columns(bucket.alias(_BUCKET)).select(*empty.columns, _BUCKET)
        of_buckets = needed.partition_by(_BUCKET, include_key=False, as_dict=True)
        parcels = [
            {"bucket": number, "name": name, "rows": _to_bytes(some.cast(empty.schema))}
            for (number,), some in of_buckets.items()
        ]
        yield pa.RecordBatch.from_pylist(parcels, PARCEL)


def unpack(parcels: Batches, empty: Frames) -> Iterator[Frames]:
    """Yields the frames of each bucket, of parcels in the order of their buckets; a table without any is `empty`."""
    in_order = (parcel for batch in parcels for parcel in batch.to_pylist())
    for _, of_bucket in groupby(in_order, itemgetter("bucket")):
        frames = {name: [none] for name, none in empty.items()}
        for parcel in of_bucket:
            frames[parcel["name"]].append(pl.read_ipc_stream(parcel["rows"]))
        yield {name: pl.concat(some) for name, some in frames.items()}


def _to_bytes(rows: pl.DataFrame) -> bytes:
    file = BytesIO()
    rows.write_ipc_stream(file, compression="zstd", compat_level=pl.CompatLevel.oldest())
    return file.getvalue()
