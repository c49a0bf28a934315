"""Runs steps in this process, over frames of Polars."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from jobs.engines.processes import Processes
from jobs.tables.gone import from_offsets
from schemas.staging import TIMES
from schemas.table import RowType, Table
from udfs.frames.columns import count, piece, timestamp
from udfs.frames.derivation import ONE, Derivation, Frames, Work, to_arrow, to_frame
from udfs.frames.engine import How, Row
from udfs.frames.rows import Pass
from udfs.frames.tables import schema_of, with_columns_of

Rows: TypeAlias = Any
"""A frame, or a LazyFrame where rows are many: they are read when they are needed, and only those that are."""
MANY_ROWS = 500_000
"""A table with more rows is a LazyFrame. What is derived from it in parts gets so many at a time."""


@dataclass(frozen=True, slots=True)
class InProcess:
    """Implements `Engine` with frames. Tables are changed in memory only.

    A pass gets its rows in batches of `batch_rows`; one over parts that do not depend on one another runs in other
    `processes`, if there are some.
    """

    batch_rows: int = 10_000
    load: Callable[..., Rows] = lambda table, *_: schema_of(table.arrow).to_frame()
    """Returns the rows of a table, of which these columns are needed; without any, all."""
    tables: dict[str, Rows] = field(default_factory=dict)
    """Tables that were read or changed, as they are now."""
    processes: Processes | None = None

    def read(self, table: Table, *columns: str) -> Rows:
        if columns:
            rows = self.tables[table.name] if table.name in self.tables else self.load(table, *columns)
            return rows.select(columns)
        if table.name not in self.tables:
            self.tables[table.name] = self.load(table)
        return self.tables[table.name]

    def table(self, rows: Sequence[Row], schema: RowType) -> pl.DataFrame:
        return to_frame(pa.Table.from_pylist(list(rows), schema))

    def run(
        self,
        rows: Rows,
        work: Pass,
        schema: RowType,
        by: Sequence[str] = (),
        order: Sequence[str] = (),
        *,
        parts: int = 0,
    ) -> pl.DataFrame:
        rows = rows.sort(*by, *order, nulls_last=True) if by else rows
        apart = self.processes if parts > 1 else None
        batches = to_arrow(as_polars(rows)).combine_chunks().to_batches(max_chunksize=1 if apart else self.batch_rows)
        made = apart.run(work, batches) if apart else work(batches)
        return to_frame(pa.Table.from_batches(made, schema))

    def derive_tables(self, work: Work | Derivation, **tables: Rows) -> Frames:
        derivation = Derivation.of(work)
        tables = {name: derivation.needed(name, rows) for name, rows in tables.items()}
        lazy = [name for name in tables if name not in derivation.shared and isinstance(tables[name], pl.LazyFrame)]
        if not (derivation.in_parts and lazy):
            return derivation.run(**self.collect(**tables))
        (name,) = lazy
        rows, shared = tables.pop(name), self.collect(**tables)
        parts = rows.collect_batches(chunk_size=MANY_ROWS)
        made = [derivation.run(**shared, **{name: part}) for part in parts]
        made = made or [derivation.run(**shared, **{name: as_polars(rows.limit(0))})]
        return {of: pl.concat([part[of] for part in made]) for of in made[0]}

    def derive(self, work: Work | Derivation, **tables: Rows) -> pl.DataFrame:
        return self.derive_tables(work, **tables)[ONE]

    def gather(self, work: Work | Derivation, **tables: Rows) -> Frames:
        return self.derive_tables(work, **tables)

    def collect(self, **tables: Rows) -> Frames:
        return {name: as_polars(rows) for name, rows in tables.items()}

    def keep(self, rows: Rows) -> pl.DataFrame:
        return as_polars(rows)

    def expect_few(self, rows: Rows) -> pl.DataFrame:
        return as_polars(rows)

    def union(self, *parts: Rows) -> Rows:
        return pl.concat(_alike(*parts), how="diagonal_relaxed")

    def pick(self, rows: Rows, column: str, *others: str) -> pl.DataFrame:
        found = as_polars(rows.filter(pl.col(column).is_not_null()).select(*others, column))
        if not isinstance(found.schema[column], pl.Struct):
            return found
        fields = found[column].struct.unnest()
        return pl.concat([found.select(*others).drop(fields.columns, strict=False), fields], how="horizontal")

    def select(self, rows: Rows, *names: str, **columns: str) -> Rows:
        return rows.select(*names, **columns)

    def with_piece(self, rows: Rows) -> Rows:
        return rows.with_columns(piece=piece())

    def distinct(self, rows: Rows) -> Rows:
        return rows.unique(maintain_order=True)

    def where(self, rows: Rows, condition: str) -> Rows:
        return rows.filter(pl.sql_expr(condition))

    def join(self, rows: Rows, other: Rows, on: Sequence[str], how: How = "inner") -> Rows:
        rows, other = _alike(rows, other)
        if how in {"semi", "anti"}:
            return rows.join(other, on=list(on), how=how, nulls_equal=True)
        others = (name for name in other.collect_schema().names() if name not in on)
        return rows.drop(*others, strict=False).join(
            other, on=list(on), how=how, nulls_equal=True, maintain_order="left_right"
        )

    def sum_up(self, rows: Rows, by: Sequence[str], *columns: str) -> Rows:
        return rows.group_by(by, maintain_order=True).agg(count().alias("count"), *map(pl.sum, columns))

    def count(self, rows: Rows) -> int:
        return int(as_polars(rows.select(pl.len())).item())

    def write(self, table: Table, rows: Rows, *, update: bool = False, stale: pl.DataFrame | None = None) -> None:
        there, new = as_polars(self.read(table)), conform(as_polars(rows), table)
        if stale is not None:
            there = there.filter(~from_offsets(stale, table).find(there))
        if update:
            there = self.join(there, new, table.key, "anti")
        else:
            new = self.join(new, there, table.key, "anti")
        self.tables[table.name] = pl.concat([there, new])

    def replace(self, table: Table, rows: Rows) -> None:
        self.tables[table.name] = conform(as_polars(rows), table)

    def replace_by(self, table: Table, work: Work | Derivation, *others: Rows, **tables: Rows) -> None:
        self.replace(table, self.union(self.derive(work, **tables), *others))

    def delete(self, table: Table, gone: pl.DataFrame) -> None:
        self.tables[table.name] = as_polars(self.join(self.read(table), gone, gone.columns, "anti"))


def as_polars(rows: Rows) -> pl.DataFrame:
    """Reads the rows of a LazyFrame; returns those of a frame."""
    return rows.collect() if isinstance(rows, pl.LazyFrame) else rows


def _alike(*tables: Rows) -> Sequence[Rows]:
    """Returns frames or, if one of these is lazy, LazyFrames, as Polars combines only one kind."""
    return [rows.lazy() for rows in tables] if any(isinstance(rows, pl.LazyFrame) for rows in tables) else tables


def conform(rows: pl.DataFrame, table: Table) -> pl.DataFrame:
    """Returns the table's columns, timestamps from nanoseconds where the rows have these; others that lack are null."""
    times = {at: ns for at, ns in TIMES.items() if at in table.names and at not in rows.columns and ns in rows.columns}
    return with_columns_of(table, rows.with_columns(timestamp(pl.col(ns)).alias(at) for at, ns in times.items()))
