"""Builds every packet of the protocol, for the simulator and the tests: arguments in, bytes out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from schemas.wire import (
    ORDER_ACK_LABEL,
    ORDER_QUEUE_ID,
    UNLIMITED,
    DeliveryMode,
    FormatType,
    InternalType,
    MessageClass,
    QueueType,
    SectionId,
)
from udfs.msmq.header_types import CLASSES

NULL = UUID(int=0)
FILL = b"\xcd"  # padding is arbitrary; a value that is not zero finds readers that test it
FOUR_DAYS = 345_600
NEW_YEAR_2024 = 1_704_067_200


def utf16(text: str) -> bytes:
    """Encodes the text as UTF-16LE with a terminator."""
    return f"{text}\0".encode("utf-16-le")


def padded(data: bytes) -> bytes:
    """Pads the bytes to a multiple of 4."""
    return data + FILL * (-len(data) % 4)


def message_identifier(source: UUID, ordinal: int) -> bytes:
    """Builds a MessageIdentifier of 20 bytes, [MS-MQMQ] 2.2.18.1.3."""
    return source.bytes_le + ordinal.to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class QueueName:
    """Names a queue as a UserHeader does and, where it has a format type, an MQFFormatNameElement."""

    type: QueueType
    content: bytes = b""
    format_type: FormatType | None = None

    @property
    def in_user_header(self) -> bytes:
        """Returns the bytes in a UserHeader; a direct name states its length and is padded."""
        if self.type is QueueType.DIRECT:
            return padded(len(self.content).to_bytes(2, "little") + self.content)
        return self.content


NO_QUEUE = QueueName(QueueType.NONE)
SAME_AS_ADMIN = QueueName(QueueType.SAME_AS_ADMIN)


def direct(name: str) -> QueueName:
    r"""Names a queue by a direct format name without its prefix: `OS:host\private$\queue`."""
    return QueueName(QueueType.DIRECT, utf16(name), FormatType.DIRECT)


def public(queue: UUID) -> QueueName:
    """Names a public queue."""
    return QueueName(QueueType.PUBLIC, queue.bytes_le, FormatType.PUBLIC)


def private(identifier: int, on: QueueType = QueueType.PRIVATE_ON_DESTINATION) -> QueueName:
    """Names a private queue on the host of the destination, source or admin queue, as `on` says."""
    return QueueName(on, identifier.to_bytes(4, "little"))


def private_on(host: UUID, identifier: int) -> QueueName:
    """Names a private queue and its host."""
    return QueueName(QueueType.PRIVATE, message_identifier(host, identifier), FormatType.PRIVATE)


def distribution_list(identifier: UUID) -> QueueName:
    """Names a distribution list, which only a MultiQueueFormatHeader can do."""
    return QueueName(QueueType.NONE, identifier.bytes_le, FormatType.DISTRIBUTION_LIST)


@dataclass(frozen=True, slots=True)
class Security:
    """Holds the contents of a SecurityHeader; flags 0x0001 means a SID and nothing else."""

    sender_id: bytes = b""
    encryption_key: bytes = b""
    signature: bytes = b""
    sender_cert: bytes = b""
    provider_info: bytes = b""
    flags: int = 0x0001

    def __bytes__(self) -> bytes:
        """Returns the header with its SecurityData."""
        items = (
            self.sender_id,
            self.encryption_key,
            self.signature,
            self.sender_cert,
            self.provider_info,
        )
        return bytes(
            CLASSES["SecurityHeader"](
                security_flags=self.flags,
                sender_id_size=len(self.sender_id),
                encryption_key_size=len(self.encryption_key),
                signature_size=len(self.signature),
                sender_cert_size=len(self.sender_cert),
                provider_info_size=len(self.provider_info),
                data=b"".join(map(padded, items)),
            )
        )


@dataclass(frozen=True, slots=True)
class MultiQueueFormat:
    """Holds the contents of a MultiQueueFormatHeader."""

    destination: Sequence[QueueName] = ()
    admin: Sequence[QueueName] = ()
    response: Sequence[QueueName] = ()
    signature: bytes = b""

    def __bytes__(self) -> bytes:
        """Returns three address headers and the signature header, each on a multiple of 4."""
        parts = (
            (SectionId.DESTINATION, self.destination),
            (SectionId.ADMINISTRATION, self.admin),
            (SectionId.RESPONSE, self.response),
        )
        signature = CLASSES["MQFSignatureHeader"](multi_queue_signature_size=len(self.signature), data=self.signature)
        return b"".join(_address_header(section, queues) for section, queues in parts) + padded(bytes(signature))


def _address_header(section: SectionId, queues: Sequence[QueueName]) -> bytes:
    elements = b""
    for queue in queues:
        if queue.format_type is None:
            raise ValueError(f"a MultiQueueFormatHeader cannot name {queue}")
        elements += queue.format_type.to_bytes(2, "little")
        if queue.format_type is not FormatType.DIRECT:
            elements = padded(elements)
        elements += queue.content
    header = CLASSES["MQFAddressHeader"](header_id=section, element_count=len(queues), data=elements)
    header.header_size = len(header)
    return padded(bytes(header))


def session_header(**fields: int) -> Any:
    """Builds a SessionHeader, [MS-MQMQ] 2.2.20.4: a dpkt packet, by default all zero with a window of 64."""
    return CLASSES["SessionHeader"](**fields)


def user_message(
    source: UUID,
    *,
    message_id: int,
    destination: QueueName = direct("OS:srv1\\private$\\tx"),  # noqa: B008  # immutable
    queue_manager_address: UUID = NULL,
    admin_queue: QueueName = NO_QUEUE,
    response_queue: QueueName = NO_QUEUE,
    connector_type: UUID | None = None,
    sequence: tuple[int, int, int] | None = None,
    first: bool = True,
    last: bool = True,
    final_ack_required: bool = False,
    transaction_id: int = 0,
    connector_qm_guid: UUID | None = None,
    sent_time: int = NEW_YEAR_2024,
    time_to_be_received: int = UNLIMITED,
    time_to_reach_queue: int = FOUR_DAYS,
    delivery_mode: int = DeliveryMode.RECOVERABLE,
    priority: int | None = None,
    hop_count: int = 0,
    negative_source_journal: bool = False,
    positive_source_journal: bool = False,
    over_http: bool = False,
    label: str | None = None,
    body: bytes = b"",
    allocation_body_size: int | None = None,
    message_class: int = MessageClass.MQMSG_CLASS_NORMAL,
    ack_flags: int = 0,
    correlation_id: bytes = bytes(20),
    body_type: int = 0,
    application_tag: int = 0,
    extension: bytes = b"",
    security: Security | None = None,
    debug: bool = False,
    debug_queue: UUID | None = None,
    tracing: bool = False,
    soap: tuple[str, str] | None = None,
    multi_queue_format: MultiQueueFormat | None = None,
    session: Any = None,
) -> bytes:
    """Builds a UserMessage with the headers that the arguments ask for, [MS-MQMQ] 2.2.20.

    `sequence`: (TxSequenceID, TxSequenceNumber, PreviousTxSequenceNumber), which makes it transactional. `session`: a
    result of `session_header`, placed at PacketSize.
    """
    user = CLASSES["UserHeader"](
        source_queue_manager=source.bytes_le,
        queue_manager_address=queue_manager_address.bytes_le,
        time_to_be_received=time_to_be_received,
        sent_at=sent_time,
        message_id_ordinal=message_id,
        hop_count=hop_count,
        delivery_mode=delivery_mode,
        negative_source_journal=negative_source_journal,
        positive_source_journal=positive_source_journal,
        destination_queue_type=destination.type,
        admin_queue_type=admin_queue.type,
        response_queue_type=response_queue.type,
        has_security_header=security is not None,
        transactional=sequence is not None,
        has_message_properties=True,
        has_connector_type=connector_type is not None,
        has_multi_queue_format=multi_queue_format is not None,
        over_http=over_http,
        has_soap_header=soap is not None,
        data=destination.in_user_header + admin_queue.in_user_header + response_queue.in_user_header,
    )
    parts = [bytes(user)]
    if connector_type is not None:
        parts.append(connector_type.bytes_le)
    if sequence is not None:
        sequence_id, number, previous = sequence
        transaction = CLASSES["TransactionHeader"](
            has_connector_qm_guid=connector_qm_guid is not None,
            tx_final_ack_required=final_ack_required,
            tx_first=first,
            tx_last=last,
            tx_transaction_id=transaction_id,
            tx_sequence_ordinal=sequence_id & 0xFFFFFFFF,
            tx_sequence_timestamp=sequence_id >> 32,
            tx_sequence_number=number,
            previous_tx_sequence_number=previous,
            data=b"" if connector_qm_guid is None else connector_qm_guid.bytes_le,
        )
        parts.append(bytes(transaction))
    if security is not None:
        parts.append(bytes(security))
    name = b"" if label is None else utf16(label)
    allocated = len(body) if allocation_body_size is None else allocation_body_size
    properties = CLASSES["MessagePropertiesHeader"](
        ack_flags=ack_flags,
        label_length=len(name) // 2,
        message_class=message_class,
        correlation_id=correlation_id,
        body_type=body_type,
        application_tag=application_tag,
        body_size=len(body),
        allocation_body_size=allocated,
        extension_size=len(extension),
        data=name + extension + body.ljust(allocated, FILL),
    )
    parts.append(padded(bytes(properties)))
    if debug or debug_queue is not None:
        queue = b"" if debug_queue is None else debug_queue.bytes_le
        parts.append(bytes(CLASSES["DebugHeader"](debug_queue_type=debug_queue is not None, data=queue)))
    if soap is not None:
        header, soap_body = map(utf16, soap)
        parts.append(padded(bytes(CLASSES["SoapHeader"](soap_header_length=len(header) // 2, data=header))))
        parts.append(padded(bytes(CLASSES["SoapBody"](soap_body_length=len(soap_body) // 2, data=soap_body))))
    if multi_queue_format is not None:
        parts.append(bytes(multi_queue_format))
    if priority is None:
        priority = 3 if sequence is None else 0
    payload = b"".join(parts)
    base = CLASSES["BaseHeader"](
        priority=priority,
        has_session_header=session is not None,
        has_debug_header=debug or debug_queue is not None,
        tracing=tracing,
        time_to_reach_queue=time_to_reach_queue,
        data=payload,
    )
    base.packet_size = len(base)
    return bytes(base) + (b"" if session is None else bytes(session))


def _ordering(source: UUID, sender: UUID, direct_name: str | None, body: Any, message: dict[str, Any]) -> bytes:
    """Builds a packet for the sender's order queue, named by identifier or, when given, by direct name."""
    by_name = direct_name is not None
    return user_message(
        source,
        destination=private(ORDER_QUEUE_ID) if direct_name is None else direct(direct_name),
        queue_manager_address=NULL if by_name else sender,
        time_to_reach_queue=UNLIMITED,
        priority=0,
        label=ORDER_ACK_LABEL,
        body=bytes(body),
        **message,
    )


