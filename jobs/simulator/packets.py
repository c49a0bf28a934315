"""Builds message packets: a template for each sender and queue, patched for every message."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID
from zlib import crc32

from jobs.simulator import build
from schemas.wire import (
    BASE_HEADER,
    MESSAGE_PROPERTIES_HEADER,
    TRANSACTION_HEADER,
    USER_HEADER,
    DeliveryMode,
    Header,
    QueueType,
)
from udfs.msmq.identifiers import direct_name, private_name


def _offset(header: Header, field: str) -> int:
    """Returns where a field begins in its header."""
    names = [f.attribute for f in header.fixed]
    return sum(f.size for f in header.fixed[: names.index(field)])


BASE_FLAGS = _offset(BASE_HEADER, "base_flags")
_PACKET_SIZE = _offset(BASE_HEADER, "packet_size")
_SENT_AT = BASE_HEADER.size + _offset(USER_HEADER, "sent_at")
_HOP_COUNT = _SENT_AT + 8  # the low byte of UserHeader.Flags, behind SentTime and MessageID
_BODY_SIZE = _offset(MESSAGE_PROPERTIES_HEADER, "body_size")
_DIGITS = 6  # of the number in a label
_TERMINATOR = 2  # bytes
_PACK_SIZE = struct.Struct("<II").pack_into  # PacketSize, TimeToReachQueue
_PACK_SENT = struct.Struct("<II").pack_into  # SentTime, MessageID
_PACK_TRANSACTION = struct.Struct("<IQII").pack_into  # Flags, TxSequenceID, TxSequenceNumber, PreviousTxSequenceNumber
_PACK_BODY_SIZES = struct.Struct("<II").pack_into  # MessageSize, AllocationBodySize


class Template:
    """Builds the packets of one sender to one queue."""

    def __init__(
        self, source: UUID, receiver: UUID, queue: build.QueueName, *, label: str = "", transactional: bool = True
    ) -> None:
        """Takes the queue; a direct queue names its own host, a private one's host is `receiver`.

        A `label` that is given ends with a number made from the body, like that of an order.
        """
        self.is_direct = queue.type is QueueType.DIRECT
        self._digits = _DIGITS if label else 0
        label = f"{label}{'0' * _DIGITS}" if label else f"From {source}"
        packet = build.user_message(
            source,
            message_id=0,
            destination=queue,
            queue_manager_address=build.NULL if self.is_direct else receiver,
            sequence=(0, 1, 0) if transactional else None,
            delivery_mode=DeliveryMode.RECOVERABLE if transactional else DeliveryMode.EXPRESS,
            label=label,
        )
        name = queue.content
        self.destination_queue = direct_name(name) if self.is_direct else private_name(receiver.bytes_le + name)
        self._transaction = BASE_HEADER.size + USER_HEADER.size + len(queue.in_user_header)
        self._transactional = transactional
        self._properties = self._transaction + (TRANSACTION_HEADER.size if transactional else 0)
        self._head = packet[: self._properties + MESSAGE_PROPERTIES_HEADER.size + len(build.utf16(label))]

    def packet(self, message: "Message", previous: int, hops: int = 0) -> bytearray:
        """Returns the message's packet with this PreviousTxSequenceNumber, after so many routing servers."""
        packet = bytearray(self._head)
        size = len(message.body)
        _PACK_SENT(packet, _SENT_AT, message.sent_at_s, message.ordinal)
        packet[_HOP_COUNT] |= hops
        if self._transactional:
            identity = message.sequence_id, message.number
            _PACK_TRANSACTION(packet, self._transaction, message.transaction_flags, *identity, previous)
        if digits := self._digits:
            end = len(packet) - _TERMINATOR
            packet[end - 2 * digits : end] = f"{crc32(message.body) % 10**digits:0{digits}}".encode("utf-16-le")
        _PACK_BODY_SIZES(packet, self._properties + _BODY_SIZE, size, size)
        packet += message.body
        packet += build.FILL * (-len(packet) % 4)
        _PACK_SIZE(packet, _PACKET_SIZE, len(packet), message.time_to_reach_s)
        return packet


class NumberedStream(Protocol):
    """Takes the messages that are numbered together: at their receiver, and in the capture."""

    judge: Callable[..., None]
    """Called with (message, previous, connection, time in ns) when the capture holds all of the message's packet."""

    def arrive(self, session: Any, message: "Message", previous: int) -> None:
        """Takes the message at its receiver."""


@dataclass(slots=True, eq=False)
class Message:
    """Holds a message of the sender's table; `sequence_id` and `number` are 0 when it is not transactional."""

    stream: NumberedStream
    template: Template
    ordinal: int
    sent_at_s: int
    body: bytes
    time_to_reach_s: int = build.FOUR_DAYS
    sequence_id: int = 0
    number: int = 0
    transaction_flags: int = 0

    @property
    def content(self) -> int:
        """A hash of what tells it apart from another message with the same MessageID."""
        return hash((self.sent_at_s, self.body, self.transaction_flags))

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """TxSequenceID, number, MessageID and content."""
        return self.sequence_id, self.number, self.ordinal, self.content

    def has_expired(self, now_s: int) -> bool:
        """Returns whether its TimeToReachQueue is over, [MS-MQMQ] 2.2.19.1."""
        return now_s - self.sent_at_s > self.time_to_reach_s
