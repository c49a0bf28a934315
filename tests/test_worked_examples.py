"""Decodes the worked packets to the values that their bytes were written with, and ingests them cut at every byte."""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from deltalake import DeltaTable
from one_packet import decode_packet
from pyspark.sql import SparkSession
from wiretap import ETHERNET, SYN, ethernet, ipv4, pcap, records, tcp
from worked_examples import EXAMPLES, PUBLISHED, SENDER, SEQUENCE

from jobs.app.config import Config
from jobs.steps import decode, ingest
from udfs.msmq.reference import ParsedPacket

NULL = str(UUID(int=0))
COLUMNS: dict[str, dict[str, Any]] = {  # tests/test_plain_parser.py has all columns of all worked packets
    "A": {
        "packet_type": "user_message",
        "packet_size": 196,
        "time_to_reach_queue": 345_600,
        "queue_manager_address": NULL,
        "sent_at": datetime(2024, 1, 1, tzinfo=UTC),
        "message_id": f"{SENDER}\\4097",
        "delivery_mode_name": "recoverable",
        "destination_queue": "DIRECT=OS:srv1\\private$\\tx",
        "admin_queue": None,
        "transactional": True,
        "tx_first": True,
        "tx_last": True,
        "tx_transaction_id": 5,
        "tx_final_ack_required": False,
        "tx_sequence_id": SEQUENCE,
        "tx_sequence": "2023-12-14T01:46:40Z#3",
        "tx_sequence_number": 2,
        "previous_tx_sequence_number": 1,
        "label": "Hi",
        "message_class_name": "MQMSG_CLASS_NORMAL",
        "body_size": 5,
        "body_offset": 0xBE,
    },
    "published": {
        "packet_type": "user_message",
        "packet_size": 2224,
        "destination_queue": "DIRECT=OS:a04bm02\\q",
        "security_data_announced": False,
        "sender_id_size": 28,
        "body_type_name": "VT_BSTR",
        "body_size": 2000,
        "allocation_body_size": 2000,
        "encryption_algorithm": 0x6801,
        "ack_flags": 0x0F,
        "body_offset": 222,
        "violations": ["ack_without_admin_queue"],
    },
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_worked_packet_decodes_to_its_annotated_fields(name: str) -> None:
    packet = EXAMPLES.get(name, PUBLISHED)
    row = decode_packet(packet, None, len(packet))
    assert isinstance(row, dict), row
    expected = {"violations": []} | COLUMNS[name]
    assert {column: row[column] for column in expected} == expected


def test_the_headers_of_the_published_message_begin_where_the_document_says() -> None:
    begins = ParsedPacket.parse(PUBLISHED, None, len(PUBLISHED)).offsets
    assert (begins["SecurityHeader"], begins["MessagePropertiesHeader"]) == (92, 136)


def cuts() -> Iterator[tuple[str, bytes]]:
    """Yields every packet whole, and truncated at every byte with and without an adjusted PacketSize."""
    for name, packet in EXAMPLES.items():
        yield f"{name} whole", packet
        for size in range(1, len(packet)):
            yield f"{name} cut at {size}", packet[:size]
            announced = size - 16 if name == "B" else size  # its SessionHeader is not counted
            if announced >= 16:
                yield f"{name} said to be {size}", packet[:8] + struct.pack("<I", announced) + packet[12:size]


def test_every_cut_ends_in_one_table(spark: SparkSession, tmp_path: Path) -> None:
    names = dict(enumerate(cuts(), 10_000))
    frames = [
        ethernet(ipv4(tcp(payload, seq=seq, flags=flags, ports=(port, 1801))))
        for port, (_, data) in names.items()
        for flags, seq, payload in ((SYN, 999, b""), (0x10, 1000, data))
    ]
    (tmp_path / "worked.pcap").write_bytes(pcap(records(frames), link=ETHERNET))
    given = {"captures": [str(tmp_path / "worked.pcap")], "warehouse": str(tmp_path / "warehouse")}
    ingest.run(spark, Config.load(given, None))
    assert decode.run(spark, Config.load(given, None))["books"]["unbalanced"] == 0

    def rows(table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(str(tmp_path / "warehouse" / table)).to_pyarrow_table().to_pylist()
        return found

    ports = {row["stream_id"]: row["src_port"] for row in rows("streams")}
    tables = ("messages", "acks", "handshakes", "session_acks", "quarantine")
    found = [(*names[ports[row["stream_id"]]], table, row) for table in tables for row in rows(table)]
    assert sorted(name for name, *_ in found) == sorted(name for name, _ in names.values())
    decoded = {name for name, _, table, _ in found if table != "quarantine"}
    assert decoded == {f"{name} whole" for name in EXAMPLES} | {"A said to be 195"}  # its last byte is padding
    for name, data, table, row in found:
        if " cut at " in name:
            assert (row["stage"], row["reason"], row["length"]) == ("framing", "incomplete_frame", len(data)), name
        elif table == "quarantine":
            # A SessionAck said to be 20 bytes long has its SessionHeader behind them, and here it has none.
            assert row["stage"] == ("framing" if name == "D said to be 20" else "decode"), name
            assert row["detail"].endswith("."), name
    assert {name[0] for name, _, _, row in found if row.get("decoded_alone")} == {"B"}
