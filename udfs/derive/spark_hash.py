"""Computes Spark's `xxhash64` of columns, so that hashes in tables do not depend on who derived them.

That is XXH64 with seed 42; the hash of a column is the seed of the next one, and a null leaves the seed as it is.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Places = NDArray[np.int64]
_SEED = 42
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_STRIPE = 32
_AT_ONCE = 1 << 14
"""Rows whose numbers stay in a processor's cache."""
_FOUR_BYTES = (pl.Boolean, pl.Int8, pl.Int16, pl.Int32)
_EIGHT_BYTES = (pl.Int64, pl.Datetime("us", "UTC"))


def xxhash64(rows: pl.DataFrame) -> pl.Series:
    """Returns Spark's `xxhash64` of all columns of each row, as Int64.

    Columns are strings, flags, integers of at most 64 bits with a sign, and timestamps in us.
    """
    parts = [_hash_rows(part) for part in rows.iter_slices(_AT_ONCE)]
    return pl.Series("xxhash64", np.concatenate([np.empty(0, np.uint64), *parts]).view(np.int64))


def _hash_rows(rows: pl.DataFrame) -> Words:
    hashes = np.full(rows.height, _SEED, np.uint64)
    for column in rows:
        hashes = np.where(column.is_not_null().to_numpy(), _hash_column(column, hashes), hashes)
    return hashes


def _hash_column(column: pl.Series, seeds: Words) -> Words:
    """Returns the hash of each value; of a null, any number."""
    if column.dtype == pl.String:
        return _of_texts(column.fill_null(""), seeds)
    if column.dtype in _FOUR_BYTES:
        return _of_four_bytes(_numbers(column) & np.uint64(0xFFFFFFFF), seeds)
    if column.dtype in _EIGHT_BYTES:
        return _of_eight_bytes(_numbers(column), seeds)
    message = f"no hash for column {column.name} of type {column.dtype}"
    raise TypeError(message)


def _numbers(column: pl.Series) -> Words:
    return column.cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64)


def _of_four_bytes(values: Words, seeds: Words) -> Words:
    return _mixed(_with_half_word(seeds + _P5 + np.uint64(4), values))


def _of_eight_bytes(values: Words, seeds: Words) -> Words:
    return _mixed(_with_word(seeds + _P5 + np.uint64(8), values))


def _of_texts(texts: pl.Series, seeds: Words) -> Words:
    """Returns XXH64 of each text in UTF-8.

    Each step takes the next bytes of all texts that have some left, so there are as many steps as the longest has.
    """
    array = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets, content = array.buffers()
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    padded = np.zeros(int(bounds[-1] - bounds[0]) + 8, np.uint8)
    if content is not None:
        padded[:-8] = np.frombuffer(content, np.uint8)[bounds[0] : bounds[-1]]
    place, length = bounds[:-1] - bounds[0], np.diff(bounds)
    words = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))
    hashes = _with_stripes(words, place, length, seeds) + length.astype(np.uint64)
    whole, rest = length & -8, length & 7
    for row, at in _steps(place + (length & -_STRIPE), (length & (_STRIPE - 1)) // 8, 8):
        hashes[row] = _with_word(hashes[row], words[at])
    for row, at in _steps(place + whole, rest // 4, 4):
        hashes[row] = _with_half_word(hashes[row], words[at] & np.uint64(0xFFFFFFFF))
    for row, at in _steps(place + whole + (rest & 4), rest & 3, 1):
        hashes[row] = _turned(hashes[row] ^ (padded[at].astype(np.uint64) * _P5), 11) * _P1
    return _mixed(hashes)


def _steps(place: Places, count: Places, width: int) -> Iterator[tuple[Places, Places]]:
    """Yields the rows that have a first, second, … piece of some bytes, and the places of these pieces."""
    for step in range(int(count.max(initial=0))):
        row = np.flatnonzero(count > step)
        yield row, place[row] + step * width


def _with_stripes(words: Words, place: Places, length: Places, seeds: Words) -> Words:
    """Returns the hash after all whole stripes of 32 bytes: four lanes of eight bytes each."""
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    for row, at in _steps(place, length // _STRIPE, _STRIPE):
        for nth, lane in enumerate(lanes):
            lane[row] = _turned(lane[row] + words[at + 8 * nth] * _P2, 31) * _P1
    merged = np.zeros_like(seeds)
    for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True):
        merged += _turned(lane, turn)
    for lane in lanes:
        merged = (merged ^ (_turned(lane * _P2, 31) * _P1)) * _P1 + _P4
    return np.where(length >= _STRIPE, merged, seeds + _P5)


def _with_word(hashes: Words, values: Words) -> Words:
    return _turned(hashes ^ (_turned(values * _P2, 31) * _P1), 27) * _P1 + _P4


def _with_half_word(hashes: Words, values: Words) -> Words:
    return _turned(hashes ^ (values * _P1), 23) * _P2 + _P3


def _turned(values: Words, bits: int) -> Words:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _mixed(hashes: Words) -> Words:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))
