"""Prints columns of GUIDs, message identifiers and UTF-16LE as text: once per distinct value where that is faster."""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from udfs.arrow.buffers import Bytes, fixed_binary
from udfs.msmq import identifiers
from udfs.msmq.batch import dictionary_codes

_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), "<u2")
_GUID_ORDER = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15]
_DASHES = [8, 13, 18, 23]
_DIGITS = [place for place in range(36) if place not in _DASHES]
_BEYOND_ASCII = 0x80


def _make_once(values: Bytes, make: Callable[[Bytes], pa.Array]) -> pa.Array:
    """Returns the result of `make` for rows of bytes, calling it with the distinct rows if these are few."""
    count, width = values.shape
    content = pa.py_buffer(np.ascontiguousarray(values))
    codes = pa.Array.from_buffers(pa.binary(width), count, [None, content]).dictionary_encode()
    if 2 * len(codes.dictionary) > count:
        return make(values)
    distinct = np.frombuffer(codes.dictionary.buffers()[1], np.uint8, len(codes.dictionary) * width)
    return make(distinct.reshape(-1, width)).take(codes.indices)


def guid_texts(guids: Bytes) -> pa.Array:
    """Returns GUIDs, one per row of 16 bytes, as lower-case text."""
    return _make_once(guids, _guid_texts)


def _guid_texts(guids: Bytes) -> pa.Array:
    texts = np.full((len(guids), 36), ord("-"), np.uint8)
    texts[:, _DIGITS] = _HEX[np.take(guids, _GUID_ORDER, axis=1)].view(np.uint8).reshape(len(guids), 32)
    return fixed_binary(texts).view(pa.string())


def message_ids(guids: pa.Array, ordinals: pa.Array) -> pa.Array:
    r"""Returns message identifiers, <guid>\<ordinal>; null if either part is."""
    return pc.binary_join_element_wise(guids, ordinals.cast(pa.string()), "\\")


def message_identifiers(values: Bytes) -> pa.Array:
    """Returns MessageIdentifiers, one per row of 20 bytes, as text."""

    def make(values: Bytes) -> pa.Array:
        return message_ids(_guid_texts(values[:, :16]), pa.array(values[:, 16:].copy().view("<u4")[:, 0]))

    return _make_once(values, make)


def sequence_texts(sequences: NDArray[np.uint64]) -> pa.Array:
    """Returns TxSequenceIDs as text, equal to `identifiers.sequence_text`."""
    codes = pa.array(sequences).dictionary_encode()
    distinct = codes.dictionary.to_numpy()
    seconds, ordinals = (distinct >> np.uint64(32)).astype("M8[s]"), distinct & np.uint64(0xFFFFFFFF)
    stamps = pa.array(np.datetime_as_string(seconds).astype(object), pa.string())
    return pc.binary_join_element_wise(stamps, pa.array(ordinals).cast(pa.string()), "Z#").take(codes.indices)


def utf16_texts(contents: pa.Array) -> pa.Array:
    """Returns UTF-16LE up to its terminator as text, equal to `identifiers.text`."""
    _, offsets, data = contents.buffers()
    units = np.frombuffer(data or b"", "<u2")
    if (units < _BEYOND_ASCII).all():
        bounds = np.frombuffer(offsets, np.int32) // 2
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(units.astype(np.uint8))]
        texts = pc.ascii_rtrim(pa.Array.from_buffers(pa.string(), len(contents), buffers), characters="\0")
        if not pc.any(pc.match_substring(texts, "\0")).as_py():
            return texts
    codes, distinct = dictionary_codes(contents)
    return pa.array(map(identifiers.text, distinct), pa.string()).take(pa.array(codes))


def map_texts(values: pa.Array, texts: Mapping[int, str]) -> pa.Array:
    """Returns the text of every value, null for values without one."""
    codes = values.dictionary_encode()
    return pa.array(map(texts.get, codes.dictionary.to_pylist()), pa.string()).take(codes.indices)
