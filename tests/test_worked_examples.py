"""Ingests and decodes a capture of the worked packets, complete and truncated at every byte."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from wiretap import ETHERNET, SYN, ethernet, ipv4, pcap, records, tcp, udp
from worked_examples import EXAMPLES

from jobs.app.config import Config
from jobs.steps import decode, ingest

_FIRST_PORT = 10_000
_SHORTEST = 16


def cuts() -> Iterator[tuple[str, bytes]]:
    """Returns every packet; also the first five truncated at every byte, with and without an adjusted PacketSize."""
    for name, packet in EXAMPLES.items():
        yield f"{name} whole", packet
        if name > "E":
            continue  # tests/test_decode.py cuts them all
        for size in range(1, len(packet)):
            yield f"{name} cut at {size}", packet[:size]
            announced = size - 16 if name == "B" else size  # its SessionHeader is not counted
            if announced >= _SHORTEST:
                yield f"{name} said to be {size}", packet[:8] + struct.pack("<I", announced) + packet[12:size]


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns the rows of the tables by the content of their stream: one stream per packet or truncated packet."""
    folder = tmp_path_factory.mktemp("worked")
    names: dict[int, str] = {}
    frames = []
    for port, (name, data) in enumerate(cuts(), _FIRST_PORT):
        names[port] = name
        for flags, seq, payload in ((SYN, 999, b""), (0x10, 1000, data)):
            frames.append(ethernet(ipv4(tcp(payload, seq=seq, flags=flags, ports=(port, 1801)))))
    for source, target, ping_flags in ((50_000, 3527, 1), (3527, 50_000, 3)):
        ping = struct.pack("<HHI16s", ping_flags, 0x5548, 7, UUID(int=source).bytes_le)
        frames.append(ethernet(ipv4(udp(ping, ports=(source, target)), protocol=17)))
    (folder / "worked.pcap").write_bytes(pcap(records(frames), link=ETHERNET))
    warehouse = folder / "warehouse"
    given = {"captures": [str(folder / "worked.pcap")], "warehouse": str(warehouse)}
    ingest.run(spark, Config.load(given, None))
    assert decode.run(spark, Config.load(given, None))["books"]["unbalanced"] == 0
    ports = {row["stream_id"]: row["src_port"] for row in _rows(warehouse, "streams")}
    pings = {f"ping {row['is_response']}": row for row in _rows(warehouse, "pings")}
    return {"pings": pings} | {
        table: {names[ports[row["stream_id"]]]: row for row in _rows(warehouse, table)}
        for table in ("packets", "messages", "acks", "handshakes", "session_acks", "quarantine")
    }


def _rows(warehouse: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(str(warehouse / table)).to_pyarrow_table().to_pylist()
    return rows


def test_every_cut_ends_in_one_table(tables: dict[str, dict[str, dict[str, Any]]]) -> None:
    for name, data in cuts():
        ends = ("messages", "acks", "handshakes", "session_acks", "quarantine")
        assert sum(name in tables[table] for table in ends) == 1, name
        if " cut at " in name:
            row = tables["quarantine"][name]
            assert (row["stage"], row["reason"], row["length"]) == ("framing", "incomplete_frame", len(data)), name
        elif name in tables["quarantine"]:
            row = tables["quarantine"][name]
            # A SessionAck said to be 20 bytes long has its SessionHeader behind them, and here it has none.
            assert row["stage"] == ("framing" if name == "D said to be 20" else "decode"), name
            assert row["reason"], name
            assert row["detail"].endswith("."), name


def test_a_packet_is_decoded_only_when_nothing_but_padding_is_cut(
    tables: dict[str, dict[str, dict[str, Any]]],
) -> None:
    names = (name for table in ("messages", "acks", "handshakes", "session_acks") for name in tables[table])
    decoded = {name for name in names if " said to be " in name}
    assert decoded == {"A said to be 195"}  # its last byte is padding


def test_the_transactional_message_decodes_to_its_annotated_fields(
    tables: dict[str, dict[str, dict[str, Any]]],
) -> None:
    row = tables["messages"]["A whole"]
    expected: dict[str, Any] = {
        "source_queue_manager": "11223344-5566-7788-99aa-bbccddeeff00",
        "queue_manager_address": "00000000-0000-0000-0000-000000000000",
        "message_id": "11223344-5566-7788-99aa-bbccddeeff00\\4097",
        "destination_queue": "DIRECT=OS:srv1\\private$\\tx",
        "admin_queue": None,
        "response_queue": None,
        "time_to_be_received": 0xFFFFFFFF,
        "time_to_reach_queue": 345_600,
        "delivery_mode": 1,
        "priority": 0,
        "message_class": 0,
        "label": "Hi",
        "body_type": 0,
        "body_size": 5,
        "transactional": True,
        "tx_sequence_ordinal": 3,
        "tx_sequence_timestamp": 0x657A5E80,
        "tx_sequence_number": 2,
        "previous_tx_sequence_number": 1,
        "tx_first": True,
        "tx_last": True,
        "tx_final_ack_required": False,
        "tx_transaction_id": 5,
        "connector_qm_guid": None,
        "violations": [],
    }
    assert {name: row[name] for name in expected} == expected
    assert int(row["tx_sequence_id"]) == 0x657A5E8000000003
    assert row["sent_at"].isoformat() == "2024-01-01T00:00:00+00:00"
    assert tables["acks"]["C whole"]["tx_sequence_number"] == 2
    assert tables["handshakes"]["E whole"]["client_guid"] == "11223344-5566-7788-99aa-bbccddeeff00"
    assert tables["packets"]["B whole"]["size"] == 456
    assert tables["session_acks"]["D whole"]["ack_sequence_number"] == 5
    assert not tables["messages"]["A whole"]["decoded_alone"]
    assert tables["messages"]["B whole"]["decoded_alone"]


def test_a_ping_and_its_answer_have_their_rows(tables: dict[str, dict[str, dict[str, Any]]]) -> None:
    asked, answered = tables["pings"]["ping False"], tables["pings"]["ping True"]
    expected = {"src_port": 50_000, "dst_port": 3527, "cookie": 7, "client_class": True, "refused": False}
    assert {name: asked[name] for name in expected} == expected
    assert asked["queue_manager"] == str(UUID(int=50_000))
    assert (answered["src_port"], answered["cookie"], answered["refused"]) == (3527, 7, True)
    assert answered["frame_number"] == asked["frame_number"] + 1
