"""Declares the rows between the passes of ingest, which exist only during a run."""

from pyspark.sql.types import ArrayType, StructField, StructType

from schemas.ingest import (
    CAPTURES,
    CLOCK_STEPS,
    CONNECTION_STATES,
    NOT_JUDGED,
    PACKETS,
    QUARANTINE,
    STREAM_GAPS,
    STREAMS,
)
from schemas.pings import PINGS
from schemas.table import BINARY, BOOL, LONG, STRING, U16, Column, Table

INDEX = Table(
    "index",
    "One row per capture file: identity, format, record count, and the places where tasks start to read.",
    ("uri",),
    (
        Column("uri", STRING, "Where the file lies.", nullable=False),
        Column("capture_id", STRING, "SHA-256 of the file, as in `captures`.", nullable=False),
        Column("size_bytes", LONG, "Size of the file.", nullable=False),
        Column("format", STRING, "File format."),
        Column("compression", STRING, "Compression of the file.", nullable=False),
        Column("status", STRING, "ok, partial or unreadable, as in `captures`.", nullable=False),
        Column("reason", STRING, "Code of the first fault."),
        Column("detail", STRING, "Sentence about the first fault."),
        Column("raw", BINARY, "The first bytes of an unreadable file."),
        Column("packet_count", LONG, "Records.", nullable=False),
        Column("first_ns", LONG, "Earliest record time."),
        Column("last_ns", LONG, "Latest record time."),
        Column("clock_steps", CLOCK_STEPS, "Steps back of the clock, as in `captures`."),
        Column("cursors", ArrayType(STRING, containsNull=False), "Where each split begins.", nullable=False),
    ),
)

SEGMENTS = Table(
    "segments",
    "One row per TCP segment or framed run; also one per fault and rejected frame, and one count per split.",
    ("connection", "capture", "frame"),
    (
        Column("connection", BINARY, "Both endpoints, the lower one first; null when the row is no segment."),
        Column("capture", LONG, "Rank of the capture in the order of capture times; -1 for a state."),
        Column("frame", LONG, "Record number; 0 for a row that belongs to no record."),
        Column("time_ns", LONG, "Time of the record."),
        Column("last_ns", LONG, "Of a framed run: time of its last record."),
        Column("from_b", BOOL, "Sent by the higher endpoint."),
        Column("seq", LONG, "Sequence number; null when the row is no segment."),
        Column("ack", LONG, "Acknowledgment number."),
        Column("flags", U16, "TCP flags."),
        Column("length", LONG, "Payload bytes on the wire, or bytes of a fault."),
        Column("payload", BINARY, "Payload bytes captured, or the first bytes of a fault."),
        Column(
            "header_sum",
            U16,
            "16-bit one's complement sum of pseudo header and TCP header; null where the header is cut.",
        ),
        Column("framed_run", BOOL, "True for a framed run; `payload` holds only its first bytes."),
        Column(
            "file_offsets",
            BINARY,
            "Of a framed run: where the capture holds its bytes (`udfs.tcp.overlap.FILE_OFFSETS`).",
        ),
        Column("state", STRING, "The connection's state after an earlier run (`udfs.tcp.resume`)."),
        Column("stage", STRING, "Of a fault: the stage that found it."),
        Column("reason", STRING, "Of a fault: its code."),
        Column("detail", STRING, "Of a fault: its sentence."),
        Column("offset", LONG, "Of a fault: byte of the file."),
        Column("segments", LONG, "Of a count: records that are segments from or to an MSMQ port."),
        Column("others", LONG, "Of a count: records of other traffic."),
    ),
)

FRAGMENTS = Table(
    "fragments",
    "One row per captured IP fragment that may belong to a TCP datagram.",
    ("key", "capture", "frame"),
    (
        Column(
            "key",
            BINARY,
            "Addresses, identification and protocol: the same for a datagram's fragments.",
            nullable=False,
        ),
        Column("capture", LONG, "Rank of the capture in the order of capture times.", nullable=False),
        Column("frame", LONG, "Record number.", nullable=False),
        Column("time_ns", LONG, "Time of the record."),
        Column("offset", LONG, "Bytes from the start of the datagram's payload.", nullable=False),
        Column("more", BOOL, "More fragments of the datagram follow.", nullable=False),
        Column("length", LONG, "Payload bytes on the wire.", nullable=False),
        Column("payload", BINARY, "Payload bytes captured.", nullable=False),
    ),
)

_DERIVED = ("captured_at", "first_captured_at", "last_captured_at")
_PING = StructType([f for f in PINGS.spark if f.name not in ("capture_id", *_DERIVED)])

EXTRACTED = StructType(
    [
        *SEGMENTS.spark,
        StructField("packets", BINARY),
        StructField("fragment", FRAGMENTS.spark),
        StructField("ping", _PING),
        StructField("aside", NOT_JUDGED.elementType),
    ],
)
"""The rows of a split: those of SEGMENTS; in `packets` the packets of a framed run (FRAMED_PACKETS as an Arrow stream),
which are not shuffled; IP fragments; UDP pings; counts of records that are `not_judged`."""


