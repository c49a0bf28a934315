"""Rows of tables as frames, for tests of what is derived from them."""

from typing import Any

import polars as pl

from schemas.table import Table
from schemas.tables import TABLES
from udfs.derive.frames import Frames, to_frame

TABLE = {table.name: table for table in TABLES}


def rows_of(table: Table | str, *rows: dict[str, Any], **same: Any) -> pl.DataFrame:
    """Rows of a table; columns that a row does not name have the value in `same`, else null."""
    declared = TABLE[table] if isinstance(table, str) else table
    schema = to_frame(declared.arrow.empty_table()).schema
    return pl.DataFrame([same | row for row in rows], schema=schema)


def empty() -> Frames:
    """All tables, without a row."""
    return {name: rows_of(name) for name in TABLE}
