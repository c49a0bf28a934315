"""Fills in, after a replay, the columns of ingested tables that only many captures together can tell."""

from typing import Any

from schemas.ingest import CAPTURES, STREAMS
from schemas.table import Table
from udfs.frames.engine import T
from udfs.replay.fitness.counts import fill_captures
from udfs.replay.order.conversations import Conversations

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
