"""Spark's `xxhash64`, against Spark's own and against figures that its documents print."""

import random
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.warehouse.local_tables import to_spark
from udfs.derive import spark_hash
from udfs.derive.spark_hash import xxhash64

ROWS = 100
VALUES: dict[str, tuple[list[Any], Any]] = {
    "text": (["", "ä", "x" * 31, "x" * 32, "é" * 200, *("abcdefghijk"[:n] * 7 for n in range(12))], pl.String),
    "long": ([0, 1, -1, (1 << 63) - 1, -1 << 63], pl.Int64),
    "int": ([0, -1, 65_535, -1 << 31], pl.Int32),
    "short": ([0, -1, 255], pl.Int16),
    "flag": ([True, False], pl.Boolean),
    "time": ([datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 3, 2, 8, 0, 0, 123456, UTC)], pl.Datetime("us", "UTC")),
}
"""By column: values at the limits of its type, and the type."""


def many_rows() -> pl.DataFrame:
    """Rows of all types, with nulls, and texts of any length beside them."""
    rng = random.Random(1)
    columns = {
        name: pl.Series([*values, *rng.choices([*values, None], k=ROWS - len(values))], dtype=dtype)
        for name, (values, dtype) in VALUES.items()
    }
    texts = ["".join(rng.choices("aé€𝄞", k=rng.randrange(60))) for _ in range(ROWS)]
    return pl.DataFrame(columns | {"any_text": pl.Series(texts)})


def test_hashes_are_those_that_spark_documents() -> None:
    assert xxhash64(pl.DataFrame({"a": ["ABC"]})).to_list() == [4105715581806190027]
    assert xxhash64(pl.DataFrame({"a": ["ABC"], "b": ["DEF"]})).to_list() == [3233247871021311208]


def test_each_column_and_all_together_are_hashed_as_spark_does(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_hash, "_AT_ONCE", 16)  # in several parts
    rows = many_rows()
    hashed = {name: [name] for name in rows.columns} | {"all": rows.columns}
    by_spark = to_spark(spark, rows).select(*(F.xxhash64(*of).alias(name) for name, of in hashed.items()))
    expected = by_spark.toArrow().to_pydict()
    assert {name: xxhash64(rows.select(of)).to_list() for name, of in hashed.items()} == expected
    assert xxhash64(rows[10:50]).to_list() == xxhash64(rows).to_list()[10:50]


def test_no_rows_have_no_hashes() -> None:
    found = xxhash64(pl.DataFrame(schema={"a": pl.String, "b": pl.Int64}))
    assert found.dtype == pl.Int64
    assert found.is_empty()


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="column a of type Float64"):
        xxhash64(pl.DataFrame({"a": [1.5]}))
