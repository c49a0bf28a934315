"""The passes and decoders as Spark sees them: DataFrame in, DataFrame out, through Arrow."""

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
from udfs.spark_worker import spare

_MOST_TASKS = 10_000


def tasks(parts: int) -> int:
    """How many tasks do so many independent parts of a pass."""
    return max(1, min(parts, _MOST_TASKS))


def map_arrow(rows: DataFrame, work: Pass, schema: StructType) -> DataFrame:
    """The rows of `schema` that a pass makes of `rows`."""

    def run(batches: Batches) -> Batches:
        spare()
        yield from work(batches)

    return rows.mapInArrow(run, schema)


def decode_packets(packets: DataFrame, table: Table, key: bytes | None = None) -> DataFrame:
    """The rows of a table of what packets say, in `packets`; names hidden under the key."""
    schema = to_arrow_schema(table.spark)

    def rows(batch: pa.RecordBatch) -> pa.RecordBatch:
        found = DecodedBatch(batch).rows(table, schema)
        return pseudonymize_columns(found, NAME_COLUMNS, key) if key else found

    return map_arrow(packets, _each(rows), table.spark)


def explain_undecodable(packets: DataFrame) -> DataFrame:
    """The rows of `packets` that cannot be decoded, with `reason` and `detail`."""
    schema = StructType(
        [*packets.schema.fields, StructField("reason", StringType()), StructField("detail", StringType())]
    )
    return map_arrow(packets, _each(lambda batch: DecodedBatch(batch).undecodable()), schema)


def _each(decoder: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Pass:
    def run(batches: Batches) -> Batches:
        for batch in batches:
            yield decoder(batch)

    return run
