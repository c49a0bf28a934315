"""Parts of local tables that are read without Spark: keys, streams, and what came and went since a version."""

from pathlib import Path
from random import Random

import polars as pl
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from table_frames import sorted_rows
from test_delta_commits import any_rows, created, held
from warehouses import without_spark

from jobs.cli.errors import ConflictError
from jobs.tables import delta_commits
from jobs.tables.gone import Gone, from_offsets, with_values
from schemas.ingest import PACKETS, STREAMS
from schemas.table import Table
from udfs.frames.tables import schema_of


def rows_at(table: Table, *places: tuple[str, int]) -> pl.DataFrame:
    """Rows of a table at these offsets of these streams; without offsets, of these streams."""
    rows = any_rows(Random(1), table, len(places)).to_dicts()
    at = [dict(zip(("stream_id", "stream_offset"), place, strict=True)) for place in places]
    named = [row | {name: of[name] for name in of if name in row} for row, of in zip(rows, at, strict=True)]
    return pl.DataFrame(named, schema_of(table.arrow))


def remaining(place: str, table: Table, gone: Gone, rows: pl.DataFrame | None = None) -> set[tuple[str, int]]:
    """Deletes rows and appends others; returns the places of those that are there then."""
    delta_commits.replace_rows(place, table, gone, schema_of(table.arrow).to_frame() if rows is None else rows, held)
    there = delta_commits.read(place, table.arrow)
    return set(there.select("stream_id", "stream_offset").iter_rows())


def test_rows_that_are_gone_are_deleted_with_the_files_that_hold_them(tmp_path: Path) -> None:
    """By offset and by key, in one commit with rows that come; other files stay, and readers see what remains."""
    place, streams = created(None, tmp_path, PACKETS), created(None, tmp_path, STREAMS)
    for offsets in ((("a", 0), ("a", 7), ("b'", 3)), (("a", 9), ("a", 12)), (("c", 1),)):
        delta_commits.write(place, PACKETS, rows_at(PACKETS, *offsets), held)
    files = {*(delta_commits.files(place))}
    from_7 = from_offsets(pl.DataFrame({"stream_id": ["a"], "from_offset": [7]}), PACKETS)
    assert remaining(place, PACKETS, from_7, rows_at(PACKETS, ("d", 5))) == {("a", 0), ("b'", 3), ("c", 1), ("d", 5)}
    assert len(files & {*(delta_commits.files(place))}) == 1  # that of c
    version = delta_commits.open_table(place).version()
    assert remaining(place, PACKETS, from_7) == {("a", 0), ("b'", 3), ("c", 1), ("d", 5)}
    assert delta_commits.open_table(place).version() == version
    named = with_values(rows_at(PACKETS, ("b'", 3), ("c", 99)).select(PACKETS.key))
    assert remaining(place, PACKETS, named) == {("a", 0), ("c", 1), ("d", 5)}
    assert DeltaTable(place).to_pyarrow_dataset().to_table(filter=pc.field("stream_id") == "a").num_rows == 1
    delta_commits.write(streams, STREAMS, rows_at(STREAMS, ("a", 0), ("b", 0)), held)
    whole = from_offsets(pl.DataFrame({"stream_id": ["a"], "from_offset": [-1]}), STREAMS)
    delta_commits.replace_rows(streams, STREAMS, whole, schema_of(STREAMS.arrow).to_frame(), held)
    assert delta_commits.read(streams, STREAMS.arrow)["stream_id"].to_list() == ["b"]


def test_few_rows_in_many_files_become_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next write does it, also one that deletes rows. Tables with a change feed, or many rows, are left alone."""
    place, packets = created(None, tmp_path, STREAMS), created(None, tmp_path, PACKETS)
    for number in range(9):
        for table, at in ((STREAMS, place), (PACKETS, packets)):
            delta_commits.write(at, table, rows_at(table, (f"s{number}", 0)), held)
    streams = {f"s{number}" for number in range(9)}
    assert len(delta_commits.files(packets)) == 9
    assert len(delta_commits.files(place)) == 1
    for number in range(9, 16):
        delta_commits.write(place, STREAMS, rows_at(STREAMS, (f"s{number}", 0)), held)
        streams.add(f"s{number}")
    monkeypatch.setattr(delta_commits, "_FEW_ROWS", 15)
    assert len(delta_commits.files(place)) == 8
    delta_commits.write(place, STREAMS, rows_at(STREAMS, ("t", 0)), held)
    assert len(delta_commits.files(place)) == 9
    monkeypatch.undo()
    gone = with_values(rows_at(STREAMS, ("s0", 0), ("s15", 0)).select(STREAMS.key))
    delta_commits.replace_rows(place, STREAMS, gone, rows_at(STREAMS, ("u", 0)), held)
    assert len(delta_commits.files(place)) == 1
    there = delta_commits.read(place, STREAMS.arrow)
    assert sorted(there["stream_id"]) == sorted((streams | {"t", "u"}) - {"s0", "s15"})


def test_deleting_fails_if_another_run_wrote_meanwhile(tmp_path: Path) -> None:
    """Its rows would be in no file otherwise."""
    place = created(None, tmp_path, PACKETS)
    delta_commits.write(place, PACKETS, rows_at(PACKETS, ("a", 0), ("a", 7)), held)
    named = with_values(rows_at(PACKETS, ("a", 0)).select(PACKETS.key))

    others = iter([rows_at(PACKETS, ("b", 1))])

    def overtaken(rows: pl.DataFrame) -> pl.Series:
        for other in others:
            delta_commits.write(place, PACKETS, other, held)
        return named.find(rows)

    with pytest.raises(ConflictError):
        delta_commits.replace_rows(
            place, PACKETS, Gone(named.columns, overtaken, named.values), schema_of(PACKETS.arrow).to_frame(), held
        )
    assert delta_commits.count(place) == 3


def test_known_keys_are_found_by_stream(tmp_path: Path) -> None:
    """A stream's name may have a quote."""
    place = created(None, tmp_path, PACKETS)
    delta_commits.write(place, PACKETS, rows_at(PACKETS, ("a", 0), ("a", 7), ("b'", 3)), held)
    keys = without_spark(tmp_path)._keys_near(PACKETS, rows_at(PACKETS, ("b'", 99), ("c", 1)))
    assert keys.to_dicts() == [{"stream_id": "b'", "stream_offset": 3}]


def test_what_came_and_went_since_a_version(tmp_path: Path) -> None:
    """A row that was written again did neither; none where it is too much, or the files of then are gone."""
    place = created(None, tmp_path, PACKETS)
    first, more = rows_at(PACKETS, ("a", 0), ("a", 7)), rows_at(PACKETS, ("a", 9), ("b", 1))
    delta_commits.write(place, PACKETS, first, held)
    old = delta_commits.files(place)
    delta_commits.write(place, PACKETS, more, held)
    delta_commits.replace_rows(place, PACKETS, with_values(first.slice(0, 1).select(PACKETS.key)), more[:0], held)
    warehouse = without_spark(tmp_path)
    found = warehouse.differences(PACKETS, 1, PACKETS.names, 1 << 20)
    assert found is not None
    assert sorted_rows(found[0]) == sorted_rows(more)
    assert sorted_rows(found[1]) == sorted_rows(first.slice(0, 1))
    assert warehouse.differences(PACKETS, 1, PACKETS.names, 10) is None
    assert warehouse.differences(PACKETS, 99, PACKETS.names) is None
    for file in old:
        Path(file).unlink()
    assert warehouse.differences(PACKETS, 1, PACKETS.names) is None
