"""Makes random packets with any combination of headers, damages them, and stores them in batches of `packets`."""

import random
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeVar
from unittest import mock
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from jobs.simulator import build
from schemas.ingest import PACKETS
from schemas.messages import DECODED_TABLES, NOT_IN_RAW
from schemas.wire import UNLIMITED, QueueType
from udfs.msmq import layout
from udfs.msmq.batch import PacketBatch
from udfs.msmq.decode import DecodedBatch
from udfs.msmq.header_types import DTYPES
from udfs.msmq.layout import PACKET_TYPES
from udfs.msmq.reference import ParsedPacket

T = TypeVar("T", int, bytes)
Stored = tuple[bytes, bytes | None, int]
GUIDS = [UUID(int=random.Random(seed).getrandbits(128)) for seed in range(6)]
NAMES = ["OS:srv1\\private$\\tx", "TCP:10.0.0.5\\PRIVATE$\\order_queue$", "DIRECT=OS:a\\b", "OS:größe\\😀", ""]
PARTS = ("connector", "tx", "connector_qm", "security", "label", "extension", "debug", "soap", "multi", "session")


def queue(rng: random.Random, *types: QueueType) -> build.QueueName:
    match kind := rng.choice(types):
        case QueueType.DIRECT:
            return build.direct(rng.choice(NAMES))
        case QueueType.PUBLIC:
            return build.public(rng.choice(GUIDS))
        case QueueType.PRIVATE:
            return build.private_on(rng.choice(GUIDS), rng.randrange(1 << 32))
        case QueueType.NONE | QueueType.SAME_AS_ADMIN:
            return build.QueueName(kind)
        case _:
            return build.private(rng.choice([4, 4, 5, rng.randrange(1 << 32)]), on=kind)


def _security(rng: random.Random) -> build.Security:
    count = rng.randrange(6)
    sid = bytes([1, count]) + rng.randbytes(6 + 4 * count)
    sender_id = rng.choice([b"", sid, rng.randbytes(16), rng.randbytes(rng.randrange(9))])
    return build.Security(
        sender_id=sender_id,
        encryption_key=rng.randbytes(rng.choice([0, 0, 9])),
        signature=rng.randbytes(rng.choice([0, 0, 7])),
        sender_cert=rng.randbytes(rng.choice([0, 0, 30])),
        provider_info=rng.choice([b"", b"\1\0\0\0" + build.utf16("P1"), rng.randbytes(rng.randrange(12))]),
        flags=rng.choice([0, 1, 1, 1, 2, rng.randrange(1 << 16)]),
    )


def _sometimes(none: T, drawn: T) -> T:
    """Returns one of the two, by what was drawn: choosing draws nothing more."""
    parity = drawn if isinstance(drawn, int) else drawn[0]
    return none if parity % 2 else drawn


def user_message(rng: random.Random, parts: Sequence[str]) -> bytes:
    """Returns a UserMessage with exactly these optional parts; everything else is random."""
    number = rng.choice([0, 1, 2, (1 << 32) - 1, rng.randrange(1 << 32)])
    body = rng.randbytes(rng.randrange(50))
    elements = [build.private_on(GUIDS[0], 7), build.direct("OS:x\\y"), build.public(GUIDS[1])]
    elements += [build.distribution_list(GUIDS[2])]
    return build.user_message(
        rng.choice(GUIDS),
        message_id=rng.randrange(1 << 32),
        destination=queue(rng, QueueType.NONE, QueueType.PRIVATE_ON_DESTINATION, QueueType.PUBLIC, QueueType.DIRECT),
        queue_manager_address=rng.choice([build.NULL, *GUIDS]),
        admin_queue=queue(rng, *(kind for kind in QueueType if kind not in (1, 4))),
        response_queue=queue(rng, *QueueType),
        connector_type=rng.choice(GUIDS) if "connector" in parts else None,
        sequence=(rng.getrandbits(64), number, rng.choice([0, max(number - 1, 0), rng.randrange(1 << 32)]))
        if "tx" in parts
        else None,
        first=rng.random() < 0.5,
        last=rng.random() < 0.5,
        final_ack_required=rng.random() < 0.5,
        transaction_id=rng.randrange(1 << 20),
        connector_qm_guid=rng.choice(GUIDS) if "connector_qm" in parts else None,
        sent_time=rng.randrange(1 << 32),
        time_to_be_received=_sometimes(UNLIMITED, rng.randrange(1 << 32)),
        time_to_reach_queue=_sometimes(UNLIMITED, rng.randrange(1 << 32)),
        delivery_mode=rng.randrange(4),
        priority=rng.randrange(8),
        hop_count=rng.randrange(32),
        over_http=rng.random() < 0.1,
        label=rng.choice(["", "Hi", "grüße", "QM Ordering Ack", "x" * 249]) if "label" in parts else None,
        body=body,
        allocation_body_size=rng.choice([None, None, len(body) + rng.randrange(9)]),
        message_class=rng.choice([0, 0, 1, 2, 0xFF, 0x4000, 0x8001, 0xC002, rng.randrange(1 << 16)]),
        ack_flags=rng.choice([0, 0, 1, 15, rng.randrange(256)]),
        correlation_id=_sometimes(bytes(20), rng.randbytes(20)),
        body_type=rng.choice([0, 8, 0x1011, 0x2011, rng.randrange(1 << 32)]),
        application_tag=rng.randrange(1 << 32),
        extension=rng.randbytes(rng.randrange(1, 7)) if "extension" in parts else b"",
        security=_security(rng) if "security" in parts else None,
        debug="debug" in parts,
        debug_queue=rng.choice([None, *GUIDS]) if "debug" in parts else None,
        tracing=rng.random() < 0.2,
        soap=(rng.choice(["", "h", "head"]), rng.choice(["", "b", "body"])) if "soap" in parts else None,
        multi_queue_format=build.MultiQueueFormat(
            destination=rng.sample(elements, rng.randrange(5)),
            admin=rng.sample(elements, rng.randrange(3)),
            response=rng.sample(elements, rng.randrange(3)),
            signature=rng.randbytes(rng.randrange(5)),
        )
        if "multi" in parts
        else None,
        session=build.session_header(
            ack_sequence_number=rng.randrange(1 << 16),
            recoverable_msg_ack_flags=rng.randrange(1 << 32),
            window_size=rng.choice([0, 64]),
        )
        if "session" in parts
        else None,
    )


