"""Worked packets of every kind, one field to a line; padding bytes are arbitrary, here CD. Acknowledgments are built.

D, E and F have the values of the frames in [MS-MQQB] 4.1.8, 4.1.3 and 4.1.5; PUBLISHED is the frame in 4.1.7.
"""

from uuid import UUID

from jobs.simulator import build

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


EXAMPLES = {
    "A": EXAMPLE_A,
    "B": EXAMPLE_B,
    "C": build.order_ack(
        RECEIVER,
        sender=SENDER,
        message_id=0x777,
        sequence_id=SEQUENCE,
        number=2,
        sent_time=build.NEW_YEAR_2024 + 1,
    ),
    "D": EXAMPLE_D,
    "E": EXAMPLE_E,
    "F": EXAMPLE_F,
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
