"""Decodes the worked packets and damaged ones, and compares the batch decoder with the one-packet decoder."""

import hmac
import pickle
import random
import struct
import zlib
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from random_packets import (
    GUIDS,
    PARTS,
    Result,
    Stored,
    any_packet,
    batch,
    damaged,
    each_alone,
    stored,
    tables,
    user_message,
)
from tiers import merge_needs
from worked_examples import EXAMPLES, PUBLISHED, RECEIVER, SENDER, SID

from jobs.engines.in_process import InProcess
from jobs.simulator import build
from schemas.ingest import PacketType
from schemas.messages import DECODED_TABLES, MESSAGES, NAME_COLUMNS, STRUCTS
from schemas.violations import Fault, Violation
from schemas.wire import QueueType
from udfs.decode.flow import quarantine_of
from udfs.decode.packets import decode_packets
from udfs.frames.derivation import to_frame
from udfs.msmq import identifiers
from udfs.msmq.batch import PacketBatch
from udfs.msmq.decode import DecodedBatch, utf16_texts
from udfs.msmq.layout import find_headers
from udfs.msmq.packet_rows import packet_columns
from udfs.msmq.pseudonyms import pseudonymize_columns
from udfs.msmq.violations import RULES

ORDER_QUEUE = "TCP:10.0.0.5\\PRIVATE$\\order_queue$"


def kept(packet: bytes) -> Stored:
    return packet, None, len(packet)


def patched(packet: bytes, offset: int, code: str, value: int) -> bytes:
    data = bytearray(packet)
    struct.pack_into(f"<{code}", data, offset, value)
    return bytes(data)


def resized(packet: bytes) -> bytes:
    """Returns the packet with PacketSize set to its length."""
    return patched(packet, 8, "I", len(packet))


def followed(packet: bytes, trailing: bytes) -> bytes:
    """Returns the packet with more bytes after its last header, before the SessionHeader that lies at PacketSize."""
    size = int.from_bytes(packet[8:12], "little")
    return patched(packet[:size] + trailing + packet[size:], 8, "I", size + len(trailing))


def agree(packets: Sequence[Stored]) -> list[Result]:
    """Returns what the packets decode to, and asserts that both decoders say so."""
    rows = tables(packets)
    assert each_alone(packets) == rows
    return rows


def agree_without_bodies(packets: Sequence[bytes]) -> list[Result]:
    """The same, and without the bodies."""
    rows = agree([kept(packet) for packet in packets])
    assert agree([stored(packet) for packet in packets]) == rows
    return rows


def decoded(packet: bytes) -> dict[str, Any]:
    (row,) = agree_without_bodies([packet])
    assert isinstance(row, dict), row
    return row


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_dropped_body_leaves_its_checksum(example: str) -> None:
    packet = EXAMPLES[example]
    raw, trailer, size = stored(packet)
    body = b"" if trailer is None else packet[len(raw) : size - len(trailer)]
    if example in (bodies := {"A": b"hello", "B": "ok\0".encode("utf-16-le")}):
        assert body == bodies[example]
    for keep_bodies in (False, True):
        whole = np.frombuffer(b"before" + packet, np.uint8), np.array([6]), np.array([len(packet)])
        checksum = packet_columns(*whole, keep_bodies=keep_bodies)["body_crc32"].to_pylist()
        assert checksum == [zlib.crc32(body) if body else None]
        keyed = packet_columns(*whole, keep_bodies=keep_bodies, hiding_key=b"key")["body_crc32"].to_pylist()
        digest = hmac.digest(b"key", zlib.crc32(body).to_bytes(4), "sha256")
        assert keyed == [zlib.crc32(digest) if body else None]


@pytest.mark.parametrize("key", [None, b"a key of the operators"])
def test_fields_of_rare_headers_are_structs_which_are_null_without_the_header(key: bytes | None) -> None:
    packets = batch([kept(packet) for packet in EXAMPLES.values()])
    flat = DecodedBatch(packets).rows(MESSAGES)
    if key:
        flat = pseudonymize_columns(flat, NAME_COLUMNS, key)
    (found,) = decode_packets(MESSAGES, key)([packets])
    assert found.schema.equals(MESSAGES.arrow)
    for row, expected in zip(found.to_pylist(), flat.to_pylist(), strict=True):
        for header in STRUCTS:
            fields = {field.name: expected.pop(field.name) for field in header.type}
            assert row.pop(header.name) == (None if all(one is None for one in fields.values()) else fields)
        assert row == expected
    for header in STRUCTS:
        assert 0 < found[header.name].null_count < len(found), header.name


