"""Parts of local tables that are read without Spark: keys, streams, and what came and went since a version."""

from pathlib import Path
from random import Random

import pyarrow as pa
from pyspark.sql import SparkSession
from test_local_commits import any_rows, created, held, sorted_rows

from jobs.warehouse import local_commits, local_parts
from jobs.warehouse.local_parts import Range
from jobs.warehouse.local_tables import to_spark
from jobs.warehouse.store import Warehouse
from schemas.ingest import PACKETS, STREAMS
from schemas.table import Table


def rows_at(table: Table, *places: tuple[str, int]) -> pa.Table:
    """Rows of a table at these offsets of these streams; without offsets, of these streams."""
    rows = any_rows(Random(1), table, len(places)).to_pylist()
    at = [dict(zip(("stream_id", "stream_offset"), place, strict=True)) for place in places]
    named = [row | {name: of[name] for name in of if name in row} for row, of in zip(rows, at, strict=True)]
    return pa.Table.from_pylist(named, table.arrow)


def test_rows_are_found_by_stream_and_offset(tmp_path: Path) -> None:
    """A stream's name may have a quote; of a table without offsets, every row of the stream counts."""
    place, streams = created(None, tmp_path, PACKETS), created(None, tmp_path, STREAMS)
    assert not local_parts.has_any(place, PACKETS, [Range("a", -1)])
    assert local_commits.write(place, PACKETS, rows_at(PACKETS, ("a", 0), ("a", 7), ("b'", 3)), held)
    assert local_commits.write(streams, STREAMS, rows_at(STREAMS, ("a", 0)), held)
    found = {(one, first, last) for one in ("a", "b'", "c") for first in (-1, 4, 8) for last in (None, 5, 7)}
    expected = {("a", -1, None), ("a", -1, 5), ("a", -1, 7), ("a", 4, None), ("a", 4, 7)}
    expected |= {("b'", -1, None), ("b'", -1, 5), ("b'", -1, 7)}
    assert {one for one in found if local_parts.has_any(place, PACKETS, [Range(*one)])} == expected
    assert [local_parts.has_any(streams, STREAMS, [Range(one, 99)]) for one in ("a", "c")] == [True, False]
    keys = local_parts.read_keys(place, PACKETS, rows_at(PACKETS, ("b'", 99), ("c", 1)))
    assert keys is not None
    assert keys.to_pylist() == [{"stream_id": "b'", "stream_offset": 3}]
    many = [Range(str(one), 0) for one in range(1_000)]
    assert local_parts.has_any(place, PACKETS, many)  # too many to look for: Spark has to find out


def test_what_came_and_went_since_a_version(spark: SparkSession, tmp_path: Path) -> None:
    """Also a row that went and came again; none where it is too much, or the log cannot tell."""
    warehouse = Warehouse(spark, str(tmp_path))
    place = created(spark, tmp_path, PACKETS)
    first, more = rows_at(PACKETS, ("a", 0), ("a", 7)), rows_at(PACKETS, ("a", 9), ("b", 1))
    assert local_commits.write(place, PACKETS, first, held)
    assert local_commits.write(place, PACKETS, more, held)
    same = "t.stream_id = s.stream_id AND t.stream_offset = s.stream_offset"
    warehouse.delete(PACKETS, to_spark(spark, first.select(PACKETS.key)), same)
    assert local_commits.write(place, PACKETS, first.slice(1), held)
    found = warehouse.changes_here(PACKETS, 1, 1 << 20)
    assert found is not None
    came, went = found
    assert sorted_rows(came) == sorted_rows(pa.concat_tables([more, first.slice(1)]))
    assert sorted_rows(went) == sorted_rows(first.select(PACKETS.key))
    assert warehouse.changes_here(PACKETS, 1, 10) is None
    assert warehouse.changes_here(PACKETS, 4, 1 << 20) is None
