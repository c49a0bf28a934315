"""Prints identifiers as MSMQ does: GUIDs, message identifiers, format names, SIDs."""

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

from schemas.wire import GUID_SIZE, ORDER_QUEUE_ID, ORDER_QUEUE_SUFFIX, FormatType, QueueType, SenderIdType

_DIRECT_PREFIX = "DIRECT="
_SID_REVISION = 1
_SID_FIXED_SIZE = 8
_AUTHORITY_IN_DECIMAL = 1 << 32  # [MS-DTYP] 2.4.2.1: larger ones are written in hex


def guid_text(data: bytes) -> str:
    """Returns a GUID as lower-case text."""
    return str(UUID(bytes_le=data))


def message_id_text(data: bytes) -> str:
    r"""Returns a MessageIdentifier, [MS-MQMQ] 2.2.18.1.3, as <guid>\<ordinal>."""
    return f"{guid_text(data[:16])}\\{int.from_bytes(data[16:20], 'little')}"


def sequence_text(sequence: int) -> str:
    """Returns a TxSequenceID as its time stamp in UTC and its ordinal."""
    return f"{datetime.fromtimestamp(sequence >> 32, UTC):%Y-%m-%dT%H:%M:%S}Z#{sequence & 0xFFFFFFFF}"


def text(data: bytes, errors: str = "replace") -> str:
    """Returns UTF-16LE as text, up to its terminator if it has one."""
    return data.decode("utf-16-le", errors).partition("\0")[0]


def is_utf16(data: bytes) -> bool:
    """Returns whether the bytes are valid UTF-16LE."""
    try:
        data.decode("utf-16-le")
    except UnicodeDecodeError:
        return False
    return True


def direct_name(data: bytes) -> str:
    """Returns a direct format name; the wire has no prefix, A-41. Raises UnicodeDecodeError."""
    name = text(data, "strict")
    if name[: len(_DIRECT_PREFIX)].upper() == _DIRECT_PREFIX:
        name = name[len(_DIRECT_PREFIX) :]
    return _DIRECT_PREFIX + name


def private_name(queue: bytes) -> str:
    r"""Returns a private format name, from host GUID and identifier.

    The identifier has eight digits, as in Microsoft's examples: PRIVATE=<guid>\0000000d.
    """
    return f"PRIVATE={guid_text(queue[:16])}\\{int.from_bytes(queue[16:20], 'little'):08x}"


def public_name(queue: bytes) -> str:
    """Returns a public format name."""
    return f"PUBLIC={guid_text(queue)}"


ELEMENT_NAMES: dict[FormatType, Callable[[bytes], str]] = {
    FormatType.DIRECT: direct_name,
    FormatType.PRIVATE: private_name,
    FormatType.PUBLIC: public_name,
    FormatType.DISTRIBUTION_LIST: lambda content: f"DL={guid_text(content)}",
}
"""Functions that make the format name of an MQFFormatNameElement, by type; `direct_name` raises UnicodeDecodeError."""
QUEUE_NAMES: dict[int, Callable[[bytes], str]] = {
    QueueType.DIRECT: direct_name,
    QueueType.PUBLIC: public_name,
    QueueType.PRIVATE: private_name,
}
"""The same for a queue in a UserHeader, whose other types leave out the GUID of a private queue's host."""


def queue_name(queue_type: int, host: bytes | None, content: bytes) -> str | None:
    """Returns the format name of a queue in a UserHeader; None without a queue, or if its host is not known."""
    if queue_type in QUEUE_NAMES:
        return QUEUE_NAMES[queue_type](content)
    return None if host is None or not content else private_name(host + content)


def is_order_queue(queue_type: int, content: bytes) -> bool:
    """Returns whether a DestinationQueue is `order_queue$`, [MS-MQQB] 2.2.4."""
    if queue_type == QueueType.DIRECT:
        return direct_name(content).lower().endswith(ORDER_QUEUE_SUFFIX)
    return queue_type == QueueType.PRIVATE_ON_DESTINATION and int.from_bytes(content, "little") == ORDER_QUEUE_ID


def sender_id_text(sender_id_type: int, data: bytes) -> str | None:
    """Returns a SecurityID as text, [MS-DTYP] 2.4.2.1; None if the bytes do not fit the type."""
    if sender_id_type == SenderIdType.QUEUE_MANAGER and len(data) == GUID_SIZE:
        return guid_text(data)
    if sender_id_type != SenderIdType.SID or len(data) < _SID_FIXED_SIZE or data[0] != _SID_REVISION:
        return None
    if len(data) != _SID_FIXED_SIZE + 4 * data[1]:
        return None
    authority = int.from_bytes(data[2:8], "big")
    parts = struct.unpack(f"<{data[1]}I", data[_SID_FIXED_SIZE:])
    start = str(authority) if authority < _AUTHORITY_IN_DECIMAL else f"0x{authority:012x}"
    return "-".join(("S-1", start, *map(str, parts)))


def terminated_size(data: bytes, start: int) -> int:
    """Returns the bytes of the UTF-16LE string at `start` with its terminator; without one, all whole units."""
    end = data.find(b"\0\0", start)
    while end >= 0 and (end - start) % 2:
        end = data.find(b"\0\0", end + 1)
    return end + 2 - start if end >= 0 else (len(data) - start) & ~1
