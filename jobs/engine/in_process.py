"""Runs steps in this process, over frames of Polars."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import polars as pl
import pyarrow as pa

from jobs.engine.engine import How, Row
from jobs.warehouse.gone import from_offsets
from schemas.staging import TIMES
from schemas.table import RowType, Table
from udfs.derive.columns import count, piece, timestamp
from udfs.derive.frames import ONE, Derivation, Frames, Work, to_arrow, to_frame
from udfs.derive.tables import schema_of, with_columns_of
from udfs.passes.options import Pass

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


@dataclass(frozen=True, slots=True)
class InProcess:
    """Implements `Engine` with frames. Tables are changed in memory only.

    A pass gets its rows in batches of `batch_rows`.
    """

    batch_rows: int = 10_000
    load: Callable[..., pl.DataFrame] = lambda table, *_: schema_of(table.arrow).to_frame()
    """Returns the rows of a table, of which these columns are needed; without any, all."""
    tables: Frames = field(default_factory=dict)
    """Tables that were read or changed, as they are now."""

    def read(self, table: Table, *columns: str) -> pl.DataFrame:
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
        rows: pl.DataFrame,
        work: Pass,
        schema: RowType,
        by: Sequence[str] = (),
        order: Sequence[str] = (),
        *,
        parts: int = 0,
    ) -> pl.DataFrame:
        del parts
        rows = rows.sort(*by, *order, nulls_last=True) if by else rows
        batches = to_arrow(rows).combine_chunks().to_batches(max_chunksize=self.batch_rows)
        return to_frame(pa.Table.from_batches(work(batches), schema))

    def derive_tables(self, work: Work | Derivation, **tables: pl.DataFrame) -> Frames:
        return Derivation.of(work).run(**tables)

    def derive(self, work: Work | Derivation, **tables: pl.DataFrame) -> pl.DataFrame:
        return self.derive_tables(work, **tables)[ONE]

    def gather(self, work: Work | Derivation, **tables: pl.DataFrame) -> Frames:
        return self.derive_tables(work, **tables)

    def bring(self, **tables: pl.DataFrame) -> Frames:
        return tables

    def keep(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows

    def expect_few(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows

    def union(self, *parts: pl.DataFrame) -> pl.DataFrame:
        return pl.concat(parts, how="diagonal_relaxed")

    def pick(self, rows: pl.DataFrame, column: str, *others: str) -> pl.DataFrame:
        found = rows.filter(pl.col(column).is_not_null()).select(*others, column)
        if not isinstance(found.schema[column], pl.Struct):
            return found
        fields = found[column].struct.unnest()
        return pl.concat([found.select(*others).drop(fields.columns, strict=False), fields], how="horizontal")

    def select(self, rows: pl.DataFrame, *names: str, **columns: str) -> pl.DataFrame:
        return rows.select(*names, **columns)

    def with_piece(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(piece=piece())

    def distinct(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.unique(maintain_order=True)

    def where(self, rows: pl.DataFrame, column: str) -> pl.DataFrame:
        return rows.filter(column)

    def join(self, rows: pl.DataFrame, other: pl.DataFrame, on: Sequence[str], how: How = "inner") -> pl.DataFrame:
        return join_frames(rows, other, on, how)

    def sum_up(self, rows: pl.DataFrame, by: Sequence[str], *columns: str) -> pl.DataFrame:
        return sum_frame(rows, by, *columns)

    def count(self, rows: pl.DataFrame) -> int:
        return rows.height

    def write(self, table: Table, rows: pl.DataFrame, *, update: bool = False) -> None:
        there, new = self.read(table), conform(rows, table)
        if update:
            there = self.join(there, new, table.key, "anti")
        else:
            new = self.join(new, there, table.key, "anti")
        self.tables[table.name] = pl.concat([there, new])

    def replace(self, table: Table, rows: pl.DataFrame) -> None:
        self.tables[table.name] = conform(rows, table)

    def replace_by(self, table: Table, work: Work | Derivation, **tables: pl.DataFrame) -> None:
        self.replace(table, self.derive(work, **tables))

    def delete_from_offset(self, table: Table, stale: pl.DataFrame) -> None:
        rows = self.read(table)
        self.tables[table.name] = rows.filter(~from_offsets(stale, table).find(rows))


def join_frames(rows: Frame, other: Frame, on: Sequence[str], how: How) -> Frame:
    """Does what `Engine.join` does."""
    if how in {"semi", "anti"}:
        return rows.join(other, on=list(on), how=how, nulls_equal=True)
    mine = rows.drop(*(name for name in other.collect_schema().names() if name not in on), strict=False)
    return mine.join(other, on=list(on), how=how, nulls_equal=True, maintain_order="left_right")


def sum_frame(rows: Frame, by: Sequence[str], *columns: str) -> Frame:
    """Does what `Engine.sum_up` does."""
    return rows.group_by(by, maintain_order=True).agg(count().alias("count"), *map(pl.sum, columns))


def conform(rows: pl.DataFrame, table: Table) -> pl.DataFrame:
    """Returns the table's columns, timestamps from nanoseconds where the rows have these; others that lack are null."""
    times = {at: ns for at, ns in TIMES.items() if at in table.names and at not in rows.columns and ns in rows.columns}
    return with_columns_of(table, rows.with_columns(timestamp(pl.col(ns)).alias(at) for at, ns in times.items()))