def order_ack(
    source: UUID,
    *,
    sender: UUID,
    sequence_id: int,
    number: int,
    previous: int | None = None,
    direct_name: str | None = None,
    **message: Any,
) -> bytes:
    """Builds an OrderAck from the queue manager `source` to `sender`, [MS-MQQB] 2.2.4.

    `message`: further arguments of `user_message`, among them its message_id.
    """
    body = CLASSES["OrderAckBody"](
        tx_sequence_ordinal=sequence_id & 0xFFFFFFFF,
        tx_sequence_timestamp=sequence_id >> 32,
        tx_sequence_number=number,
        previous_tx_sequence_number=(number - 1) & 0xFFFFFFFF if previous is None else previous,
    )
    fixed = {"message_class": MessageClass.MQMSG_CLASS_ORDER_ACK, "delivery_mode": DeliveryMode.EXPRESS}
    return _ordering(source, sender, direct_name, body, fixed | message)


def final_ack(
    source: UUID,
    *,
    sender: UUID,
    sequence_id: int,
    number: int,
    previous: int,
    acknowledged_message_id: int,
    direct_name: str | None = None,
    **message: Any,
) -> bytes:
    """Builds a FinalAck from the queue manager `source` for one message of `sender`, [MS-MQQB] 2.2.5.

    `message`: further arguments of `user_message`: its message_id, and a message_class if the FinalAck is negative.
    """
    body = CLASSES["FinalAckBody"](
        tx_sequence_ordinal=sequence_id & 0xFFFFFFFF,
        tx_sequence_timestamp=sequence_id >> 32,
        tx_sequence_number=number,
        previous_tx_sequence_number=previous,
        source_guid=sender.bytes_le,
        acknowledged_message_id_ordinal=acknowledged_message_id,
    )
    return _ordering(
        source, sender, direct_name, body, {"message_class": MessageClass.MQMSG_CLASS_ACK_RECEIVE} | message
    )


