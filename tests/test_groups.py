"""Rows come to a pass in pieces, and to a derivation in whole groups, also where a key is null."""

from collections.abc import Iterator, Sequence

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from jobs.engines import parcels
from jobs.engines.parcels import pack, unpack
from schemas.table import LONG, STRING, row
from udfs.frames import groups
from udfs.frames.derivation import to_frame
from udfs.frames.groups import pieces

ROWS = row(one=STRING, two=LONG, value=LONG)


def batches(keys: Sequence[tuple[str | None, int | None]], size: int) -> Iterator[pa.RecordBatch]:
    rows = [{"one": one, "two": two, "value": at} for at, (one, two) in enumerate(keys)]
    for at in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[at : at + size], ROWS)


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "Asia/Tokyo"])
def test_times_are_of_utc_in_a_session_of_any_time_zone(zone: str) -> None:
    """Spark hands over timestamps with the name of the session's zone, which Databricks calls Etc/UTC."""
    at = pa.array([0, None], pa.timestamp("us", zone))
    nested = pa.array([[{"at": 0}], None], pa.list_(pa.struct({"at": at.type})))
    frame, plain = to_frame(pa.table({"at": at, "nested": nested})), pl.Datetime("us", "UTC")
    assert dict(frame.schema) == {"at": plain, "nested": pl.List(pl.Struct({"at": plain}))}
    assert frame["at"].dt.epoch("us").to_list() == [0, None]


@pytest.mark.parametrize("size", [1, 3, 20])
def test_pieces_hold_no_more_rows_than_worth_a_call(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "FRAME_ROWS", 4)
    found = [table["value"].to_pylist() for table in pieces(batches([("a", 1)] * 10, size))]
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert not list(pieces([]))


@pytest.mark.parametrize("size", [1, 3, 20])
def test_pieces_hold_few_more_items_of_lists(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "FRAME_ROWS", 4)
    items = pa.table({"items": [[1, 2], None, [3, 4, 5], [], [6] * 9, [7]]})
    found = [table["items"].to_pylist() for table in pieces(items.to_batches(max_chunksize=size), lists="items")]
    assert found == [[[1, 2], None, [3, 4, 5]], [[], [6] * 9], [[7]]]


def frames_of(keys: Sequence[tuple[str | None, int | None]], size: int) -> list[pl.DataFrame]:
    """Rows with these keys, so many together."""
    return [to_frame(pa.Table.from_batches([batch])) for batch in batches(keys, size)]


KEYS = [(None, None)] * 3 + [(None, 1)] * 2 + [("a", None)] * 4 + [("a", 1), ("b", 1), ("b", 1)]


@pytest.mark.parametrize("buckets", [1, 2, 100])
@pytest.mark.parametrize("size", [1, 5, 20])
def test_all_rows_of_a_group_are_in_one_bucket_and_nulls_are_equal(
    buckets: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parcels, "_MANY", 1)
    by = ["one", "two"]
    empty = {"left": to_frame(ROWS.empty_table()), "right": to_frame(ROWS.empty_table()).select("value", *by)}
    frames = frames_of(KEYS, size)
    packed = [parcel for name in empty for parcel in pack(name, frames, empty[name], by, buckets)]
    in_order = pa.Table.from_batches(packed).sort_by("bucket")
    groups_in = []
    found = {name: list[pl.DataFrame]() for name in empty}
    for of_bucket in unpack(empty, in_order.to_batches(max_chunksize=size)):
        groups_in += [set(of_bucket["left"].select(by).rows())]
        assert groups_in[-1] == set(of_bucket["right"].select(by).rows())
        for name, rows in of_bucket.items():
            found[name].append(rows)
    assert sum(map(len, groups_in)) == len(set(KEYS))
    assert len(groups_in) > 1 or buckets == 1
    for name, of_buckets in found.items():
        assert_frame_equal(pl.concat(of_buckets), pl.concat(frames).select(empty[name].columns), check_row_order=False)


def test_few_rows_of_many_buckets_come_in_one_call() -> None:
    empty = {"left": to_frame(ROWS.empty_table())}
    frames = frames_of(KEYS, 20)
    (found,) = unpack(empty, pack("left", frames, empty["left"], ["one", "two"], 100))
    assert_frame_equal(found["left"], frames[0], check_row_order=False)


def test_a_table_without_rows_in_a_bucket_has_its_columns() -> None:
    empty = {name: to_frame(ROWS.empty_table()) for name in ("left", "right")}
    (found,) = unpack(empty, pack("left", frames_of([("a", 1)], 1), empty["left"], ["one"], 1))
    assert_frame_equal(found["right"], empty["right"])
    assert found["left"].height == 1
