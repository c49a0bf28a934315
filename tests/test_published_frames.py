"""The frames published in [MS-MQQB] 4.1; bytes that are not known here are CD.

Their annotations are wrong in places, and the bytes count (A-24 to A-27 of the project's reading of the documents).
"""

import pytest

from udfs.msmq.annotate import annotate
from udfs.msmq.reference_rows import decode_packet

UNKNOWN = b"\xcd"
BASE = b"\x10" + UNKNOWN  # BaseHeader.VersionNumber, BaseHeader.Reserved

PING = (  # 4.1.1, 4.1.2
    b"\x00\x00"  # Flags
    b"\x48\x55"  # Signature
    + 4 * UNKNOWN  # Cookie
    + 16 * UNKNOWN  # QMGuid
)
ESTABLISH_CONNECTION = (  # 4.1.3, 4.1.4
    BASE + b"\x0b\x00"  # BaseHeader.Flags
    b"LIOR"  # BaseHeader.Signature
    b"\x3c\x02\x00\x00"  # BaseHeader.PacketSize
    b"\xff\xff\xff\xff"  # BaseHeader.TimeToReachQueue
    b"\x00\x00"  # InternalHeader.Reserved
    b"\x02\x00"  # InternalHeader.Flags
    + 16 * UNKNOWN  # ClientGuid
    + 16 * UNKNOWN  # ServerGuid
    + 4 * UNKNOWN  # TimeStamp
    + b"\x10\x03"  # OperatingSystem, annotated as reserved
    b"\x00\x00"  # Reserved
     + 512 * b"\x5a"  # Padding
)
CONNECTION_PARAMETERS = (  # 4.1.5, 4.1.6
    BASE + b"\x0b\x00"  # BaseHeader.Flags
    b"LIOR"  # BaseHeader.Signature
    b"\x20\x00\x00\x00"  # BaseHeader.PacketSize
    b"\xff\xff\xff\xff"  # BaseHeader.TimeToReachQueue
    b"\x00\x00"  # InternalHeader.Reserved
    b"\x03\x00"  # InternalHeader.Flags
    b"\xd8\x05\x00\x00"  # RecoverableAckTimeout
    b"\xc0\xd4\x01\x00"  # AckTimeout
    b"\x00\x00"  # Reserved
    b"\x40\x00"  # WindowSize, in 4.1.6 annotated as 32
)
USER_MESSAGE = (  # 4.1.7
    BASE + b"\x03\x00"  # BaseHeader.Flags
    b"LIOR"  # BaseHeader.Signature
    b"\xb0\x08\x00\x00"  # BaseHeader.PacketSize
    b"\xff\xff\xff\xff"  # BaseHeader.TimeToReachQueue
    + 16 * UNKNOWN  # SourceQueueManager
    + 16 * b"\x00"  # QueueManagerAddress: a direct format name
    + b"\xff\xff\xff\xff"  # TimeToBeReceived
    b"\x4c\x49\x4f\x52"  # SentTime
    + 4
    * UNKNOWN  # MessageID
    + b"\x00\x1c\x28\x00"  # UserHeader.Flags
    b"\x1a\x00"  # DestinationQueue.Count
    + "OS:a04bm02\\q\0".encode("utf-16-le")  # DestinationQueue.DirectFormatName
    + b"\x01\x00"  # SecurityHeader.Flags
    b"\x1c\x00"  # SenderIdSize
    b"\x00\x00"  # EncryptionKeySize
    b"\x00\x00"  # SignatureSize
    b"\x00\x00\x00\x00"  # SenderCertSize
    b"\x00\x00\x00\x00"  # ProviderInfoSize
    b"\x01\x05\x00\x00\x00\x00\x00\x05"  # SecurityID: revision, count, authority
    + 20
    * UNKNOWN  # SecurityID: sub-authorities
    + b"\x0f"  # MessagePropertiesHeader.Flags, annotated as none
    b"\x0f"  # LabelLength
    b"\x00\x00"  # MessageClass
    + 20 * UNKNOWN  # CorrelationID
    + b"\x08\x00\x00\x00"  # BodyType
    + 4 * UNKNOWN  # ApplicationTag
    + b"\xd0\x07\x00\x00"  # MessageSize
    b"\xd0\x07\x00\x00"  # AllocationBodySize, annotated as 20
    b"\x00\x00\x00\x00"  # PrivacyLevel
    b"\x04\x80\x00\x00"  # HashAlgorithm
    b"\x01\x68\x00\x00"  # EncryptionAlgorithm, annotated as 0x6601
    b"\x00\x00\x00\x00"  # ExtensionSize
    + 30 * UNKNOWN  # Label
    + 1000 * b"\x61\x00"  # MessageBody
    + 2 * UNKNOWN  # padding, annotated as one byte
)
SESSION_ACK = (  # 4.1.8
    BASE + b"\x1b\x00"  # BaseHeader.Flags
    b"LIOR"  # BaseHeader.Signature
    b"\x24\x00\x00\x00"  # BaseHeader.PacketSize: the SessionHeader counts
    b"\xff\xff\xff\xff"  # BaseHeader.TimeToReachQueue
    b"\x00\x00"  # InternalHeader.Reserved
    b"\x01\x00"  # InternalHeader.Flags
    + 12 * UNKNOWN  # SessionHeader: sequence numbers and flags
    + b"\x40\x00"  # WindowSize
    + 2 * UNKNOWN  # Reserved
)


