"""Worked packets of every kind, assembled by hand, one field to a line. Padding bytes are arbitrary, here CD.

D, E and F have the values of the frames in [MS-MQQB] 4.1.8, 4.1.3 and 4.1.5; PUBLISHED is the frame in 4.1.7.
"""

from uuid import UUID

from jobs.simulator import build
from schemas.wire import QueueType

SENDER = UUID("11223344-5566-7788-99aa-bbccddeeff00")
RECEIVER = UUID("a0a1a2a3-b0b1-c0c1-d0d1-d2d3d4d5d6d7")
SEQUENCE = 0x657A5E8000000003
SID = b"\x01\x05\0\0\0\0\0\x05\x15\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\xe8\x03\0\0"

# A transactional message to a direct format name.
EXAMPLE_A = (
    b"\x10"  # BaseHeader.VersionNumber
    b"\x00"  # BaseHeader.Reserved
    b"\x00\x00"  # BaseHeader.Flags
    b"\x4c\x49\x4f\x52"  # BaseHeader.Signature
    b"\xc4\x00\x00\x00"  # BaseHeader.PacketSize
    b"\x00\x46\x05\x00"  # BaseHeader.TimeToReachQueue
    b"\x44\x33\x22\x11\x66\x55\x88\x77\x99\xaa\xbb\xcc\xdd\xee\xff\x00"  # UserHeader.SourceQueueManager
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"  # UserHeader.QueueManagerAddress
    b"\xff\xff\xff\xff"  # TimeToBeReceived
    b"\x80\x00\x92\x65"  # SentTime
    b"\x01\x10\x00\x00"  # MessageID
    b"\x20\x1c\x30\x00"  # UserHeader.Flags
    b"\x28\x00"  # DestinationQueue.Count
    b"\x4f\x00\x53\x00\x3a\x00\x73\x00\x72\x00\x76\x00\x31\x00\x5c\x00\x70\x00\x72\x00"  # DirectFormatName
    b"\x69\x00\x76\x00\x61\x00\x74\x00\x65\x00\x24\x00\x5c\x00\x74\x00\x78\x00\x00\x00"
    b"\xcd\xcd"  # DestinationQueue padding
    b"\x5c\x00\x00\x00"  # TransactionHeader.Flags
    b"\x03\x00\x00\x00"  # TxSequenceID.Ordinal
    b"\x80\x5e\x7a\x65"  # TxSequenceID.TimeStamp
    b"\x02\x00\x00\x00"  # TxSequenceNumber
    b"\x01\x00\x00\x00"  # PreviousTxSequenceNumber
    b"\x00"  # MessagePropertiesHeader.Flags
    b"\x03"  # LabelLength
    b"\x00\x00"  # MessageClass
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"  # CorrelationID
    b"\x00\x00\x00\x00"  # BodyType
    b"\x00\x00\x00\x00"  # ApplicationTag
    b"\x05\x00\x00\x00"  # MessageSize
    b"\x05\x00\x00\x00"  # AllocationBodySize
    b"\x00\x00\x00\x00"  # PrivacyLevel
    b"\x0e\x80\x00\x00"  # HashAlgorithm
    b"\x10\x66\x00\x00"  # EncryptionAlgorithm
    b"\x00\x00\x00\x00"  # ExtensionSize
    b"\x48\x00\x69\x00\x00\x00"  # Label
    b"\x68\x65\x6c\x6c\x6f"  # MessageBody
    b"\xcd"  # MessagePropertiesHeader padding
)
EXAMPLE_B = (
    b"\x10"  # BaseHeader.VersionNumber
    b"\x00"  # BaseHeader.Reserved
    b"\x30\x01"  # BaseHeader.Flags
    b"\x4c\x49\x4f\x52"  # BaseHeader.Signature
    b"\xb8\x01\x00\x00"  # BaseHeader.PacketSize
    b"\x00\x46\x05\x00"  # BaseHeader.TimeToReachQueue
    b"\x44\x33\x22\x11\x66\x55\x88\x77\x99\xaa\xbb\xcc\xdd\xee\xff\x00"  # UserHeader.SourceQueueManager
    b"\xa3\xa2\xa1\xa0\xb1\xb0\xc1\xc0\xd0\xd1\xd2\xd3\xd4\xd5\xd6\xd7"  # UserHeader.QueueManagerAddress
    b"\xff\xff\xff\xff"  # TimeToBeReceived
    b"\x80\x00\x92\x65"  # SentTime
    b"\x02\x10\x00\x00"  # MessageID
    b"\x21\x4f\xfe\x10"  # UserHeader.Flags
    b"\x0a\x00\x00\x00"  # DestinationQueue.PrivateQueueIdentifier
    b"\x0b\x00\x00\x00"  # AdminQueue.PrivateQueueIdentifier
    b"\x0c\x0d\x0e\x0f\x0a\x0b\x08\x09\x07\x06\x05\x04\x03\x02\x01\x00"  # ResponseQueue.SourceQueueManager
    b"\x0c\x00\x00\x00"  # ResponseQueue.PrivateQueueIdentifier
    b"\x00\xee\xff\xc0\x01\x00\x02\x00\x00\x03\x00\x00\x00\x00\x00\x04"  # ConnectorType
    b"\xe7\xcd\xab\x00"  # TransactionHeader.Flags
    b"\x01\x00\x00\x00"  # TxSequenceID.Ordinal
    b"\x80\x5e\x7a\x65"  # TxSequenceID.TimeStamp
    b"\x01\x00\x00\x00"  # TxSequenceNumber
    b"\x00\x00\x00\x00"  # PreviousTxSequenceNumber
    b"\xef\xbe\xad\xde\x01\x00\x02\x00\x03\x04\x05\x06\x07\x08\x09\x0a"  # ConnectorQMGuid
    b"\x81\x00"  # SecurityHeader.Flags
    b"\x1c\x00"  # SenderIdSize
    b"\x00\x00"  # EncryptionKeySize
    b"\x0a\x00"  # SignatureSize
    b"\x05\x00\x00\x00"  # SenderCertSize
    b"\x0a\x00\x00\x00"  # ProviderInfoSize
    b"\x01\x05\x00\x00\x00\x00\x00\x05\x15\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00"  # SecurityID
    b"\x03\x00\x00\x00\xe8\x03\x00\x00"
    b"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19"  # SecurityData.Signature
    b"\xcd\xcd"  # SecurityData.Signature padding
    b"\x30\x31\x32\x33\x34"  # SecurityData.SenderCert
    b"\xcd\xcd\xcd"  # SecurityData.SenderCert padding
    b"\x01\x00\x00\x00"  # SecurityData.ProviderInfo.ProviderType
    b"\x50\x00\x31\x00\x00\x00"  # SecurityData.ProviderInfo.ProviderName
    b"\xcd\xcd"  # SecurityData.ProviderInfo padding
    b"\x05"  # MessagePropertiesHeader.Flags
    b"\x02"  # LabelLength
    b"\x00\x00"  # MessageClass
    b"\x44\x33\x22\x11\x66\x55\x88\x77\x99\xaa\xbb\xcc\xdd\xee\xff\x00\x07\x00\x00\x00"  # CorrelationID
    b"\x08\x00\x00\x00"  # BodyType
    b"\x11\x00\x00\x00"  # ApplicationTag
    b"\x06\x00\x00\x00"  # MessageSize
    b"\x06\x00\x00\x00"  # AllocationBodySize
    b"\x00\x00\x00\x00"  # PrivacyLevel
    b"\x0e\x80\x00\x00"  # HashAlgorithm
    b"\x10\x66\x00\x00"  # EncryptionAlgorithm
    b"\x03\x00\x00\x00"  # ExtensionSize
    b"\x41\x00\x00\x00"  # Label
    b"\xe1\xe2\xe3"  # ExtensionData
    b"\x6f\x00\x6b\x00\x00\x00"  # MessageBody
    b"\xcd\xcd\xcd"  # MessagePropertiesHeader padding
    b"\x01\x00"  # DebugHeader.Flags
    b"\x00\x00"  # DebugHeader.Reserved
    b"\x33\x22\x11\x00\x55\x44\x77\x66\x88\x99\xaa\xbb\xcc\xdd\xee\xff"  # DebugHeader.QueueIdentifier
    b"\x20\x03"  # SoapHeader.HeaderSectionID
    b"\x00\x00"  # SoapHeader.Reserved
    b"\x02\x00\x00\x00"  # SoapHeader.HeaderDataLength
    b"\x68\x00\x00\x00"  # SoapHeader.Header
    b"\x84\x03"  # SoapHeader.BodySectionID
    b"\x00\x00"  # SoapHeader.Reserved1
    b"\x02\x00\x00\x00"  # SoapHeader.BodyDataLength
    b"\x62\x00\x00\x00"  # SoapHeader.Body
    b"\x34\x00\x00\x00"  # Destination.HeaderSize
    b"\x64\x00"  # Destination.HeaderID
    b"\x00\x00"  # Destination.Reserved
    b"\x02\x00\x00\x00"  # Destination.ElementCount
    b"\x02\x00"  # element 1 FormatType
    b"\xcd\xcd"  # element 1 alignment of the GUID
    b"\xa3\xa2\xa1\xa0\xb1\xb0\xc1\xc0\xd0\xd1\xd2\xd3\xd4\xd5\xd6\xd7"  # element 1 SourceQueueManager
    b"\x0a\x00\x00\x00"  # element 1 PrivateQueueIdentifier
    b"\x03\x00"  # element 2 FormatType
    b"\x4f\x00\x53\x00\x3a\x00\x61\x00\x5c\x00\x62\x00\x00\x00"  # element 2 DirectFormatName
    b"\x20\x00\x00\x00"  # Administration.HeaderSize
    b"\xc8\x00"  # Administration.HeaderID
    b"\x00\x00"  # Administration.Reserved
    b"\x01\x00\x00\x00"  # Administration.ElementCount
    b"\x01\x00"  # element 1 FormatType
    b"\xcd\xcd"  # element 1 alignment of the GUID
    b"\x10\x32\x54\x76\xdc\xfe\x98\xba\x76\x54\x32\x10\xfe\xdc\xba\x98"  # element 1 PublicQueueIdentifier
    b"\x0c\x00\x00\x00"  # Response.HeaderSize
    b"\x2c\x01"  # Response.HeaderID
    b"\x00\x00"  # Response.Reserved
    b"\x00\x00\x00\x00"  # Response.ElementCount
    b"\x5e\x01"  # Signature.ID
    b"\x00\x00"  # Signature.Reserved
    b"\x00\x00\x00\x00"  # Signature.Size
    b"\x04\x00"  # SessionHeader.AckSequenceNumber
    b"\x01\x00"  # SessionHeader.RecoverableMsgAckSeqNumber
    b"\x01\x00\x00\x00"  # SessionHeader.RecoverableMsgAckFlags
    b"\x09\x00"  # SessionHeader.UserMsgSequenceNumber
    b"\x09\x00"  # SessionHeader.RecoverableMsgSeqNumber
    b"\x40\x00"  # SessionHeader.WindowSize
    b"\x00\x00"  # SessionHeader.Reserved
)
EXAMPLE_C = (
    b"\x10"  # BaseHeader.VersionNumber
    b"\x00"  # BaseHeader.Reserved
    b"\x00\x00"  # BaseHeader.Flags
    b"\x4c\x49\x4f\x52"  # BaseHeader.Signature
    b"\xc0\x00\x00\x00"  # BaseHeader.PacketSize
    b"\xff\xff\xff\xff"  # BaseHeader.TimeToReachQueue
    b"\xa3\xa2\xa1\xa0\xb1\xb0\xc1\xc0\xd0\xd1\xd2\xd3\xd4\xd5\xd6\xd7"  # UserHeader.SourceQueueManager
    b"\x44\x33\x22\x11\x66\x55\x88\x77\x99\xaa\xbb\xcc\xdd\xee\xff\x00"  # UserHeader.QueueManagerAddress
    b"\xff\xff\xff\xff"  # TimeToBeReceived
    b"\x81\x00\x92\x65"  # SentTime
    b"\x77\x07\x00\x00"  # MessageID
    b"\x00\x0c\x20\x00"  # UserHeader.Flags
    b"\x04\x00\x00\x00"  # DestinationQueue.PrivateQueueIdentifier
    b"\x00"  # MessagePropertiesHeader.Flags
    b"\x10"  # LabelLength
    b"\xff\x00"  # MessageClass
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"  # CorrelationID
    b"\x00\x00\x00\x00"  # BodyType
    b"\x00\x00\x00\x00"  # ApplicationTag
    b"\x24\x00\x00\x00"  # MessageSize
    b"\x24\x00\x00\x00"  # AllocationBodySize
    b"\x00\x00\x00\x00"  # PrivacyLevel
    b"\x0e\x80\x00\x00"  # HashAlgorithm
    b"\x10\x66\x00\x00"  # EncryptionAlgorithm
    b"\x00\x00\x00\x00"  # ExtensionSize
    b"\x51\x00\x4d\x00\x20\x00\x4f\x00\x72\x00\x64\x00\x65\x00\x72\x00\x69\x00\x6e\x00"  # Label
    b"\x67\x00\x20\x00\x41\x00\x63\x00\x6b\x00\x00\x00"
    b"\x03\x00\x00\x00"  # OrderAck Body TxSequenceID.Ordinal
    b"\x80\x5e\x7a\x65"  # OrderAck Body TxSequenceID.TimeStamp
    b"\x02\x00\x00\x00"  # OrderAck Body TxSequenceNumber
    b"\x01\x00\x00\x00"  # OrderAck Body TxPreviousSequenceNumber
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"  # Reserved
)
EXAMPLE_D = (
    b"\x10"  # BaseHeader.VersionNumber
    b"\x00"  # BaseHeader.Reserved
    b"\x1b\x00"  # BaseHeader.Flags
    b"\x4c\x49\x4f\x52"  # BaseHeader.Signature
    b"\x24\x00\x00\x00"  # BaseHeader.PacketSize
    b"\xff\xff\xff\xff"  # BaseHeader.TimeToReachQueue
    b"\x00\x00"  # InternalHeader.Reserved
    b"\x01\x00"  # InternalHeader.Flags
    b"\x05\x00"  # SessionHeader.AckSequenceNumber
    b"\x01\x00"  # SessionHeader.RecoverableMsgAckSeqNumber
    b"\x0b\x00\x00\x00"  # SessionHeader.RecoverableMsgAckFlags
    b"\x02\x00"  # SessionHeader.UserMsgSequenceNumber
    b"\x00\x00"  # SessionHeader.RecoverableMsgSeqNumber
    b"\x40\x00"  # SessionHeader.WindowSize
    b"\x00\x00"  # SessionHeader.Reserved
)
EXAMPLE_E = (
    b"\x10"  # BaseHeader.VersionNumber
    b"\x00"  # BaseHeader.Reserved
    b"\x0b\x00"  # BaseHeader.Flags
    b"\x4c\x49\x4f\x52"  # BaseHeader.Signature
    b"\x3c\x02\x00\x00"  # BaseHeader.PacketSize
    b"\xff\xff\xff\xff"  # BaseHeader.TimeToReachQueue
    b"\x00\x00"  # InternalHeader.Reserved
    b"\x02\x00"  # InternalHeader.Flags
    b"\x44\x33\x22\x11\x66\x55\x88\x77\x99\xaa\xbb\xcc\xdd\xee\xff\x00"  # ClientGuid
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"  # ServerGuid
    b"\x4e\xca\xde\x1d"  # TimeStamp
    b"\x10\x03"  # OperatingSystem
    b"\x00\x00" + b"\x5a" * 512  # Reserved  # Padding
)