@pytest.mark.parametrize("count", merge_needs([2_000], [2_000, 10_000]))
def test_damaged_packets_decode_alike_in_batch_and_alone_with_and_without_body(count: int) -> None:
    rng = random.Random(2)
    packets = [damaged(rng, any_packet(rng)) for _ in range(count)]
    rows = agree_without_bodies(packets)
    assert {row[0] for row in rows if isinstance(row, tuple)} > set(Fault) - {
        Fault.BYTES_MISSING,
        Fault.BAD_SIGNATURE,
        Fault.SIZE_MISMATCH,
        Fault.HEADER_BEYOND_PACKET,
        Fault.NO_MESSAGE_PROPERTIES,
        Fault.NAME_NOT_UTF16,
    }


def test_truncated_packets_decode_alike_in_batch_and_alone() -> None:
    rng = random.Random(3)
    cuts = []
    for _ in range(1000):
        packet = any_packet(rng)
        raw, trailer, size = stored(packet)
        cuts.append(kept(resized(packet[: rng.randrange(16, len(packet))])))
        cuts.append((packet[: rng.randrange(len(packet))], None, len(packet)))
        cuts.append((raw[: rng.randrange(len(raw) + 1)], trailer, size))
        cuts.append((raw, None if trailer is None else trailer[rng.randrange(len(trailer) + 1) :], size))
        cuts.append((rng.randbytes(rng.randrange(80)), None, rng.randrange(80)))
    agree(cuts)


@pytest.mark.parametrize(("example", "step"), merge_needs([(name, 4) for name in EXAMPLES], product(EXAMPLES, (2, 4))))
def test_every_number_at_its_extremes_is_bounded(example: str, step: int) -> None:
    packet = EXAMPLES[example]
    changed = []
    for offset in range(8, len(packet) if example != "E" else 60, step):
        rest = len(packet) - offset
        for value in (0, 1, 3, 5, rest, rest + 1, len(packet), 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF):
            data = bytearray(packet)
            data[offset : offset + 4] = value.to_bytes(4, "little")[:rest]
            changed.append(bytes(data))
    agree_without_bodies(changed)


def test_a_packet_cut_at_any_byte_is_an_error() -> None:
    for packet in EXAMPLES.values():
        cuts = [(packet[:size], None, len(packet)) for size in range(len(packet))]
        assert not any(isinstance(row, dict) for row in agree(cuts))


def test_nothing_outside_a_packet_is_read() -> None:
    rng = random.Random(4)
    packets = [damaged(rng, any_packet(rng)) for _ in range(2000)]
    sizes = np.array([len(packet) for packet in packets])
    outlines = []
    for filler in (b"\0", b"\xff"):
        gap = filler * 64
        buffer = np.frombuffer(gap + b"".join(packet + gap for packet in packets), np.uint8)
        starts = 64 + np.cumsum(sizes + 64) - sizes - 64
        outlines.append(find_headers(PacketBatch.whole(buffer, starts, sizes))[0])
    assert all((outlines[0][name] == outlines[1][name]).all() for name in outlines[0])


