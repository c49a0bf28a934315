"""Declares how tables are derived from tables, whole groups at a time, and runs that over frames and Arrow batches."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import polars as pl
import pyarrow as pa

from schemas.table import BINARY, LONG, STRING, U16, U64, RowType, row

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)
Frames = dict[str, pl.DataFrame]
Work = Callable[..., Frames | pl.DataFrame]
W = TypeVar("W", bound=Work)
ONE = "rows"
"""The name of the only table that a derivation makes."""
_BATCH_ROWS = 10_000
_HELD = {
    pa.null(): STRING,
    pa.large_binary(): BINARY,
    pa.large_string(): STRING,
    pa.string_view(): STRING,
    pa.uint64(): U64,
    pa.uint32(): LONG,
    pa.uint16(): U16,
}
"""Types that Polars makes, and those that tables have instead."""


class Derivation(NamedTuple):
    """Derives tables from tables: `work` gets a frame for each of its parameters, and returns a frame per table.

    If it makes only one, it returns just that frame, and the table is called ONE.

    Without `by`, a call gets all rows or, `in_parts`, some rows of the only table that is not `shared`, any of them.
    With `by`, all frames have these columns, and a call gets all rows of one or of many groups, which have the same
    values there, in no order. The frames of `shared` are few rows, of which every call gets all. Of a table in
    `columns` it needs only those. Of frames without rows it makes frames without rows, which have the right columns
    and types.
    """

    work: Work
    by: Sequence[str] = ()
    shared: Sequence[str] = ()
    columns: Mapping[str, Sequence[str]] = {}
    in_parts: bool = False

    @classmethod
    def of(cls, work: "Work | Derivation") -> "Derivation":
        """Returns how a function derives, as it `derives`; a partial one derives as the whole one does."""
        if isinstance(work, Derivation):
            return work
        function = work.func if isinstance(work, partial) else work
        return _DECLARED.get(function, cls(function))._replace(work=work)

    @property
    def needs_all(self) -> bool:
        """Returns whether one call gets all rows."""
        return not self.by and not self.in_parts

    def run(self, **tables: pl.DataFrame) -> Frames:
        """Derives whole tables."""
        made = self.work(**{name: self.needed(name, rows) for name, rows in tables.items()})
        return {ONE: made} if isinstance(made, pl.DataFrame) else made

    def needed(self, name: str, rows: Frame) -> Frame:
        """Returns the columns of a table that it needs."""
        return rows.select(self.columns[name]) if name in self.columns else rows

    def made(self, **tables: pl.DataFrame) -> dict[str, RowType]:
        """Returns the schemas of the tables that it makes of such tables."""
        made = self.run(**{name: rows.clear() for name, rows in tables.items()})
        return {name: row_type_of(frame) for name, frame in made.items()}

    def stack(self, parts: Iterable[Frames], made: Mapping[str, RowType]) -> Iterator[pa.RecordBatch]:
        """Yields what it makes of each part of the tables, as rows of `stacked`."""
        for frames in parts:
            for name, rows in self.run(**frames).items():
                yield from to_batches(rows, made[ONE]) if is_only_one(made) else _tagged(name, rows, made)


_DECLARED: dict[Work, Derivation] = {}


def derives(
    by: Sequence[str] = (),
    shared: Sequence[str] = (),
    columns: Mapping[str, Sequence[str]] | None = None,
    *,
    in_parts: bool = False,
) -> Callable[[W], W]:
    """Declares how a function derives tables, as in `Derivation`; without that, a call gets all rows of all tables."""

    def declare(work: W) -> W:
        _DECLARED[work] = Derivation(work, by, shared, columns or {}, in_parts)
        return work

    return declare


def to_frame(rows: pa.Table) -> pl.DataFrame:
    """Returns the rows as a frame, in which a TxSequenceID is a UInt64, and times are of UTC in whatever session."""
    schema = pa.schema([pa.field(one.name, _framed(one.type)) for one in rows.schema])
    frame = pl.from_arrow(rows if rows.schema.types == schema.types else rows.cast(schema))
    return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()


def to_arrow(frame: pl.DataFrame) -> pa.Table:
    """Returns the rows as a table with types that Delta tables have."""
    rows = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    return rows.cast(pa.schema([pa.field(one.name, _held(one.type)) for one in rows.schema]))


def to_batches(frame: pl.DataFrame, schema: RowType) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a frame as batches that Spark can hold."""
    for rows in frame.iter_slices(_BATCH_ROWS):
        yield from to_arrow(rows).cast(schema).to_batches()


def row_type_of(frame: pl.DataFrame) -> RowType:
    """Returns the schema of the rows as a table."""
    return row(**{one.name: one.type for one in to_arrow(frame.clear()).schema})


def stacked(made: Mapping[str, RowType]) -> RowType:
    """Returns the schema of the rows of tables below each other: of several, a struct for each; else the only one's."""
    return made[ONE] if is_only_one(made) else row(**made)


def is_only_one(names: Iterable[str]) -> bool:
    """Returns whether the tables that a derivation makes are only ONE, whose rows need no struct."""
    return [*names] == [ONE]


def untagged(rows: pa.Table, names: Iterable[str]) -> Frames:
    """Returns tables whose rows stand below each other: each row is in the column of its table, as a struct."""
    return {name: to_frame(_of_struct(rows[name])) for name in names}


def _of_struct(column: pa.ChunkedArray) -> pa.Table:
    """Returns the structs that are not null as a table."""
    there = column.drop_null().combine_chunks()
    return pa.Table.from_arrays(there.flatten(), names=[one.name for one in column.type])


def _tagged(name: str, frame: pl.DataFrame, made: Mapping[str, RowType]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one of several tables, each in the column of its table."""
    schema = stacked(made)
    for batch in to_batches(frame, made[name]):
        column = pa.StructArray.from_arrays(batch.columns, fields=list(made[name]))
        columns = [column if one.name == name else pa.nulls(len(batch), one.type) for one in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _framed(of: pa.DataType) -> pa.DataType:
    """Returns the type with UInt64 in place of a decimal, and UTC in place of Spark's time zone, nested ones, too."""

    def framed(one: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(one) and one.tz is not None:
            return pa.timestamp(one.unit, "UTC")
        return pa.uint64() if pa.types.is_decimal(one) else one

    return _nested(of, framed)


def _held(of: pa.DataType) -> pa.DataType:
    """Returns the type with what tables have in place of what Polars makes."""
    return _nested(of, lambda one: _HELD.get(one, one))


def _nested(of: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_struct(of):
        return pa.struct([pa.field(one.name, _nested(one.type, change)) for one in of])
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return pa.list_(pa.field("element", _nested(of.value_type, change)))
    return change(of)
