"""The importers and modules that a Python worker does not visit again at each task.

That a worker can still import from a zip, tests/test_submit.py shows on a cluster.
"""

import gc
import sys
from zipimport import zipimporter

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.tables.tasks import map_arrow
from schemas.table import LONG, row
from udfs.frames.rows import Batches

COUNTS = row(finders=LONG, frozen=LONG)


def test_every_pass_reduces_its_workers_overhead(spark: SparkSession) -> None:
    def counts(batches: Batches) -> Batches:
        for _ in batches:
            finders = [finder for finder in sys.path_importer_cache.values() if isinstance(finder, zipimporter)]
            yield pa.RecordBatch.from_pylist([{"finders": len(finders), "frozen": gc.get_freeze_count()}])

    tasks = map_arrow(spark.range(0, 4, numPartitions=4), counts, COUNTS).collect()
    assert [row["finders"] for row in tasks] == [0] * 4
    assert all(row["frozen"] > 0 for row in tasks)


@pytest.mark.parametrize(
    ("rows", "text", "batches"), [(45_000, "''", [20_000, 20_000, 5_000]), (40, "'m'", [16, 16, 8])]
)
def test_a_pass_gets_batches_of_many_rows_and_few_bytes(
    spark: SparkSession, rows: int, text: str, batches: list[int]
) -> None:
    def sizes(batches: Batches) -> Batches:
        for batch in batches:
            yield pa.RecordBatch.from_pylist([{"rows": batch.num_rows}])

    source = spark.range(0, rows, numPartitions=1).selectExpr("id", f"repeat({text}, 1024 * 1024) AS text")
    assert [row["rows"] for row in map_arrow(source, sizes, row(rows=LONG)).collect()] == batches
