"""Ingest and replay rely on Spark: all rows of a key come to one task, also behind a union; whole numbers are exact."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.tables.spark_rows import timestamp

_SIDES_ARE_COALESCED_APART = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "300k",
}


@pytest.fixture
def apart(spark: SparkSession) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name) for name in _SIDES_ARE_COALESCED_APART}
    for name, value in _SIDES_ARE_COALESCED_APART.items():
        spark.conf.set(name, value)
    yield spark
    for name, found in before.items():
        spark.conf.set(name, str(found))


def test_rows_of_a_key_come_together_above_a_union_of_joined_sides(apart: SparkSession) -> None:
    def keys_of_a_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = {key for batch in batches for key in batch["key"].to_pylist()}
        yield pa.RecordBatch.from_pydict({"key": pa.array(sorted(keys), pa.int64())})

    text = F.sha2(F.col("id").cast("string"), 512).alias("text")
    many = apart.range(20_000).select((F.col("id") % 50).alias("key"), text).localCheckpoint()
    few = apart.range(50).withColumnRenamed("id", "key").localCheckpoint()
    left_out = apart.range(3).withColumnRenamed("id", "key")
    joined = (side.join(left_out, "key", "left_anti") for side in (many, few))

    rows = next(joined).unionByName(next(joined), allowMissingColumns=True).repartition("key")
    tasks = rows.mapInArrow(keys_of_a_task, "key long").groupBy("key").count().collect()

    assert [row["count"] for row in tasks] == [1] * 47


def test_nanoseconds_become_microseconds_exactly(spark: SparkSession) -> None:
    """A quotient of type DOUBLE would be one microsecond low for the second and third."""
    numbers = [1_700_000_000_000_000_999, 1_700_000_000_000_016_000, 1_700_000_000_000_080_001, 0, -1, None]
    rows = spark.createDataFrame([(ns,) for ns in numbers], "ns long")
    found = rows.select(F.unix_micros(timestamp(F.col("ns")))).collect()
    assert [us for (us,) in found] == [ns if ns is None else ns // 1000 for ns in numbers]
