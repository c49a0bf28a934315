"""Parses and builds the headers of the worked packets, and checks the layouts derived from `schemas.wire`."""

import struct

import numpy as np
import pytest
from worked_examples import BUILT, EXAMPLES, RECEIVER, SENDER, SEQUENCE

from jobs.simulator import build
from schemas import wire
from udfs.msmq import header_types


@pytest.mark.parametrize("example", EXAMPLES)
def test_builders_rebuild_the_worked_packets_byte_for_byte(example: str) -> None:
    assert BUILT[example].hex(" ") == EXAMPLES[example].hex(" ")


@pytest.mark.parametrize("header", wire.HEADERS, ids=lambda header: header.name)
def test_dpkt_class_and_dtype_have_the_declared_layout(header: wire.Header) -> None:
    packet = header_types.packet_class(header)
    dtype = header_types.dtype(header)
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
