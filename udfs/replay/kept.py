"""Holds what stays of the last replay, and what is to be judged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

import polars as pl

from udfs.frames.engine import Engine, T


@dataclass(frozen=True)
class Settled(Generic[T]):
    """Holds what stays of the last replay, and what is to be judged."""

    engine: Engine[T]
    to_judge: T
    """The messages to judge, with the columns TRANSACTIONAL."""
    flows_to_judge: T
    """Rows of `scopes.scoped_flows` of these messages."""
    resumed: T
    """Rows of RESUMED, one for each scope that is not judged from its first message on."""
    behind: T
    """Rows of BEHIND."""
    uses: T
    """Rows of USES, of transaction IDs of these messages."""
    tallies: T | pl.DataFrame
    """Rows of `read_tallies` that stay."""
    kept: Mapping[str, T] | None = None
    """Rows of other tables that stay, by name; None where all messages are judged."""
    judged_again: pl.DataFrame | None = None
    """The sequences of which the rows do not stay; None where all messages are judged."""

    def with_kept(self, name: str, rows: T) -> T:
        """Returns rows with those that stay."""
        return rows if self.kept is None else self.engine.union(self.kept[name], rows)

    def only(self, rows: T, on: str, wanted: T) -> T:
        """Returns the rows with a value that is wanted, where not all messages are judged; else all rows."""
        if self.kept is None:
            return rows
        return self.engine.join(rows, self.engine.distinct(self.engine.select(wanted, on)), [on], "semi")
