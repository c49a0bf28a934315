"""Frames of literal rows, in the types that a table's rows have in the functions of `udfs.derive`."""

from typing import Any

import polars as pl

from schemas.table import Table
from udfs.derive.frames import to_frame


def frame_of(table: Table, *rows: dict[str, Any]) -> pl.DataFrame:
    """Returns rows of a table; columns that a row lacks are null."""
    return pl.DataFrame(rows, schema=to_frame(table.arrow.empty_table()).schema)
