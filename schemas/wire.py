"""Declares the headers of the protocol, each once, as data.

The dpkt classes and numpy dtypes of `udfs.msmq.header_types`, the columns of `schemas.messages` and the documentation
derive from these declarations. Names are those of the documents; `column` is the name in snake case, unique within a
packet. Every number is little-endian ([MS-MQMQ] 2.2.18).
"""

import re
import struct
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from functools import cached_property
from typing import NamedTuple

VERSION = 0x10
SIGNATURE = 0x524F494C  # the bytes "LIOR"
TCP_PORT = 1801
PING_PORT = 3527
"""UDP port of the Ping Packet of [MS-MQQB] 2.2.7."""
PING_BYTES = 24
PING_SIGNATURE = 0x5548
PING_PATIENCE_NS = 1_000_000_000
"""How long the sender of a ping waits for the answer ([MS-MQQB] 3.1.2.9)."""
MAX_PACKET_SIZE = 0x400000
UNLIMITED = 0xFFFFFFFF  # a time without limit
LATEST_ORDER_ACK_MS = 10_500  # MaximumOrderAckDelay and OrderAckTimeout, [MS-MQQB] 3.1.3.2
LATEST_ORDER_ACK_NS = LATEST_ORDER_ACK_MS * 1_000_000
RESEND_INTERVALS_S = (30,) * 3 + (300,) * 3 + (1_800,) * 3 + (21_600,)  # the last one repeats, [MS-MQQB] 3.1.3.1
ORDER_QUEUE_ID = 4
ORDER_QUEUE_SUFFIX = "\\private$\\order_queue$"
ORDER_ACK_LABEL = "QM Ordering Ack"
ACK_BODY_SIZE = 36
GUID_SIZE = 16


class Kind(Enum):
    """Lists how the bytes of a field become a value."""

    NUMBER = auto()  # unsigned
    TIME = auto()  # u32 seconds since 1970, UTC
    GUID = auto()  # lower-case text
    MESSAGE_ID = auto()  # GUID and u32 ordinal, as text: <guid>\<ordinal>
    TEXT = auto()
    TEXTS = auto()
    OPAQUE = auto()  # bytes without a column; they stay in packets.raw


@dataclass(frozen=True)
class Bits:
    """Some bits of a flag word: name in the document, mask, column and comment."""

    name: str
    mask: int
    column: str
    comment: str
    names: type[IntEnum] | None = None

    @cached_property
    def shift(self) -> int:
        """Position of the lowest bit."""
        return (self.mask & -self.mask).bit_length() - 1

    @cached_property
    def width(self) -> int:
        """Number of bits."""
        return self.mask.bit_count()


class Condition(NamedTuple):
    """Holds the value that some bits must have: the column of the bits, and the value."""

    column: str
    value: int = 1

    def __str__(self) -> str:
        """Returns the condition in the words of the documents: CQ, or QT = 1."""
        _, _, bits = BITS[self.column]
        return bits.name if bits.width == self.value == 1 else f"{bits.name} = {self.value}"


@dataclass(frozen=True)
class Field:
    """A field: an empty struct code means variable length; an optional field is present only `when` bits say so.

    `null` is the value that stands for none: the column is null there.
    """

    name: str
    code: str
    column: str | None
    comment: str
    kind: Kind = Kind.NUMBER
    default: int | bytes = 0
    bits: tuple[Bits, ...] = ()
    when: Condition | None = None
    names: type[IntEnum] | None = None
    null: int | bytes | None = None

    @cached_property
    def attribute(self) -> str:
        """Name in the dpkt class and numpy dtype: the column, or the document's name in snake case."""
        return self.column or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()

    @cached_property
    def size(self) -> int:
        """Bytes of the field, 0 if its length varies."""
        return struct.calcsize(f"<{self.code}")


