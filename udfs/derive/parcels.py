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
_PACKED_BYTES = 128 << 20
"""Bytes of rows, as Polars holds them, that are packed at once."""
_MANY = 50_000
"""Rows that are worth a call of their own."""


def pack(
    name: str, frames: Iterable[pl.DataFrame], empty: pl.DataFrame, by: Sequence[str], buckets: int
) -> Iterator[pa.RecordBatch]:
    """Yields rows of PARCEL: those of the table of this name, with the columns of `empty`.

    Rows with equal values in the columns `by`, which are a group, are in one of so many buckets in all tables.
    """
    bucket = pl.struct(by).hash(seed=0) % buckets if by else pl.lit(0)
    needed = (rows.with_columns(bucket.alias(_BUCKET)).select(*empty.columns, _BUCKET) for rows in frames)
    for rows in _many_bytes(needed):
        parcels = [
            {"bucket": number, "name": name, "rows": _to_bytes(some.cast(empty.schema))}
            for (number,), some in rows.partition_by(_BUCKET, include_key=False, as_dict=True).items()
        ]
        yield pa.RecordBatch.from_pylist(parcels, PARCEL)


def _many_bytes(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yields frames put together, as a parcel of few rows costs as much as one of a thousand."""
    waiting, size = list[pl.DataFrame](), 0.0
    for rows in frames:
        waiting.append(rows)
        size += rows.estimated_size()
        if size >= _PACKED_BYTES:
            yield pl.concat(waiting)
            waiting, size = [], 0.0
    if waiting:
        yield pl.concat(waiting)


def unpack(empty: Frames, parcels: Batches) -> Iterator[Frames]:
    """Yields the frames of whole buckets, _MANY rows together, or the last ones; a table without any is `empty`.

    The parcels are in the order of their buckets.
    """
    in_order = (parcel for batch in parcels for parcel in batch.to_pylist())
    frames, count = {name: [none] for name, none in empty.items()}, 0
    for _, of_bucket in groupby(in_order, itemgetter("bucket")):
        for parcel in of_bucket:
            rows = pl.read_ipc_stream(parcel["rows"])
            frames[parcel["name"]].append(rows)
            count += rows.height
        if count >= _MANY:
            yield {name: pl.concat(some) for name, some in frames.items()}
            frames, count = {name: [none] for name, none in empty.items()}, 0
    if count:
        yield {name: pl.concat(some) for name, some in frames.items()}


def _to_bytes(rows: pl.DataFrame) -> bytes:
    file = BytesIO()
    rows.write_ipc_stream(file, compression="zstd", compat_level=pl.CompatLevel.oldest())
    return file.getvalue()
