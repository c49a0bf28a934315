"""Labels and names as keyed hashes: equal texts stay equal, and nobody without the key can tell or guess them."""

import hmac
from collections.abc import Sequence
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

PREFIX = "hmac:"
_DIGITS = 32


def pseudonymize(text: str, key: bytes) -> str:
    """What stands for the text: half of its HMAC-SHA-256 [RFC 2104, 5] in hexadecimal, behind a prefix."""
    return PREFIX + hmac.digest(key, text.encode("utf-8", "surrogatepass"), sha256).hex()[:_DIGITS]


def pseudonymize_columns(rows: pa.RecordBatch, names: Sequence[str], key: bytes) -> pa.RecordBatch:
    """The rows with the texts, and lists of texts, of these columns hidden; nulls stay null."""
    columns = [_hidden(rows[field.name], key) if field.name in names else rows[field.name] for field in rows.schema]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _hidden(column: pa.Array, key: bytes) -> pa.Array:
    if pa.types.is_list(column.type):
        lists = [text and [pseudonymize(one, key) for one in text] for text in column.to_pylist()]
        return pa.array(lists, column.type)
    texts = pc.dictionary_encode(column)
    named = pa.array([pseudonymize(text, key) for text in texts.dictionary.to_pylist()], pa.string())
    return pc.take(named, texts.indices)
