"""Runs steps in this process, over Arrow tables in memory."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.engine.engine import How, Row
from jobs.warehouse.gone import from_offsets
from schemas.ingest import CAPTURES, STREAMS
from schemas.judging import PIECE_BYTES
from schemas.staging import TIMES
from schemas.table import RowType, Table
from udfs.arrow.buffers import Ints
from udfs.derive.frames import ONE, Derivation, to_frame
from udfs.passes.options import Pass


@dataclass(frozen=True, slots=True)
class InProcess:
    """Implements `Engine` with Arrow tables. Tables are loaded and changed in memory only.

    A pass gets its rows in batches of `batch_rows`.
    """

    batch_rows: int = 10_000
    load: Callable[..., pa.Table] = lambda table, *_: table.arrow.empty_table()
    """Returns the rows of a table, of which these columns are needed; without any, all."""
    tables: dict[str, pa.Table] = field(default_factory=dict)
    """Tables that were read or changed, as they are now."""
    loaded: dict[str, int] = field(default_factory=dict)
    """How many rows each of them had when it was read."""
    rewritten: set[str] = field(default_factory=set)
    """Names of the tables in which rows were deleted or replaced."""

    def added(self, table: Table) -> pa.Table | None:
        """Returns the rows that were added to the table; None if others were deleted or replaced."""
        return None if table.name in self.rewritten else self.read(table).slice(self.loaded[table.name])

    def known_captures(self, ids: Collection[str]) -> list[Row]:
        rows: list[Row] = self.read(CAPTURES).select(["capture_id", "uri"]).to_pylist()
        return [row for row in rows if row["capture_id"] in ids]

    def read(self, table: Table, *columns: str) -> pa.Table:
        if columns:
            rows = self.tables[table.name] if table.name in self.tables else self.load(table, *columns)
            return rows.select(list(columns))
        if table.name not in self.tables:
            self.tables[table.name] = self.load(table)
            self.loaded[table.name] = self.tables[table.name].num_rows
        return self.tables[table.name]

    def streams_between(self, connections: pa.Table) -> pa.Table:
        streams = self.read(STREAMS)
        endpoints = [name.rpartition("#")[0] for name in streams["connection_id"].to_pylist()]
        named = streams.append_column("endpoints", pa.array(endpoints, pa.string()))
        return self.join(named, connections, ["endpoints"]).select(["packed", "stream_id", "instance"])

    def table(self, rows: Sequence[Row], schema: RowType) -> pa.Table:
        return pa.Table.from_pylist(list(rows), schema)

    def run(
        self,
        rows: pa.Table,
        work: Pass,
        schema: RowType,
        by: Sequence[str] = (),
        order: Sequence[str] = (),
        *,
        parts: int = 0,
    ) -> pa.Table:
        del parts
        rows = rows.sort_by([(name, "ascending") for name in (*by, *order)]) if by else rows
        batches = rows.combine_chunks().to_batches(max_chunksize=self.batch_rows)
        return pa.Table.from_batches(work(batches), schema)

    def derive(self, derivation: Derivation, **tables: pa.Table) -> dict[str, pa.Table]:
        return derivation.run(**tables)

    def one(self, derivation: Derivation, **tables: pa.Table) -> pa.Table:
        return self.derive(derivation, **tables)[ONE]

    def gather(self, derivation: Derivation, **tables: pa.Table) -> dict[str, pa.Table]:
        return derivation.run(**tables)

    def bring(self, **tables: pa.Table) -> dict[str, pa.Table]:
        return tables

    def hand_in(self, rows: pa.Table) -> pa.Table:
        return rows

    def keep(self, rows: pa.Table) -> pa.Table:
        return rows

    def expect_few(self, rows: pa.Table) -> pa.Table:
        return rows

    def union(self, *parts: pa.Table) -> pa.Table:
        return pa.concat_tables(parts, promote_options="default")

    def pick(self, rows: pa.Table, column: str, *others: str) -> pa.Table:
        found = rows.select([column, *others]).filter(rows[column].is_valid())
        picked = {name: found[name] for name in others} | {column: found[column]}
        if pa.types.is_struct(found[column].type):
            whole = picked.pop(column)
            picked |= {one.name: pc.struct_field(whole, one.name) for one in whole.type}
        return pa.table(picked)

    def select(self, rows: pa.Table, **columns: str) -> pa.Table:
        return pa.table({new: rows[old] for new, old in columns.items()})

    def with_piece(self, rows: pa.Table) -> pa.Table:
        return rows.append_column("piece", pc.divide(rows["stream_offset"], PIECE_BYTES))

    def distinct(self, rows: pa.Table) -> pa.Table:
        return rows.group_by(rows.column_names, use_threads=False).aggregate([])

    def where(self, rows: pa.Table, column: str) -> pa.Table:
        return rows.filter(rows[column])

    def join(self, rows: pa.Table, other: pa.Table, on: Sequence[str], how: How = "inner") -> pa.Table:
        if how in {"semi", "anti"}:
            return rows.filter(_have_match(rows, other, on, is_wanted=how == "semi"))
        left, right = _codes(rows, other, on)
        order = np.argsort(right, kind="stable")
        first, end = (np.searchsorted(right[order], left, side) for side in ("left", "right"))
        found = end - first
        lines = np.maximum(found, 1) if how == "left" else found
        places = np.arange(lines.sum()) + np.repeat(first - np.cumsum(lines) + lines, lines)
        matches = (
            pa.array(np.append(order, 0)[places], mask=np.repeat(found == 0, lines)) if how == "left" else order[places]
        )
        joined = rows.take(pa.array(np.repeat(np.arange(len(left)), lines)))
        more = other.drop_columns(list(on)).take(matches)
        return pa.table({part: table[part] for table in (joined, more) for part in table.column_names})

    def sum_up(self, rows: pa.Table, by: Sequence[str], *columns: str) -> pa.Table:
        wanted = [([], "count_all"), *((name, "sum") for name in columns)]
        sums = rows.group_by(list(by), use_threads=False).aggregate(wanted)
        named = {name: name for name in by} | {"count": "count_all"} | {name: f"{name}_sum" for name in columns}
        return self.select(sums, **named)

    def collect_lists(self, rows: pa.Table, by: str, column: str) -> pa.Table:
        lists = rows.group_by(by, use_threads=False).aggregate([(column, "list")])
        return pa.table({by: lists[by], column: lists[f"{column}_list"]})

    def count(self, rows: pa.Table) -> int:
        return int(rows.num_rows)

    def collect(self, rows: pa.Table) -> list[Row]:
        found: list[Row] = rows.to_pylist()
        return found

    def write(self, table: Table, rows: pa.Table, *, update: bool = False) -> None:
        there = self.read(table)
        new = conform(rows, table).cast(there.schema)
        if update:
            self._reduce(table, self.join(there, new, table.key, "anti"))
        else:
            new = self.join(new, there, table.key, "anti")
        self.tables[table.name] = pa.concat_tables([self.tables[table.name], new])

    def replace(self, table: Table, rows: pa.Table) -> None:
        self.rewritten.add(table.name)
        self.tables[table.name] = conform(rows, table)

    def delete_from_offset(self, table: Table, stale: pa.Table) -> None:
        rows = self.read(table)
        self._reduce(table, rows.filter(pc.invert(from_offsets(stale, table).find(rows))))

    def _reduce(self, table: Table, remaining: pa.Table) -> None:
        if remaining.num_rows != self.tables[table.name].num_rows:
            self.rewritten.add(table.name)
            self.tables[table.name] = remaining

    def do_all(self, works: Iterable[Callable[[], None]]) -> None:
        for work in works:
            work()


def _have_match(rows: pa.Table, other: pa.Table, on: Sequence[str], *, is_wanted: bool) -> pa.Array:
    """Returns which rows have values in these columns that the other table has, or has not; null is a value too."""
    keys = rows.select(on)
    sought = to_frame(other.select(on).cast(keys.schema))
    found = to_frame(keys).with_row_index("row").join(sought, on=list(on), how="semi", nulls_equal=True)["row"]
    has_match = np.full(rows.num_rows, not is_wanted)
    has_match[found.to_numpy()] = is_wanted
    return pa.array(has_match)


def _codes(rows: pa.Table, other: pa.Table, on: Sequence[str]) -> tuple[Ints, Ints]:
    """Returns a number for the values of each row of both tables in these columns; equal values have equal numbers."""
    codes = np.zeros(rows.num_rows + other.num_rows, np.int64)
    for name in on:
        kind = rows.schema.field(name).type
        values = pa.chunked_array([*rows[name].chunks, *other[name].cast(kind).chunks], kind).combine_chunks()
        indices = values.dictionary_encode("encode").indices.to_numpy()
        codes = np.unique(codes * (len(codes) + 1) + indices, return_inverse=True)[1] if codes.any() else indices
    return codes[: rows.num_rows], codes[rows.num_rows :]


def conform(rows: pa.Table, table: Table) -> pa.Table:
    """Returns the table's columns, timestamps from nanoseconds where the rows have these; others that lack are null."""
    columns = []
    for one in table.arrow:
        if one.name in TIMES and one.name not in rows.column_names:
            times = rows[TIMES[one.name]].cast(pa.timestamp("ns", "UTC"))
            columns.append(pc.floor_temporal(times, unit="microsecond").cast(one.type))
        elif one.name in rows.column_names:
            columns.append(rows[one.name].cast(one.type))
        else:
            columns.append(pa.nulls(rows.num_rows, one.type))
    return pa.Table.from_arrays(columns, schema=table.arrow)