SOUND = EXAMPLES["A"]
UNDECODABLE: dict[str, tuple[bytes, Fault, int]] = {
    "version": (patched(SOUND, 0, "B", 0x11), Fault.BAD_SIGNATURE, 0),
    "signature byte-swapped": (patched(SOUND, 4, "I", 0x4C494F52), Fault.BAD_SIGNATURE, 0),
    "PacketSize too small": (patched(SOUND, 8, "I", 192), Fault.SIZE_MISMATCH, 8),
    "PacketSize absurd": (patched(SOUND, 8, "I", 0xFFFFFFFF), Fault.SIZE_MISMATCH, 8),
    "PacketSize 16": (resized(SOUND[:16]), Fault.HEADER_BEYOND_PACKET, 16),
    "internal type 0": (patched(EXAMPLES["D"], 18, "H", 0), Fault.UNKNOWN_INTERNAL_TYPE, 18),
    "internal type 15": (patched(EXAMPLES["D"], 18, "H", 15), Fault.UNKNOWN_INTERNAL_TYPE, 18),
    "handshake cut short": (resized(EXAMPLES["E"][:100]), Fault.HEADER_BEYOND_PACKET, 20),
    "no MessagePropertiesHeader": (patched(SOUND, 60, "I", 0x101C20), Fault.NO_MESSAGE_PROPERTIES, 60),
    "name with odd Count": (patched(SOUND, 64, "H", 0x27), Fault.NAME_ODD_LENGTH, 64),
    "name longer than the packet": (patched(SOUND, 64, "H", 0x7FFE), Fault.NAME_BEYOND_PACKET, 66),
    "name with a lone surrogate": (patched(SOUND, 66, "H", 0xD800), Fault.NAME_NOT_UTF16, 64),
    "body longer than the packet": (patched(SOUND, 0xA0, "I", 0x80000000), Fault.BODY_BEYOND_PACKET, 0x80),
    "certificate longer than the packet": (
        patched(EXAMPLES["B"], 0x98, "I", 0xFFFFFFFF),
        Fault.SECURITY_BEYOND_PACKET,
        0x90,
    ),
    "SoapHeader without its identifier": (patched(EXAMPLES["B"], 0x138, "H", 0), Fault.BAD_SECTION, 0x138),
    "multi-queue list of an unknown type": (patched(EXAMPLES["B"], 0x15C, "H", 5), Fault.UNKNOWN_FORMAT_TYPE, 0x15C),
    "multi-queue signature beyond the packet": (
        patched(EXAMPLES["B"], 0x1B4, "I", 1),
        Fault.SECTION_BEYOND_PACKET,
        0x1B0,
    ),
    "multi-queue list beyond its header": (
        patched(EXAMPLES["B"], 0x158, "I", 3),
        Fault.SECTION_BEYOND_PACKET,
        0x184,
    ),
} | {
    f"{name} {kind}": (patched(SOUND, 60, "I", 0x301C20 & ~mask | kind << shift), code, 60)
    for name, mask, shift, code, kinds in (
        ("DQ", 0x1C00, 10, Fault.ILLEGAL_DESTINATION_TYPE, (1, 2, 4, 6)),
        ("AQ", 0xE000, 13, Fault.ILLEGAL_ADMIN_TYPE, (1, 4)),
    )
    for kind in kinds
}


@pytest.mark.parametrize("case", UNDECODABLE)
def test_fault_68_an_undecodable_packet_says_why_and_where_and_leaves_its_neighbours_alone(case: str) -> None:
    packet, code, offset = UNDECODABLE[case]
    before, error, after = agree([kept(SOUND), kept(packet), stored(SOUND)])
    assert isinstance(error, tuple)
    assert error[0] == code
    assert error[1].endswith(f", at byte {offset} of the packet.")
    assert before == after == decoded(SOUND)
    assert agree([stored(packet)]) == [error]
    assert b"hello" not in stored(packet)[0]


def test_bytes_that_are_not_stored_are_an_error() -> None:
    raw, trailer, size = stored(EXAMPLES["C"])
    assert trailer is None  # acknowledgments are stored whole
    (error,) = agree([(raw[:156], b"", size)])
    assert isinstance(error, tuple)
    assert error[0] == Fault.BYTES_MISSING


def message(**changes: Any) -> bytes:
    return build.user_message(SENDER, **{"message_id": 1, "body": b"b", **changes})


