"""Declares the operations of an engine: it runs passes, combines their rows, reads and writes the tables."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeVar

import polars as pl

from schemas.table import RowType, Table
from udfs.derive.frames import Derivation, Frames, Work
from udfs.passes.options import Pass

Row = dict[str, Any]
How = Literal["inner", "left", "semi", "anti"]
T = TypeVar("T")
"""Rows as the engine holds them: a DataFrame of Spark or of Polars."""


class Engine(Protocol[T]):
    """Runs passes, combines rows, reads and writes tables. Collects only rows that are as few as splits of captures.

    Few rows may be given as a frame of this process instead.
    """

    def read(self, table: Table, *columns: str) -> T:
        """Returns a table's rows; only these columns, if any are named."""

    def table(self, rows: Sequence[Row], schema: RowType) -> T:
        """Hands a few rows to the engine."""

    def run(
        self,
        rows: T,
        work: Pass,
        schema: RowType,
        by: Sequence[str] = (),
        order: Sequence[str] = (),
        *,
        parts: int = 0,
    ) -> T:
        """Runs a pass.

        All rows with the same values in the columns `by` come to one task, next to each other, sorted by `order`. With
        `parts`, that many rows are spread over as many tasks.
        """

    def derive_tables(self, work: Work | Derivation, **tables: T | pl.DataFrame) -> dict[str, T]:
        """Derives tables from tables, and computes them now, because several results are derived from them."""

    def derive(self, work: Work | Derivation, **tables: T | pl.DataFrame) -> T:
        """Derives the only table that a function makes."""

    def gather(self, work: Work | Derivation, **tables: T | pl.DataFrame) -> Frames:
        """Derives tables of few rows, which are then in this process."""

    def bring(self, **tables: T | pl.DataFrame) -> Frames:
        """Returns few rows of each table, which are then in this process."""

    def keep(self, rows: T) -> T:
        """Computes rows now, because several results are derived from them."""

    def expect_few(self, rows: T) -> T:
        """Prepares kept rows for a join with many more."""

    def union(self, *parts: T | pl.DataFrame) -> T:
        """Puts rows below each other; a column that a part lacks is null in it."""

    def pick(self, rows: T, column: str, *others: str) -> T:
        """Returns the rows in which `column` is not null: `others` and the column or, of a struct, its fields."""

    def select(self, rows: T, *names: str, **columns: str) -> T:
        """Returns columns, some of them under new names."""

    def with_piece(self, rows: T) -> T:
        """Adds `piece`: which of the pieces of PIECE_BYTES of its stream the `stream_offset` of a row is in."""

    def distinct(self, rows: T) -> T:
        """Drops repeated rows."""

    def repeated(self, rows: T, *by: str) -> T:
        """Returns the values of these columns that more than one row has, each once."""

    def join(self, rows: T | pl.DataFrame, other: T | pl.DataFrame, on: Sequence[str], how: How = "inner") -> T:
        """Joins on columns of equal names."""

    def where(self, rows: T, column: str) -> T:
        """Returns the rows in which the column of flags is true."""

    def sum_up(self, rows: T, by: Sequence[str], *columns: str) -> T:
        """Returns how many rows there are (`count`) per values of the columns `by`, and the sums of these columns."""

    def count(self, rows: T) -> int:
        """Counts rows."""

    def write(self, table: Table, rows: T, *, update: bool = False) -> None:
        """Adds rows whose key is not in the table and, with `update`, replaces those whose key is.

        Rows have nanoseconds in place of timestamps (`schemas.staging.TIMES`).
        """

    def replace(self, table: Table, rows: T) -> None:
        """Replaces all rows of a table; columns that the rows lack are null."""

    def replace_by(self, table: Table, work: Work | Derivation, **tables: T | pl.DataFrame) -> None:
        """Replaces all rows of a table by those that a function derives, its only table."""

    def delete_from_offset(self, table: Table, stale: T) -> None:
        """Deletes the rows of each stream (stream_id, from_offset) from that offset on; with -1, all."""
