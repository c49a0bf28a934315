"""Runs passes and decoders on Spark: DataFrame in, DataFrame out, by `mapInArrow`."""

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from schemas.messages import NAME_COLUMNS
from schemas.table import Table
from udfs.msmq.decode import DecodedBatch
from udfs.msmq.pseudonyms import pseudonymize_columns
from udfs.passes.options import Batches, Pass
from udfs.spark_worker import reduce_overhead

_MOST_TASKS = 10_000


def tasks(parts: int) -> int:
    """Returns the number of tasks for so many independent parts of a pass: at least 1, at most 10,000."""
    return max(1, min(parts, _MOST_TASKS))


def map_arrow(rows: DataFrame, work: Pass, schema: StructType) -> DataFrame:
    """Returns the rows of `schema` that a pass makes of `rows`."""

    def run(batches: Batches) -> Batches:
        reduce_overhead()
        yield from work(batches)

    return rows.mapInArrow(run, schema)


def decode_packets(packets: DataFrame, table: Table, key: bytes | None = None) -> DataFrame:
    """Decodes rows of `packets` into rows of one of the decoded tables; with a key, names are pseudonymized."""
    schema = to_arrow_schema(table.spark)

    def rows(batch: pa.RecordBatch) -> pa.RecordBatch:
        found = DecodedBatch(batch).rows(table, schema)
        return pseudonymize_columns(found, NAME_COLUMNS, key) if key else found

    return map_arrow(packets, _each(rows), table.spark)


def explain_undecodable(packets: DataFrame) -> DataFrame:
    """Returns the rows of `packets` that cannot be decoded, with `reason` (a code) and `detail` (a sentence)."""
    schema = StructType(
        [*packets.schema.fields, StructField("reason", StringType()), StructField("detail", StringType())]
    )
    return map_arrow(packets, _each(lambda batch: DecodedBatch(batch).undecodable()), schema)


def _each(decoder: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Pass:
    def run(batches: Batches) -> Batches:
        for batch in batches:
            yield decoder(batch)

    return run
