"""Binary arrays out of numpy buffers."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def fixed_binary(values: NDArray[np.uint8]) -> Any:
    """The binary array whose elements are the rows of a two-dimensional array."""
    count, width = values.shape
    offsets = np.arange(count + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def slices(buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Any:
    """The binary array of `buffer[start : start + length]`, one element each; the bytes are copied once."""
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    view = buffer.data
    data = b"".join([view[s : s + n] for s, n in zip(starts.tolist(), lengths.tolist(), strict=True)])
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
