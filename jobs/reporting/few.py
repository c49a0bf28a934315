"""Brings the tables that have few rows into this process: a row per capture, stream, session, sequence or story."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from jobs.engine.engine import Engine
from schemas.incidents import INCIDENTS
from schemas.ingest import BOOKS, CAPTURES, STREAMS
from schemas.replay import ENDS, FINDINGS, SEQUENCES, SESSIONS
from schemas.table import Table

Few = Mapping[str, pl.DataFrame]
"""Rows by the names of their tables."""
SUMMARIZED = (SESSIONS, FINDINGS, INCIDENTS)
REPORTED = (*SUMMARIZED, CAPTURES, STREAMS, SEQUENCES, ENDS, BOOKS)
_NEEDED = {
    STREAMS: (*("stream_id", "src_ip", "dst_ip", "last_captured_at", "missing_bytes", "mid_stream", "conflict"),),
    ENDS: ("stream_id", "session_id", "sender", "receiver", "copy_of"),
    BOOKS: ("balanced",),
}
"""Columns of tables of which others are not needed."""


def read_few(engine: Engine[Any], *tables: Table) -> Few:
    """Returns the rows of these tables; of ENDS, without copies."""
    rows = {table.name: engine.read(table, *_NEEDED.get(table, ())) for table in tables}
    few = engine.bring(**rows)
    if ENDS.name in few:
        few[ENDS.name] = few[ENDS.name].filter(pl.col("copy_of").is_null())
    return few
