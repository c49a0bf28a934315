"""Declares faults, which prevent decoding a packet, and violations, which are rules that a decodable message breaks."""

from enum import StrEnum, auto
from typing import NamedTuple, Self


class _Code(StrEnum):
    """A code with the section that it is from, and a sentence."""

    section: str
    sentence: str

    def __new__(cls, code: str, section: str, sentence: str) -> Self:
        """Attaches the section, of MQMQ or MQQB, and the sentence to the code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.section = "[MS-{}] {}".format(*section.split())
        member.sentence = sentence
        return member


class Fault(_Code):
    """Why a packet cannot be decoded: reason code in `quarantine` (stage `decode`), section, and sentence."""

    BAD_SIGNATURE = auto(), "MQQB 3.1.5.1.2", "The packet does not begin with version 0x10 and the signature LIOR"
    SIZE_MISMATCH = auto(), "MQMQ 2.2.19.1", "PacketSize does not fit the bytes of the frame"
    BYTES_MISSING = auto(), "MQMQ 2.2.19.1", "The stored bytes end before the packet does"
    HEADER_BEYOND_PACKET = auto(), "MQQB 3.1.5.1.3", "A header does not fit in its packet"
    UNKNOWN_INTERNAL_TYPE = auto(), "MQQB 2.2.1", "InternalHeader.Flags.PT is none of 1, 2 and 3"
    ILLEGAL_DESTINATION_TYPE = auto(), "MQMQ 2.2.19.2", "UserHeader.Flags.DQ is none of 0, 3, 5 and 7"
    ILLEGAL_ADMIN_TYPE = auto(), "MQMQ 2.2.19.2", "UserHeader.Flags.AQ is none of 0, 2, 3, 5, 6 and 7"
    NAME_BEYOND_PACKET = auto(), "MQMQ 2.2.19.2", "A queue name does not fit in its packet"
    NAME_ODD_LENGTH = auto(), "MQMQ 2.2.18.1.5.2", "A direct name has an odd number of bytes"
    NAME_NOT_UTF16 = auto(), "MQMQ 2.2.18.1.5.2", "A direct name is not UTF-16"
    NO_MESSAGE_PROPERTIES = auto(), "MQMQ 2.2.19.2", "UserHeader.Flags.MP is not set"
    SECURITY_BEYOND_PACKET = auto(), "MQMQ 2.2.20.6", "SecurityData does not fit in its packet"
    BODY_BEYOND_PACKET = auto(), "MQMQ 2.2.19.3", "Label, extension and body do not fit in their packet"
    BAD_SECTION = auto(), "MQMQ 2.2.20", "A section of an optional header does not begin with its identifier"
    SECTION_BEYOND_PACKET = auto(), "MQMQ 2.2.20", "A section of an optional header does not fit in its packet"
    UNKNOWN_FORMAT_TYPE = auto(), "MQMQ 2.2.18.1.4", "A format name has a FormatType that is none of 1, 2, 3 and 6"


class DecodeError(NamedTuple):
    """The reason why a packet cannot be decoded: code, offset in the packet, and what is there."""

    fault: Fault
    offset: int
    found: str

    @property
    def detail(self) -> str:
        """Sentence for the quarantine row."""
        return f"{self.fault.sentence}: {self.found}, at byte {self.offset} of the packet."


class Violation(_Code):
    """A rule of the documents that a decodable message breaks: code, section, and sentence about the message."""

    RESERVED_BITS = auto(), "MQMQ 2.2.19", "Sets reserved bits of a flag word."
    TRACING_WITHOUT_DEBUG = auto(), "MQMQ 2.2.19.1", "Sets TR without DH."
    PRIORITY_ON_TRANSACTIONAL = auto(), "MQMQ 2.2.19.1", "Is transactional but has a priority."
    TRANSACTIONAL_NOT_RECOVERABLE = auto(), "MQMQ 2.2.19.2", "Is transactional but not recoverable."
    DELIVERY_MODE_UNDEFINED = auto(), "MQMQ 2.2.19.2", "DM is neither 0 nor 1."
    HOP_COUNT_OUT_OF_RANGE = auto(), "MQMQ 2.2.19.2", "RC is above 29."
    OVER_HTTP = auto(), "MQMQ 2.2.19.2", "Sets AH, which senders must not set."
    QUEUE_MANAGER_ADDRESS_MISSING = auto(), "MQMQ 2.2.19.2", "Names no queue manager for a public or private queue."
    QUEUE_MANAGER_ADDRESS_NOT_NULL = auto(), "MQMQ 2.2.19.2", "Names a queue manager for a direct format name."
    ACK_WITHOUT_ADMIN_QUEUE = auto(), "MQMQ 2.2.19.2", "Asks for acknowledgments but names no administration queue."
    ADMIN_QUEUE_WITHOUT_ACK = auto(), "MQMQ 2.2.19.2", "Names an administration queue but asks for no acknowledgment."
    RESPONSE_HOST_UNKNOWN = auto(), "MQMQ 2.2.19.2", "Puts the response queue on a host whose GUID is unknown."
    SEQUENCE_NUMBER_ZERO = auto(), "MQMQ 2.2.20.5", "TxSequenceNumber is 0."
    PREVIOUS_NOT_BELOW_NUMBER = auto(), "MQMQ 2.2.20.5", "PreviousTxSequenceNumber is not below TxSequenceNumber."
    SECURITY_EMPTY = auto(), "MQMQ 2.2.20.6", "Has a SecurityHeader with nothing in it."
    SENDER_ID_TYPE = auto(), "MQMQ 2.2.20.6", "ST is above 2, or is 0 although the packet has a sender id."
    SENDER_CERT_TOO_LARGE = auto(), "MQMQ 2.2.20.6", "SenderCertSize is above 0xFFFF."
    RECEIVER_BITS_SET = auto(), "MQMQ 2.2.20.6", "Sets AU or AS, which only receivers set."
    LABEL_TOO_LONG = auto(), "MQMQ 2.2.19.3", "LabelLength is above 250."
    MESSAGE_CLASS_ILLEGAL = auto(), "MQMQ 2.2.18.1.6", "MessageClass sets bits outside 0xE1FF."
    ALLOCATION_BELOW_BODY = auto(), "MQMQ 2.2.19.3", "AllocationBodySize is less than MessageSize."
    ALLOCATION_NOT_SENT = auto(), "MQMQ 2.2.19.3", "Sends MessageSize bytes of body, not AllocationBodySize."
    DEBUG_QUEUE_TYPE_UNDEFINED = auto(), "MQMQ 2.2.20.8", "QT is above 1."
    WINDOW_SIZE_ZERO = auto(), "MQMQ 2.2.20.4", "A SessionHeader announces a window of 0."
    TRAILING_BYTES = auto(), "MQMQ 2.2.20", "Has bytes after its last header."
    ORDER_ACK_UNRECOGNIZED = auto(), "MQQB 2.2.4", "Has the class of an OrderAck but not its queue, label and size."