@dataclass(frozen=True)
class Header:
    """A header: name in the document, section, condition of its presence, fields in wire order."""

    name: str
    section: str
    presence: Condition | str
    fields: tuple[Field, ...]

    @cached_property
    def fixed(self) -> tuple[Field, ...]:
        """The fields that are always present, at fixed offsets."""
        return tuple(field for field in self.fields if field.code and field.when is None)

    @cached_property
    def variable(self) -> tuple[Field, ...]:
        """The other fields: those of variable length, and those that depend on a flag."""
        return tuple(field for field in self.fields if field not in self.fixed)

    @cached_property
    def size(self) -> int:
        """Bytes of the fixed part."""
        return sum(field.size for field in self.fixed)


class InternalType(IntEnum):
    """InternalHeader.Flags.PT, [MS-MQQB] 2.2.1."""

    SESSION_ACK = 1
    ESTABLISH_CONNECTION = 2
    CONNECTION_PARAMETERS = 3


class QueueType(IntEnum):
    """UserHeader.Flags.DQ, AQ and RQ: how a queue name is encoded, [MS-MQMQ] 2.2.19.2."""

    NONE = 0
    SAME_AS_ADMIN = 1
    PRIVATE_ON_SOURCE = 2
    PRIVATE_ON_DESTINATION = 3
    PRIVATE_ON_ADMIN_HOST = 4
    PUBLIC = 5
    PRIVATE = 6
    DIRECT = 7


LEGAL_DESTINATION_TYPES = frozenset(
    {QueueType.NONE, QueueType.PRIVATE_ON_DESTINATION, QueueType.PUBLIC, QueueType.DIRECT}
)
LEGAL_ADMIN_TYPES = LEGAL_DESTINATION_TYPES | {QueueType.PRIVATE_ON_SOURCE, QueueType.PRIVATE}
QUEUE_NAME_SIZES = (0, 0, 4, 4, 4, 16, 20)  # bytes by QueueType; a direct name contains its length


class DeliveryMode(IntEnum):
    """UserHeader.Flags.DM, [MS-MQMQ] 2.2.19.2."""

    EXPRESS = 0
    RECOVERABLE = 1


class SenderIdType(IntEnum):
    """SecurityHeader.Flags.ST, [MS-MQMQ] 2.2.20.6."""

    NONE = 0
    SID = 1
    QUEUE_MANAGER = 2


class FormatType(IntEnum):
    """MQFFormatNameElement.FormatType, [MS-MQMQ] 2.2.18.1.4."""

    PUBLIC = 1
    PRIVATE = 2
    DIRECT = 3
    DISTRIBUTION_LIST = 6


FORMAT_NAME_SIZES: dict[FormatType, int] = {  # bytes of the content; a direct name ends with a NUL
    FormatType.PUBLIC: 16,
    FormatType.PRIVATE: 20,
    FormatType.DISTRIBUTION_LIST: 16,
}


class SectionId(IntEnum):
    """Identifier of a section of a SoapHeader or MultiQueueFormatHeader, [MS-MQMQ] 2.2.20.2, 2.2.20.3, 2.2.20.7."""

    DESTINATION = 0x0064
    ADMINISTRATION = 0x00C8
    RESPONSE = 0x012C
    SIGNATURE = 0x015E
    SOAP_HEADER = 0x0320
    SOAP_BODY = 0x0384


class MessageClass(IntEnum):
    """MessagePropertiesHeader.MessageClass, [MS-MQMQ] 2.2.18.1.6 and [MC-MQAC] 2.2.2.9."""

    MQMSG_CLASS_NORMAL = 0x0000
    MQMSG_CLASS_REPORT = 0x0001
    MQMSG_CLASS_ACK_REACH_QUEUE = 0x0002
    MQMSG_CLASS_ORDER_ACK = 0x00FF
    MQMSG_CLASS_ACK_RECEIVE = 0x4000
    MQMSG_CLASS_NACK_BAD_DST_Q = 0x8000
    MQMSG_CLASS_NACK_DELETED = 0x8001
    MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT = 0x8002
    MQMSG_CLASS_NACK_Q_EXCEED_QUOTA = 0x8003
    MQMSG_CLASS_NACK_ACCESS_DENIED = 0x8004
    MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED = 0x8005
    MQMSG_CLASS_NACK_BAD_SIGNATURE = 0x8006
    MQMSG_CLASS_NACK_BAD_ENCRYPTION = 0x8007
    MQMSG_CLASS_NACK_COULD_NOT_ENCRYPT = 0x8008
    MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q = 0x8009
    MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG = 0x800A
    MQMSG_CLASS_NACK_UNSUPPORTED_CRYPTO_PROVIDER = 0x800B
    MQMSG_CLASS_NACK_SOURCE_COMPUTER_GUID_CHANGED = 0x800C
    MQMSG_CLASS_NACK_Q_DELETED = 0xC000
    MQMSG_CLASS_NACK_Q_PURGED = 0xC001
    MQMSG_CLASS_NACK_RECEIVE_TIMEOUT = 0xC002
    MQMSG_CLASS_NACK_RECEIVE_TIMEOUT_AT_SENDER = 0xC003
    MQMSG_CLASS_NACK_RECEIVE_REJECTED = 0xC004


