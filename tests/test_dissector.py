"""Holds the Wireshark dissector to the decoder, packet by packet and column by column, in tshark."""

import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from gzip import decompress
from pathlib import Path
from typing import Any
from uuid import UUID
from xml.etree.ElementTree import Element, iterparse

import pyarrow as pa
import pytest
import wiretap
from pipeline import ingest
from random_packets import any_packet, damaged, tables, user_message
from tiers import merge_needs
from warehouses import CAPTURES
from wiretap import ACK, PSH, Record, Sent, records

from jobs import main
from jobs.wireshark.generate import dissector, field_names
from schemas.ingest import PacketType
from schemas.messages import DECODED_TABLES, NOT_IN_RAW, TABLE_OF, flat_schema
from schemas.table import BOOL, STRING, TIMESTAMP
from schemas.violations import Fault, Violation
from schemas.wire import UNLIMITED
from udfs.ingest.options import IngestOptions

OMITTED = {
    *NOT_IN_RAW,
    *("ack_type", "handshake_type"),  # packet_type
    "tx_sequence",  # tx_sequence_id as text
}
TYPES: dict[str, pa.DataType] = {
    field.name: field.type for table in DECODED_TABLES for field in flat_schema(table) if field.name not in OMITTED
} | {"packet_type": STRING}
Fields = dict[str, Any]

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dissector") / "msmq.lua"
    assert main.main(["dissector", "--out", str(path)]) == 0
    return path


def tshark(lua: Path, capture: Path, *options: str) -> bytes:
    """What tshark prints; Lua errors, which it prints among the fields, fail the test."""
    order = ("-o", "tcp.reassemble_out_of_order:TRUE", "-o", "tcp.desegment_tcp_streams:TRUE")
    command = ["tshark", "-X", f"lua_script:{lua}", "-r", str(capture), *order, *options]
    done = subprocess.run(command, check=True, capture_output=True)
    assert b"Lua Error" not in done.stdout + done.stderr
    return done.stdout


def dissected(lua: Path, capture: Path) -> list[Fields]:
    """The fields of every packet of the protocol, with all of them shown."""
    path = capture.with_suffix(".pdml")
    path.write_bytes(tshark(lua, capture, "-T", "pdml"))
    found = []
    for _, element in iterparse(path):  # noqa: S314 - tshark wrote it
        if element.tag == "packet":
            found += [fields(proto) for proto in element.iter("proto") if proto.get("name") == "msmq"]
            element.clear()
    return found


def fields(proto: Element) -> Fields:
    """The columns of its table among the fields of a packet; the fault alone if there is one."""
    shown: dict[str, list[str]] = {}
    for field in proto.iter("field"):
        shown.setdefault(field.get("name", "").removeprefix("msmq."), []).append(field.get("show", ""))
    if "fault" in shown:
        return {"fault": shown["fault"]}
    names = (
        {"packet_type", *flat_schema(TABLE_OF[PacketType(shown["packet_type"][0])]).names}
        if "packet_type" in shown
        else ()
    )
    values = {column: value_of(column, shows) for column, shows in shown.items() if column in names and column in TYPES}
    return {column: value for column, value in values.items() if column not in _NONE or value != _NONE[column]}


_NONE = {
    **dict.fromkeys(("time_to_reach_queue", "time_to_be_received"), UNLIMITED),
    "correlation_id": f"{UUID(int=0)}\\0",
}
"""What stands for no value: Wireshark shows it, and the tables have null."""


def value_of(column: str, shows: list[str]) -> Any:
    kind = TYPES[column]
    if pa.types.is_list(kind):
        return [code.value for code in Violation if code in shows] if column == "violations" else shows
    (show,) = shows
    if kind == BOOL:
        return show in ("1", "True")
    if kind == TIMESTAMP:
        return datetime.strptime(re.sub(r"\.0+ UTC$", "", show), "%b %d, %Y %H:%M:%S").replace(tzinfo=UTC)
    return show if kind == STRING else int(show, 0)


def expected(packets: Sequence[bytes]) -> list[Fields]:
    """The same of the decoder."""
    return [
        {"fault": [row[0]]}
        if isinstance(row, tuple)
        else {column: displayed(row[column]) for column in TYPES if row.get(column) not in (None, [])}
        for row in tables([(packet, None, len(packet)) for packet in packets])
    ]


