"""Reads and writes Parquet files of tables in an object store, in Spark's tasks, without a connector of Hadoop.

Tasks get what the environment of the driver's process says of the store (`jobs.tables.tasks`). A file that no commit
names, because its run was killed, is deleted by VACUUM.
"""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from jobs.tables.local_files import about_file, in_files, new_name, scan, write_parquet
from jobs.tables.tasks import map_arrow, tasks
from schemas.table import Table
from udfs.capture import stores
from udfs.frames.derivation import to_batches
from udfs.frames.rows import Batches, Pass

_BYTES_OF_A_TASK = 4 << 20
"""Bytes of files for which a task is worth its start."""


class File(NamedTuple):
    """Names a file of a table in a store, with its bytes and rows."""

    uri: str
    size: int
    rows: int


def writing_objects(uri: str, table: Table) -> Pass:
    """Returns a pass that writes rows of the table at the URI to objects, and returns rows of FILE."""
    return in_files(partial(_write_object, uri, table))


def _write_object(uri: str, table: Table, rows: pa.Table) -> dict[str, Any]:
    name, out = new_name(), pa.BufferOutputStream()
    write_parquet(table, rows, out)
    data = out.getvalue()
    stores.write(f"{uri}/{name}", data)
    return about_file(table, rows, name, data.size, time.time_ns())


def read_in_tasks(spark: SparkSession, files: Sequence[File], schema: pa.Schema) -> DataFrame:
    """Returns the columns of the schema in these files, which tasks read.

    Spark numbers the rows, so that it plans with as many as there are; the task with the number of a file's first row
    reads that file.
    """
    counts = [max(file.rows, 1) for file in files]
    firsts = {end - count: file.uri for end, count, file in zip(accumulate(counts), counts, files, strict=True)}
    many = tasks(min(len(files), sum(file.size for file in files) // _BYTES_OF_A_TASK + 1))
    numbered = spark.range(0, sum(counts), 1, many)
    return map_arrow(numbered, partial(_read, firsts, schema), schema)


def _read(firsts: dict[int, str], schema: pa.Schema, batches: Batches) -> Iterator[pa.RecordBatch]:
    known = pa.array(firsts, pa.int64())
    for batch in batches:
        numbers = batch["id"]
        for number in numbers.filter(pc.is_in(numbers, value_set=known)).to_pylist():
            uri = firsts[number]
            settings = {"storage_options": stores.options(uri)} if stores.in_store(uri) else {}
            yield from to_batches(scan([uri], schema, **settings).collect(), schema)
