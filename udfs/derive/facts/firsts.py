"""Chooses one row of each group."""

from collections.abc import Sequence

import polars as pl


def first_rows(rows: pl.DataFrame, by: Sequence[str], order: Sequence[str]) -> pl.DataFrame:
    """Returns the first row of each group in the order of these columns, in which null comes first."""
    return rows.sort(order).unique(by, keep="first", maintain_order=True)
