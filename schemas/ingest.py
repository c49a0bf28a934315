"""Tables that `ingest` writes: captures, streams, stream_gaps, packets, quarantine and books."""

from enum import StrEnum

from pyspark.sql.types import ArrayType, StructField, StructType

from schemas.table import BINARY, BOOL, LONG, STRING, TIMESTAMP, U16, U32, Column, Table
from schemas.violations import Fault


class CaptureFormat(StrEnum):
    """What a capture file is."""

    PCAP = "pcap"
    PCAPNG = "pcapng"


class Compression(StrEnum):
    """How a capture file is packed."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


class CaptureStatus(StrEnum):
    """How much of a capture file could be read."""

    OK = "ok"
    PARTIAL = "partial"
    UNREADABLE = "unreadable"


class Bodies(StrEnum):
    """What `packets` keeps of message bodies."""

    DROP = "drop"
    KEEP = "keep"


class CaptureReason(StrEnum):
    """Faults of a capture file (stage `capture`)."""

    EMPTY_FILE = "empty_file"
    BAD_MAGIC = "bad_magic"
    TRUNCATED_FILE_HEADER = "truncated_file_header"
    TRUNCATED_RECORD_HEADER = "truncated_record_header"
    TRUNCATED_RECORD_BODY = "truncated_record_body"
    BAD_RECORD_HEADER = "bad_record_header"
    CONCATENATED_FILE = "concatenated_file"
    TRUNCATED_BLOCK = "truncated_block"
    BAD_BLOCK = "bad_block"
    UNKNOWN_INTERFACE = "unknown_interface"
    TRUNCATED_COMPRESSION = "truncated_compression"
    CORRUPT_COMPRESSION = "corrupt_compression"
    EXPANSION_LIMIT = "expansion_limit"
    NOT_READABLE = "not_readable"


class FrameReason(StrEnum):
    """Faults of one captured record (stage `frame`)."""

    UNSUPPORTED_LINK_TYPE = "unsupported_link_type"
    BAD_IP_HEADER = "bad_ip_header"
    BAD_TCP_HEADER = "bad_tcp_header"
    IP_FRAGMENT = "ip_fragment"


class TcpReason(StrEnum):
    """Faults of one TCP segment (stage `tcp`)."""

    OUTSIDE_WINDOW = "outside_window"
    AFTER_FIN = "after_fin"
    BEFORE_START = "before_start"


class FramingReason(StrEnum):
    """Why stream bytes are in no packet (stage `framing`)."""

    BAD_SIGNATURE = "bad_signature"
    BAD_VERSION = "bad_version"
    BAD_PACKET_SIZE = "bad_packet_size"
    INCOMPLETE_FRAME = "incomplete_frame"
    AFTER_GAP = "after_gap"
    MID_STREAM = "mid_stream"


class PacketType(StrEnum):
    """The packets of [MS-MQQB] 3.1.5.1.1; `unknown` is one that the documents do not let us name."""

    USER_MESSAGE = "user_message"
    ORDER_ACK = "order_ack"
    FINAL_ACK = "final_ack"
    SESSION_ACK = "session_ack"
    ESTABLISH_CONNECTION = "establish_connection"
    CONNECTION_PARAMETERS = "connection_parameters"
    ADMINISTRATION = "administration"
    UNKNOWN = "unknown"


class Stage(StrEnum):
    """Where bytes were found to be unusable."""

    CAPTURE = "capture"
    FRAME = "frame"
    TCP = "tcp"
    FRAMING = "framing"
    DECODE = "decode"


_STREAM_ID = Column("stream_id", STRING, "One direction of one TCP connection.", nullable=False)
_STREAM_OFFSET = Column(
    "stream_offset",
    LONG,
    "Bytes from the start of the stream: 0 is the byte after the SYN or, mid-stream, the lowest one seen.",
    nullable=False,
)

CAPTURES = Table(
    "captures",
    "One row per distinct capture file content.",
    ("capture_id",),
    (
        Column(
            "capture_id",
            STRING,
            "SHA-256 of the file as it lies on disk; above 1 GiB, of the 32-byte SHA-256 of each of its GiB in order.",
            nullable=False,
        ),
        Column("uri", STRING, "Where the content was first read.", nullable=False),
        Column("size_bytes", LONG, "Size of the file, in bytes.", nullable=False),
        Column("format", STRING, "File format; null when it is no capture.", values=tuple(CaptureFormat)),
        Column("compression", STRING, "How the file is packed.", nullable=False, values=tuple(Compression)),
        Column("status", STRING, "How much could be read.", nullable=False, values=tuple(CaptureStatus)),
        Column("reason", STRING, "Code of the first fault; null when the status is ok.", values=tuple(CaptureReason)),
        Column("packet_count", LONG, "Captured records read, as a packet counter would say.", nullable=False),
        Column("segment_count", LONG, "Records that are segments from or to an MSMQ port.", nullable=False),
        Column("other_count", LONG, "Records of other traffic.", nullable=False),
        Column("first_captured_at", TIMESTAMP, "Earliest record time, UTC."),
        Column("last_captured_at", TIMESTAMP, "Latest record time, UTC."),
        Column("ingested_at", TIMESTAMP, "When this row was written, UTC.", nullable=False),
    ),
)

STREAMS = Table(
    "streams",
    "One row per direction of a TCP connection that carried bytes.",
    ("stream_id",),
    (
        _STREAM_ID,
        Column("connection_id", STRING, "The TCP connection, both directions.", nullable=False),
        Column("src_ip", STRING, "Sending address.", nullable=False),
        Column("src_port", U16, "Sending port.", nullable=False),
        Column("dst_ip", STRING, "Receiving address.", nullable=False),
        Column("dst_port", U16, "Receiving port.", nullable=False),
        Column("instance", LONG, "0, 1, … for the k-th connection on the same four-tuple.", nullable=False),
        Column("initial_seq", U32, "Sequence number of the SYN; null when it was not seen."),
        Column(
            "from_initiator",
            BOOL,
            "Whether this is the direction of the side that opened the connection: by the SYN, "
            "else by the MSMQ port; null when neither tells.",
        ),
        Column("recovered_bytes", LONG, "Bytes rebuilt from the captures.", nullable=False),
        Column("missing_bytes", LONG, "Bytes known to be missing: the sum of stream_gaps.", nullable=False),
        Column("conflict", BOOL, "Overlapping segments held different data.", nullable=False),
        Column("mid_stream", BOOL, "The SYN was not seen.", nullable=False),
        Column("first_captured_at", TIMESTAMP, "Time of the first segment with data, UTC."),
        Column("last_captured_at", TIMESTAMP, "Time of the last segment with data, UTC."),
    ),
)

_ENDPOINTS = Column("endpoints", STRING, "Addresses and ports of both sides, the lower first.", nullable=False)
_PACKED = Column("packed", BINARY, "The same: for each side 16 bytes of address and 2 of port.", nullable=False)
_PLACE = (
    Column("first_ns", LONG, "Earliest record time of that capture, ns since 1970: with the next two its place."),
    Column("last_ns", LONG, "Latest record time of that capture, ns since 1970."),
)

CONNECTION_CAPTURES = Table(
    "connection_captures",
    "Which captures hold segments between which endpoints: what is read again when a capture comes late.",
    ("endpoints", "capture_id"),
    (
        _ENDPOINTS,
        _PACKED,
        *_PLACE,
        Column("capture_id", STRING, "A capture that holds segments between them.", nullable=False),
    ),
)

CONNECTION_STATES = Table(
    "connection_states",
    "What was known of a connection when a run ended, for the next run to go on from: one row per run that met it.",
    ("endpoints", "capture_id"),
    (
        _ENDPOINTS,
        _PACKED,
        *_PLACE,
        Column("capture_id", STRING, "The last capture of that run that holds segments between them.", nullable=False),
        Column(
            "first_instance", LONG, "The first connection that may go on; those before it are done.", nullable=False
        ),
        Column(
            "tails",
            ArrayType(
                StructType([StructField("stream_id", STRING, False), StructField("stream_offset", LONG, False)]), False
            ),
            "From which offset on the rows of each stream are provisional: the next run replaces them.",
            nullable=False,
        ),
        Column("state", STRING, "TCP and framing state as JSON, unfinished packets included.", nullable=False),
    ),
)

STREAM_GAPS = Table(
    "stream_gaps",
    "One row per run of stream bytes that no capture holds.",
    ("stream_id", "stream_offset"),
    (
        _STREAM_ID,
        _STREAM_OFFSET,
        Column("length", LONG, "Missing bytes.", nullable=False),
    ),
)

PACKETS = Table(
    "packets",
    "One row per framed MSMQ packet.",
    ("stream_id", "stream_offset"),
    (
        _STREAM_ID,
        _STREAM_OFFSET,
        Column("size", LONG, "Bytes on the stream, a trailing SessionHeader included.", nullable=False),
        Column("packet_type", STRING, "Which packet it is.", nullable=False, values=tuple(PacketType)),
        Column("captured_at", TIMESTAMP, "Time of the segment that completed it, UTC."),
        Column("captured_ns", LONG, "The same in ns since 1970; null when the capture has no times."),
        Column("capture_id", STRING, "Capture of the segment that completed it.", nullable=False),
        Column("first_frame", LONG, "Lowest 1-based record number in that capture.", nullable=False),
        Column("last_frame", LONG, "Record number of the segment that completed it.", nullable=False),
        Column("raw", BINARY, "The packet, or its bytes before the message body.", nullable=False),
        Column("trailer", BINARY, "Bytes after a dropped message body; null when raw is the whole packet."),
    ),
    clustered_by=("stream_id", "captured_at"),
)

_REASONS = tuple(reason for kind in (CaptureReason, FrameReason, TcpReason, FramingReason, Fault) for reason in kind)

QUARANTINE = Table(
    "quarantine",
    "One row per run of bytes that became nothing in the other tables.",
    ("stage", "capture_id", "stream_id", "frame_number", "stream_offset"),
    (
        Column("stage", STRING, "Where the bytes were found unusable.", nullable=False, values=tuple(Stage)),
        Column("reason", STRING, "Code of the fault.", nullable=False, values=_REASONS),
        Column("detail", STRING, "What was found, where, and what to do.", nullable=False),
        Column("capture_id", STRING, "The capture that holds the bytes, or the first of them."),
        Column("stream_id", STRING, "The stream, when the bytes were on one."),
        Column("frame_number", LONG, "1-based record number in the capture."),
        Column("stream_offset", LONG, "Offset in the stream or, for stage capture, in the file."),
        Column("length", LONG, "Length of the run, in bytes.", nullable=False),
        Column("raw", BINARY, "The first bytes of the run, as many as the configuration allows."),
    ),
)


class Law(StrEnum):
    """The conservation laws of the books."""

    RECORDS = "records"
    BYTES = "bytes"
    PACKETS = "packets"


BOOKS = Table(
    "books",
    "The conservation laws, one row per law and per capture or stream; a run with an unbalanced row fails.",
    ("law", "capture_id", "stream_id"),
    (
        Column("law", STRING, "What is conserved.", nullable=False, values=tuple(Law)),
        Column("capture_id", STRING, "For records: the capture."),
        Column("stream_id", STRING, "For bytes and packets: the stream."),
        Column("left_side", LONG, "Records read; bytes recovered; packets framed.", nullable=False),
        Column(
            "right_side",
            LONG,
            "MSMQ segments + other traffic + quarantined records; bytes in packets + quarantined bytes; "
            "messages + acks + handshakes + session acks + quarantined packets.",
            nullable=False,
        ),
        Column("balanced", BOOL, "Both sides are equal.", nullable=False),
    ),
)
