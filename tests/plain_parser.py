"""A third packet parser, with `struct` alone and no code of the project: the tables of the format, typed again.

It reads sound packets only, whole ones, and raises on others. The order is that of the documents; numbers in the
comments are sections of [MS-MQMQ] unless they say otherwise.
"""

from datetime import UTC, datetime
from struct import unpack_from
from typing import Any
from uuid import UUID

Row = dict[str, Any]


def parse(data: bytes) -> Row:
    """Returns the packet's type and every field by column, without `violations` and the columns about storage."""
    version, _, flags, signature, size, reach = unpack_from("<BBHIII", data)  # 2.2.19.1
    assert (version, signature) == (0x10, 0x524F494C)
    row: Row = {
        "version_number": version,
        "base_flags": flags,
        "priority": flags & 7,
        "internal": bool(flags & 8),
        "has_session_header": bool(flags & 16),
        "has_debug_header": bool(flags & 32),
        "tracing": bool(flags & 256),
        "signature": signature,
        "packet_size": size,
        "time_to_reach_queue": None if reach == 0xFFFFFFFF else reach,
    }
    if flags & 8:
        assert len(data) == size
        return row | internal(data)
    assert len(data) == size + (16 if flags & 16 else 0)
    return row | user_shaped(data[:size], flags) | (session(data, size) if flags & 16 else {})


def internal(data: bytes) -> Row:
    """Parses an InternalHeader, [MS-MQQB] 2.2.1, and the header after it."""
    _, flags = unpack_from("<HH", data, 16)
    row: Row = {"internal_flags": flags, "internal_type": flags & 15, "connection_refused": bool(flags & 16)}
    if flags & 15 == 1:  # [MS-MQQB] 2.2.6
        return row | session(data, 20) | {"packet_type": "session_ack"}
    if flags & 15 == 2:  # [MS-MQQB] 2.2.3.1
        client, server, stamp, system, _ = unpack_from("<16s16sIHH", data, 20)
        return row | {
            "packet_type": "establish_connection",
            "handshake_type": "establish_connection",
            "client_guid": guid(client),
            "server_guid": guid(server),
            "time_stamp_ms": stamp,
            "operating_system": system,
            "operating_system_reserved": system & 255,
            "sent_without_ping": bool(system & 256),
            "server_class": bool(system & 512),
            "guaranteed_qos": bool(system & 1024),
        }
    assert flags & 15 == 3  # [MS-MQQB] 2.2.2.1
    recoverable, ack, _, window = unpack_from("<IIHH", data, 20)
    return row | {
        "packet_type": "connection_parameters",
        "handshake_type": "connection_parameters",
        "recoverable_ack_timeout_ms": recoverable,
        "ack_timeout_ms": ack,
        "window_size": window,
    }


def session(data: bytes, at: int) -> Row:
    """Parses a SessionHeader, 2.2.20.4."""
    ack, lowest, on_disk, sent, recoverable, window, _ = unpack_from("<HHIHHHH", data, at)
    return {
        "ack_sequence_number": ack,
        "recoverable_msg_ack_seq_number": lowest,
        "recoverable_msg_ack_flags": on_disk,
        "user_msg_sequence_number": sent,
        "recoverable_msg_seq_number": recoverable,
        "window_size": window,
    }


def user_shaped(data: bytes, base_flags: int) -> Row:
    """Parses a UserMessage, OrderAck or FinalAck without its SessionHeader."""
    source, address, receive, sent, message_id, flags = unpack_from("<16s16sIIII", data, 16)  # 2.2.19.2
    dq, aq, rq = flags >> 10 & 7, flags >> 13 & 7, flags >> 16 & 7
    row: Row = {
        "source_queue_manager": guid(source),
        "queue_manager_address": guid(address),
        "time_to_be_received": None if receive == 0xFFFFFFFF else receive,
        "sent_at": datetime.fromtimestamp(sent, UTC),
        "message_id_ordinal": message_id,
        "message_id": f"{guid(source)}\\{message_id}",
        "user_flags": flags,
        "hop_count": flags & 31,
        "delivery_mode": flags >> 5 & 3,
        "negative_source_journal": bool(flags & 0x100),
        "positive_source_journal": bool(flags & 0x200),
        "destination_queue_type": dq,
        "admin_queue_type": aq,
        "response_queue_type": rq,
        "has_security_header": bool(flags & 0x80000),
        "transactional": bool(flags & 0x100000),
        "has_message_properties": bool(flags & 0x200000),
        "has_connector_type": bool(flags & 0x400000),
        "has_multi_queue_format": bool(flags & 0x800000),
        "over_http": bool(flags & 0x2000000),
        "has_soap_header": bool(flags & 0x10000000),
    }
    at = 64
    hosts: dict[int, bytes | None] = {2: source, 3: address}
    destination = data[at : at + 4]
    row["destination_queue"], at = queue(data, at, dq, hosts)
    admin_at = at
    row["admin_queue"], at = queue(data, at, aq, hosts)
    hosts[4] = data[admin_at : admin_at + 16] if aq == 6 else hosts.get(aq)
    row["response_queue"], at = (row["admin_queue"], at) if rq == 1 else queue(data, at, rq, hosts)
    if flags & 0x400000:
        row["connector_type"], at = guid(data[at : at + 16]), at + 16
    if flags & 0x100000:
        more, at = transaction(data, at)
        row |= more
    if flags & 0x80000:
        more, at = security(data, at)
        row |= more
    more, at = properties(data, at)
    row |= more
    if base_flags & 32:  # 2.2.20.8
        debug, _ = unpack_from("<HH", data, at)
        row |= {"debug_flags": debug, "debug_queue_type": debug & 3}
        at += 4
        if debug & 3 == 1:
            row["debug_queue"], at = guid(data[at : at + 16]), at + 16
    if flags & 0x10000000:
        more, at = soap(data, at)
        row |= more
    if flags & 0x800000:
        more, at = multi_queue(data, at)
        row |= more
    assert at == len(data)
    by_name = str(row["destination_queue"]).lower().endswith("\\private$\\order_queue$")
    order_queue = (dq == 3 and destination == b"\4\0\0\0") or (dq == 7 and by_name)
    return row | kind(data, row, order_queue=order_queue)


