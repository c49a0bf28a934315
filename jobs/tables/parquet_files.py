"""Reads and writes Parquet files of Delta tables in folders of this machine, here or in Spark's tasks."""

import errno
import json
import os
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.cli.errors import JobError
from jobs.tables.mirror import fetch, mirror_of
from schemas.table import LONG, STRING, Table, row
from udfs.frames.groups import bunches
from udfs.frames.rows import Batches, Pass
from udfs.frames.tables import schema_of

_INDEXED = 32
"""Columns that Delta collects statistics of unless a table says which."""
_FILE_BYTES = 128 * 2**20
"""Bytes of rows, as Arrow holds them, of which a task makes a file."""
FILE = row(name=STRING, size=LONG, modified_ms=LONG, statistics=STRING)
"""Rows about files that were written: name in the table's folder, bytes, time in ms since 1970, statistics as JSON."""
_AS_SCHEMA: Any = {
    "missing_columns": "insert",
    "extra_columns": "ignore",
    "cast_options": pl.ScanCastOptions(
        datetime_cast=["nanosecond-downcast", "convert-timezone"],  # as Spark writes times
        integer_cast="upcast",
        missing_struct_fields="insert",
        extra_struct_fields="ignore",
    ),
}
"""How Polars makes rows of the schema from files that Spark or an older version wrote."""
_NOT_OF_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


class About(NamedTuple):
    """Says how many bytes and rows a file has; 0 rows where the table's log does not tell."""

    size: int
    rows: int


def sync(*paths: Path) -> None:
    """Waits until the contents of these files, or the names in these folders, are on the disk.

    What the system only holds in its memory is lost when the power fails. A folder that the file system does not write
    on request, or that may not be opened, is left to the system.
    """
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if not (path.is_dir() and error.errno in _NOT_OF_FOLDERS):
                raise


def read_files(files: Collection[str], schema: pa.Schema, where: pl.Expr | None = None) -> pl.DataFrame:
    """Reads the columns of the schema, only of rows `where` something holds; a column that a file lacks is null.

    Polars takes half as long as pyarrow for the small files of many nights.

    Raises:
        OSError: a file is not there, or cannot be read.
    """
    if not files:
        return schema_of(schema).to_frame()
    rows = scan(files, schema)
    try:
        return (rows if where is None else rows.filter(where)).collect()
    except pl.exceptions.PolarsError as error:
        raise OSError(f"{', '.join(sorted(files)[:1])} cannot be read: {error}") from error


def count_rows(files: Collection[str]) -> int:
    """Counts the rows of files by what they say of themselves."""
    fetch(files)
    return sum(pq.read_metadata(file).num_rows for file in files)


def scan(files: Collection[str], schema: pa.Schema) -> pl.LazyFrame:
    """Returns the columns of the schema in these files."""
    fetch(files)
    return scan_parquet(list(files), schema)


def scan_parquet(files: list[str] | list[bytes], schema: pa.Schema, **settings: Any) -> pl.LazyFrame:
    """Returns the columns of the schema in files, or in what was read of these.

    `settings` are those of the store that files are in.
    """
    columns = pl.DataFrame(schema.empty_table()).schema
    rows = pl.scan_parquet(files, glob=False, schema=columns, **_AS_SCHEMA, **settings)
    return rows.cast(schema_of(schema))


def write_file(place: str, table: Table, rows: pa.Table) -> dict[str, Any]:
    """Writes the rows to a new file in the folder, and waits until it is on the disk; returns a row of FILE.

    A file of a table that is repeated here goes to its store when it is added to the table.

    Raises:
        JobError: a value is missing where none may be, or is not one of those that its column can have.
    """
    file = Path(place, new_name())
    write_parquet(table, rows, file)
    if mirror_of(place) is None:
        sync(file, file.parent)
    status = file.stat()
    return about_file(table, rows, file.name, status.st_size, status.st_mtime_ns)


def new_name() -> str:
    """Returns a name for a file that no other file has."""
    return f"part-00000-{uuid4()}-c000.zstd.parquet"


def write_parquet(table: Table, rows: pa.Table, to: Any) -> None:
    """Writes rows of the table as Parquet to a path or a stream.

    Raises:
        JobError: as `write_file` does.
    """
    _require_valid(table, rows)
    # A dictionary of numbers that differ costs time, and a third more of space.
    texts = [one.name for one in table.arrow if pa.types.is_string(one.type)]
    form: Any = {"compression": "zstd", "use_dictionary": texts, "coerce_timestamps": "us", "store_schema": False}
    pq.write_table(rows.select(table.names).cast(table.arrow), to, **form)


def about_file(table: Table, rows: pa.Table, name: str, size: int, modified_ns: int) -> dict[str, Any]:
    """Returns a row of FILE about a file with these rows."""
    return {"name": name, "size": size, "modified_ms": modified_ns // 1_000_000, "statistics": _statistics(table, rows)}


def writing_files(place: str, table: Table) -> Pass:
    """Returns a pass that writes rows of the table to files, and returns rows of FILE."""
    return in_files(partial(write_file, place, table))


def in_files(write: Callable[[pa.Table], dict[str, Any]]) -> Pass:
    """Returns a pass that writes as many rows at a time as a file gets, and returns rows of FILE."""

    def of_file(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([write(pa.Table.from_batches(batches))], FILE)

    def run(batches: Batches) -> Batches:
        made = (batch for batch in batches if batch.num_rows)
        return map(of_file, bunches(made, attrgetter("nbytes"), _FILE_BYTES))

    return run


def _require_valid(table: Table, rows: pa.Table) -> None:
    """Holds the rows to the table's NOT NULL and CHECK constraints: delta-rs checks only rows that it writes itself."""
    for column in table:
        values = rows[column.name]
        if values.null_count and not column.nullable:
            raise JobError(f"A row of {table.name} has no {column.name}.")
        if column.values is not None:
            known = pc.is_in(values.drop_null(), value_set=pa.array(list(map(str, column.values)), values.type))
            if not pc.all(known, min_count=0).as_py():
                raise JobError(f"A row of {table.name} has a {column.name} that is not one of its values.")


def _statistics(table: Table, rows: pa.Table) -> str:
    """Returns the number of rows and, of the columns that Delta skips files by, least, greatest and missing values.

    Texts are not escaped: delta-rs does not put together the two halves of an escaped character above U+FFFF.
    """
    least, greatest, missing = {}, {}, {}
    for name in table.statistics_columns or table.names[:_INDEXED]:
        column = rows[name]
        if pa.types.is_nested(column.type):
            continue
        missing[name] = column.null_count
        if not (pa.types.is_boolean(column.type) or pa.types.is_binary(column.type)):
            ends = pc.min_max(column).as_py()
            if ends["min"] is not None:
                least[name], greatest[name] = _plain(ends["min"]), _plain(ends["max"])
    found = {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": missing}
    return json.dumps(found, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Returns a statistic as the protocol writes it; a time is cut to milliseconds, as readers of Delta expect."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    return int(value) if isinstance(value, Decimal) else value
