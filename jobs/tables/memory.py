"""Holds tables in this process, as a run has read or written them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import polars as pl
import pyarrow as pa

ReadMore: TypeAlias = Callable[[pl.DataFrame, pa.Schema], pl.DataFrame]
"""Returns the columns that are known of all rows, and those of a schema."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Holds the tables that a run has read or written."""

    most_to_judge: int
    """How many messages this process has the memory to judge."""
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    columns: dict[str, tuple[tuple[str, ...], pl.DataFrame]] = field(default_factory=dict)
    """By table: its files or version when it was last read in part, and the columns that were read."""

    @property
    def most_settled(self) -> int:
        """Returns for how many other messages there is the memory: each takes a quarter of one that is judged."""
        return 4 * self.most_to_judge

    def has_read(self, table: str, of: Sequence[str]) -> bool:
        """Returns whether columns of the table were read from these files or this version."""
        return table in self.columns and self.columns[table][0] == tuple(of)

    def read_columns(self, table: str, of: Sequence[str], schema: pa.Schema, read: ReadMore) -> pl.DataFrame:
        """Returns columns of the table, whose rows are those `of` these files or this version; reads what it lacks."""
        known = self.columns[table][1] if self.has_read(table, of) else pl.DataFrame()
        missing = [schema.field(name) for name in schema.names if name not in known.columns]
        if missing:
            known = read(known, pa.schema(missing))
            self.columns[table] = tuple(of), known
        return known.select(schema.names)
