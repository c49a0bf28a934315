"""Worked packets of every kind, built; and PUBLISHED, the frame in [MS-MQQB] 4.1.7, one field to a line.

B has every optional header. D, E and F have the values of the frames in [MS-MQQB] 4.1.8, 4.1.3 and 4.1.5.
"""

from uuid import UUID

from jobs.simulator import build
from schemas.wire import QueueType

SENDER = UUID("11223344-5566-7788-99aa-bbccddeeff00")
RECEIVER = UUID("a0a1a2a3-b0b1-c0c1-d0d1-d2d3d4d5d6d7")
SEQUENCE = 0x657A5E8000000003
SID = b"\x01\x05\0\0\0\0\0\x05\x15\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\xe8\x03\0\0"

# Its annotations are wrong in places, and the bytes count. CD: bytes that the document omits.
PUBLISHED = (
    b"\x10\xcd\x03\x00"  # BaseHeader.Flags
    b"LIOR"  # BaseHeader.Signature
    b"\xb0\x08\x00\x00"  # BaseHeader.PacketSize
    b"\xff\xff\xff\xff"  # BaseHeader.TimeToReachQueue
    + 16 * b"\xcd"  # SourceQueueManager
    + 16 * b"\x00"  # QueueManagerAddress: a direct format name
    + b"\xff\xff\xff\xff"  # TimeToBeReceived
    b"\x4c\x49\x4f\x52"  # SentTime
    + 4
    * b"\xcd"  # MessageID
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
    * b"\xcd"  # SecurityID: sub-authorities
    + b"\x0f"  # MessagePropertiesHeader.Flags, annotated as none
    b"\x0f"  # LabelLength
    b"\x00\x00"  # MessageClass
    + 20 * b"\xcd"  # CorrelationID
    + b"\x08\x00\x00\x00"  # BodyType
    + 4 * b"\xcd"  # ApplicationTag
    + b"\xd0\x07\x00\x00"  # MessageSize
    b"\xd0\x07\x00\x00"  # AllocationBodySize, annotated as 20
    b"\x00\x00\x00\x00"  # PrivacyLevel
    b"\x04\x80\x00\x00"  # HashAlgorithm
    b"\x01\x68\x00\x00"  # EncryptionAlgorithm, annotated as 0x6601
    b"\x00\x00\x00\x00"  # ExtensionSize
    + 30 * b"\xcd"  # Label
    + 1000 * b"\x61\x00"  # MessageBody
    + 2 * b"\xcd"  # padding, annotated as one byte
)


EXAMPLES = {
    "A": build.user_message(
        SENDER,
        message_id=0x1001,
        destination=build.direct("OS:srv1\\private$\\tx"),
        sequence=(SEQUENCE, 2, 1),
        transaction_id=5,
        time_to_reach_queue=345_600,
        label="Hi",
        body=b"hello",
    ),
    "B": build.user_message(
        SENDER,
        message_id=0x1002,
        destination=build.private(10),
        queue_manager_address=RECEIVER,
        admin_queue=build.private(11, on=QueueType.PRIVATE_ON_SOURCE),
        response_queue=build.private_on(UUID("0f0e0d0c-0b0a-0908-0706-050403020100"), 12),
        connector_type=UUID("c0ffee00-0001-0002-0003-000000000004"),
        sequence=(SEQUENCE - 2, 1, 0),
        last=False,
        final_ack_required=True,
        transaction_id=0xABCDE,
        connector_qm_guid=UUID("deadbeef-0001-0002-0304-05060708090a"),
        hop_count=1,
        negative_source_journal=True,
        positive_source_journal=True,
        label="A",
        body=build.utf16("ok"),
        ack_flags=5,
        correlation_id=build.message_identifier(SENDER, 7),
        body_type=8,
        application_tag=0x11,
        extension=b"\xe1\xe2\xe3",
        security=build.Security(SID, b"", bytes(range(0x10, 0x1A)), b"01234", b"\1\0\0\0" + build.utf16("P1"), 0x81),
        debug_queue=UUID("00112233-4455-6677-8899-aabbccddeeff"),
        tracing=True,
        soap=("h", "b"),
        multi_queue_format=build.MultiQueueFormat(
            (build.private_on(RECEIVER, 10), build.direct("OS:a\\b")),
            (build.public(UUID("76543210-fedc-ba98-7654-3210fedcba98")),),
        ),
        session=build.session_header(
            ack_sequence_number=4,
            recoverable_msg_ack_seq_number=1,
            recoverable_msg_ack_flags=1,
            user_msg_sequence_number=9,
            recoverable_msg_seq_number=9,
        ),
    ),
    "C": build.order_ack(
        RECEIVER,
        sender=SENDER,
        message_id=0x777,
        sequence_id=SEQUENCE,
        number=2,
        sent_time=build.NEW_YEAR_2024 + 1,
    ),
    "D": build.session_ack(
        ack_sequence_number=5,
        recoverable_msg_ack_seq_number=1,
        recoverable_msg_ack_flags=0x0B,
        user_msg_sequence_number=2,
    ),
    "E": build.establish_connection(SENDER, time_stamp_ms=0x1DDECA4E),
    "F": build.connection_parameters(recoverable_ack_timeout_ms=1496, ack_timeout_ms=120_000),
    "G": build.final_ack(  # the message was purged
        RECEIVER,
        sender=SENDER,
        message_id=0x778,
        sequence_id=SEQUENCE,
        number=2,
        previous=1,
        acknowledged_message_id=0x1001,
        message_class=0xC001,
        direct_name="TCP:10.0.0.5\\PRIVATE$\\order_queue$",
        sent_time=build.NEW_YEAR_2024 + 1,
    ),
}
