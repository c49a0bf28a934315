"""Declares the operations of an engine: it runs passes, combines their rows, reads and writes the tables."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeVar

import polars as pl

from schemas.table import RowType, Table
from udfs.frames.derivation import Derivation, Frames, Work
from udfs.frames.rows import Pass

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
        """Runs a pass, which makes batches of rows from batches of rows.

        All rows with the same values in the columns `by` come to one task, next to each other, sorted by `order`. With
        `parts`, which is how many rows there are, each comes to a task of its own.
        """

    def derive_tables(self, work: Work | Derivation, **tables: T | pl.DataFrame) -> dict[str, T]:
        """Has a function of frames make tables, now; groups of rows come to it as it `derives` declares."""

    def derive(self, work: Work | Derivation, **tables: T | pl.DataFrame) -> T:
        """Has a function of frames make its only table, now."""

    def gather(self, work: Work | Derivation, **tables: T | pl.DataFrame) -> Frames:
        """Has a function of frames make tables of few rows, which are then in this process."""

    def collect(self, **tables: T | pl.DataFrame) -> Frames:
        """Returns few rows of each table, which are then in this process."""

    def keep(self, rows: T) -> T:
        """Computes rows now, because several results are derived from them."""

    def expect_few(self, rows: T) -> T:
        """Brings computed rows here if they are few, so that a join sends them to all tasks; else returns them."""

    def union(self, *parts: T | pl.DataFrame) -> T:
        """Puts rows below each other; a column that a part lacks is null in it."""

    def pick(self, rows: T, column: str, *others: str) -> T:
        """Returns the rows in which `column` is not null: `others` and the column or, of a struct, its fields."""

    def select(self, rows: T, *names: str, **columns: str) -> T:
        """Returns columns, some of them under new names."""

    def with_piece(self, rows: T) -> T:
        """Adds `piece`, `stream_offset` divided by PIECE_BYTES and rounded down: a task gets a piece of a stream."""

    def distinct(self, rows: T) -> T:
        """Drops repeated rows."""

    def join(self, rows: T | pl.DataFrame, other: T | pl.DataFrame, on: Sequence[str], how: How = "inner") -> T:
        """Joins on columns of equal names."""

    def where(self, rows: T, condition: str) -> T:
        """Returns the rows for which a condition holds, in the SQL that Spark and Polars share."""

    def sum_up(self, rows: T, by: Sequence[str], *columns: str) -> T:
        """Returns how many rows there are (`count`) per values of the columns `by`, and the sums of these columns."""

    def count(self, rows: T) -> int:
        """Counts rows."""

    def write(self, table: Table, rows: T, *, update: bool = False, stale: T | None = None) -> None:
        """Adds rows whose key is not in the table and, with `update`, replaces those whose key is.

        Before that, the rows of each `stale` stream (stream_id, from_offset) are deleted from that offset on; with -1,
        all of the stream. Rows have nanoseconds in place of timestamps (`schemas.staging.TIMES`).
        """

    def replace(self, table: Table, rows: T) -> None:
        """Replaces all rows of a table; columns that the rows lack are null."""

    def replace_by(self, table: Table, work: Work | Derivation, *others: T, **tables: T | pl.DataFrame) -> None:
        """Replaces all rows of a table by those that a function makes, and others; all have just its columns."""

    def delete(self, table: Table, gone: T) -> None:
        """Deletes the rows that have the values of one of `gone` in its columns."""