NEGATIVE_CLASS = 0x8000
"""Bit of the classes of negative acknowledgments, [MS-MQMQ] 2.2.18.1.6."""
QUEUED_CLASS = 0x4000
"""Bit of the classes about messages that were in their queue, [MS-MQQB] 2.2.5."""


def _flags(code: str, column: str, *bits: Bits, comment: str = "The flag word, including reserved bits.") -> Field:
    return Field("Flags", code, column, comment, bits=bits)


def _guid(name: str, column: str, comment: str, when: Condition | None = None) -> Field:
    return Field(name, f"{GUID_SIZE}s", column, comment, Kind.GUID, bytes(GUID_SIZE), when=when)


BASE_HEADER = Header(
    "BaseHeader",
    "[MS-MQMQ] 2.2.19.1",
    "always",
    (
        Field("VersionNumber", "B", "version_number", "Always 0x10.", default=VERSION),
        Field("Reserved", "B", None, "Any value."),
        _flags(
            "H",
            "base_flags",
            Bits("PR", 0x0007, "priority", "0 to 7, 7 highest; 0 for a transactional message."),
            Bits("IN", 0x0008, "internal", "An internal packet of the session."),
            Bits("SH", 0x0010, "has_session_header", "A SessionHeader follows at PacketSize."),
            Bits("DH", 0x0020, "has_debug_header", "A DebugHeader is present."),
            Bits("TR", 0x0100, "tracing", "The sender asks for trace reports."),
        ),
        Field("Signature", "I", "signature", "Always 0x524F494C, the bytes LIOR.", default=SIGNATURE),
        Field("PacketSize", "I", "packet_size", "Bytes of the packet, without a SessionHeader after it."),
        Field(
            "TimeToReachQueue",
            "I",
            "time_to_reach_queue",
            "Seconds allowed to reach the destination queue manager; null is no limit (4294967295 in the packet).",
            default=UNLIMITED,
            null=UNLIMITED,
        ),
    ),
)

INTERNAL_HEADER = Header(
    "InternalHeader",
    "[MS-MQQB] 2.2.1",
    Condition("internal"),
    (
        Field("Reserved", "H", None, "Ignored."),
        _flags(
            "H",
            "internal_flags",
            Bits("PT", 0x000F, "internal_type", "Which packet it is.", InternalType),
            Bits("CS", 0x0010, "connection_refused", "The acceptor refuses the connection."),
        ),
    ),
)

ESTABLISH_CONNECTION_HEADER = Header(
    "EstablishConnectionHeader",
    "[MS-MQQB] 2.2.3.1",
    Condition("internal_type", InternalType.ESTABLISH_CONNECTION),
    (
        _guid("ClientGuid", "client_guid", "Queue manager of the initiator."),
        _guid("ServerGuid", "server_guid", "Queue manager of the acceptor; zeros for a direct format name."),
        Field("TimeStamp", "I", "time_stamp_ms", "Milliseconds since the initiator booted; echoed."),
        Field(
            "OperatingSystem",
            "H",
            "operating_system",
            "The word, including reserved bits.",
            default=0x0310,
            bits=(
                Bits("RE", 0x00FF, "operating_system_reserved", "Always 0x10."),
                Bits("SE", 0x0100, "sent_without_ping", "No ping was sent before; echoed, not reliable."),
                Bits("OS", 0x0200, "server_class", "The initiator is a server-class system."),
                Bits("QS", 0x0400, "guaranteed_qos", "Quality of service is guaranteed; informational."),
            ),
        ),
        Field("Reserved", "H", None, "Ignored."),
        Field("Padding", "512s", None, "Arbitrary.", Kind.OPAQUE, b"\x5a" * 512),
    ),
)

