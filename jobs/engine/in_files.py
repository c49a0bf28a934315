"""Rows in Parquet files of a local table, which tasks read themselves: Spark would hand them over more slowly."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

import polars as pl

from jobs.engine.engine import How
from jobs.engine.in_process import join_frames, sum_frame
from schemas.table import Table
from udfs.derive.columns import piece
from udfs.derive.tables import schema_of

_MOST_ROWS = 1_000_000
"""Rows that all tasks may get: less work than to hand all rows of the files to Spark."""
_Step = Callable[[pl.LazyFrame], pl.LazyFrame]


@dataclass(frozen=True, slots=True)
class InFiles:
    """Holds the files of a table, and what operations of `Engine` have made of their rows, each of them a step."""

    table: Table
    files: Sequence[str]
    steps: tuple[_Step, ...] = ()

    def select(self, *names: str, **columns: str) -> Self:
        """Returns columns, some of them under new names."""
        return self._then(lambda rows: rows.select(*names, **columns))

    def where(self, column: str) -> Self:
        """Returns the rows in which a BOOLEAN column is true."""
        return self._then(lambda rows: rows.filter(column))

    def with_piece(self) -> Self:
        """Adds `piece`."""
        return self._then(lambda rows: rows.with_columns(piece=piece()))

    def join(self, other: object, on: Sequence[str], how: How = "inner") -> Self | None:
        """Joins few rows, which all tasks get; returns None if they are many."""
        if not isinstance(other, pl.DataFrame) or other.height > _MOST_ROWS:
            return None
        return self._then(lambda rows: join_frames(rows, other.lazy(), on, how))

    def count_parts(self, by: Sequence[str], *columns: str) -> Self:
        """Returns counts and sums of each slice of the files, which `OnSpark.sum_up` adds up."""
        return self._then(lambda rows: sum_frame(rows, by, *columns))

    def _then(self, step: _Step) -> Self:
        return replace(self, steps=(*self.steps, step))

    def make(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Returns what the steps make of rows of the table."""
        return reduce(lambda made, step: step(made), self.steps, rows)

    def without_rows(self) -> pl.DataFrame:
        """Returns a frame with the columns of these rows, and none of them."""
        return self.make(schema_of(self.table.arrow).to_frame().lazy()).collect()
