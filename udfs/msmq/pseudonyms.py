"""Replaces labels and names by keyed hashes: equal texts stay equal, and only the key can confirm a guess."""

import hmac
from collections.abc import Sequence
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

PREFIX = "hmac:"
_DIGITS = 32


def pseudonymize(text: str, key: bytes) -> str:
    """Returns `hmac:` and the first half of the text's HMAC-SHA-256 ([RFC 2104] 5) in hexadecimal."""
    return PREFIX + hmac.digest(key, text.encode("utf-8", "surrogatepass"), sha256).hex()[:_DIGITS]


def pseudonymize_columns(rows: pa.RecordBatch, names: Sequence[str], key: bytes) -> pa.RecordBatch:
    """Replaces texts and lists of texts in the columns `names` by pseudonyms; nulls stay null."""
    columns = [
        _pseudonymize_column(column, key) if name in names else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _pseudonymize_column(column: pa.Array, key: bytes) -> pa.Array:
    if pa.types.is_list(column.type):
        lists = [text and [pseudonymize(one, key) for one in text] for text in column.to_pylist()]
        return pa.array(lists, column.type)
    texts = pc.dictionary_encode(column)
    named = pa.array([pseudonymize(text, key) for text in texts.dictionary.to_pylist()], pa.string())
    return pc.take(named, texts.indices)