CONNECTION_PARAMETERS_HEADER = Header(
    "ConnectionParametersHeader",
    "[MS-MQQB] 2.2.2.1",
    Condition("internal_type", InternalType.CONNECTION_PARAMETERS),
    (
        Field("RecoverableAckTimeout", "I", "recoverable_ack_timeout_ms", "Delay of acknowledgments, ms.", default=500),
        Field("AckTimeout", "I", "ack_timeout_ms", "Wait for a SessionAck before closing, ms.", default=20_000),
        Field("Reserved", "H", None, "Ignored."),
        Field("WindowSize", "H", "window_size", "Unacknowledged packets that its sender allows.", default=64),
    ),
)

USER_HEADER = Header(
    "UserHeader",
    "[MS-MQMQ] 2.2.19.2",
    Condition("internal", 0),
    (
        _guid("SourceQueueManager", "source_queue_manager", "Queue manager that first sent the message."),
        _guid("QueueManagerAddress", "queue_manager_address", "Queue manager of the destination; zeros if direct."),
        Field(
            "TimeToBeReceived",
            "I",
            "time_to_be_received",
            "Seconds until the message expires in its queue; null is no limit (4294967295 in the packet).",
            default=UNLIMITED,
            null=UNLIMITED,
        ),
        Field("SentTime", "I", "sent_at", "Send time by the sender's clock, UTC.", Kind.TIME),
        Field("MessageID", "I", "message_id_ordinal", "The message's number at its source queue manager."),
        _flags(
            "I",
            "user_flags",
            Bits("RC", 0x0000001F, "hop_count", "Routing servers passed so far, 0 to 29."),
            Bits("DM", 0x00000060, "delivery_mode", "0 express, 1 recoverable.", DeliveryMode),
            Bits("JN", 0x00000100, "negative_source_journal", "The source keeps it if delivery fails."),
            Bits("JP", 0x00000200, "positive_source_journal", "The source keeps it when delivered."),
            Bits("DQ", 0x00001C00, "destination_queue_type", "Encoding of DestinationQueue.", QueueType),
            Bits("AQ", 0x0000E000, "admin_queue_type", "Encoding of AdminQueue.", QueueType),
            Bits("RQ", 0x00070000, "response_queue_type", "Encoding of ResponseQueue.", QueueType),
            Bits("SH", 0x00080000, "has_security_header", "A SecurityHeader is present."),
            Bits("TH", 0x00100000, "transactional", "A TransactionHeader is present."),
            Bits("MP", 0x00200000, "has_message_properties", "Always set: a MessagePropertiesHeader is present."),
            Bits("CQ", 0x00400000, "has_connector_type", "ConnectorType is present."),
            Bits("MQ", 0x00800000, "has_multi_queue_format", "A MultiQueueFormatHeader is present."),
            Bits("AH", 0x02000000, "over_http", "The message came over HTTP; a sender of this protocol never sets it."),
            Bits("HH", 0x10000000, "has_soap_header", "A SoapHeader is present."),
        ),
        Field("DestinationQueue", "", "destination_queue", "Format name of the destination.", Kind.TEXT),
        Field("AdminQueue", "", "admin_queue", "Format name of the administration queue.", Kind.TEXT),
        Field("ResponseQueue", "", "response_queue", "Format name of the response queue.", Kind.TEXT),
        _guid("ConnectorType", "connector_type", "Application-defined.", when=Condition("has_connector_type")),
    ),
)

