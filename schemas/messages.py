"""Declares the tables that `decode` writes (messages, acks, handshakes, session_acks), from `schemas.wire`.

`messages` has every field of every header. The others leave out what is the same in each of their packets, what another
column repeats, and flags that only violations tell of; Wireshark with the dissector shows these as well.
"""

from collections.abc import Iterator
from enum import StrEnum

import pyarrow as pa

from schemas import wire
from schemas.ingest import BODY_CRC32, PACKETS, PacketType
from schemas.table import BOOL, LONG, STRING, TIMESTAMP, U8, U16, U32, U64, Column, Table, array
from schemas.wire import Header, Kind

STRINGS = array(STRING, nullable=False)

_NUMBERS: dict[int, pa.DataType] = {1: U8, 2: U16, 4: U32}
_TYPES: dict[Kind, pa.DataType] = {
    Kind.TIME: TIMESTAMP,
    Kind.GUID: STRING,
    Kind.MESSAGE_ID: STRING,
    Kind.TEXT: STRING,
    Kind.TEXTS: STRINGS,
}


class AckType(StrEnum):
    """Types of acknowledgment in `acks`."""

    ORDER_ACK = "order_ack"
    FINAL_ACK = "final_ack"


class HandshakeType(StrEnum):
    """Types of packet in `handshakes`."""

    ESTABLISH_CONNECTION = "establish_connection"
    CONNECTION_PARAMETERS = "connection_parameters"


def header_columns(header: Header) -> Iterator[Column]:
    """Yields the columns of a header in wire order, each flag word before its bits, with the section in the comment."""
    for field in header.fields:
        if field.column:
            comment = f"{header.name}.{field.name}, {header.section}: {field.comment}"
            yield Column(field.column, _TYPES.get(field.kind) or _NUMBERS[field.size], comment)
        for bits in field.bits:
            comment = f"{header.name}.{field.name}.{bits.name}, {header.section}: {bits.comment}"
            smallest = next(of for size, of in _NUMBERS.items() if bits.width <= 8 * size)
            yield Column(bits.column, BOOL if bits.width == 1 else smallest, comment)


def _some(header: Header, *names: str) -> Iterator[Column]:
    """Yields the columns of a header that have these names."""
    return (column for column in header_columns(header) if column.name in names)


_KEY = ("stream_id", "stream_offset")
_FROM_PACKETS = ("captured_at", "captured_ns", "capture_id", "first_frame", "last_frame")
COPIED_COLUMNS: tuple[Column, ...] = tuple(column for column in PACKETS if column.name in _KEY + _FROM_PACKETS)

NOT_IN_RAW: tuple[str, ...] = (*(column.name for column in COPIED_COLUMNS), BODY_CRC32.name)
"""Columns of the decoded tables that are copied from `packets`, as far as a table has them."""

DECODED_ALONE = Column(
    "decoded_alone", BOOL, "Decoded by itself, as the batch decoder does not support its content.", nullable=False
)

_MESSAGE_ID = Column("message_id", STRING, r"Message identifier as MSMQ prints it: <source_queue_manager>\<ordinal>.")
_MESSAGE_CLASS_NAME = Column(
    "message_class_name", STRING, "Name of the message class, [MS-MQMQ] 2.2.18.1.6; null when undefined."
)
_VIOLATIONS = Column("violations", STRINGS, "Codes of the rules that it breaks; see wire-format.md.", nullable=False)


TX_SEQUENCE = Column(
    "tx_sequence", STRING, "TxSequenceID as text, its time stamp in UTC and its ordinal: 2026-03-02T07:59:41Z#3."
)


def _sequence_id(comment: str) -> tuple[Column, Column]:
    return (Column("tx_sequence_id", U64, f"{comment}: TimeStamp and Ordinal as one unsigned number."), TX_SEQUENCE)


MESSAGES = Table(
    "messages",
    "One row per decodable UserMessage-shaped packet that is neither an OrderAck nor a FinalAck.",
    _KEY,
    (
        *COPIED_COLUMNS,
        _MESSAGE_ID,
        *header_columns(wire.BASE_HEADER),
        *header_columns(wire.USER_HEADER),
        Column("delivery_mode_name", STRING, "express or recoverable; null when undefined."),
        *_sequence_id("Sequence of a transactional message"),
        *header_columns(wire.TRANSACTION_HEADER),
        *header_columns(wire.SECURITY_HEADER),
        Column("provider_type", U32, "SecurityHeader.ProviderInfo.ProviderType, [MS-MQMQ] 2.2.20.6."),
        *header_columns(wire.MESSAGE_PROPERTIES_HEADER),
        _MESSAGE_CLASS_NAME,
        Column("body_type_name", STRING, "Name of the VARTYPE, [MS-MQMQ] 2.2.12; null when undefined."),
        Column("body_offset", LONG, "Offset in the packet at which the body begins."),
        BODY_CRC32,
        *header_columns(wire.DEBUG_HEADER),
        *header_columns(wire.SOAP_HEADER),
        *header_columns(wire.SOAP_BODY),
        *header_columns(wire.MULTI_QUEUE_FORMAT_HEADER),
        *header_columns(wire.SESSION_HEADER),
        _VIOLATIONS,
        DECODED_ALONE,
    ),
    clustered_by=("source_queue_manager", "captured_at"),
    statistics=("captured_ns", "capture_id", "destination_queue", "tx_sequence_id", "tx_sequence_number"),
)

