"""Rows come to a pass in pieces, and to a derivation in whole groups, also where a key is null."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from schemas.table import LONG, STRING, row
from udfs.replay import groups
from udfs.replay.groups import parts_of_groups, pieces

ROWS = row(one=STRING, two=LONG, value=LONG)


def batches(keys: Sequence[tuple[str | None, int | None]], size: int) -> Iterator[pa.RecordBatch]:
    rows = [{"one": one, "two": two, "value": at} for at, (one, two) in enumerate(keys)]
    for at in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[at : at + size], ROWS)


@pytest.mark.parametrize("size", [1, 3, 20])
def test_pieces_hold_no_more_rows_than_worth_a_call(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_MANY", 4)
    found = [table["value"].to_pylist() for table in pieces(batches([("a", 1)] * 10, size))]
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert not list(pieces([]))


@pytest.mark.parametrize("size", [1, 3, 20])
def test_pieces_hold_few_more_items_of_lists(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_MANY", 4)
    items = pa.table({"items": [[1, 2], None, [3, 4, 5], [], [6] * 9, [7]]})
    found = [table["items"].to_pylist() for table in pieces(items.to_batches(max_chunksize=size), lists="items")]
    assert found == [[[1, 2], None, [3, 4, 5]], [[], [6] * 9], [[7]]]


@pytest.mark.parametrize("size", range(1, 5))
def test_a_group_is_never_parted_and_nulls_are_equal(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_MANY", 1)
    keys = [(None, None)] * 3 + [(None, 1)] * 2 + [("a", None)] * 4 + [("a", 1), ("b", 1), ("b", 1)]
    seen: list[set[tuple[str | None, int | None]]] = [set()]
    for begins_groups, rows in parts_of_groups(batches(keys, size), "one", "two"):
        seen += [set()] if begins_groups else []
        seen[-1] |= set(zip(rows["one"].to_pylist(), rows["two"].to_pylist(), strict=True))
    assert sum(map(len, seen)) == len(set(keys))
    assert size > 1 or len(seen) == len(set(keys))