V = Violation
BROKEN: tuple[tuple[bytes, tuple[Violation, ...]], ...] = (
    (message(), ()),
    (patched(message(), 2, "H", 0x1003), (V.RESERVED_BITS,)),
    (message(tracing=True), (V.TRACING_WITHOUT_DEBUG,)),
    (message(sequence=(1, 1, 0), priority=3), (V.PRIORITY_ON_TRANSACTIONAL,)),
    (message(sequence=(1, 1, 0), delivery_mode=0), (V.TRANSACTIONAL_NOT_RECOVERABLE,)),
    (message(delivery_mode=2), (V.DELIVERY_MODE_UNDEFINED,)),
    (message(hop_count=30), (V.HOP_COUNT_OUT_OF_RANGE,)),
    (message(hop_count=29), ()),
    (message(over_http=True), (V.OVER_HTTP,)),
    (message(destination=build.private(9)), (V.QUEUE_MANAGER_ADDRESS_MISSING,)),
    (message(destination=build.public(RECEIVER)), (V.QUEUE_MANAGER_ADDRESS_MISSING,)),
    (message(queue_manager_address=RECEIVER), (V.QUEUE_MANAGER_ADDRESS_NOT_NULL,)),
    (message(ack_flags=1), (V.ACK_WITHOUT_ADMIN_QUEUE,)),
    (message(admin_queue=build.direct("OS:a\\b")), (V.ADMIN_QUEUE_WITHOUT_ACK,)),
    (message(admin_queue=build.direct("OS:a\\b"), ack_flags=1), ()),
    (message(response_queue=build.SAME_AS_ADMIN), (V.RESPONSE_HOST_UNKNOWN,)),
    (message(response_queue=build.private(1, on=QueueType.PRIVATE_ON_ADMIN_HOST)), (V.RESPONSE_HOST_UNKNOWN,)),
    (message(sequence=(1, 0, 0)), (V.SEQUENCE_NUMBER_ZERO, V.PREVIOUS_NOT_BELOW_NUMBER)),
    (message(sequence=(1, 4, 4)), (V.PREVIOUS_NOT_BELOW_NUMBER,)),
    (message(sequence=(1, 0xFFFFFFFF, 0xFFFFFFFE)), ()),
    (message(security=build.Security()), (V.SECURITY_EMPTY,)),
    (message(security=build.Security(sender_id=SID, flags=0)), (V.SENDER_ID_TYPE,)),
    (message(security=build.Security(sender_id=SID, flags=3)), (V.SENDER_ID_TYPE,)),
    (message(security=build.Security(sender_id=SID, flags=0x0111)), (V.RECEIVER_BITS_SET,)),
    (message(label="x" * 250), (V.LABEL_TOO_LONG,)),
    (message(label="x" * 249), ()),
    (message(message_class=0x0200), (V.MESSAGE_CLASS_ILLEGAL,)),
    (patched(message(body=b"12345"), len(message(body=b"12345")) - 28, "I", 0), (V.ALLOCATION_BELOW_BODY,)),
    (patched(message(debug=True), len(message(debug=True)) - 4, "H", 2), (V.DEBUG_QUEUE_TYPE_UNDEFINED,)),
    (message(session=build.session_header(window_size=0)), (V.WINDOW_SIZE_ZERO,)),
    (resized(message() + b"more"), (V.TRAILING_BYTES,)),
    (message(message_class=0xFF), (V.ORDER_ACK_UNRECOGNIZED,)),
    (message(security=build.Security(sender_cert=bytes(0x10000), flags=0)), (V.SENDER_CERT_TOO_LARGE,)),
)


def test_a_broken_rule_is_named() -> None:
    rows = agree_without_bodies([packet for packet, _ in BROKEN])
    for row, (_, violations) in zip(rows, BROKEN, strict=True):
        assert isinstance(row, dict)
        assert row["violations"] == [violation.value for violation in violations]
    shown = {violation for _, violations in BROKEN for violation in violations}
    assert set(Violation) == shown | {V.ALLOCATION_NOT_SENT} == RULES.keys() | {V.TRAILING_BYTES, V.ALLOCATION_NOT_SENT}


EXTENSION_HEADER = (
    b"\x0c\x00\x00\x00"  # HeaderSize
    b"\x00\x00\x00\x00"  # RemainingHeadersSize
    b"\x00"  # Flags
    b"\x00\x00\x00"  # Reserved
)
"""[MS-MQRR] 2.2.5.2 ExtensionHeader."""
TRAILING = (b"\x01", bytes(4), EXTENSION_HEADER, EXTENSION_HEADER + b"more", random.Random(5).randbytes(37))


@pytest.mark.parametrize("trailing", merge_needs(TRAILING[2:], TRAILING))
def test_bytes_after_the_last_header_are_a_violation_and_change_nothing_else(trailing: bytes) -> None:
    rng = random.Random(6)
    packets = [user_message(rng, [part for part in PARTS if rng.random() < 0.4]) for _ in range(300)]
    before = tables([kept(packet) for packet in packets])
    after = agree_without_bodies([followed(packet, trailing) for packet in packets])
    for row, other in zip(before, after, strict=True):
        assert isinstance(row, dict)
        named = {*row["violations"], V.TRAILING_BYTES.value}
        larger = {"packet_size": row["packet_size"] + len(trailing)}
        assert other == row | larger | {"violations": [violation for violation in Violation if violation in named]}


def test_damaged_packets_with_bytes_after_the_last_header_decode_alike_in_batch_and_alone() -> None:
    rng = random.Random(7)
    sizes = (4, 12, 16, rng.randrange(1, 60))
    agree_without_bodies(
        [damaged(rng, followed(any_packet(rng), rng.randbytes(rng.choice(sizes)))) for _ in range(1000)]
    )


