"""The worked packets, one field to a line, in both directions, and the layouts that `schemas.wire` gives."""

import struct
from uuid import UUID

import numpy as np
import pytest
from worked_examples import EXAMPLES

from schemas import wire
from schemas.wire import QueueType
from udfs import build, headers

SENDER = UUID("11223344-5566-7788-99aa-bbccddeeff00")
RECEIVER = UUID("a0a1a2a3-b0b1-c0c1-d0d1-d2d3d4d5d6d7")
SEQUENCE = 0x657A5E8000000003
SID = b"\x01\x05\0\0\0\0\0\x05\x15\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\xe8\x03\0\0"

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
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_builders_rebuild_the_worked_packets_byte_for_byte(example: str) -> None:
    assert BUILT[example].hex(" ") == EXAMPLES[example].hex(" ")


@pytest.mark.parametrize("header", wire.HEADERS, ids=lambda header: header.name)
def test_dpkt_class_and_dtype_have_the_declared_layout(header: wire.Header) -> None:
    packet = headers.packet_class(header)
    dtype = headers.dtype(header)
    assert packet.__hdr_len__ == dtype.itemsize == header.size
    data = bytes(range(256)) * 3
    parsed = packet(data[: header.size])
    row = np.frombuffer(data, dtype, count=1)[0]
    for field in header.fixed:
        value = getattr(parsed, field.attribute)
        assert value == (row[field.attribute].tobytes() if isinstance(value, bytes) else row[field.attribute])
        for bits in field.bits:
            assert getattr(parsed, bits.column) == (value & bits.mask) >> bits.shift
    assert bytes(parsed) == data[: header.size]


@pytest.mark.parametrize("header", wire.HEADERS, ids=lambda header: header.name)
def test_names_and_bits_of_a_header_do_not_collide(header: wire.Header) -> None:
    columns = [field.column for field in header.fields if field.column]
    columns += [bits.column for field in header.fields for bits in field.bits]
    assert len(columns) == len(set(columns))
    for field in header.fields:
        masks = [bits.mask for bits in field.bits]
        assert sum(masks) == int(np.bitwise_or.reduce(masks or [0]))
        assert sum(masks) < 1 << 8 * struct.calcsize(f"<{field.code}")


def test_the_direct_form_of_an_order_ack_has_260_bytes() -> None:
    ack = build.order_ack(
        RECEIVER,
        sender=SENDER,
        message_id=1,
        sequence_id=SEQUENCE,
        number=2,
        direct_name="TCP:10.0.0.5\\PRIVATE$\\order_queue$",
    )
    assert len(ack) == 260
    assert ack[60:64] == bytes.fromhex("001c2000")
    assert ack[32:48] == bytes(16)


def test_a_multi_queue_format_header_cannot_name_a_queue_without_a_format_type() -> None:
    with pytest.raises(ValueError, match="cannot name"):
        bytes(build.MultiQueueFormat(destination=(build.private(1),)))