# A ConnectionParameters.
EXAMPLE_F = (
    b"\x10"  # BaseHeader.VersionNumber
    b"\x00"  # BaseHeader.Reserved
    b"\x0b\x00"  # BaseHeader.Flags
    b"\x4c\x49\x4f\x52"  # BaseHeader.Signature
    b"\x20\x00\x00\x00"  # BaseHeader.PacketSize
    b"\xff\xff\xff\xff"  # BaseHeader.TimeToReachQueue
    b"\x00\x00"  # InternalHeader.Reserved
    b"\x03\x00"  # InternalHeader.Flags
    b"\xd8\x05\x00\x00"  # ConnectionParametersHeader.RecoverableAckTimeout
    b"\xc0\xd4\x01\x00"  # ConnectionParametersHeader.AckTimeout
    b"\x00\x00"  # ConnectionParametersHeader.Reserved
    b"\x40\x00"  # ConnectionParametersHeader.WindowSize
)
# A FinalAck by direct format name: the message was purged.
EXAMPLE_G = (
    b"\x10"  # BaseHeader.VersionNumber
    b"\x00"  # BaseHeader.Reserved
    b"\x00\x00"  # BaseHeader.Flags
    b"\x4c\x49\x4f\x52"  # BaseHeader.Signature
    b"\x04\x01\x00\x00"  # BaseHeader.PacketSize
    b"\xff\xff\xff\xff"  # BaseHeader.TimeToReachQueue
    b"\xa3\xa2\xa1\xa0\xb1\xb0\xc1\xc0\xd0\xd1\xd2\xd3\xd4\xd5\xd6\xd7"  # UserHeader.SourceQueueManager
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"  # UserHeader.QueueManagerAddress
    b"\xff\xff\xff\xff"  # UserHeader.TimeToBeReceived
    b"\x81\x00\x92\x65"  # UserHeader.SentTime
    b"\x78\x07\x00\x00"  # UserHeader.MessageID
    b"\x20\x1c\x20\x00"  # UserHeader.Flags
    b"\x46\x00"  # DestinationQueue.Count
    b"\x54\x00\x43\x00\x50\x00\x3a\x00\x31\x00\x30\x00\x2e\x00\x30\x00\x2e\x00\x30\x00"  # DirectFormatName
    b"\x2e\x00\x35\x00\x5c\x00\x50\x00\x52\x00\x49\x00\x56\x00\x41\x00\x54\x00\x45\x00"
    b"\x24\x00\x5c\x00\x6f\x00\x72\x00\x64\x00\x65\x00\x72\x00\x5f\x00\x71\x00\x75\x00"
    b"\x65\x00\x75\x00\x65\x00\x24\x00\x00\x00"
    b"\x00"  # MessagePropertiesHeader.Flags
    b"\x10"  # MessagePropertiesHeader.LabelLength
    b"\x01\xc0"  # MessagePropertiesHeader.MessageClass
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"  # CorrelationID
    b"\x00\x00\x00\x00"  # MessagePropertiesHeader.BodyType
    b"\x00\x00\x00\x00"  # MessagePropertiesHeader.ApplicationTag
    b"\x24\x00\x00\x00"  # MessagePropertiesHeader.MessageSize
    b"\x24\x00\x00\x00"  # MessagePropertiesHeader.AllocationBodySize
    b"\x00\x00\x00\x00"  # MessagePropertiesHeader.PrivacyLevel
    b"\x0e\x80\x00\x00"  # MessagePropertiesHeader.HashAlgorithm
    b"\x10\x66\x00\x00"  # MessagePropertiesHeader.EncryptionAlgorithm
    b"\x00\x00\x00\x00"  # MessagePropertiesHeader.ExtensionSize
    b"\x51\x00\x4d\x00\x20\x00\x4f\x00\x72\x00\x64\x00\x65\x00\x72\x00\x69\x00\x6e\x00"  # Label
    b"\x67\x00\x20\x00\x41\x00\x63\x00\x6b\x00\x00\x00"
    b"\x03\x00\x00\x00"  # FinalAckBody.TxSequenceID.Ordinal
    b"\x80\x5e\x7a\x65"  # FinalAckBody.TxSequenceID.TimeStamp
    b"\x02\x00\x00\x00"  # FinalAckBody.TxSequenceNumber
    b"\x01\x00\x00\x00"  # FinalAckBody.TxPreviousSequenceNumber
    b"\x44\x33\x22\x11\x66\x55\x88\x77\x99\xaa\xbb\xcc\xdd\xee\xff\x00"  # FinalAckBody.SourceGUID
    b"\x01\x10\x00\x00"  # FinalAckBody.MessageID
)