@pytest.mark.parametrize(
    ("packet", "columns"),
    [
        (
            ESTABLISH_CONNECTION,
            {
                "packet_type": "establish_connection",
                "packet_size": 572,
                "operating_system": 0x0310,
                "operating_system_reserved": 0x10,
                "sent_without_ping": True,
                "server_class": True,
                "guaranteed_qos": False,
            },
        ),
        (
            CONNECTION_PARAMETERS,
            {
                "packet_type": "connection_parameters",
                "packet_size": 32,
                "recoverable_ack_timeout_ms": 1496,
                "ack_timeout_ms": 120_000,
                "window_size": 64,
            },
        ),
        (
            USER_MESSAGE,
            {
                "packet_type": "user_message",
                "packet_size": 2224,
                "user_flags": 0x00281C00,
                "destination_queue_type": 7,
                "destination_queue": "DIRECT=OS:a04bm02\\q",
                "has_security_header": True,
                "has_message_properties": True,
                "sender_id_type": 1,
                "security_data_announced": False,
                "sender_id_size": 28,
                "body_encrypted": False,
                "body_type_name": "VT_BSTR",
                "body_size": 2000,
                "allocation_body_size": 2000,
                "encryption_algorithm": 0x6801,
                "ack_flags": 0x0F,
                "body_offset": 222,
            },
        ),
        (
            SESSION_ACK,
            {
                "packet_type": "session_ack",
                "packet_size": 36,
                "has_session_header": True,
                "internal_type": 1,
                "window_size": 64,
            },
        ),
    ],
)
def test_a_published_frame_decodes_to_the_values_in_its_bytes(packet: bytes, columns: dict[str, object]) -> None:
    row = decode_packet(packet, None, len(packet))
    assert isinstance(row, dict), row
    assert {name: row[name] for name in columns} == columns


def test_the_reserved_byte_of_the_published_frames_does_not_matter() -> None:
    rows = [
        decode_packet(SESSION_ACK[:1] + bytes([byte]) + SESSION_ACK[2:], None, 36) for byte in (0x00, 0x5A, 0xC0, 0xCD)
    ]
    assert rows == rows[:1] * 4


def test_the_headers_of_the_published_message_begin_where_the_document_says() -> None:
    lines = annotate(USER_MESSAGE).lines
    begins = {line.header.name: line.offset for line in reversed(lines) if line.header}
    assert begins["SecurityHeader"] == 92
    assert begins["MessagePropertiesHeader"] == 136
    assert {line.name: line.offset for line in lines}["MessageBody"] == 222


def test_the_published_pings_are_pings() -> None:
    assert annotate(PING).packet_type == "ping"
