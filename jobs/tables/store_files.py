"""Reads and writes Parquet files of tables in an object store, in Spark's tasks, without a connector of Hadoop.

Tasks get what the environment of the driver's process says of the store (`jobs.tables.tasks`). A file that no commit
names, because its run was killed, is deleted by VACUUM.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from jobs.tables.parquet_files import about_file, in_files, new_name, scan_parquet, write_parquet
from jobs.tables.tasks import Made, tasks
from schemas.table import Table
from udfs.capture import stores
from udfs.frames.derivation import to_batches
from udfs.frames.rows import Batches, Pass

_BYTES_OF_A_TASK = 4 << 20
"""Bytes of files for which a task is worth its start."""
_SMALL_BYTES, _KEPT = 256 << 10, 256
"""Bytes up to which a file is read whole, and how many of these a worker keeps, as a night reads some ten times."""


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


def read_in_tasks(spark: SparkSession, files: Sequence[File], schema: pa.Schema) -> Made:
    """Returns the columns of the schema in these files, which tasks read, and only those that are used.

    Spark numbers the rows, so that it plans with as many as there are; the task with the number of a file's first row
    reads that file.
    """
    counts = [max(file.rows, 1) for file in files]
    firsts = {end - count: file for end, count, file in zip(accumulate(counts), counts, files, strict=True)}
    many = tasks(min(len(files), sum(file.size for file in files) // _BYTES_OF_A_TASK + 1))
    numbered = spark.range(0, sum(counts), 1, many)
    return Made(numbered, partial(partial, _read, firsts), schema)


def _read(firsts: Mapping[int, File], schema: pa.Schema, batches: Batches) -> Iterator[pa.RecordBatch]:
    known = pa.array(firsts, pa.int64())
    for batch in batches:
        numbers = batch["id"]
        for number in numbers.filter(pc.is_in(numbers, value_set=known)).to_pylist():
            yield from to_batches(_scan(firsts[number], schema).collect(), schema)


@lru_cache(_KEPT)
def _content(uri: str) -> bytes:
    """Returns what is in a file, which never changes."""
    return stores.read(uri)


def _scan(file: File, schema: pa.Schema) -> pl.LazyFrame:
    """Returns columns of a file: a small one is read whole and kept, of a large one only what is needed."""
    if file.size <= _SMALL_BYTES:
        return scan_parquet([_content(file.uri)], schema)
    settings = {"storage_options": stores.options(file.uri)} if stores.in_store(file.uri) else {}
    return scan_parquet([file.uri], schema, **settings)