# [MS-MQQB] 4.1.7. Its annotations are wrong in places, and the bytes count. CD: bytes that the document omits.
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


EXAMPLES = dict(
    zip("ABCDEFG", (EXAMPLE_A, EXAMPLE_B, EXAMPLE_C, EXAMPLE_D, EXAMPLE_E, EXAMPLE_F, EXAMPLE_G), strict=True)
)

BUILT = {
    "A": build.user_message(
        SENDER,
        message_id=0x1001,
        destination=build.direct("OS:srv1\\private$\\tx"),
        sequence=(SEQUENCE, 2, 1),
        transaction_id=5,
        label="Hi",
        body=b"hello",
    ),
    "B": build.user_message(
        SENDER,
        message_id=0x1002,
        queue_manager_address=RECEIVER,
        destination=build.private(0xA),
        admin_queue=build.private(0xB, on=QueueType.PRIVATE_ON_SOURCE),
        response_queue=build.private_on(UUID("0f0e0d0c-0b0a-0908-0706-050403020100"), 0xC),
        connector_type=UUID("c0ffee00-0001-0002-0003-000000000004"),
        sequence=(0x657A5E8000000001, 1, 0),
        last=False,
        final_ack_required=True,
        transaction_id=0xABCDE,
        connector_qm_guid=UUID("deadbeef-0001-0002-0304-05060708090a"),
        hop_count=1,
        negative_source_journal=True,
        positive_source_journal=True,
        label="A",
        body="ok\0".encode("utf-16-le"),
        ack_flags=5,
        correlation_id=build.message_identifier(SENDER, 7),
        body_type=8,
        application_tag=0x11,
        extension=b"\xe1\xe2\xe3",
        security=build.Security(
            sender_id=SID,
            signature=bytes(range(0x10, 0x1A)),
            sender_cert=b"01234",
            provider_info=b"\x01\0\0\0P\x001\0\0\0",
            flags=0x0081,
        ),
        debug_queue=UUID("00112233-4455-6677-8899-aabbccddeeff"),
        tracing=True,
        soap=("h", "b"),
        multi_queue_format=build.MultiQueueFormat(
            destination=(build.private_on(RECEIVER, 0xA), build.direct("OS:a\\b")),
            admin=(build.public(UUID("76543210-fedc-ba98-7654-3210fedcba98")),),
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
    "G": build.final_ack(
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