ACKS = Table(
    "acks",
    "One row per OrderAck or FinalAck.",
    _KEY,
    (
        *COPIED_COLUMNS,
        Column("ack_type", STRING, "Type of the acknowledgment.", nullable=False, values=tuple(AckType)),
        _MESSAGE_ID,
        *_sequence_id("Acknowledged sequence"),
        *_some(wire.FINAL_ACK_BODY, "tx_sequence_number", "previous_tx_sequence_number", "source_guid"),
        Column("acknowledged_message_id", STRING, r"FinalAck: <source_guid>\<ordinal> of the message."),
        *_some(wire.BASE_HEADER, "priority", "packet_size"),
        *_some(wire.USER_HEADER, "source_queue_manager", "queue_manager_address", "sent_at", "destination_queue"),
        *_some(wire.MESSAGE_PROPERTIES_HEADER, "message_class", "correlation_id"),
        _MESSAGE_CLASS_NAME,
        *_some(wire.SESSION_HEADER, "window_size"),
        _VIOLATIONS,
        DECODED_ALONE,
    ),
)

HANDSHAKES = Table(
    "handshakes",
    "One row per EstablishConnection or ConnectionParameters.",
    _KEY,
    (
        *COPIED_COLUMNS,
        Column("handshake_type", STRING, "Type of the packet.", nullable=False, values=tuple(HandshakeType)),
        *_some(wire.INTERNAL_HEADER, "connection_refused"),
        *_some(
            wire.ESTABLISH_CONNECTION_HEADER,
            *("client_guid", "server_guid", "time_stamp_ms", "operating_system", "sent_without_ping", "server_class"),
            "guaranteed_qos",
        ),
        *header_columns(wire.CONNECTION_PARAMETERS_HEADER),
        _VIOLATIONS,
        DECODED_ALONE,
    ),
)

SESSION_ACKS = Table(
    "session_acks",
    "One row per SessionAck, with which one side of a connection acknowledges packets and announces its window.",
    _KEY,
    (
        *COPIED_COLUMNS,
        *header_columns(wire.SESSION_HEADER),
        _VIOLATIONS,
        DECODED_ALONE,
    ),
)

NAME_COLUMNS: tuple[str, ...] = (
    "destination_queue",
    "admin_queue",
    "response_queue",
    "multi_destination_queues",
    "multi_admin_queues",
    "multi_response_queues",
    "debug_queue",
    "label",
    "sender_id",
    "provider_name",
    "soap_header",
    "soap_body",
)
"""Columns that may name people, machines, queues or business and can be pseudonymized; GUIDs name only hosts."""

_USER_HEADERS: tuple[Header, ...] = (
    wire.BASE_HEADER,
    wire.USER_HEADER,
    wire.TRANSACTION_HEADER,
    wire.SECURITY_HEADER,
    wire.MESSAGE_PROPERTIES_HEADER,
    wire.DEBUG_HEADER,
    wire.SOAP_HEADER,
    wire.SOAP_BODY,
    wire.MULTI_QUEUE_FORMAT_HEADER,
    wire.SESSION_HEADER,
)
_ACK_HEADERS = (wire.BASE_HEADER, wire.USER_HEADER, wire.MESSAGE_PROPERTIES_HEADER)
_INTERNAL_HEADERS = (wire.BASE_HEADER, wire.INTERNAL_HEADER)
HEADERS_OF: dict[PacketType, tuple[Header, ...]] = {
    PacketType.USER_MESSAGE: _USER_HEADERS,
    PacketType.ADMINISTRATION: _USER_HEADERS,
    PacketType.ORDER_ACK: (*_ACK_HEADERS, wire.ORDER_ACK_BODY),
    PacketType.FINAL_ACK: (*_ACK_HEADERS, wire.FINAL_ACK_BODY),
    PacketType.ESTABLISH_CONNECTION: (*_INTERNAL_HEADERS, wire.ESTABLISH_CONNECTION_HEADER),
    PacketType.CONNECTION_PARAMETERS: (*_INTERNAL_HEADERS, wire.CONNECTION_PARAMETERS_HEADER),
    PacketType.SESSION_ACK: (*_INTERNAL_HEADERS, wire.SESSION_HEADER),
}
"""The headers of each packet, in wire order; flags say which of them are present."""
TABLE_OF: dict[PacketType, Table] = {
    PacketType.USER_MESSAGE: MESSAGES,
    PacketType.ADMINISTRATION: MESSAGES,
    PacketType.ORDER_ACK: ACKS,
    PacketType.FINAL_ACK: ACKS,
    PacketType.ESTABLISH_CONNECTION: HANDSHAKES,
    PacketType.CONNECTION_PARAMETERS: HANDSHAKES,
    PacketType.SESSION_ACK: SESSION_ACKS,
}
"""The table for each packet type; packets of an unknown type are quarantined."""
DECODED_TABLES: tuple[Table, ...] = tuple(dict.fromkeys(TABLE_OF.values()))
"""The tables of decoded packets."""
