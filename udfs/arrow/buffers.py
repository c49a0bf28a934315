"""Makes Arrow arrays and batches from numpy buffers, and reads numbers at any byte."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def fixed_binary(values: Bytes) -> Any:
    """Returns the binary array whose elements are the rows of a two-dimensional array."""
    count, width = values.shape
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.binary(width), count, buffers).cast(pa.binary())


def slices(buffer: Bytes, starts: Ints, lengths: Ints) -> Any:
    """Returns the binary array of `buffer[start : start + length]`, one element each; the bytes are copied once.

    Raises:
        ValueError: slices overlap, or lie outside the buffer.
    """
    ends = np.where(lengths > 0, starts + lengths, 0)
    order = np.argsort(ends, kind="stable")
    bounds = np.full(2 * len(ends) + 1, len(buffer))
    bounds[:-1:2], bounds[1::2] = (ends - lengths)[order], ends[order]
    if (np.diff(bounds, prepend=0) < 0).any():
        raise ValueError("slices of a buffer overlap, or lie outside it")
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(buffer)]
    with_gaps = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
    places = np.empty_like(order)
    places[order] = np.arange(0, len(bounds) - 1, 2)
    return with_gaps.take(pa.array(places)).cast(pa.binary())


def record_batch(columns: Mapping[str, Any], count: int, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the batch of `count` rows with these columns; the schema's other columns are null."""
    arrays = [columns.get(f.name, pa.nulls(count, f.type)) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def struct_array(columns: Mapping[str, Any], kind: pa.StructType) -> pa.StructArray:
    """Returns columns as one array of structs; a field without a column is null."""
    fields = list(kind)
    count = len(next(iter(columns.values())))
    arrays = [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(count, f.type) for f in fields]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def read_at(buffer: Bytes | memoryview, layout: str | np.dtype[Any], places: Ints) -> NDArray[Any]:
    """Returns the values of a numpy type at these places in the buffer; they may overlap."""
    dtype = np.dtype(layout)
    return np.ndarray(max(len(buffer) - dtype.itemsize + 1, 0), dtype, buffer, strides=(1,))[places]
