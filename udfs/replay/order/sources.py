"""The tables that a replay reads, in the form that an engine has."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic

from schemas.ingest import CAPTURES, INTERNAL_CONNECTIONS, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES, SESSION_ACKS
from schemas.table import Table
from udfs.frames.engine import Engine, T
from udfs.frames.parallel import run_in_parallel
from udfs.replay.order.scopes import TRANSACTIONAL


@dataclass(frozen=True, slots=True)
class Sources(Generic[T]):
    """Holds the tables that a replay reads."""

    messages: T
    streams: T
    stream_gaps: T
    quarantine: T
    acks: T
    handshakes: T
    captures: T
    packets: T
    session_acks: T
    internal_connections: T


COLUMNS: Mapping[Table, tuple[str, ...]] = {
    MESSAGES: (
        *(*TRANSACTIONAL, "transactional", "body_encrypted", "window_size", "damaged"),
        *("time_to_reach_queue", "time_to_be_received"),
    ),
    STREAMS: (),
    STREAM_GAPS: (),
    QUARANTINE: tuple(name for name in QUARANTINE.names if name not in {"raw", "detail"}),
    ACKS: (
        *("stream_id", "stream_offset", "captured_ns", "capture_id", "ack_type", "source_queue_manager", "source_guid"),
        *("queue_manager_address", "tx_sequence_id", "tx_sequence_number", "message_class", "acknowledged_message_id"),
        *("window_size", "last_frame", "message_id"),
    ),
    HANDSHAKES: (),
    CAPTURES: (),
    PACKETS: (
        *("stream_id", "stream_offset", "size", "packet_type"),
        *("capture_id", "captured_at", "captured_ns", "first_frame"),
    ),
    SESSION_ACKS: ("stream_id", "stream_offset", "captured_ns", "capture_id", "last_frame", "window_size"),
    INTERNAL_CONNECTIONS: ("endpoints", "capture_id"),
}
"""The tables that a replay reads, and which columns of theirs; without any, all."""
SOURCES = tuple(COLUMNS)


def read_sources(engine: Engine[T]) -> Sources[T]:
    """Reads the tables, side by side where each waits for Spark."""
    rows = run_in_parallel(partial(engine.read, table, *columns) for table, columns in COLUMNS.items())
    return Sources(**dict(zip((table.name for table in SOURCES), rows, strict=True)))