def _row(table: Table, *more: str) -> StructType:
    """Returns the table's row as a worker makes it: with times in ns only."""
    fields = [StructField(f.name, f.dataType) for f in table.spark if f.name not in _DERIVED]
    return StructType(fields + [StructField(name, LONG) for name in more])


_STATE = ("packed", "first_instance", "tails", "state")

PACKET = _row(PACKETS)
"""A row of `packets` as a worker makes it."""

_PLACED = ("stream_id", "stream_offset", "capture_id")
FRAMED_PACKETS = StructType([StructField("offset", LONG), *(f for f in PACKET if f.name not in _PLACED)])
"""Packets by their offset in a framed run."""

ASSEMBLED = StructType(
    [
        StructField("endpoints", STRING),
        StructField("stream", _row(STREAMS, "first_ns", "last_ns")),
        StructField("gap", _row(STREAM_GAPS)),
        StructField("packet", PACKET),
        StructField("quarantine", _row(QUARANTINE)),
        StructField(
            "framed_run",
            StructType(
                [
                    StructField("stream_id", STRING),
                    StructField("stream_offset", LONG),
                    StructField("capture", LONG),
                    StructField("frame", LONG),
                ]
            ),
        ),
        StructField(
            "state", StructType([StructField(f.name, f.dataType) for f in CONNECTION_STATES.spark if f.name in _STATE])
        ),
        StructField("needs_payload", StructType([StructField("packed", BINARY), StructField("rewind", BOOL)])),
    ]
)
"""One row per stream, gap, packet, quarantined run of bytes, confirmed framed run, connection state, or connection that
needs its payload; the other columns are null. `needs_payload`: the connection has to be assembled again from all its
bytes or, with `rewind`, from an earlier state; its other rows do not count."""

_LONG = {name: StructField(name, LONG) for name in ("capture", "frame", "first_ns", "last_ns", "from_offset")}
_TEXT = {name: StructField(name, STRING) for name in ("capture_id", "uri", "endpoints", "stream_id", "state")}
_PACKED, _REWIND = StructField("packed", BINARY), StructField("rewind", BOOL)
_PLACE = [_LONG["first_ns"], _LONG["last_ns"], _TEXT["capture_id"]]

CAPTURE_ID = StructType([_LONG["capture"], _TEXT["capture_id"]])
"""A capture's rank and identifier."""

FILE = StructType([_TEXT["uri"]])
"""A file to index."""

SPLIT = StructType(
    [
        *CAPTURE_ID,
        _TEXT["uri"],
        StructField("compression", STRING),
        StructField("cursor", STRING),
        StructField("stop", LONG),
    ]
)
"""A byte range of a capture."""

COUNTED = StructType(
    [f for f in CAPTURES.spark if f.name not in (*_DERIVED, "ingested_at")]
    + [StructField(name, LONG) for name in ("first_ns", "last_ns", "ingested_ns")]
)
"""A row of `captures` before it is written: times in ns."""

HISTORY = StructType(
    [
        _PACKED,
        _LONG["capture"],
        *(StructField(f.name, f.dataType) for f in CONNECTION_STATES.spark if f.name != "packed"),
        _TEXT["stream_id"],
        StructField("instance", LONG),
        _REWIND,
    ]
)
"""Facts about a connection before it is assembled; each row has one of these.

`capture`: rank of a capture of this run that holds segments of it. `state`: a row of `connection_states`. `stream_id`
and `instance`: a stream. `rewind`: it is assembled again. None of them: a row of `connection_captures`."""

PLANNED = StructType(
    [
        StructField("last", StructType([_PACKED, *_PLACE])),
        StructField("held", StructType([_PACKED, *_PLACE])),
        StructField("overtaken", StructType([_TEXT["endpoints"], _TEXT["capture_id"]])),
        StructField("late", StructType([_PACKED, _REWIND])),
        StructField("lost", StructType([_PACKED])),
        StructField("read", StructType([_PACKED, _TEXT["capture_id"]])),
        StructField("state", StructType([f for f in SEGMENTS.spark if f.name in (*SEGMENTS.key, "state")])),
        StructField("stale", StructType([_PACKED, _TEXT["stream_id"], _LONG["from_offset"]])),
    ]
)
"""What is decided about a connection; in each row one of these, the others null.

`last`: place of its last capture. `held`: place of a capture of this run that holds segments of it. `overtaken`: key of
a state that lacks one of these. `late`: one of these comes before captures that were read already, so that it is
assembled again. `lost`: it cannot be, because a capture is gone. `read`: a capture to read for that. `state`: what it
resumes from, as a row of SEGMENTS that comes before all its others. `stale`: rows of a stream that are replaced."""
