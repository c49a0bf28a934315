"""The rules behind `schemas.violations`: each is one expression, for the ints of a packet and for numpy columns."""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_, or_
from typing import Any

from schemas import wire
from schemas.violations import Violation
from schemas.wire import QueueType

Columns = Mapping[str, Any]
"""A table's columns as integers, 0 where a header is absent, and `null_address`: QueueManagerAddress is zeros."""
Rule = Callable[[Columns], Any]

RESERVED: dict[str, int] = {
    field.column: (1 << 8 * field.size) - 1 - sum(bits.mask for bits in field.bits)
    for header in wire.HEADERS
    for field in header.fields
    if field.bits and field.column
}
_MAX_HOP_COUNT = 0x1D
_MAX_LABEL_LENGTH = 250
_MAX_SENDER_CERT = 0xFFFF
_BARE_ACK_FLAGS = sum(  # RC: a router increments it
    bits.mask for bits in wire.USER_HEADER.by_attribute["user_flags"].bits if bits.name in ("RC", "DM", "DQ", "MP")
)
_MESSAGE_CLASS_MASK = 0xE1FF
_OPERATING_SYSTEM_RESERVED = 0x10
_RECOVERABLE_ACK_TIMEOUT = (500, 120_000)
_ACK_TIMEOUT = (20_000, 120_000)


def _reserved(c: Columns, *words: str) -> Any:
    bits = 0
    for word in words:
        bits = bits | (c[word] & RESERVED[word])
    return bits != 0


def _outside(value: Any, limits: tuple[int, int]) -> Any:
    return (value < limits[0]) | (value > limits[1])


def _address_expected(c: Columns) -> Any:
    kind = c["destination_queue_type"]
    return (kind == QueueType.PRIVATE_ON_DESTINATION) | (kind == QueueType.PUBLIC)


def _admin_host_unknown(c: Columns) -> Any:
    kind = c["admin_queue_type"]
    return (
        (kind != QueueType.PRIVATE_ON_SOURCE) & (kind != QueueType.PRIVATE_ON_DESTINATION) & (kind != QueueType.PRIVATE)
    )


_USER_SHAPED_RULES: dict[Violation, Rule] = {
    Violation.RESERVED_BITS: lambda c: _reserved(
        c, "base_flags", "user_flags", "transaction_flags", "security_flags", "ack_flags", "debug_flags"
    ),
    Violation.TRACING_WITHOUT_DEBUG: lambda c: (c["tracing"] == 1) & (c["has_debug_header"] == 0),
    Violation.PRIORITY_ON_TRANSACTIONAL: lambda c: (c["transactional"] == 1) & (c["priority"] != 0),
    Violation.TRANSACTIONAL_NOT_RECOVERABLE: lambda c: (
        (c["transactional"] == 1) & (c["delivery_mode"] != wire.DeliveryMode.RECOVERABLE)
    ),
    Violation.DELIVERY_MODE_UNDEFINED: lambda c: c["delivery_mode"] > wire.DeliveryMode.RECOVERABLE,
    Violation.HOP_COUNT_OUT_OF_RANGE: lambda c: c["hop_count"] > _MAX_HOP_COUNT,
    Violation.OVER_HTTP: lambda c: c["over_http"] == 1,
    Violation.QUEUE_MANAGER_ADDRESS_MISSING: lambda c: _address_expected(c) & (c["null_address"] == 1),
    Violation.QUEUE_MANAGER_ADDRESS_NOT_NULL: lambda c: (
        (c["destination_queue_type"] == QueueType.DIRECT) & (c["null_address"] == 0)
    ),
    Violation.ACK_WITHOUT_ADMIN_QUEUE: lambda c: (
        ((c["ack_flags"] & ~RESERVED["ack_flags"]) != 0) & (c["admin_queue_type"] == QueueType.NONE)
    ),
    Violation.ADMIN_QUEUE_WITHOUT_ACK: lambda c: (
        ((c["ack_flags"] & ~RESERVED["ack_flags"]) == 0) & (c["admin_queue_type"] != QueueType.NONE)
    ),
    Violation.RESPONSE_HOST_UNKNOWN: lambda c: (
        ((c["response_queue_type"] == QueueType.PRIVATE_ON_ADMIN_HOST) & _admin_host_unknown(c))
        | ((c["response_queue_type"] == QueueType.SAME_AS_ADMIN) & (c["admin_queue_type"] == QueueType.NONE))
    ),
    Violation.SEQUENCE_NUMBER_ZERO: lambda c: (c["transactional"] == 1) & (c["tx_sequence_number"] == 0),
    Violation.PREVIOUS_NOT_BELOW_NUMBER: lambda c: (
        (c["transactional"] == 1) & (c["previous_tx_sequence_number"] >= c["tx_sequence_number"])
    ),
    Violation.SECURITY_EMPTY: lambda c: (
        (c["has_security_header"] == 1) & (reduce(or_, (c[size] for size in wire.SECURITY_SIZES)) == 0)
    ),
    Violation.SENDER_ID_TYPE: lambda c: (
        (c["sender_id_type"] > wire.SenderIdType.QUEUE_MANAGER)
        | ((c["sender_id_type"] == wire.SenderIdType.NONE) & (c["sender_id_size"] != 0))
    ),
    Violation.SENDER_CERT_TOO_LARGE: lambda c: c["sender_cert_size"] > _MAX_SENDER_CERT,
    Violation.RECEIVER_BITS_SET: lambda c: (c["authenticated"] | c["authentication_level"]) != 0,
    Violation.LABEL_TOO_LONG: lambda c: c["label_length"] > _MAX_LABEL_LENGTH,
    Violation.MESSAGE_CLASS_ILLEGAL: lambda c: (c["message_class"] & ~_MESSAGE_CLASS_MASK) != 0,
    Violation.ALLOCATION_BELOW_BODY: lambda c: c["allocation_body_size"] < c["body_size"],
    Violation.DEBUG_QUEUE_TYPE_UNDEFINED: lambda c: c["debug_queue_type"] > 1,
    Violation.WINDOW_SIZE_ZERO: lambda c: (c["has_session_header"] == 1) & (c["window_size"] == 0),
}

