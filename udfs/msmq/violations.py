"""The rules behind `schemas.violations`: each is one expression, for the ints of a packet and for numpy columns."""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Any

from schemas import wire
from schemas.violations import Violation
from schemas.wire import QueueType

Columns = Mapping[str, Any]
"""Columns of `messages` as integers, 0 where a header is absent, and `null_address`: QueueManagerAddress is zeros."""
Rule = Callable[[Columns], Any]

RESERVED: dict[str, int] = {
    field.column: (1 << 8 * field.size) - 1 - sum(bits.mask for bits in field.bits)
    for header in wire.HEADERS
    for field in header.fields
    if field.bits and field.column
}
_WORDS = ("base_flags", "user_flags", "transaction_flags", "security_flags", "ack_flags", "debug_flags")
_MAX_HOP_COUNT = 0x1D
_MAX_LABEL_LENGTH = 250
_MAX_SENDER_CERT = 0xFFFF
_MESSAGE_CLASS_MASK = 0xE1FF


def _acks_asked_for(c: Columns) -> Any:
    return c["ack_flags"] & ~RESERVED["ack_flags"]


def _address_expected(c: Columns) -> Any:
    kind = c["destination_queue_type"]
    return (kind == QueueType.PRIVATE_ON_DESTINATION) | (kind == QueueType.PUBLIC)


def _response_host_unknown(c: Columns) -> Any:
    kind, admin = c["response_queue_type"], c["admin_queue_type"]
    without_host = (admin == QueueType.NONE) | (admin == QueueType.PUBLIC) | (admin == QueueType.DIRECT)
    return ((kind == QueueType.PRIVATE_ON_ADMIN_HOST) & without_host) | (
        (kind == QueueType.SAME_AS_ADMIN) & (admin == QueueType.NONE)
    )


def _sender_id_type_illegal(c: Columns) -> Any:
    kind = c["sender_id_type"]
    return (kind > wire.SenderIdType.QUEUE_MANAGER) | ((kind == wire.SenderIdType.NONE) & (c["sender_id_size"] != 0))


RULES: Mapping[Violation, Rule] = {
    Violation.RESERVED_BITS: lambda c: reduce(or_, (c[word] & RESERVED[word] for word in _WORDS)) != 0,
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
    Violation.ACK_WITHOUT_ADMIN_QUEUE: lambda c: (_acks_asked_for(c) != 0) & (c["admin_queue_type"] == QueueType.NONE),
    Violation.ADMIN_QUEUE_WITHOUT_ACK: lambda c: (_acks_asked_for(c) == 0) & (c["admin_queue_type"] != QueueType.NONE),
    Violation.RESPONSE_HOST_UNKNOWN: _response_host_unknown,
    Violation.SEQUENCE_NUMBER_ZERO: lambda c: (c["transactional"] == 1) & (c["tx_sequence_number"] == 0),
    Violation.PREVIOUS_NOT_BELOW_NUMBER: lambda c: (
        (c["transactional"] == 1) & (c["previous_tx_sequence_number"] >= c["tx_sequence_number"])
    ),
    Violation.SECURITY_EMPTY: lambda c: (
        (c["has_security_header"] == 1) & (reduce(or_, (c[size] for size in wire.SECURITY_SIZES)) == 0)
    ),
    Violation.SENDER_ID_TYPE: _sender_id_type_illegal,
    Violation.SENDER_CERT_TOO_LARGE: lambda c: c["sender_cert_size"] > _MAX_SENDER_CERT,
    Violation.RECEIVER_BITS_SET: lambda c: (c["authenticated"] | c["authentication_level"]) != 0,
    Violation.LABEL_TOO_LONG: lambda c: c["label_length"] > _MAX_LABEL_LENGTH,
    Violation.MESSAGE_CLASS_ILLEGAL: lambda c: (c["message_class"] & ~_MESSAGE_CLASS_MASK) != 0,
    Violation.ALLOCATION_BELOW_BODY: lambda c: c["allocation_body_size"] < c["body_size"],
    Violation.DEBUG_QUEUE_TYPE_UNDEFINED: lambda c: c["debug_queue_type"] > 1,
    Violation.WINDOW_SIZE_ZERO: lambda c: (c["has_session_header"] == 1) & (c["window_size"] == 0),
    # An OrderAck that is recognized has its row in acks.
    Violation.ORDER_ACK_UNRECOGNIZED: lambda c: c["message_class"] == wire.MessageClass.MQMSG_CLASS_ORDER_ACK,
}
