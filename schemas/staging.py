"""Declares the rows between the passes of ingest, which exist only during a run.

Where rows of several kinds come from one pass, each kind is a struct; a row has one of them, and the others are null.
"""

from enum import StrEnum

import pyarrow as pa

from schemas.ingest import (
    CAPTURES,
    CLOCK_STEPS,
    INTERNAL_CONNECTIONS,
    NOT_JUDGED,
    PACKETS,
    QUARANTINE,
    STREAM_GAPS,
    STREAMS,
)
from schemas.table import BINARY, BOOL, LONG, STRING, U16, RowType, Table, array, row

INDEX = row(
    uri=STRING,
    capture_id=STRING,
    size_bytes=LONG,
    content_bytes=LONG,
    format=STRING,
    compression=STRING,
    status=STRING,
    reason=STRING,
    detail=STRING,
    raw=BINARY,
    packet_count=LONG,
    first_ns=LONG,
    last_ns=LONG,
    begins_ns=LONG,
    clock_steps=CLOCK_STEPS,
    by_time=BOOL,
    cursors=array(STRING, nullable=False),
)
"""A capture file. `content_bytes`: what it holds, expanded. `reason`, `detail`: its first fault. `raw`: the first bytes
of an unreadable file. `by_time`: its records come from several clocks, and only their times tell their order.
`begins_ns`: time of its first record that has one. `cursors`: where each split begins
(`udfs.capture.records.Cursor`). Others: as in `captures`."""

_SEGMENT = {
    "connection": BINARY,
    "frame": LONG,
    "order": LONG,
    "time_ns": LONG,
    "last_ns": LONG,
    "from_b": BOOL,
    "seq": LONG,
    "ack": LONG,
    "flags": U16,
    "length": LONG,
    "payload": BINARY,
    "header_sum": U16,
    "framed_run": BOOL,
    "file_offsets": BINARY,
}
"""A TCP segment or framed run. `connection`: both endpoints, the lower one first. `order`: what comes before the
record number in the order of a capture that is read `by_time`; null in others. `from_b`: the higher one sent it.
`last_ns`: of a row for several records, the latest of their times. `framed_run`: true or null. For the others see
`udfs.tcp.connections.Segment`."""

STATE_ROW = row(connection=BINARY, capture=LONG, frame=LONG, state=STRING)
"""The state (`udfs.tcp.resume`) from which a connection resumes. Its capture is -1, so that it comes before the
connection's segments, among which it is sorted."""

_FRAGMENT = {
    "key": BINARY,
    "frame": LONG,
    "order": LONG,
    "time_ns": LONG,
    "offset": LONG,
    "more": BOOL,
    "length": LONG,
    "payload": BINARY,
}
"""An IP fragment that may belong to a TCP datagram; see `udfs.network.dissect.Fragments`."""

TIMES = {
    "captured_at": "captured_ns",
    "first_captured_at": "first_ns",
    "last_captured_at": "last_ns",
    "connection_last_at": "connection_last_ns",
    "receiver_last_at": "receiver_last_ns",
    "ended_at": "ended_ns",
    "window_shut_at": "window_shut_from_ns",
    "last_before_at": "last_before_ns",
    "first_after_at": "first_after_ns",
    "ingested_at": "ingested_ns",
}
"""Timestamp columns of the tables, and the columns that rows have instead: nanoseconds since 1970."""


def _made_row(table: Table, *left_out: str) -> RowType:
    """Returns the table's row as a worker makes it, with times in ns only."""
    names = [name for name in table.names if name not in left_out]
    types = {f.name: f.type for f in table.arrow} | dict.fromkeys(TIMES.values(), LONG)
    return row(**{name: types[name] for name in (TIMES.get(n, n) for n in names)})


class Counted(StrEnum):
    """Lists what records are counted as, beside `NotJudged`."""

    SEGMENT = "segment"
    OTHER = "other"
    TO_PORT = "to_port"
    CUT = "cut"
    DAMAGED = "damaged"