TRANSACTION_HEADER = Header(
    "TransactionHeader",
    "[MS-MQMQ] 2.2.20.5",
    Condition("transactional"),
    (
        _flags(
            "I",
            "transaction_flags",
            Bits("CG", 0x00000001, "has_connector_qm_guid", "ConnectorQMGuid is present."),
            Bits("FA", 0x00000002, "tx_final_ack_required", "The sender asks for a FinalAck."),
            Bits("FM", 0x00000004, "tx_first", "First message of its transaction."),
            Bits("LM", 0x00000008, "tx_last", "Last message of its transaction."),
            Bits("ID", 0x00FFFFF0, "tx_transaction_id", "The transaction; its source may reuse the number later."),
        ),
        Field("TxSequenceID.Ordinal", "I", "tx_sequence_ordinal", "Low half of the TxSequenceID."),
        Field("TxSequenceID.TimeStamp", "I", "tx_sequence_timestamp", "High half of the TxSequenceID, seconds."),
        Field("TxSequenceNumber", "I", "tx_sequence_number", "Position in the sequence, from 1."),
        Field("PreviousTxSequenceNumber", "I", "previous_tx_sequence_number", "Number of the previous message, or 0."),
        _guid("ConnectorQMGuid", "connector_qm_guid", "Application-defined.", when=Condition("has_connector_qm_guid")),
    ),
)

SECURITY_HEADER = Header(
    "SecurityHeader",
    "[MS-MQMQ] 2.2.20.6",
    Condition("has_security_header"),
    (
        _flags(
            "H",
            "security_flags",
            Bits("ST", 0x000F, "sender_id_type", "0 none, 1 SID, 2 queue manager GUID.", SenderIdType),
            Bits("AU", 0x0010, "authenticated", "0 on the wire."),
            Bits("EB", 0x0020, "body_encrypted", "The body is encrypted."),
            Bits("DE", 0x0040, "default_provider", "The default cryptographic provider was used."),
            Bits("AI", 0x0080, "security_data_announced", "SecurityData is present; not reliable."),
            Bits("AS", 0x0F00, "authentication_level", "0 on the wire; set by a receiver."),
        ),
        Field("SenderIdSize", "H", "sender_id_size", "Bytes of SecurityID."),
        Field("EncryptionKeySize", "H", "encryption_key_size", "Bytes of EncryptionKey."),
        Field("SignatureSize", "H", "signature_size", "Bytes of Signature."),
        Field("SenderCertSize", "I", "sender_cert_size", "Bytes of SenderCert."),
        Field("ProviderInfoSize", "I", "provider_info_size", "Bytes of ProviderInfo."),
        Field("SecurityID", "", "sender_id", "The sender: a SID as S-1-…, or a queue manager GUID.", Kind.TEXT),
        Field("EncryptionKey", "", None, "A SIMPLEBLOB.", Kind.OPAQUE),
        Field("Signature", "", None, "The sender's signature.", Kind.OPAQUE),
        Field("SenderCert", "", None, "The sender's certificate.", Kind.OPAQUE),
        Field("ProviderInfo", "", "provider_name", "Name of the cryptographic provider.", Kind.TEXT),
    ),
)

MESSAGE_PROPERTIES_HEADER = Header(
    "MessagePropertiesHeader",
    "[MS-MQMQ] 2.2.19.3",
    Condition("has_message_properties"),
    (
        _flags(
            "B",
            "ack_flags",
            Bits("PA", 0x01, "positive_arrival_ack", "Acknowledge arrival in the queue."),
            Bits("PR", 0x02, "positive_receive_ack", "Acknowledge receipt by an application."),
            Bits("NA", 0x04, "negative_arrival_ack", "Report failure to reach the queue."),
            Bits("NR", 0x08, "negative_receive_ack", "Report failure to be received."),
            comment="The flags, including reserved bits.",
        ),
        Field("LabelLength", "B", "label_length", "UTF-16 units of Label, terminator included."),
        Field("MessageClass", "H", "message_class", "Normal, acknowledgment or report.", names=MessageClass),
        Field(
            "CorrelationID",
            "20s",
            "correlation_id",
            "Application-defined; in an acknowledgment, the acknowledged message. Null where all its bytes are 0.",
            Kind.MESSAGE_ID,
            bytes(20),
            null=bytes(20),
        ),
        Field("BodyType", "I", "body_type", "VARTYPE of the body, [MS-MQMQ] 2.2.12; informative."),
        Field("ApplicationTag", "I", "application_tag", "Application-defined."),
        Field("MessageSize", "I", "body_size", "Bytes of MessageBody."),
        Field("AllocationBodySize", "I", "allocation_body_size", "Bytes allocated to it; more when encrypted."),
        Field("PrivacyLevel", "I", "privacy_level", "Strength of the encryption."),
        Field("HashAlgorithm", "I", "hash_algorithm", "Hash of the signature, if any.", default=0x800E),
        Field(
            "EncryptionAlgorithm",
            "I",
            "encryption_algorithm",
            "Cipher of the body, if it is encrypted.",
            default=0x6610,
        ),
        Field("ExtensionSize", "I", "extension_size", "Bytes of ExtensionData."),
        Field("Label", "", "label", "The message's label; null when it has none.", Kind.TEXT),
        Field("ExtensionData", "", None, "Application-defined.", Kind.OPAQUE),
        Field("MessageBody", "", None, "The body.", Kind.OPAQUE),
    ),
)