def queue(data: bytes, at: int, code: int, hosts: dict[int, bytes | None]) -> tuple[str | None, int]:
    """Returns a queue's format name and where it ends, 2.2.19.2."""
    if code in (0, 1):
        return None, at
    if code == 5:
        return f"PUBLIC={guid(data[at : at + 16])}", at + 16
    if code == 6:
        return private(data[at : at + 20]), at + 20
    if code == 7:  # 2.2.18.1.5.2
        (count,) = unpack_from("<H", data, at)
        return direct(data[at + 2 : at + 2 + count]), at + (2 + count + 3) // 4 * 4
    host = hosts.get(code)
    return (None if host is None else private(host + data[at : at + 4])), at + 4


def transaction(data: bytes, at: int) -> tuple[Row, int]:
    """Parses a TransactionHeader, 2.2.20.5."""
    flags, sequence, number, previous = unpack_from("<IQII", data, at)
    row: Row = {
        "transaction_flags": flags,
        "has_connector_qm_guid": bool(flags & 1),
        "tx_final_ack_required": bool(flags & 2),
        "tx_first": bool(flags & 4),
        "tx_last": bool(flags & 8),
        "tx_transaction_id": flags >> 4 & 0xFFFFF,
        "tx_sequence_id": sequence,
        "tx_sequence": f"{datetime.fromtimestamp(sequence >> 32, UTC):%Y-%m-%dT%H:%M:%SZ}#{sequence & 0xFFFFFFFF}",
        "tx_sequence_ordinal": sequence & 0xFFFFFFFF,
        "tx_sequence_timestamp": sequence >> 32,
        "tx_sequence_number": number,
        "previous_tx_sequence_number": previous,
    }
    if flags & 1:
        return row | {"connector_qm_guid": guid(data[at + 20 : at + 36])}, at + 36
    return row, at + 20


def security(data: bytes, at: int) -> tuple[Row, int]:
    """Parses a SecurityHeader, 2.2.20.6."""
    flags, *sizes = unpack_from("<HHHHII", data, at)
    row: Row = {
        "security_flags": flags,
        "sender_id_type": flags & 15,
        "authenticated": bool(flags & 16),
        "body_encrypted": bool(flags & 32),
        "default_provider": bool(flags & 64),
        "security_data_announced": bool(flags & 128),
        "authentication_level": flags >> 8 & 15,
        "sender_id_size": sizes[0],
        "encryption_key_size": sizes[1],
        "signature_size": sizes[2],
        "sender_cert_size": sizes[3],
        "provider_info_size": sizes[4],
    }
    at += 16
    items = []
    for size in sizes:
        items.append(data[at : at + size])
        at += (size + 3) // 4 * 4
    row["sender_id"] = sender(flags & 15, items[0])
    if sizes[4] >= 4:
        row["provider_type"], row["provider_name"] = int.from_bytes(items[4][:4], "little"), text(items[4][4:])
    return row, at


def sender(code: int, data: bytes) -> str | None:
    """Returns a SID, [MS-DTYP] 2.4.2, or a queue manager GUID as text."""
    if code == 2 and len(data) == 16:
        return guid(data)
    if code != 1 or len(data) < 8 or data[0] != 1 or len(data) != 8 + 4 * data[1]:
        return None
    authority = int.from_bytes(data[2:8], "big")
    top = f"0x{authority:012x}" if authority >> 32 else str(authority)
    return "-".join(["S-1", top, *(str(part) for part in unpack_from(f"<{data[1]}I", data, 8))])


