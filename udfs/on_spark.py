"""The passes and decoders as Spark sees them: DataFrame in, DataFrame out, through Arrow."""

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from schemas.messages import NAME_COLUMNS
from schemas.staging import ASSEMBLED, EXTRACTED, FRAMED_PACKETS, INDEX, PACKET, SEGMENTS
from schemas.table import Table
from udfs.msmq.decode import DecodedBatch
from udfs.msmq.pseudonyms import pseudonymize_columns
from udfs.passes import index
from udfs.passes.assemble import assemble_connections
from udfs.passes.defragment import defragment
from udfs.passes.extract import extract_splits
from udfs.passes.options import Batches, CaptureFile, IngestOptions, Pass
from udfs.passes.preframe import unpack
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


def index_files(files: DataFrame, options: IngestOptions) -> DataFrame:
    """Returns one row of INDEX per row (uri) of `files`."""
    return map_arrow(files, index.index_files(options, to_arrow_schema(INDEX.spark)), INDEX.spark)


def extract(splits: DataFrame, options: IngestOptions) -> DataFrame:
    """The rows of EXTRACTED in `splits` (capture, uri, compression, cursor, stop, only)."""
    return map_arrow(
        splits, extract_splits(options, to_arrow_schema(EXTRACTED), to_arrow_schema(FRAMED_PACKETS)), EXTRACTED
    )


def reassemble_datagrams(fragments: DataFrame, options: IngestOptions) -> DataFrame:
    """The rows of SEGMENTS that come of IP fragments, which are rows of FRAGMENTS."""
    ordered = fragments.repartition("key").sortWithinPartitions("key", "capture", "frame")
    return map_arrow(ordered, defragment(options, to_arrow_schema(SEGMENTS.spark)), SEGMENTS.spark)


def assemble_streams(
    segments: DataFrame, captures: Mapping[int, CaptureFile], options: IngestOptions, *, final: bool
) -> DataFrame:
    """The rows of ASSEMBLED in `segments`, which come together and in file order for each connection."""
    # Not by the column itself: Spark 4.1 leaves that out above a union whose sides were joined by it, and then may
    # coalesce the partitions of the two sides differently, so that a state and its segments part.
    ordered = segments.repartition(F.xxhash64("connection")).sortWithinPartitions("connection", "capture", "frame")
    work = assemble_connections(options, captures, to_arrow_schema(ASSEMBLED), final=final)
    return map_arrow(ordered, work, ASSEMBLED)


def unpack_runs(runs: DataFrame) -> DataFrame:
    """The rows of PACKET in the packets of framed runs (stream_id, stream_offset, capture_id, packets)."""
    return map_arrow(runs, unpack(to_arrow_schema(PACKET)), PACKET)


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
