"""Rows in Parquet files of a local table, which tasks read themselves: Spark would hand them over more slowly."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

import polars as pl

from schemas.table import Table
from udfs.frames.tables import schema_of

Step = Callable[[pl.LazyFrame], pl.LazyFrame]


@dataclass(frozen=True, slots=True)
class InFiles:
    """Holds the files of a table, and the steps that make rows of theirs, whichever slice of a file a task reads."""

    table: Table
    files: Sequence[str]
    steps: tuple[Step, ...] = ()

    def then(self, step: Step) -> Self:
        """Returns what a further step makes of the rows."""
        return replace(self, steps=(*self.steps, step))

    def make(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Returns what the steps make of rows of the table."""
        return reduce(lambda made, step: step(made), self.steps, rows)

    def without_rows(self) -> pl.DataFrame:
        """Returns a frame with the columns of these rows, and none of them."""
        return self.make(schema_of(self.table.arrow).to_frame().lazy()).collect()
