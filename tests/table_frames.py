"""Rows of tables as frames, for tests of what is derived from them."""

from functools import cache
from typing import Any

import polars as pl

from schemas.outcomes import Outcome
from schemas.table import Table
from schemas.tables import TABLES
from udfs.frames.derivation import Frames, to_frame

TABLE = {table.name: table for table in TABLES}


def rows_of(table: Table | str, *rows: dict[str, Any], **same: Any) -> pl.DataFrame:
    """Rows of a table; what a row does not name has the value in `same`, else null. Times may be µs since 1970."""
    return pl.DataFrame([same | row for row in rows], schema=_schema(TABLE[table] if isinstance(table, str) else table))


@cache
def _schema(table: Table) -> pl.Schema:
    return to_frame(table.arrow.empty_table()).schema


def sorted_rows(rows: pl.DataFrame, *without: str) -> list[str]:
    """The rows without these columns, in an order of their own: a table has none."""
    return sorted(map(repr, rows.drop(without, strict=False).to_dicts()))


def empty() -> Frames:
    """All tables, without a row."""
    return {name: rows_of(name) for name in TABLE}


def message(number: int, outcome: Outcome, **more: Any) -> dict[str, Any]:
    """One message of a sequence, as in OUTCOMES."""
    witness = [{"stream_id": "s", "stream_offset": number, "role": "refused"}]
    return {"tx_sequence_number": number, "outcome": outcome.value, "witness": witness} | more


def arrival(order: int, verdict: str = "in_order", scope: str = "x", session: str = "s") -> dict[str, Any]:
    """One arrival of a scope, as in VERDICTS."""
    place = {"stream_id": f"{session}1", "stream_offset": order * 10, "captured_ns": order * 100}
    return place | {
        "replay_order": order,
        "verdict": verdict,
        "accepted": verdict == "in_order",
        "scope_key": scope,
        "session_id": session,
    }
