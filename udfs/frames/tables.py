"""Gives frames the columns of a declared table."""

from functools import lru_cache

import polars as pl

from schemas.table import RowType, Table
from udfs.frames.columns import null
from udfs.frames.derivation import to_frame


@lru_cache(maxsize=256)
def schema_of(rows: RowType) -> pl.Schema:
    """Returns the columns of such rows, and their types in frames. All callers share it: nobody may change it."""
    return to_frame(rows.empty_table()).schema


def with_columns_of(table: Table, rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows with the table's columns, in its order and types; those that they lack are null."""
    return rows.select(
        pl.col(name).cast(of) if name in rows.columns else null(of).alias(name)
        for name, of in schema_of(table.arrow).items()
    )