def test_where_the_body_may_end_twice_bytes_after_the_last_header_decode_alike_in_batch_and_alone() -> None:
    body = b"\1\0\0\0" * 3  # reads as a DebugHeader too
    for packet in (message(body=body), message(body=body, debug=True), message(body=body, debug_queue=RECEIVER)):
        allocation = packet.index(struct.pack("<II", 12, 12)) + 4
        sizes = [patched(packet, allocation, "I", size) for size in range(40)]
        agree_without_bodies([followed(each, trailing) for each in sizes for trailing in TRAILING])


def test_packets_with_bytes_after_the_last_header_are_not_decoded_one_by_one() -> None:
    rng = random.Random(8)
    parts = [part for part in PARTS if part not in ("soap", "multi", "debug")]
    packets = [user_message(rng, [part for part in parts if rng.random() < 0.4]) for _ in range(300)]
    packets += [message(debug=True), message(debug_queue=RECEIVER), EXAMPLES["A"]]
    for trailing in TRAILING:
        whole = [followed(packet, trailing) for packet in packets]
        assert not DecodedBatch(batch([kept(packet) for packet in whole])).parsed
        assert not DecodedBatch(batch([stored(packet) for packet in whole])).parsed


def test_a_body_is_found_after_its_message_size_when_the_allocated_size_was_not_sent() -> None:
    packet = build.user_message(SENDER, message_id=1, label="L", body=b"12345678", debug_queue=RECEIVER)
    allocation = packet.index(struct.pack("<II", 8, 8)) + 4
    short = patched(packet, allocation, "I", 12)
    row = decoded(short)
    assert (row["debug_queue"], row["violations"]) == (str(RECEIVER), [V.ALLOCATION_NOT_SENT.value])
    sent = build.user_message(SENDER, message_id=1, body=b"12345678", allocation_body_size=12, debug_queue=RECEIVER)
    row = decoded(sent)
    assert (row["debug_queue"], row["violations"]) == (str(RECEIVER), [])


def test_the_second_half_of_a_soap_header_may_follow_without_alignment() -> None:
    header, body = build.utf16("ab"), build.utf16("c")  # 6 bytes: two of alignment when there is any
    soap = struct.pack("<HHI", 0x0320, 0, 3) + header + struct.pack("<HHI", 0x0384, 0, 2) + body
    packet = build.user_message(SENDER, message_id=1, soap=("", ""))
    row = decoded(resized(packet[:-24] + build.padded(soap)))
    assert (row["soap_header"], row["soap_body"], row["violations"]) == ("ab", "c", [])


def test_a_part_of_a_multi_queue_format_header_may_be_left_out() -> None:
    lists = build.MultiQueueFormat(response=(build.distribution_list(GUIDS[0]),), signature=b"\x64" * 0x64)
    packet = build.user_message(SENDER, message_id=1, multi_queue_format=lists)
    at = len(packet) - len(bytes(lists))
    row = decoded(resized(packet[:at] + packet[at + 12 :]))  # no destination list
    assert row["multi_destination_queues"] is None
    assert row["multi_admin_queues"] == []
    assert row["multi_response_queues"] == [f"DL={GUIDS[0]}"]
    assert row["multi_queue_signature_size"] == 100


def test_a_list_of_many_names_is_read_in_linear_time() -> None:
    lists = build.MultiQueueFormat(destination=(build.direct(""),))
    packet = build.user_message(SENDER, message_id=1, multi_queue_format=lists)
    at = packet.index(bytes(lists))
    count = 250_000
    many = packet[: at + 12] + packet[at + 12 : at + 16] * count + packet[at + 16 :]
    many = resized(patched(patched(many, at, "I", 12 + 4 * count), at + 8, "I", count))
    assert tables([kept(many)])[0]["multi_destination_queues"] == ["DIRECT="] * count


def test_a_session_header_is_found_after_packet_size_and_inside_it() -> None:
    session = build.session_header(ack_sequence_number=77)
    packet = build.user_message(SENDER, message_id=1, session=session)
    assert decoded(packet)["ack_sequence_number"] == 77
    assert decoded(resized(packet))["ack_sequence_number"] == 77
    assert decoded(patched(EXAMPLES["D"], 8, "I", 20)) == decoded(EXAMPLES["D"])