def any_packet(rng: random.Random) -> bytes:
    """Returns a packet of any type."""
    names = [None, "TCP:10.0.0.5\\PRIVATE$\\order_queue$", "OS:other\\queue"]
    source, peer = rng.sample(GUIDS, 2)
    number = rng.randrange(1, 1 << 32)
    session = rng.choice([None, build.session_header(ack_sequence_number=3)])
    match rng.randrange(12):
        case 0:
            return build.order_ack(
                source,
                sender=peer,
                message_id=rng.randrange(1 << 32),
                sequence_id=rng.getrandbits(64),
                number=number,
                previous=rng.choice([None, 0]),
                direct_name=rng.choice(names),
                session=session,
            )
        case 1:
            return build.final_ack(
                source,
                sender=peer,
                message_id=rng.randrange(1 << 32),
                sequence_id=rng.getrandbits(64),
                number=number,
                previous=number - 1,
                acknowledged_message_id=rng.randrange(1 << 32),
                message_class=rng.choice([0x4000, 0x8004, 0xC001, 0x4321]),
                direct_name=rng.choice(names),
                session=session,
            )
        case 2:
            return build.session_ack(ack_sequence_number=rng.randrange(1 << 16))
        case 3:
            return build.establish_connection(
                source, peer, operating_system=rng.choice([0x0310, rng.randrange(1 << 16)]), refused=rng.random() < 0.3
            )
        case 4:
            return build.connection_parameters(
                recoverable_ack_timeout_ms=rng.choice([0, 500, 1496, 120_001]),
                ack_timeout_ms=rng.choice([20_000, 0, 1 << 31]),
                window_size=rng.randrange(1 << 16),
            )
        case _:
            return user_message(rng, [part for part in PARTS if rng.random() < 0.4])


def damaged(rng: random.Random, packet: bytes) -> bytes:
    """Returns the packet with a few bytes changed, more often near its start; its size does not change."""
    data = bytearray(packet)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(12, min(len(data), rng.choice([64, 200, 1 << 20])))
        data[place] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, data[place] ^ (1 << rng.randrange(8)), rng.randrange(256)])
    return bytes(data)


def stored(packet: bytes) -> Stored:
    """Returns the packet as stored when bodies are dropped."""
    parsed = ParsedPacket.parse(packet, None, len(packet))
    trailer = None if parsed.trailer_offset < 0 else packet[parsed.trailer_offset :]
    return packet[: parsed.raw_size], trailer, len(packet)


def batch(packets: Sequence[Stored]) -> pa.RecordBatch:
    """Returns the packets as a batch of the table `packets`, one after the other on one stream."""
    offsets = accumulate((size for *_, size in packets), initial=0)
    rows = [
        {"stream_id": "s", "stream_offset": offset, "size": size, "capture_id": "c", "raw": raw, "trailer": trailer}
        | {"first_frame": frame, "last_frame": frame}
        for frame, (offset, (raw, trailer, size)) in enumerate(zip(offsets, packets, strict=False))
    ]
    return pa.RecordBatch.from_pylist(rows, PACKETS.arrow)


Result = dict[str, Any] | tuple[str, str]
"""A packet's type with its row, or the reason and detail of a packet that cannot be decoded."""


def tables(packets: Sequence[Stored]) -> list[Any]:
    """Returns the Result of each packet, decoded in a batch."""
    both = DecodedBatch(batch(packets))
    found: list[Any] = [None] * len(packets)
    for row, packet in both.parsed.items():
        if packet.error:
            found[row] = packet.error.fault.value, packet.error.detail
    for table in DECODED_TABLES:
        rows = both.rows(table)
        rows.validate(full=True)
        for row in rows.to_pylist():
            index = row["first_frame"]
            assert found[index] is None
            packet_type = PACKET_TYPES[both.offsets["packet_type"][index]]
            found[index] = {"packet_type": packet_type} | {k: v for k, v in row.items() if k not in NOT_IN_RAW}
    return found


def each_alone(packets: Sequence[Stored]) -> list[Any]:
    """Returns the same of the decoder of single packets, to which no packet is regular."""

    def nothing(packets: PacketBatch, *_: object) -> NDArray[np.void]:
        return np.zeros(len(packets), DTYPES["BaseHeader"])

    with mock.patch.object(layout, "_base_headers", nothing):
        return tables(packets)