DEBUG_HEADER = Header(
    "DebugHeader",
    "[MS-MQMQ] 2.2.20.8",
    Condition("has_debug_header"),
    (
        _flags("H", "debug_flags", Bits("QT", 0x0003, "debug_queue_type", "0 no report queue, 1 a public queue.")),
        Field("Reserved", "H", None, "Ignored."),
        _guid("QueueIdentifier", "debug_queue", "Public queue for traces.", when=Condition("debug_queue_type", 1)),
    ),
)

SOAP_HEADER = Header(
    "SoapHeader",
    "[MS-MQMQ] 2.2.20.7",
    Condition("has_soap_header"),
    (
        Field("HeaderSectionID", "H", None, "0x0320.", default=SectionId.SOAP_HEADER),
        Field("Reserved", "H", None, "Ignored."),
        Field("HeaderDataLength", "I", "soap_header_length", "UTF-16 units of Header, terminator included."),
        Field("Header", "", "soap_header", "SOAP header section.", Kind.TEXT),
    ),
)

SOAP_BODY = Header(
    "SoapBody",
    "[MS-MQMQ] 2.2.20.7",
    "the second half of SoapHeader",
    (
        Field("BodySectionID", "H", None, "0x0384.", default=SectionId.SOAP_BODY),
        Field("Reserved1", "H", None, "Ignored."),
        Field("BodyDataLength", "I", "soap_body_length", "UTF-16 units of Body, terminator included."),
        Field("Body", "", "soap_body", "SOAP body section.", Kind.TEXT),
    ),
)

MQF_ADDRESS_HEADER = Header(
    "MQFAddressHeader",
    "[MS-MQMQ] 2.2.20.2",
    "UserHeader.Flags.MQ, three times",
    (
        Field("HeaderSize", "I", "header_size", "Bytes of this header, including its list.", default=12),
        Field("HeaderID", "H", "header_id", "0x0064 destination, 0x00C8 administration, 0x012C response."),
        Field("Reserved", "H", None, "Ignored."),
        Field("ElementCount", "I", "element_count", "Number of elements."),
        Field("FormatNameList", "", None, "The elements.", Kind.OPAQUE),
    ),
)

MQF_ELEMENT = Header(
    "MQFFormatNameElement",
    "[MS-MQMQ] 2.2.18.1.4",
    "in a FormatNameList",
    (
        Field("FormatType", "H", None, "Encoding of the name.", names=FormatType),
        Field("Content", "", None, "The name: a GUID or GUID and identifier on a multiple of 4, or text.", Kind.TEXT),
    ),
)

MQF_SIGNATURE_HEADER = Header(
    "MQFSignatureHeader",
    "[MS-MQMQ] 2.2.20.3",
    Condition("has_multi_queue_format"),
    (
        Field("ID", "H", None, "0x015E.", default=SectionId.SIGNATURE),
        Field("Reserved", "H", None, "Ignored."),
        Field("Size", "I", "multi_queue_signature_size", "Bytes of the multi-queue signature."),
        Field("Signature", "", None, "The signature.", Kind.OPAQUE),
    ),
)

