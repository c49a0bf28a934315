"""Declares the tables that `ingest` writes: captures, streams, stream_gaps, packets, quarantine and books."""

from enum import StrEnum

import pyarrow as pa

from schemas.table import BINARY, BOOL, LONG, STRING, TIMESTAMP, U16, U32, Column, Table, array, required
from schemas.violations import Fault


class CaptureFormat(StrEnum):
    """Formats of capture files."""

    PCAP = "pcap"
    PCAPNG = "pcapng"


class Compression(StrEnum):
    """Compressions of capture files."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


class CaptureStatus(StrEnum):
    """Lists how much of a capture file could be read."""

    OK = "ok"
    PARTIAL = "partial"
    UNREADABLE = "unreadable"


class Bodies(StrEnum):
    """Lists whether `packets` keeps message bodies."""

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
    """The packets of [MS-MQQB] 3.1.5.1.1; `unknown` is a packet that cannot be decoded."""

    USER_MESSAGE = "user_message"
    ORDER_ACK = "order_ack"
    FINAL_ACK = "final_ack"
    SESSION_ACK = "session_ack"
    ESTABLISH_CONNECTION = "establish_connection"
    CONNECTION_PARAMETERS = "connection_parameters"
    ADMINISTRATION = "administration"
    UNKNOWN = "unknown"


class Stage(StrEnum):
    """Stages at which bytes are found unusable."""

    CAPTURE = "capture"
    FRAME = "frame"
    TCP = "tcp"
    FRAMING = "framing"
    DECODE = "decode"


class NotJudged(StrEnum):
    """Lists traffic of MSMQ, or that may be of MSMQ, which is other than the binary protocol over TCP, or hidden."""

    HTTP = "http"
    MULTICAST = "multicast"
    RPC = "rpc"
    IPSEC = "ipsec"
    BAD_PING = "bad_ping"
    MACSEC = "macsec"
    WIREGUARD = "wireguard"
    OPENVPN = "openvpn"
    L2TP = "l2tp"
    TZSP = "tzsp"
    WIFI = "wifi"
    CUT = "cut_in_tunnel"
    DEEP = "too_many_tunnels"


TCP_PORT, MSMQ_ON_PORT = "tcp_port_", "msmq_on_port_"
"""How `not_judged` begins to name TCP on other ports, and there what looks like packets of MSMQ."""


class Tunnel(StrEnum):
    """Lists tunnels and tags in which segments are found."""

    SNAP = "snap"
    E_TAG = "e_tag"
    VN_TAG = "vn_tag"
    FABRICPATH = "fabricpath"
    TRUSTSEC = "trustsec"
    TRILL = "trill"
    PBB = "pbb"
    MPLS = "mpls"
    PPP = "ppp"
    NSH = "nsh"
    GRE = "gre"
    ERSPAN = "erspan"
    IP = "ip_in_ip"
    ETHERNET_IN_IP = "ethernet_in_ip"
    VXLAN = "vxlan"
    GENEVE = "geneve"
    GTP = "gtp"


NOT_JUDGED = array(pa.struct([required("what", STRING), required("records", LONG)]), nullable=False)
PINGS = array(
    pa.struct(
        [
            *(required("source", STRING), required("destination", STRING)),
            *(required("requests", LONG), required("answers", LONG)),
            *(pa.field("first_ns", LONG), pa.field("last_ns", LONG), pa.field("answered_ns", LONG)),
        ]
    ),
    nullable=False,
)
CLOCK_STEPS = array(pa.struct([required("frame", LONG), required("step_ns", LONG)]), nullable=False)

_STREAM_ID = Column("stream_id", STRING, "Stream: one direction of one TCP connection.", nullable=False)
_STREAM_OFFSET = Column("stream_offset", LONG, "Bytes since the SYN, or since the lowest one seen.", nullable=False)


class Attempt(StrEnum):
    """Lists how a connection went on which neither side sent a byte."""

    NO_ANSWER = "no_answer"
    REFUSED = "refused"
    SILENT = "silent"


CAPTURES = Table(
    "captures",
    "One row per distinct capture file content.",
    ("capture_id",),
    (
        Column("capture_id", STRING, "SHA-256 of the file.", nullable=False),
        Column("uri", STRING, "Path or URI from which the content was first read.", nullable=False),
        Column("size_bytes", LONG, "Size of the file, in bytes.", nullable=False),
        Column("format", STRING, "File format; null when the file is not a capture.", values=tuple(CaptureFormat)),
        Column("compression", STRING, "Compression of the file.", nullable=False, values=tuple(Compression)),
        Column("status", STRING, "How much could be read.", nullable=False, values=tuple(CaptureStatus)),
        Column("reason", STRING, "Code of the first fault; null when the status is ok.", values=tuple(CaptureReason)),
        Column("packet_count", LONG, "Captured records read.", nullable=False),
        Column("segment_count", LONG, "Records that are TCP segments from or to an MSMQ port.", nullable=False),
        Column(
            "to_port_count",
            LONG,
            "MSMQ segments that went to an MSMQ port, but for those in IP fragments.",
            nullable=False,
        ),
        Column(
            "cut_count",
            LONG,
            "MSMQ segments of which the capture holds only a part, because frames were cut.",
            nullable=False,
        ),
        Column("other_count", LONG, "Records of other traffic.", nullable=False),
        Column("first_captured_at", TIMESTAMP, "Earliest record time, UTC, without those that were wrong once."),
        Column("last_captured_at", TIMESTAMP, "Latest record time, UTC, without those that were wrong once."),
        Column("ingested_at", TIMESTAMP, "When its run wrote its first captures, UTC.", nullable=False),
        Column(
            "clock_steps",
            CLOCK_STEPS,
            "Where the clock of the capture stepped back by more than 0.5 s: the first record after each step, and the "
            "step in ns, which is negative; a positive one where it is right again, was ahead for a record, or records "
            "of another clock begin. At the first record: since the file before it, in a series that dumpcap numbers. "
            "The replay undoes them. Each interface of a section has a clock. Null for none, and if they are too many.",
        ),
        Column("content_bytes", LONG, "Bytes read: the size of the file, or what came out of a compressed one."),
        Column(
            "not_judged",
            NOT_JUDGED,
            "Records that MSMQ may have sent, or in which its traffic may hide, and that were not read: http (SRMP), "
            "multicast (PGM), rpc (reads), bad_ping (to UDP port 3527, and no ping); ipsec, macsec and other "
            "encryption; unknown EtherTypes, link types and PPP protocols, by number. Of a capture without a segment "
            "from or to an MSMQ port also tcp_port_80 and so on, the other ports, and msmq_on_port_8801 and so on, "
            "where payloads begin as MSMQ's packets do.",
        ),
        Column(
            "tunnels",
            NOT_JUDGED,
            "Of the segments, those found in a tunnel or behind a tag other than a VLAN's, by the innermost one.",
        ),
        Column(
            "pings",
            PINGS,
            "Pings of MSMQ (UDP port 3527) from one address to another: how many were sent and answered, the times of "
            "the first and last one without an answer and of the last answer, in ns since 1970. Each counts once, "
            "however often it was captured. Not one without an answer in the last second. Null for none.",
        ),
        Column("connection_count", LONG, "Connections with segments in it. The replay fills in this and what follows."),
        Column("from_start_count", LONG, "Those of these connections whose SYN some capture holds."),
        Column("one_way_count", LONG, "Those of which no capture holds what one of the two sides sent."),
        Column(
            "missing_bytes",
            LONG,
            "Bytes of these connections that no capture holds; each capture of a connection counts them.",
        ),
        Column("message_count", LONG, "User messages that it completes."),
        Column("acknowledgment_count", LONG, "OrderAcks and FinalAcks that it completes."),
        Column("read_by", STRING, "Release of msmq-replay that read it; null for one before 1.0."),
        Column("ports", array(U16, nullable=False), "TCP ports that were read as MSMQ; null for a release before 1.0."),
        Column("overlap", STRING, "Which bytes won where segments overlap with other data (`--overlap`); likewise."),
        Column(
            "damaged_count",
            LONG,
            "MSMQ segments with a wrong TCP checksum that no network card fills in later, if these are a fourth of all "
            "at most; null for a release before 2.0.",
        ),
    ),
)

STREAMS = Table(
    "streams",
    "One row per direction of a TCP connection that carried bytes, and one per attempt to connect that carried none.",
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
        Column("from_initiator", BOOL, "The sender opened the connection, by SYN or MSMQ port; null if unknown."),
        Column("recovered_bytes", LONG, "Bytes reassembled from the captures.", nullable=False),
        Column("missing_bytes", LONG, "Bytes known to be missing: the sum of stream_gaps.", nullable=False),
        Column("acked_bytes", LONG, "Bytes from its start that the receiver's TCP acknowledged; null without an ACK."),
        Column("closed", BOOL, "Its connection ended: by FIN on both sides, or by RST.", nullable=False),
        Column("conflict", BOOL, "Overlapping segments held different data.", nullable=False),
        Column("mid_stream", BOOL, "The SYN was not seen.", nullable=False),
        Column("first_captured_at", TIMESTAMP, "Time of the first segment with data, or of an attempt, UTC."),
        Column("last_captured_at", TIMESTAMP, "Time of the last segment with data, or of an attempt, UTC."),
        Column(
            "attempt",
            STRING,
            "How a connection without a byte went on, from its initiator. Null for a stream with bytes.",
            values=tuple(Attempt),
        ),
        Column("connection_last_at", TIMESTAMP, "Time of the connection's last segment in either direction, UTC."),
        Column(
            "receiver_last_at",
            TIMESTAMP,
            "Time of the last segment that the receiver sent on the connection, of any kind, also a bare ACK, UTC.",
        ),
        Column(
            "ended_by_receiver",
            BOOL,
            "The receiver sent the connection's first FIN or RST; false: the sender did; null: none was captured.",
        ),
        Column("ended_at", TIMESTAMP, "Time of that FIN or RST, UTC."),
        Column("window_shut_at", TIMESTAMP, "Beginning of the receiver's longest TCP window of 0, UTC; null for none."),
        Column("window_shut_ms", LONG, "How long that lasted, to its end or the connection's last segment."),
        Column("copy_of", STRING, "The stream that counts, of two that show one conversation; the replay fills it in."),
    ),
)

_ENDPOINTS = Column("endpoints", STRING, "Addresses and ports of both sides, the lower one first.", nullable=False)
_PACKED = Column("packed", BINARY, "The endpoints in binary: 16 bytes of address and 2 of port each.", nullable=False)
_PLACE = (
    Column("first_ns", LONG, "Earliest record time, ns since 1970; orders captures, with the next two columns."),
    Column("last_ns", LONG, "Latest record time of the capture, ns since 1970."),
)

INTERNAL_CONNECTIONS = Table(
    "internal_connections",
    "Which captures contain segments between which endpoints, and the state of the connections between them when a run "
    "had read that capture as their last. The next run resumes from the state; a late capture makes ingest read the "
    "captures after it again.",
    ("endpoints", "capture_id"),
    (
        _ENDPOINTS,
        _PACKED,
        *_PLACE,
        Column("capture_id", STRING, "Capture that contains segments between the endpoints.", nullable=False),
        Column("first_instance", LONG, "Instance of the first connection that may continue; null without a state."),
        Column(
            "tails",
            array(pa.struct([required("stream_id", STRING), required("stream_offset", LONG)]), nullable=False),
            "Offset in each stream from which the next run replaces its rows. Null without a state.",
        ),
        Column("state", STRING, "TCP and framing state as JSON; null where no run ended with this capture."),
    ),
)

STREAM_GAPS = Table(
    "stream_gaps",
    "One row per run of stream bytes that no capture contains.",
    ("stream_id", "stream_offset"),
    (
        _STREAM_ID,
        _STREAM_OFFSET,
        Column("length", LONG, "Missing bytes.", nullable=False),
        Column(
            "capture_id",
            STRING,
            "Capture of the first byte after it or, where there is none, of the last one before it.",
        ),
        Column(
            "last_before_at",
            TIMESTAMP,
            "Time of the last captured byte before it, UTC; null where there is none, and for captures that release "
            "1.0 or an earlier one read.",
        ),
        Column("first_after_at", TIMESTAMP, "Time of the first captured byte after it, UTC; likewise."),
        Column(
            "unknown_verdicts",
            LONG,
            "Arrivals with the verdict unknown (capture_gap) because of it: it lies between them and what set the "
            "state before them. The replay fills this in.",
        ),
    ),
)

BODY_CRC32 = Column("body_crc32", U32, "CRC-32 of the body, or of its keyed hash under --names hash; null for none.")

DAMAGED = Column("damaged", BOOL, "True with bytes of a damaged segment (`captures.damaged_count`); else null.")

PACKETS = Table(
    "packets",
    "One row per framed MSMQ packet.",
    ("stream_id", "stream_offset"),
    (
        _STREAM_ID,
        _STREAM_OFFSET,
        Column("size", LONG, "Bytes on the stream, including a SessionHeader after the packet.", nullable=False),
        Column("packet_type", STRING, "Which packet it is.", nullable=False, values=tuple(PacketType)),
        Column("captured_at", TIMESTAMP, "Time of the segment that completed the packet, UTC."),
        Column("captured_ns", LONG, "The same in ns since 1970; null when the capture has no times."),
        Column("capture_id", STRING, "Capture of the segment that completed the packet.", nullable=False),
        Column("first_frame", LONG, "Lowest 1-based record number in that capture.", nullable=False),
        Column("last_frame", LONG, "Record number of the segment that completed the packet.", nullable=False),
        Column("raw", BINARY, "The packet, or only its bytes before the message body.", nullable=False),
        Column("trailer", BINARY, "Bytes after a dropped message body; null when raw is the whole packet."),
        BODY_CRC32,
        DAMAGED,
    ),
    clustered_by=("stream_id", "captured_at"),
    keeps_changes=True,
)

_REASONS = tuple(reason for kind in (CaptureReason, FrameReason, TcpReason, FramingReason, Fault) for reason in kind)

QUARANTINE = Table(
    "quarantine",
    "One row per run of bytes that could not be used for the other tables.",
    ("stage", "capture_id", "stream_id", "frame_number", "stream_offset"),
    (
        Column("stage", STRING, "Stage that found the bytes unusable.", nullable=False, values=tuple(Stage)),
        Column("reason", STRING, "Code of the fault.", nullable=False, values=_REASONS),
        Column("detail", STRING, "Explanation: what was found and where, and what to do about it.", nullable=False),
        Column("capture_id", STRING, "Capture that contains the bytes, or the first of them."),
        Column("stream_id", STRING, "Stream of the bytes, if known."),
        Column("frame_number", LONG, "1-based record number in the capture."),
        Column("stream_offset", LONG, "Offset in the stream or, for stage capture, in the file."),
        Column("length", LONG, "Length of the run, in bytes.", nullable=False),
        Column("raw", BINARY, "The first bytes of the run, without a body where bodies are dropped."),
    ),
)


class Book(StrEnum):
    """Lists what the books count, so that nothing of it is dropped unseen."""

    RECORDS = "records"
    BYTES = "bytes"
    PACKETS = "packets"
    ARRIVALS = "arrivals"
    NUMBERS = "numbers"


BOOKS = Table(
    "books",
    "One row per sum that must come out even, and capture, stream or scope. A run with an unbalanced row fails.",
    ("book", "capture_id", "stream_id", "scope_key"),
    (
        Column("book", STRING, "What is counted.", nullable=False, values=tuple(Book)),
        Column("capture_id", STRING, "For records: the capture."),
        Column("stream_id", STRING, "For bytes and packets: the stream."),
        Column("scope_key", STRING, "For arrivals and numbers: the scope."),
        Column("left_side", LONG, "Records read, bytes recovered, packets, verdicts, or numbers due.", nullable=False),
        Column(
            "right_side",
            LONG,
            "MSMQ segments, other traffic and quarantined records; bytes in packets and in quarantine; decoded and "
            "quarantined packets; arrivals of all outcomes; or numbers seen and those of outcomes without a message.",
            nullable=False,
        ),
        Column("balanced", BOOL, "Both sides are equal.", nullable=False),
    ),
)