EXTRACTED = row(
    capture=LONG,
    segment=row(**_SEGMENT),
    run_packets=row(frame=LONG, packets=BINARY),
    fragment=row(**_FRAGMENT),
    fault=_made_row(QUARANTINE, "capture_id", "stream_id"),
    count=NOT_JUDGED.value_type,
    ping=row(time_ns=LONG, endpoints=BINARY, cookie=LONG),
)
"""The rows of a split, or of reassembled IP fragments, with the rank of their capture.

`run_packets`: the packets of a framed run (FRAMED_PACKETS as an Arrow stream), which are not shuffled; it stands beside
the run's `segment`. `fault`: a fault of the file or of a record. `count`: how many records are MSMQ segments (and, of
these, went to an MSMQ port, were cut, or are damaged), other traffic, or traffic that is `not_judged`. `ping`: a
request or an answer; see `udfs.network.dissect.Pings`.
"""

PACKET = _made_row(PACKETS)
"""A row of `packets` as a worker makes it."""

FRAMED_PACKETS = pa.schema([pa.field("offset", LONG), *_made_row(PACKETS, "stream_id", "stream_offset", "capture_id")])
"""Packets by their offset in a framed run."""

ASSEMBLED = row(
    endpoints=STRING,
    stream=_made_row(STREAMS),
    gap=_made_row(STREAM_GAPS),
    packet=PACKET,
    quarantine=_made_row(QUARANTINE),
    framed_run=row(stream_id=STRING, stream_offset=LONG, capture=LONG, frame=LONG),
    state=_made_row(INTERNAL_CONNECTIONS, "endpoints", "capture_id", "first_ns", "last_ns"),
    needs_payload=row(packed=BINARY, rewind=BOOL),
)
"""One row per stream, gap, packet, quarantined run of bytes, confirmed framed run, connection state, or connection that
needs its payload; the other columns are null. `needs_payload`: the connection has to be assembled again from all its
bytes or, with `rewind`, from an earlier state; its other rows do not count."""

_PLACE = {"first_ns": LONG, "last_ns": LONG, "capture_id": STRING}

ORDER = ("capture", "order", "frame")
"""The order in which the records of captures are taken."""

CAPTURE_ID = row(capture=LONG, capture_id=STRING)
"""A capture's rank and identifier."""

FILE = row(uri=STRING)
"""A file to index."""

SPLIT = row(
    capture=LONG,
    capture_id=STRING,
    uri=STRING,
    compression=STRING,
    cursor=STRING,
    stop=LONG,
    by_time=BOOL,
    clock_steps=CLOCK_STEPS,
)
"""A byte range of a capture. `clock_steps`: only where the capture is read `by_time`."""

CAPTURE = _made_row(CAPTURES)
"""A row of `captures` before it is written."""

HISTORY = row(
    packed=BINARY,
    capture=LONG,
    **{f.name: f.type for f in INTERNAL_CONNECTIONS.arrow if f.name != "packed"},
    stream_id=STRING,
    instance=LONG,
    rewind=BOOL,
)
"""Facts about a connection before it is assembled; each row has one of these.

`capture`: rank of a capture of this run that holds segments of it. `stream_id` and `instance`: a stream. `rewind`: it
is assembled again. None of them: a row of `internal_connections`."""

PLANNED = row(
    last=row(packed=BINARY, **_PLACE),
    stateless=row(packed=BINARY, **_PLACE),
    late=row(packed=BINARY, rewind=BOOL),
    unrecoverable=row(packed=BINARY),
    read=row(packed=BINARY, capture_id=STRING),
    state=STATE_ROW,
    stale=row(packed=BINARY, stream_id=STRING, from_offset=LONG),
)
"""Decisions about a connection; a row has one of these, and the others are null.

`last`: the place of its last capture. `stateless`: that of another capture of this run that holds segments of it, or
of one whose state lacks such a capture. `late`: such a capture comes before captures that were read already, so that
the connection is assembled again. `unrecoverable`: it cannot be, because a capture is gone.
`read`: a capture to read again for it. `state`: the state from which it resumes. `stale`: rows of a stream that are
replaced."""