# For the messages table: the lists of the three address headers.
MULTI_QUEUE_FORMAT_HEADER = Header(
    "MultiQueueFormatHeader",
    "[MS-MQMQ] 2.2.20.1",
    Condition("has_multi_queue_format"),
    (
        Field("Destination", "", "multi_destination_queues", "Format names of the destinations.", Kind.TEXTS),
        Field("Administration", "", "multi_admin_queues", "Format names of administration queues.", Kind.TEXTS),
        Field("Response", "", "multi_response_queues", "Format names of response queues.", Kind.TEXTS),
        MQF_SIGNATURE_HEADER.fields[2],
    ),
)

SESSION_HEADER = Header(
    "SessionHeader",
    "[MS-MQMQ] 2.2.20.4",
    Condition("has_session_header"),
    (
        Field("AckSequenceNumber", "H", "ack_sequence_number", "Packets received on this session so far."),
        Field("RecoverableMsgAckSeqNumber", "H", "recoverable_msg_ack_seq_number", "Lowest number new on disk, or 0."),
        Field("RecoverableMsgAckFlags", "I", "recoverable_msg_ack_flags", "Bit k: that number + k is on disk."),
        Field("UserMsgSequenceNumber", "H", "user_msg_sequence_number", "Packets sent on this session so far."),
        Field("RecoverableMsgSeqNumber", "H", "recoverable_msg_seq_number", "Recoverable messages among them."),
        Field("WindowSize", "H", "window_size", "Unacknowledged packets that its sender allows.", default=64),
        Field("Reserved", "H", None, "Ignored."),
    ),
)

ORDER_ACK_BODY = Header(
    "OrderAckBody",
    "[MS-MQQB] 2.2.4.1",
    "the body of an OrderAck",
    (
        Field("TxSequenceID.Ordinal", "I", "tx_sequence_ordinal", "Low half of the acknowledged TxSequenceID."),
        Field("TxSequenceID.TimeStamp", "I", "tx_sequence_timestamp", "High half of the acknowledged TxSequenceID."),
        Field("TxSequenceNumber", "I", "tx_sequence_number", "Highest number in order; of a FinalAck its message's."),
        Field("TxPreviousSequenceNumber", "I", "previous_tx_sequence_number", "The number that came before it."),
        Field("Reserved", "20s", None, "Ignored.", Kind.OPAQUE, bytes(20)),
    ),
)

FINAL_ACK_BODY = Header(
    "FinalAckBody",
    "[MS-MQQB] 2.2.5.1",
    "the body of a FinalAck",
    (
        *ORDER_ACK_BODY.fields[:4],
        _guid("SourceGUID", "source_guid", "FinalAck: source of the message."),
        Field("MessageID", "I", "acknowledged_message_id_ordinal", "FinalAck: the message's number at its source."),
    ),
)

HEADERS: tuple[Header, ...] = (
    BASE_HEADER,
    INTERNAL_HEADER,
    ESTABLISH_CONNECTION_HEADER,
    CONNECTION_PARAMETERS_HEADER,
    USER_HEADER,
    TRANSACTION_HEADER,
    SECURITY_HEADER,
    MESSAGE_PROPERTIES_HEADER,
    DEBUG_HEADER,
    SOAP_HEADER,
    SOAP_BODY,
    MULTI_QUEUE_FORMAT_HEADER,
    MQF_ADDRESS_HEADER,
    MQF_ELEMENT,
    MQF_SIGNATURE_HEADER,
    SESSION_HEADER,
    ORDER_ACK_BODY,
    FINAL_ACK_BODY,
)

BITS: dict[str, tuple[Header, Field, Bits]] = {
    bits.column: (header, field, bits) for header in HEADERS for field in header.fields for bits in field.bits
}
"""All `Bits` by column, with header and flag word."""
SECURITY_SIZES: tuple[str, ...] = tuple(
    field.attribute for field in SECURITY_HEADER.fixed if field.attribute.endswith("_size")
)
"""The attributes of the sizes in a SecurityHeader, in the order of the fields that they measure."""
