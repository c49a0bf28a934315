"""Says what the kinds of findings, and the reasons of verdicts and of quarantine, mean: docs/words.md lists them."""

from collections.abc import Mapping
from enum import StrEnum

from schemas.ingest import CaptureReason, FrameReason, FramingReason, TcpReason
from schemas.replay import FindingKind, Reason

KINDS: Mapping[FindingKind, str] = {
    FindingKind.DUPLICATES: "Messages came again after their receiver had accepted them; it refused the repeats.",
    FindingKind.OUT_OF_ORDER: "Messages were refused because one before them had not been accepted.",
    FindingKind.GAP_EXPIRED: "Messages were accepted over numbers that their sender had skipped.",
    FindingKind.STUCK_SEQUENCE: "Messages were sent again and refused again: the receiver waits for one before them.",
    FindingKind.CAPTURE_GAP: "Messages cannot be judged because bytes before them are missing.",
    FindingKind.MISSED_BY_CAPTURE: "Bytes before messages are missing, but the receiver acknowledged the messages.",
    FindingKind.CONTRADICTED: "Acknowledgments do not fit what the replay says of messages.",
    FindingKind.REFUSED_FOR_CAUSE: "FinalAcks say why messages never reached their queue.",
    FindingKind.DUPLICATES_DIFFER: "Numbers were used again for other messages than those accepted under them.",
    FindingKind.SEQUENCE_REGRESSED: "A sender went back to numbers that its receiver had passed.",
    FindingKind.UNACKNOWLEDGED: "The receiver acknowledges others, but not these messages.",
    FindingKind.SLOW_ACKNOWLEDGMENT: "Messages were acknowledged later than the receiver's timers allow.",
    FindingKind.REPEATED_ORDER_ACK: "The receiver sent the OrderAck for one number again and again.",
    FindingKind.RESEND_SCHEDULE: "A sender sent messages again on one connection, after these intervals.",
    FindingKind.EXPIRED_ON_ARRIVAL: "Messages had outlived their time when they arrived.",
    FindingKind.TWO_ADDRESSES: "One queue manager sent from several addresses; an error if two machines share it.",
    FindingKind.TORN_TRANSACTION: "The first or the last message of a transaction was not sent.",
    FindingKind.TRANSACTION_PARTLY_DELIVERED: "Some messages of a transaction were delivered, others not.",
    FindingKind.NOT_RECEIVED_BY_APPLICATION: "Acknowledgments say that messages reached no queue, or left it unread.",
    FindingKind.CAPTURED_TWICE: "Connections were captured at both ends of an address translation; they count once.",
    FindingKind.CLOCK_STEPPED: "The clock of a capture stepped back.",
    FindingKind.CLOCKS_DIFFER: "Messages cannot be judged because the clocks of two captures differ.",
    FindingKind.CANNOT_CONNECT: "Connections failed.",
    FindingKind.UNANSWERED_PINGS: "A machine asked by UDP port 3527 whether another one is there, without an answer.",
    FindingKind.ACKNOWLEDGED_ELSEWHERE: "OrderAcks went to another queue manager than the sender.",
    FindingKind.CLOSED_BY_RECEIVER: "Connections ended right after messages, without a SessionAck.",
    FindingKind.RECEIVER_REPLACED: "Another queue manager took over from the receiver.",
    FindingKind.ACKNOWLEDGMENT_FELL: "OrderAcks named a number, and later only a lower one.",
    FindingKind.NEVER_ANSWERED: "The receiver never acknowledged messages, for no other cause that the captures show.",
    FindingKind.WINDOW_STALLED: "The receiver stopped taking packets.",
    FindingKind.SEVERAL_RECEIVERS: "Several queue managers take messages at one address.",
}
"""What a finding of each kind says."""
REASONS: Mapping[Reason, str] = {
    Reason.PREDECESSOR_MISSING: "Refused: a message before it had not been accepted.",
    Reason.LATE: "Refused: its number lies at or below the state, and was never accepted.",
    Reason.STALE_SEQUENCE: "Refused: the receiver had gone on to a later sequence.",
    Reason.NO_PRIOR_STATE: "Not judged: the captures begin in the middle of the sequence.",
    Reason.CAPTURE_GAP: "Not judged: bytes are missing before it.",
    Reason.CLOCKS_DIFFER: "Not judged: the clocks of two captures put its place in doubt.",
}
"""Why a message is out of order or cannot be judged."""
UNUSABLE: Mapping[StrEnum, str] = {
    CaptureReason.EMPTY_FILE: "The file holds no bytes.",
    CaptureReason.BAD_MAGIC: "The file does not begin as a capture does.",
    CaptureReason.TRUNCATED_FILE_HEADER: "The file ends in its header.",
    CaptureReason.TRUNCATED_RECORD_HEADER: "The file ends in the header of a record.",
    CaptureReason.TRUNCATED_RECORD_BODY: "The file ends in the body of a record.",
    CaptureReason.BAD_RECORD_HEADER: "The header of a record is damaged.",
    CaptureReason.CONCATENATED_FILE: "Another capture file begins inside the file.",
    CaptureReason.TRUNCATED_BLOCK: "The file ends in a block of pcapng.",
    CaptureReason.BAD_BLOCK: "A block of pcapng is damaged.",
    CaptureReason.UNKNOWN_INTERFACE: "A record names an interface that the file does not describe.",
    CaptureReason.TRUNCATED_COMPRESSION: "The compressed file is cut off.",
    CaptureReason.CORRUPT_COMPRESSION: "The compressed file is damaged.",
    CaptureReason.EXPANSION_LIMIT: "The file expands to more than is allowed.",
    CaptureReason.NOT_READABLE: "The file cannot be read.",
    FrameReason.UNSUPPORTED_LINK_TYPE: "The record's link type is not supported.",
    FrameReason.BAD_IP_HEADER: "The record's IP header is cut or damaged.",
    FrameReason.BAD_TCP_HEADER: "The record's TCP header is cut or damaged.",
    FrameReason.IP_FRAGMENT: "The record is a fragment of an IP datagram of which others are missing.",
    TcpReason.OUTSIDE_WINDOW: "The segment's sequence number lies far from where its connection was.",
    TcpReason.AFTER_FIN: "The segment lies behind the end of its stream.",
    TcpReason.BEFORE_START: "The segment lies before the first byte of its stream.",
    FramingReason.BAD_SIGNATURE: "Where a packet should begin, there is no signature of MSMQ.",
    FramingReason.BAD_VERSION: "The header there has a version other than 0x10.",
    FramingReason.BAD_PACKET_SIZE: "The header there announces fewer bytes than it has, or too many.",
    FramingReason.INCOMPLETE_FRAME: "The packet there, or before a gap, is not complete.",
    FramingReason.AFTER_GAP: "Bytes before it are missing, so no packet's beginning is known.",
    FramingReason.MID_STREAM: "The capture begins inside the stream, so no packet's beginning is known.",
}
"""Why bytes are in quarantine, but for the faults of decoding."""
