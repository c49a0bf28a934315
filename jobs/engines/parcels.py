"""Packs rows into parcels, so that Spark shuffles some thousands of these and not millions of rows.

A *bucket* has all rows of some groups, of all tables. A *parcel* is some rows of one table in one bucket, as compressed
Arrow.
"""

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from itertools import chain, groupby
from operator import itemgetter
from zlib import crc32

import polars as pl
import pyarrow as pa

from schemas.table import BINARY, LONG, STRING, row
from udfs.frames.derivation import Frames
from udfs.frames.groups import bunches
from udfs.frames.rows import Batches

PARCEL = row(bucket=LONG, name=STRING, rows=BINARY)
_BUCKET = "bucket of the row"
_PACKED_BYTES = 128 << 20
"""Bytes of rows, as Polars holds them, that are packed at once: a parcel of few rows costs as much as one of many."""
_MANY = 50_000
"""Rows that are worth a call of their own: half of a full bucket, so that only those with fewer come together."""


def pack(
    name: str, frames: Iterable[pl.DataFrame], empty: pl.DataFrame, by: Sequence[str], buckets: int
) -> Iterator[pa.RecordBatch]:
    """Yields rows of PARCEL: those of the table of this name, with the columns of `empty`, in so many buckets."""
    for some in bunches(frames, pl.DataFrame.estimated_size, _PACKED_BYTES):
        numbered = _in_buckets(pl.concat(some), by, buckets).select(*empty.columns, _BUCKET)
        of_buckets = numbered.partition_by(_BUCKET, include_key=False, as_dict=True)
        parcels = [
            {"bucket": number, "name": name, "rows": _to_bytes(rows.cast(empty.schema))}
            for (number,), rows in of_buckets.items()
        ]
        yield pa.RecordBatch.from_pylist(parcels, PARCEL)


def unpack(empty: Frames, parcels: Batches) -> Iterator[Frames]:
    """Yields the frames of whole buckets, _MANY rows together, or the last ones; a table without any is `empty`.

    The parcels are in the order of their buckets.
    """
    in_order = (parcel for batch in parcels for parcel in batch.to_pylist())
    buckets = (
        [(parcel["name"], pl.read_ipc_stream(parcel["rows"])) for parcel in of_bucket]
        for _, of_bucket in groupby(in_order, itemgetter("bucket"))
    )
    for some in bunches(buckets, lambda bucket: sum(rows.height for _, rows in bucket), _MANY):
        frames = {name: [none] for name, none in empty.items()}
        for name, rows in chain.from_iterable(some):
            frames[name].append(rows)
        yield {name: pl.concat(of_name) for name, of_name in frames.items()}


def _in_buckets(rows: pl.DataFrame, by: Sequence[str], buckets: int) -> pl.DataFrame:
    """Returns the rows with the number of their bucket, which the values of the columns `by` alone decide.

    Polars' own hash differs between its versions, and two machines may have different ones.
    """
    if buckets == 1:
        return rows.with_columns(pl.lit(0).alias(_BUCKET))
    groups = rows.select(by).unique()
    numbers = [crc32(repr(values).encode()) % buckets for values in groups.iter_rows()]
    of_groups = groups.with_columns(pl.Series(_BUCKET, numbers, pl.Int64))
    return rows.join(of_groups, on=list(by), how="left", nulls_equal=True, maintain_order="left")


def _to_bytes(rows: pl.DataFrame) -> bytes:
    file = BytesIO()
    rows.write_ipc_stream(file, compression="zstd", compat_level=pl.CompatLevel.oldest())
    return file.getvalue()
