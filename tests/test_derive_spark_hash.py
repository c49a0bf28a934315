"""Spark's `xxhash64`, against figures that Spark printed and against a plain computation, byte by byte."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from udfs.derive import spark_hash
from udfs.derive.spark_hash import xxhash64

_64 = (1 << 64) - 1
_PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def plain(data: bytes, seed: int) -> int:
    """Returns XXH64, as its specification says it."""
    one, two, three, four, five = _PRIMES

    def turned(value: int, bits: int) -> int:
        return ((value << bits) | ((value & _64) >> (64 - bits))) & _64

    def word(at: int, size: int = 8) -> int:
        return int.from_bytes(data[at : at + size], "little")

    def mixed(lane: int, value: int) -> int:
        return turned((lane + value * two) & _64, 31) * one & _64

    at, found = 0, seed + five
    if len(data) >= 32:
        lanes = [(seed + add) & _64 for add in (one + two, two, 0, -one)]
        while at + 32 <= len(data):
            lanes = [mixed(lane, word(at + 8 * i)) for i, lane in enumerate(lanes)]
            at += 32
        found = sum(turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            found = ((found & _64) ^ mixed(0, lane)) * one + four
    found = (found + len(data)) & _64
    for _ in range((len(data) - at) // 8):
        found, at = (turned(found ^ mixed(0, word(at)), 27) * one + four) & _64, at + 8
    if len(data) - at >= 4:
        found, at = (turned(found ^ (word(at, 4) * one & _64), 23) * two + three) & _64, at + 4
    for byte in data[at:]:
        found = turned(found ^ (byte * five & _64), 11) * one & _64
    found = (found ^ (found >> 33)) * two & _64
    found = (found ^ (found >> 29)) * three & _64
    return found ^ (found >> 32)


def hashes(**columns: pl.Series) -> list[int]:
    """Returns the hash of each row."""
    return xxhash64(pl.DataFrame(columns)).to_list()


def of_bytes(value: Any, dtype: pl.DataType | type[pl.DataType]) -> bytes:
    """Returns what Spark hashes of a value: a text in UTF-8, four or eight bytes of a number."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, datetime):
        value = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return int(value).to_bytes(8 if dtype in (pl.Int64, pl.Datetime) else 4, "little", signed=True)


def test_hashes_are_those_that_spark_documents() -> None:
    assert hashes(a=pl.Series(["ABC"])) == [4105715581806190027]
    assert hashes(a=pl.Series(["ABC"]), b=pl.Series(["DEF"])) == [3233247871021311208]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (["", "ä", "x" * 31, "x" * 32, "é" * 200, *("abcdefghijk"[:n] * 7 for n in range(12))], pl.String),
        ([0, 1, -1, (1 << 63) - 1, -1 << 63], pl.Int64),
        ([0, -1, 65_535, -1 << 31], pl.Int32),
        ([0, -1, 255], pl.Int16),
        ([True, False], pl.Boolean),
        ([datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 3, 2, 8, 0, 0, 123456, UTC)], pl.Datetime("us", "UTC")),
    ],
)
def test_each_type_is_hashed_by_its_bytes(values: list[Any], dtype: pl.DataType | type[pl.DataType]) -> None:
    found = hashes(a=pl.Series([*values, None], dtype=dtype))
    assert [value & _64 for value in found] == [plain(of_bytes(value, dtype), 42) for value in values] + [42]


def test_random_texts_in_several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_hash, "_AT_ONCE", 16)
    chance = random.Random(1)
    texts = [
        "".join(chance.choices("aé€𝄞", k=chance.randrange(60))) if chance.random() < 0.9 else None for _ in range(100)
    ]
    rows = list(zip(texts, reversed(texts), strict=True))
    expected = []
    for row in rows:
        seed = 42
        for text in row:
            seed = seed if text is None else plain(text.encode(), seed)
        expected.append(seed)
    found = hashes(a=pl.Series(texts), b=pl.Series(texts[::-1]))
    assert [value & _64 for value in found] == expected
    assert xxhash64(pl.DataFrame({"a": texts, "b": texts[::-1]})[10:50]).to_list() == found[10:50]


def test_no_rows_have_no_hashes() -> None:
    found = xxhash64(pl.DataFrame(schema={"a": pl.String, "b": pl.Int64}))
    assert found.dtype == pl.Int64
    assert found.is_empty()


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="column a of type Float64"):
        hashes(a=pl.Series([1.5]))