_NO_MESSAGE_RULES: dict[Violation, Rule] = {
    Violation.TIME_LIMIT_ON_NO_MESSAGE: lambda c: c["time_to_reach_queue"] != wire.UNLIMITED,
    Violation.DEBUG_ON_NO_MESSAGE: lambda c: c["has_debug_header"] == 1,
}

MESSAGE_RULES = _USER_SHAPED_RULES | {
    # A recognized OrderAck has its row in acks.
    Violation.ORDER_ACK_UNRECOGNIZED: lambda c: c["message_class"] == wire.MessageClass.MQMSG_CLASS_ORDER_ACK
}

ACK_RULES: dict[Violation, Rule] = (
    _USER_SHAPED_RULES
    | _NO_MESSAGE_RULES
    | {
        Violation.ACK_NOT_BARE: lambda c: (
            ((c["user_flags"] & ~_BARE_ACK_FLAGS & ~RESERVED["user_flags"]) | c["ack_flags"] | c["body_type"]) != 0
        ),
        Violation.FINAL_ACK_NOT_RECOVERABLE: lambda c: (
            (c["message_class"] != wire.MessageClass.MQMSG_CLASS_ORDER_ACK)
            & (c["delivery_mode"] != wire.DeliveryMode.RECOVERABLE)
        ),
        Violation.ORDER_ACK_PREVIOUS: lambda c: (
            (c["message_class"] == wire.MessageClass.MQMSG_CLASS_ORDER_ACK)
            & (c["previous_tx_sequence_number"] + 1 != c["tx_sequence_number"])
        ),
        Violation.FINAL_ACK_CLASS_UNKNOWN: lambda c: reduce(
            and_, (c["message_class"] != known for known in wire.MESSAGE_CLASS_NAMES)
        ),
    }
)

HANDSHAKE_RULES: dict[Violation, Rule] = _NO_MESSAGE_RULES | {
    Violation.RESERVED_BITS: lambda c: _reserved(c, "base_flags", "internal_flags", "operating_system"),
    Violation.OPERATING_SYSTEM_RESERVED: lambda c: (
        (c["internal_type"] == wire.InternalType.ESTABLISH_CONNECTION)
        & (c["operating_system_reserved"] != _OPERATING_SYSTEM_RESERVED)
    ),
    Violation.RECOVERABLE_ACK_TIMEOUT_OUT_OF_RANGE: lambda c: (
        (c["internal_type"] == wire.InternalType.CONNECTION_PARAMETERS)
        & _outside(c["recoverable_ack_timeout_ms"], _RECOVERABLE_ACK_TIMEOUT)
    ),
    Violation.ACK_TIMEOUT_OUT_OF_RANGE: lambda c: (
        (c["internal_type"] == wire.InternalType.CONNECTION_PARAMETERS) & _outside(c["ack_timeout_ms"], _ACK_TIMEOUT)
    ),
}

SESSION_ACK_RULES: dict[Violation, Rule] = _NO_MESSAGE_RULES | {
    Violation.SESSION_HEADER_NOT_ANNOUNCED: lambda c: c["has_session_header"] == 0,
    Violation.REFUSED_SESSION_ACK: lambda c: c["connection_refused"] == 1,
    Violation.RESERVED_BITS: lambda c: _reserved(c, "base_flags", "internal_flags"),
    Violation.WINDOW_SIZE_ZERO: lambda c: c["window_size"] == 0,
}

RULES_BY_TABLE: dict[str, dict[Violation, Rule]] = {
    "messages": MESSAGE_RULES,
    "acks": ACK_RULES,
    "handshakes": HANDSHAKE_RULES,
    "session_acks": SESSION_ACK_RULES,
}
"""The rules for the packets of each table."""