def displayed(value: Any) -> Any:
    """A value as tshark prints it: texts have their control characters escaped."""
    if isinstance(value, list):
        return [displayed(one) for one in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if not isinstance(value, str):
        return int(value) if isinstance(value, Decimal) else value
    named = dict(zip("\a\b\t\n\v\f\r", "abtnvfr", strict=True))
    return re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\{named.get(found[0], f'x{ord(found[0]):x}')}", value)


def segments(payloads: Iterable[bytes], port: int = 50_000) -> Iterator[bytes]:
    """The payloads as TCP segments, in order, after a handshake."""
    for sent in wiretap.handshake(1000, 5000):
        yield sent.frame(client=(wiretap.CLIENT, port))
    seq = 1001
    for payload in payloads:
        yield Sent(False, seq, 5001, ACK | PSH, payload).frame(client=(wiretap.CLIENT, port))
        seq += len(payload)


def write(path: Path, frames: Iterable[bytes]) -> Path:
    path.write_bytes(wiretap.pcap(records(frames)))
    return path


def differences(found: Sequence[Fields], due: Sequence[Fields]) -> list[tuple[int, Any]]:
    """Where two packets differ, and in which columns."""
    return [
        (
            at,
            {name: (one.get(name), other.get(name)) for name in one.keys() | other if one.get(name) != other.get(name)},
        )
        for at, (one, other) in enumerate(zip(found, due, strict=True))
        if one != other
    ][:5]


@needs_tshark
def test_packets_cut_into_segments_anywhere(lua: Path, tmp_path: Path) -> None:
    rng = random.Random(1)
    packets = [any_packet(rng) for _ in range(500)]
    payloads = [payload for _, payload in wiretap.pieces(rng, b"".join(packets), 900)]
    found = dissected(lua, write(tmp_path / "cut.pcap", segments(payloads)))
    assert not differences(found, expected(packets))


@needs_tshark
@pytest.mark.slow
def test_2000_damaged_packets(lua: Path, tmp_path: Path) -> None:
    rng = random.Random(2)
    packets = [damaged(rng, any_packet(rng)) for _ in range(2000)]
    found = dissected(lua, write(tmp_path / "damaged.pcap", segments(packets)))
    due = expected(packets)
    assert not differences(found, due)
    assert len({one["fault"][0] for one in due if "fault" in one}) > 8


@needs_tshark
@pytest.mark.parametrize("names", merge_needs(["orders.pcapng"], ["orders.pcapng", "branches_*.pcap.gz"]))
def test_the_captures_of_real_tcp(lua: Path, tmp_path: Path, names: str) -> None:
    paths = sorted(CAPTURES.glob(names))
    files = [decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in paths]
    whole = tmp_path / "whole.pcap"
    whole.write_bytes(files[0] + b"".join(file[24:] for file in files[1:]))  # records after the file header
    packets = [row["raw"] for row in ingest([whole], IngestOptions(keep_bodies=True)).packets]
    assert len(packets) > 150
    assert count(dissected(lua, whole)) == count(expected(packets))


def count(packets: Iterable[Fields]) -> Counter[str]:
    """Packets by their columns, as streams may be read in another order."""
    return Counter(str(sorted(one.items())) for one in packets)


@needs_tshark
def test_fields_without_the_whole_tree(lua: Path, tmp_path: Path) -> None:
    """A filter without output of details, and the preference `only`, add just the fields that are asked for."""
    rng = random.Random(3)
    packets = [user_message(rng, rng.choice([(), ("tx", "label")])) for _ in range(300)]
    rows = expected(packets)
    capture = write(tmp_path / "packets.pcap", segments(packets))
    columns = ("tx_sequence_id", "message_id", "priority", "destination_queue", "packet_type")
    wanted = [option for column in columns for option in ("-e", f"msmq.{column}")]
    only = ("-o", f"msmq.only:{','.join(columns)}")
    options = (*only, "-Y", "msmq.packet_type", "-T", "fields", *wanted, "-e", "msmq.label")
    lines = tshark(lua, capture, *options).decode().splitlines()
    assert lines == ["\t".join((*(str(row.get(column, "")) for column in columns), "")) for row in rows]
    sequence = next(row["tx_sequence_id"] for row in rows if "tx_sequence_id" in row)
    for column, value in (("tx_sequence_id", sequence), ("priority", 5)):
        listed = tshark(lua, capture, "-Y", f"msmq.{column} == {value}").splitlines()
        assert len(listed) == sum(row.get(column) == value for row in rows) > 0


@needs_tshark
def test_arbitrary_bytes(lua: Path, tmp_path: Path) -> None:
    """Garbage, headers with any PacketSize, truncated records: tshark ends, and Lua raises nothing."""
    rng = random.Random(0)
    hostile = []
    for _ in range(300):
        packet = bytearray(any_packet(rng))
        if rng.random() < 0.7:
            packet[8:12] = rng.choice([0, 1, 15, 16, 20, len(packet) - 16, 1 << 22, (1 << 32) - 1]).to_bytes(
                4, "little"
            )
        for _ in range(rng.choice([0, 1, 20])):
            packet[rng.randrange(len(packet))] = rng.randrange(256)
        hostile.append(bytes(packet[: rng.choice([len(packet), rng.randrange(len(packet)) + 1])]))
    ports = range(50_000, 50_020)
    frames = [frame for port in ports for frame in segments(rng.sample(hostile, 30), port)]
    cut = [Record(frame[: rng.choice([len(frame), rng.randrange(54, 200)])], original=len(frame)) for frame in frames]
    capture = tmp_path / "hostile.pcap"
    capture.write_bytes(wiretap.pcap(cut))
    assert dissected(lua, capture)


@needs_tshark
def test_a_stream_that_begins_in_the_middle_of_a_packet(lua: Path, tmp_path: Path) -> None:
    rng = random.Random(5)
    packets = [any_packet(rng) for _ in range(20)]
    found = dissected(lua, write(tmp_path / "middle.pcap", segments([packets[0][30:] + b"".join(packets[1:])])))
    assert not differences(found[1:], expected(packets[1:]))
    assert found[0] == {}


def test_every_column_is_a_field() -> None:
    assert set(TYPES) <= set(field_names())
    text = dissector()
    for code in (*Violation, *Fault):
        assert f".{code.value} =" in text


def test_the_ports_of_the_options(tmp_path: Path) -> None:
    path = tmp_path / "msmq.lua"
    assert main.main(["dissector", "--out", str(path), "--ports", "1801,1810"]) == 0
    assert "local PORTS = { 1801, 1810 }" in path.read_text()


def test_wrong_use(tmp_path: Path) -> None:
    assert main.main(["dissector"]) == 2
    (tmp_path / "file").touch()
    assert main.main(["dissector", "--out", str(tmp_path / "file" / "msmq.lua")]) == 1
