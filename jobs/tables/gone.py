"""Tells which rows of a table are gone, so that this process can write the files that hold them again without them."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from schemas.table import Table
from udfs.frames.columns import are_in


@dataclass(frozen=True, slots=True)
class Gone:
    """Tells which rows of a table are gone, by some of its columns."""

    columns: tuple[str, ...]
    find: Callable[[pl.DataFrame], pl.Series]
    """Returns for each row whether it is gone."""
    values: Mapping[str, Sequence[Any]]
    """All values of some of these columns in rows that are gone, sorted."""

    def may_be_in(self, file: Mapping[str, Any]) -> bool:
        """Returns whether a row that is gone may be in a file, by the ends of columns that it has: `min.x`, `max.x`."""
        return all(
            _is_any_between(values, file.get(f"min.{name}"), file.get(f"max.{name}"))
            for name, values in self.values.items()
        )


def _is_any_between(values: Sequence[Any], least: Any, greatest: Any) -> bool:
    """Returns whether one of the sorted values is between these; None is not known."""
    at = 0 if least is None else bisect_left(values, least)
    return at < len(values) and (greatest is None or values[at] <= greatest)


def with_values(rows: pl.DataFrame) -> Gone:
    """Returns that those rows are gone which have the values of one of these in its columns."""
    values = {column.name: _sorted(column) for column in rows if not column.null_count()}
    return Gone(tuple(rows.columns), lambda there: are_in(there, rows), values)


def from_offsets(stale: pl.DataFrame, table: Table) -> Gone:
    """Returns that the rows of each `stream_id` are gone from `from_offset` on; with -1, all.

    So are all rows of such a stream of a table without offsets.
    """
    first = stale.group_by("stream_id").agg(pl.min("from_offset"))
    columns = tuple(name for name in ("stream_id", "stream_offset") if name in table.names)

    def find(there: pl.DataFrame) -> pl.Series:
        rows = there.select(columns).join(first, on="stream_id", how="left", maintain_order="left")
        offsets = rows["stream_offset"].fill_null(-1) if "stream_offset" in columns else rows["from_offset"]
        return (offsets >= rows["from_offset"]).fill_null(value=False)

    return Gone(columns, find, {"stream_id": _sorted(stale["stream_id"])})


def _sorted(values: pl.Series) -> list[Any]:
    return values.unique().sort().to_list()
