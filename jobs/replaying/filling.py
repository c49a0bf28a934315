"""Fills in, after a replay, the columns of ingested tables that only many captures together can tell."""

from typing import Any

from jobs.engine.engine import T
from jobs.replaying.conversations import Conversations
from schemas.ingest import CAPTURES, STREAMS
from schemas.table import Table
from udfs.derive.fitness import fill_captures

FILLED = (STREAMS, CAPTURES)


def filled_rows(united: Conversations[T]) -> dict[Table, Any]:
    """Returns the rows, of STREAMS and of CAPTURES, in which a column to fill in is not what it should be.

    A table of which none can be has no entry.
    """
    engine, sources = united.engine, united.sources
    packets = engine.sum_up(sources.packets, ["capture_id", "packet_type"])
    captures = engine.derive(
        fill_captures,
        captures=sources.captures,
        streams=sources.streams,
        connections=sources.internal_connections,
        packets=packets,
    )
    renamed = united.renamed_copies(sources.streams)
    return {CAPTURES: captures} | ({} if renamed is None else {STREAMS: renamed})