def properties(data: bytes, at: int) -> tuple[Row, int]:
    """Parses a MessagePropertiesHeader, 2.2.19.3."""
    flags, units, code, correlation, *numbers = unpack_from("<BBH20s8I", data, at)
    body_type, tag, size, allocated, privacy, digest, cipher, extension = numbers
    body = at + 56 + 2 * units + extension
    row: Row = {
        "ack_flags": flags,
        "positive_arrival_ack": bool(flags & 1),
        "positive_receive_ack": bool(flags & 2),
        "negative_arrival_ack": bool(flags & 4),
        "negative_receive_ack": bool(flags & 8),
        "label_length": units,
        "message_class": code,
        "correlation_id": f"{guid(correlation[:16])}\\{int.from_bytes(correlation[16:], 'little')}"
        if any(correlation)
        else None,
        "body_type": body_type,
        "application_tag": tag,
        "body_size": size,
        "allocation_body_size": allocated,
        "privacy_level": privacy,
        "hash_algorithm": digest,
        "encryption_algorithm": cipher,
        "extension_size": extension,
        "label": text(data[at + 56 : at + 56 + 2 * units]) if units else None,
        "body_offset": body,
    }
    return row, (body + max(size, allocated) + 3) // 4 * 4


def soap(data: bytes, at: int) -> tuple[Row, int]:
    """Parses a SoapHeader, 2.2.20.7."""
    row: Row = {}
    for section, part in ((0x320, "header"), (0x384, "body")):
        identifier, _, units = unpack_from("<HHI", data, at)
        assert identifier == section
        row[f"soap_{part}_length"] = units
        row[f"soap_{part}"] = text(data[at + 8 : at + 8 + 2 * units]) if units else None
        at += (8 + 2 * units + 3) // 4 * 4
    return row, at


def multi_queue(data: bytes, at: int) -> tuple[Row, int]:
    """Parses a MultiQueueFormatHeader, 2.2.20.1."""
    row: Row = {}
    for section, part in ((0x64, "destination"), (0xC8, "admin"), (0x12C, "response")):
        size, identifier, _, count = unpack_from("<IHHI", data, at)
        assert identifier == section
        row[f"multi_{part}_queues"] = elements(data, at + 12, count, at + size)
        at += (size + 3) // 4 * 4
    identifier, _, size = unpack_from("<HHI", data, at)
    assert identifier == 0x15E
    return row | {"multi_queue_signature_size": size}, at + (8 + size + 3) // 4 * 4


def elements(data: bytes, at: int, count: int, end: int) -> list[str]:
    """Parses MQFFormatNameElements, 2.2.18.1.4."""
    names = []
    for _ in range(count):
        (code,) = unpack_from("<H", data, at)
        if code == 3:
            start = at = at + 2
            while data[at : at + 2] != b"\0\0":
                at += 2
            at += 2
            names.append(direct(data[start:at]))
            continue
        at = (at + 2 + 3) // 4 * 4
        size = 20 if code == 2 else 16
        content = data[at : at + size]
        names.append({1: "PUBLIC=", 6: "DL="}[code] + guid(content) if code != 2 else private(content))
        at += size
    assert at <= end
    return names


def kind(data: bytes, row: Row, *, order_queue: bool) -> Row:
    """Returns the packet type, [MS-MQQB] 3.1.5.1.1, and the fields of an acknowledgment's body."""
    code = row["message_class"]
    ordering = order_queue and row["label"] == "QM Ordering Ack" and row["body_size"] == 36
    if not ordering or (code != 0xFF and code < 0x4000):
        told = "administration" if code in (1, 2) or code >= 0x4000 else "user_message"
        return {"packet_type": told}
    sequence, number, previous, source, message_id = unpack_from("<QII16sI", data, row["body_offset"])
    told = "order_ack" if code == 0xFF else "final_ack"
    ack: Row = {
        "packet_type": told,
        "ack_type": told,
        "tx_sequence_id": sequence,
        "tx_sequence": f"{datetime.fromtimestamp(sequence >> 32, UTC):%Y-%m-%dT%H:%M:%SZ}#{sequence & 0xFFFFFFFF}",
        "tx_sequence_ordinal": sequence & 0xFFFFFFFF,
        "tx_sequence_timestamp": sequence >> 32,
        "tx_sequence_number": number,
        "previous_tx_sequence_number": previous,
    }
    if code == 0xFF:
        return ack
    return ack | {
        "source_guid": guid(source),
        "acknowledged_message_id_ordinal": message_id,
        "acknowledged_message_id": f"{guid(source)}\\{message_id}",
    }


def guid(data: bytes) -> str:
    """Returns a GUID as text, [MS-DTYP] 2.3.4.2."""
    return str(UUID(bytes_le=data))


def text(data: bytes) -> str:
    """Returns UTF-16LE up to its NUL as text."""
    return data.decode("utf-16-le", "replace").split("\0")[0]


def direct(data: bytes) -> str:
    """Returns a direct format name."""
    name = text(data)
    return f"DIRECT={name[7:] if name[:7].upper() == 'DIRECT=' else name}"


def private(data: bytes) -> str:
    """Returns a private format name."""
    return f"PRIVATE={guid(data[:16])}\\{int.from_bytes(data[16:], 'little'):08x}"