def _internal(kind: InternalType, header: Any, *, refused: bool = False) -> bytes:
    internal = CLASSES["InternalHeader"](internal_type=kind, connection_refused=refused, data=bytes(header))
    base = CLASSES["BaseHeader"](
        priority=3,
        internal=True,
        has_session_header=kind is InternalType.SESSION_ACK,
        data=bytes(internal),
    )
    base.packet_size = len(base)
    return bytes(base)


def session_ack(**fields: int) -> bytes:
    """Builds a SessionAck with these fields of its SessionHeader, [MS-MQQB] 2.2.6."""
    return _internal(InternalType.SESSION_ACK, session_header(**fields))


def establish_connection(
    client: UUID,
    server: UUID = NULL,
    *,
    time_stamp_ms: int = 0,
    operating_system: int = 0x0310,
    refused: bool = False,
) -> bytes:
    """Builds an EstablishConnection request or response, [MS-MQQB] 2.2.3."""
    header = CLASSES["EstablishConnectionHeader"](
        client_guid=client.bytes_le,
        server_guid=server.bytes_le,
        time_stamp_ms=time_stamp_ms,
        operating_system=operating_system,
    )
    return _internal(InternalType.ESTABLISH_CONNECTION, header, refused=refused)


def connection_parameters(
    *,
    recoverable_ack_timeout_ms: int = 500,
    ack_timeout_ms: int = 20_000,
    window_size: int = 64,
    refused: bool = False,
) -> bytes:
    """Builds a ConnectionParameters request or response, [MS-MQQB] 2.2.2."""
    header = CLASSES["ConnectionParametersHeader"](
        recoverable_ack_timeout_ms=recoverable_ack_timeout_ms,
        ack_timeout_ms=ack_timeout_ms,
        window_size=window_size,
    )
    return _internal(InternalType.CONNECTION_PARAMETERS, header, refused=refused)
