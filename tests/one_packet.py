"""Decodes one packet at a time into a row, independent of how `udfs.msmq.decode` builds columns across a batch."""

from collections import defaultdict
from typing import Any

from schemas import wire
from schemas.ingest import PacketType
from schemas.messages import ACKS, DECODED_ALONE, HANDSHAKES, MESSAGES, NOT_IN_RAW, TABLE_OF, AckType, HandshakeType
from schemas.violations import DecodeError, Violation
from udfs.msmq import identifiers
from udfs.msmq.header_types import columns
from udfs.msmq.reference import ParsedPacket
from udfs.msmq.violations import RULES_BY_TABLE

_NULL_GUID = identifiers.guid_text(bytes(wire.GUID_SIZE))
_HEADERS = {header.name: header for header in wire.HEADERS}


def decode_packet(raw: bytes, trailer: bytes | None, size: int) -> dict[str, Any] | DecodeError:
    """Returns the packet's type and what it says by column, without the columns copied from `packets`.

    The columns are those of its table, and those of its headers that the table leaves out.
    """
    packet = ParsedPacket.parse(raw, trailer, size)
    if packet.error:
        return packet.error
    table = TABLE_OF[packet.packet_type]
    values: dict[str, Any] = {}
    for name, header in packet.headers.items():
        values |= columns(_HEADERS[name], header)
    values |= packet.columns
    ints = defaultdict(int, ((name, value) for name, value in values.items() if isinstance(value, int)))
    broken = set(packet.violations)
    if table in (MESSAGES, ACKS):
        ints["null_address"] = values["queue_manager_address"] == _NULL_GUID
        values["message_id"] = f"{values['source_queue_manager']}\\{values['message_id_ordinal']}"
        values["message_class_name"] = wire.MESSAGE_CLASS_NAMES.get(values["message_class"])
        values["body_type_name"] = wire.BODY_TYPE_NAMES.get(values["body_type"])
        values["delivery_mode_name"] = wire.DELIVERY_MODE_NAMES.get(values["delivery_mode"])
        if "tx_sequence_ordinal" in values:
            values["tx_sequence_id"] = values["tx_sequence_timestamp"] << 32 | values["tx_sequence_ordinal"]
            values["tx_sequence"] = identifiers.sequence_text(values["tx_sequence_id"])
    if table is ACKS:
        values["ack_type"] = AckType(packet.packet_type)
        if packet.packet_type is PacketType.FINAL_ACK:
            ordinal = values["acknowledged_message_id_ordinal"]
            values["acknowledged_message_id"] = f"{values['source_guid']}\\{ordinal}"
    if table is HANDSHAKES:
        values["handshake_type"] = HandshakeType(packet.packet_type)
    broken |= {violation for violation, rule in RULES_BY_TABLE[table.name].items() if rule(ints)}
    values["violations"] = [violation.value for violation in Violation if violation in broken]
    every = (column.name for column in table if column.name not in (*NOT_IN_RAW, DECODED_ALONE.name))
    return {"packet_type": packet.packet_type} | dict.fromkeys(every) | values
