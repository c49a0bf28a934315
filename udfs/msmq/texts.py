"""Prints columns of GUIDs, message identifiers and UTF-16LE as text, once per distinct value."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from udfs.arrow.buffers import Bytes, fixed_binary
from udfs.msmq import identifiers

_BEYOND_ASCII = 0x80


def texts_of(values: pa.Array, text: Callable[[Any], str | None]) -> pa.Array:
    """Returns the text of each value, made once per distinct value."""
    codes = values.dictionary_encode()
    return pa.array(map(text, codes.dictionary.to_pylist()), pa.string()).take(codes.indices)


def guid_texts(guids: Bytes) -> pa.Array:
    """Returns GUIDs, one per row of 16 bytes, as lower-case text."""
    return texts_of(fixed_binary(guids), identifiers.guid_text)


def message_ids(guids: pa.Array, ordinals: pa.Array) -> pa.Array:
    r"""Returns message identifiers, <guid>\<ordinal>; null if either part is."""
    return pc.binary_join_element_wise(guids, ordinals.cast(pa.string()), "\\")


def message_identifiers(values: Bytes) -> pa.Array:
    """Returns MessageIdentifiers, one per row of 20 bytes, as text."""
    return message_ids(guid_texts(values[:, :16]), pa.array(values[:, 16:].copy().view("<u4")[:, 0]))


def sequence_texts(sequences: NDArray[np.uint64]) -> pa.Array:
    """Returns TxSequenceIDs as text."""
    return texts_of(pa.array(sequences), identifiers.sequence_text)


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
    return texts_of(contents, identifiers.text)
