"""Declares the tables that `decode` writes (messages, acks, handshakes, session_acks), from `schemas.wire`.

`messages` has every field of every header, and `handshakes` of its own; the others have what is asked of them.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from schemas import wire
from schemas.ingest import BODY_CRC32, DAMAGED, PACKETS, PacketType
from schemas.table import BOOL, LONG, STRING, TIMESTAMP, U8, U16, U32, U64, Column, RowType, Table, array
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


def some_columns(header: Header, *names: str) -> Iterator[Column]:
    """Yields the columns of a header that have these names."""
    return (column for column in header_columns(header) if column.name in names)


_KEY = ("stream_id", "stream_offset")
_FROM_PACKETS = ("captured_at", "captured_ns", "capture_id", "first_frame", "last_frame")
COPIED_COLUMNS: tuple[Column, ...] = tuple(column for column in PACKETS if column.name in _KEY + _FROM_PACKETS)

NOT_IN_RAW: tuple[str, ...] = (*(column.name for column in COPIED_COLUMNS), BODY_CRC32.name, DAMAGED.name)
"""Columns of the decoded tables that are copied from `packets`, as far as a table has them."""

_MESSAGE_ID = Column("message_id", STRING, r"Message identifier as MSMQ prints it: <source_queue_manager>\<ordinal>.")


TX_SEQUENCE = Column("tx_sequence", STRING, "TxSequenceID as text, UTC and ordinal: 2026-03-02T07:59:41Z#3.")


def _sequence_id(comment: str) -> tuple[Column, Column]:
    return (Column("tx_sequence_id", U64, f"{comment}: TimeStamp and Ordinal as one unsigned number."), TX_SEQUENCE)


MESSAGE_FIELDS = Table(
    "messages",
    "One row per decodable UserMessage-shaped packet that is neither an OrderAck nor a FinalAck.",
    _KEY,
    (
        *COPIED_COLUMNS,
        _MESSAGE_ID,
        *header_columns(wire.BASE_HEADER),
        *header_columns(wire.USER_HEADER),
        *_sequence_id("Sequence of a transactional message"),
        *header_columns(wire.TRANSACTION_HEADER),
        *header_columns(wire.SECURITY_HEADER),
        Column("provider_type", U32, "SecurityHeader.ProviderInfo.ProviderType, [MS-MQMQ] 2.2.20.6."),
        *header_columns(wire.MESSAGE_PROPERTIES_HEADER),
        Column("body_offset", LONG, "Offset in the packet at which the body begins."),
        BODY_CRC32,
        *header_columns(wire.DEBUG_HEADER),
        *header_columns(wire.SOAP_HEADER),
        *header_columns(wire.SOAP_BODY),
        *header_columns(wire.MULTI_QUEUE_FORMAT_HEADER),
        *header_columns(wire.SESSION_HEADER),
        Column("violations", STRINGS, "Codes of the rules that it breaks; see wire-format.md.", nullable=False),
        DAMAGED,
    ),
    clustered_by=("source_queue_manager", "captured_at"),
    statistics=("captured_ns", "capture_id", "destination_queue", "tx_sequence_id", "tx_sequence_number"),
)
"""MESSAGES, if each field of each header were a column: what decoders make."""
_PROVIDER_TYPE = "provider_type"
_RARE_HEADERS = {
    "security_header": (wire.SECURITY_HEADER,),
    "debug_header": (wire.DEBUG_HEADER,),
    "soap_headers": (wire.SOAP_HEADER, wire.SOAP_BODY),
    "multi_queue_format_header": (wire.MULTI_QUEUE_FORMAT_HEADER,),
    "session_header": (wire.SESSION_HEADER,),
}
"""Headers that few messages have; the columns that hold their fields, as structs."""
_ON_TOP = ("body_encrypted", "window_size")
"""Fields of theirs that are columns all the same: the replay reads them."""


def _struct(name: str, headers: tuple[Header, ...]) -> Column:
    names = [column.name for header in headers for column in header_columns(header)]
    if wire.SECURITY_HEADER in headers:
        names.append(_PROVIDER_TYPE)
    fields = [MESSAGE_FIELDS.arrow.field(one) for one in names if one not in _ON_TOP]
    told = " and ".join(f"{header.name}, {header.section}" for header in headers)
    return Column(name, pa.struct(fields), f"The fields of {told}, by their names in wire-format.md; null without it.")


STRUCTS: tuple[Column, ...] = tuple(_struct(name, headers) for name, headers in _RARE_HEADERS.items())
"""The columns of `messages` that hold the fields of rare headers."""
STRUCT_OF = {field.name: column.name for column in STRUCTS for field in column.type}
"""The name of the struct that holds a field."""
_LAST = ("violations", DAMAGED.name)
MESSAGES = replace(
    MESSAGE_FIELDS,
    columns=(
        *(column for column in MESSAGE_FIELDS if column.name not in {*STRUCT_OF, *_LAST}),
        *STRUCTS,
        *(column for column in MESSAGE_FIELDS if column.name in _LAST),
    ),
)

_ACKS = (PacketType.ORDER_ACK, PacketType.FINAL_ACK)
ACKS = Table(
    "acks",
    "One row per OrderAck or FinalAck.",
    _KEY,
    (
        *COPIED_COLUMNS,
        Column("ack_type", STRING, "Type of the acknowledgment.", nullable=False, values=_ACKS),
        _MESSAGE_ID,
        *_sequence_id("Acknowledged sequence"),
        *some_columns(wire.FINAL_ACK_BODY, "tx_sequence_number", "previous_tx_sequence_number", "source_guid"),
        Column("acknowledged_message_id", STRING, r"FinalAck: <source_guid>\<ordinal> of the message."),
        *some_columns(wire.USER_HEADER, "source_queue_manager", "queue_manager_address"),
        *some_columns(wire.MESSAGE_PROPERTIES_HEADER, "message_class"),
        *some_columns(wire.SESSION_HEADER, "window_size"),
    ),
)

_HANDSHAKES = (PacketType.ESTABLISH_CONNECTION, PacketType.CONNECTION_PARAMETERS)
HANDSHAKES = Table(
    "handshakes",
    "One row per EstablishConnection or ConnectionParameters.",
    _KEY,
    (
        *COPIED_COLUMNS,
        Column("handshake_type", STRING, "Type of the packet.", nullable=False, values=_HANDSHAKES),
        *some_columns(wire.INTERNAL_HEADER, "connection_refused"),
        *header_columns(wire.ESTABLISH_CONNECTION_HEADER),
        *header_columns(wire.CONNECTION_PARAMETERS_HEADER),
    ),
)

SESSION_ACKS = Table(
    "session_acks",
    "One row per SessionAck, with which one side of a connection announces its window.",
    _KEY,
    (*COPIED_COLUMNS, *some_columns(wire.SESSION_HEADER, "window_size")),
)

NAME_COLUMNS = (
    "debug_queue",
    *(
        field.column
        for header in wire.HEADERS
        for field in header.fields
        if field.column and field.kind in (Kind.TEXT, Kind.TEXTS)
    ),
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


def flat_schema(table: Table) -> RowType:
    """Returns the schema of a decoded table's rows while each field of each header is a column."""
    return (MESSAGE_FIELDS if table == MESSAGES else table).arrow