def test_a_direct_name_needs_no_terminator_and_loses_its_prefix() -> None:
    bare = build.QueueName(QueueType.DIRECT, "OS:a\\b".encode("utf-16-le"))
    for queue in (bare, build.direct("direct=OS:a\\b"), build.direct("OS:a\\b\0garbage")):
        assert decoded(message(destination=queue))["destination_queue"] == "DIRECT=OS:a\\b"


@pytest.mark.parametrize(
    ("packet_type", "changes"),
    [
        (PacketType.ORDER_ACK, {}),
        (PacketType.ORDER_ACK, {"destination": build.direct(ORDER_QUEUE.lower())}),
        (PacketType.ORDER_ACK, {"session": build.session_header()}),
        (PacketType.FINAL_ACK, {"message_class": 0x4000}),
        (PacketType.FINAL_ACK, {"message_class": 0x8005}),
        (PacketType.USER_MESSAGE, {"label": "QM Ordering Ac"}),
        (PacketType.USER_MESSAGE, {"body": bytes(35)}),
        (PacketType.USER_MESSAGE, {"destination": build.private(5)}),
        (PacketType.USER_MESSAGE, {"destination": build.direct("OS:a\\b")}),
        (PacketType.USER_MESSAGE, {"message_class": 0}),
        (PacketType.USER_MESSAGE, {"message_class": 0x0003}),
        (PacketType.ADMINISTRATION, {"message_class": 0x4000, "label": "x"}),
        (PacketType.ADMINISTRATION, {"message_class": 0x8002, "destination": build.private(5)}),
        (PacketType.ADMINISTRATION, {"message_class": 2}),
        (PacketType.ADMINISTRATION, {"message_class": 1}),
    ],
)
def test_acknowledgments_are_told_by_queue_label_class_and_size(
    packet_type: PacketType, changes: dict[str, Any]
) -> None:
    arguments: dict[str, Any] = {
        "message_id": 1,
        "destination": build.private(4),
        "queue_manager_address": SENDER,
        "label": "QM Ordering Ack",
        "body": bytes(36),
        "message_class": 0xFF,
    } | changes
    assert decoded(build.user_message(RECEIVER, **arguments))["packet_type"] is packet_type


def test_the_first_bytes_of_a_packet_that_cannot_be_decoded_are_kept() -> None:
    packets = to_frame(pa.Table.from_batches([batch([kept(b"12345")])])).with_columns(packet_type=pl.lit("unknown"))
    (found,) = quarantine_of(InProcess(), packets, 3).to_dicts()
    named = {"stage": "decode", "frame_number": 0, "stream_offset": 0, "length": 5, "raw": b"123"}
    assert found | named == found
    assert all((found["reason"], found["detail"]))


def test_a_worker_with_a_copy_of_the_table_finds_the_rows() -> None:
    both = DecodedBatch(batch([kept(packet) for packet in EXAMPLES.values()]))
    for table in DECODED_TABLES:
        assert both.rows(pickle.loads(pickle.dumps(table))).equals(both.rows(table))  # noqa: S301 - our own


@pytest.mark.parametrize(
    "texts", [["größe", "€uro", "\uffff", ""], ["a\0b", "\0"], ["\x7f", "\x80", "\u07ff", "\u0800"]]
)
def test_texts_beyond_ascii_and_with_a_terminator_inside_read_as_one_by_one(texts: list[str]) -> None:
    contents = [text.encode("utf-16-le") for text in texts for text in (text, f"{text}\0")]
    assert utf16_texts(pa.array(contents, pa.binary())).to_pylist() == [identifiers.text(each) for each in contents]


def test_an_odd_byte_in_a_label_is_replaced_and_text_beyond_ascii_is_kept() -> None:
    packets = [build.user_message(SENDER, message_id=1, label=label) for label in ("grüße 😀", "plain", "")]
    lone = bytearray(build.user_message(SENDER, message_id=1, label="A"))
    lone[-3] = 0xD8
    rows = agree([kept(packet) for packet in (*packets, bytes(lone), build.user_message(SENDER, message_id=1))])
    assert [row["label"] for row in rows if isinstance(row, dict)] == ["grüße 😀", "plain", "", "�", None]


def test_the_headers_of_the_published_message_begin_where_the_document_says() -> None:
    size = np.array([len(PUBLISHED)])
    offsets, _ = find_headers(PacketBatch.whole(np.frombuffer(PUBLISHED, np.uint8), np.array([0]), size))
    assert (*offsets["SecurityHeader"], *offsets["MessagePropertiesHeader"]) == (92, 136)
    assert decoded(PUBLISHED)["violations"] == ["ack_without_admin_queue"]
