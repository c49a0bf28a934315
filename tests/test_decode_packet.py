"""`msmq-replay decode-packet`: its arguments, its output and its exit codes."""

import io
import json
import sys
from pathlib import Path

import pytest
from worked_examples import EXAMPLES

from jobs import cli
from jobs.simulator import build
from schemas import wire
from schemas.violations import Violation
from udfs.msmq.annotate import Line, annotate, render_tree

PING = b"\x02\x00HU\x07\0\0\0" + bytes(16)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["decode-packet", *arguments]) == 0
    return capsys.readouterr().out


def own(packet: bytes) -> list[Line]:
    """Returns the lines with bytes of their own: no bits, and the body of an acknowledgment once."""
    bodies = {wire.ORDER_ACK_BODY, wire.FINAL_ACK_BODY}
    lines = [line for line in annotate(packet).lines if line.mask is None]
    twice = any(line.header in bodies for line in lines)
    return [line for line in lines if not (twice and line.name == "MessageBody")]


@pytest.mark.parametrize("packet", [*EXAMPLES.values(), PING])
def test_the_lines_hold_every_byte_once_and_in_order(packet: bytes) -> None:
    lines = own(packet)
    assert b"".join(line.data for line in lines) == packet
    assert [line.offset for line in lines] == [sum(len(each.data) for each in lines[:n]) for n in range(len(lines))]


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_packet_cut_at_any_byte_is_annotated_as_far_as_it_goes(example: str) -> None:
    packet = EXAMPLES[example]
    for size in range(len(packet)):
        cut = annotate(packet[:size])
        assert cut.error is not None
        assert b"".join(line.data for line in own(packet[:size])) == packet[:size]
        assert f"Error {cut.error.fault}, [MS-MQ" in render_tree(cut)


def test_the_tree_names_sections_offsets_bytes_values_and_bits() -> None:
    shown = render_tree(annotate(EXAMPLES["A"])).splitlines()
    assert shown[0] == "user_message, 196 bytes"
    size = wire.BASE_HEADER.by_attribute["packet_size"].comment
    for line in (
        "TransactionHeader, [MS-MQMQ] 2.2.20.5",
        f"  0x0008  C4 00 00 00               PacketSize: 196 (0xc4) - {size}",
        "    .... .... .... .... ...1 11.. .... ....  DQ: 7 DIRECT - Encoding of DestinationQueue.",
        "  0x006A  CD CD                     padding: 2 bytes",
    ):
        assert line in shown
    assert any("DestinationQueue: DIRECT=OS:srv1\\private$\\tx - " in line for line in shown)


def test_violations_and_errors_stand_at_the_end_with_their_sections() -> None:
    zero = build.user_message(build.NULL, message_id=1, sequence=(1, 0, 0))
    assert render_tree(annotate(zero)).splitlines()[-2:] == [
        "Violation sequence_number_zero, [MS-MQMQ] 2.2.20.5: TxSequenceNumber is 0.",
        f"Violation previous_not_below_number, [MS-MQMQ] 2.2.20.5: {Violation.PREVIOUS_NOT_BELOW_NUMBER.sentence}",
    ]
    unknown = bytearray(EXAMPLES["D"])
    unknown[18] = 9
    assert render_tree(annotate(bytes(unknown))).splitlines()[-1] == (
        "Error unknown_internal_type, [MS-MQQB] 2.2.1: InternalHeader.Flags.PT is none of 1, 2 and 3: PT is 9, "
        "at byte 18 of the packet."
    )


def test_what_lies_behind_a_packet_is_said() -> None:
    for packet in EXAMPLES.values():
        assert annotate(packet + b"1234").rest == 4
        assert render_tree(annotate(packet + b"1")).endswith(
            f"1 byte after the packet, which ends at byte {len(packet)}."
        )


def test_a_ping_is_known_by_its_size_and_signature() -> None:
    assert annotate(PING).packet_type == "ping"
    assert "    .... .... .... ..1.  RF: 1" in render_tree(annotate(PING))


def test_text_cannot_act_on_a_terminal() -> None:
    packet = build.user_message(build.NULL, message_id=1, label="\x1b[2J\u202e")
    assert "Label: \\u001b[2J\\u202e" in render_tree(annotate(packet))


def test_a_packet_comes_as_digits_in_any_dress(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    packet = EXAMPLES["B"]  # too long for the name of a file
    expected = render_tree(annotate(packet)) + "\n"
    (tmp_path / "raw").write_bytes(packet)
    (tmp_path / "hex").write_text(packet.hex("\n") + "\n")
    for arguments in (
        [packet.hex()],
        [packet.hex(":").upper()],
        packet.hex(" ").split(),
        ["0x" + packet.hex()],
        [" ".join(f"0x{byte:02x}," for byte in packet)],
        [str(tmp_path / "raw")],
        [str(tmp_path / "hex")],
    ):
        assert printed(capsys, *arguments) == expected


@pytest.mark.parametrize("content", [EXAMPLES["D"], EXAMPLES["D"].hex().encode()])
def test_a_packet_comes_on_standard_input(
    content: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert printed(capsys, "-").startswith("session_ack, 36 bytes\n")


def test_json_holds_fields_violations_and_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    good = json.loads(printed(capsys, "--json", EXAMPLES["A"].hex()))
    assert good["packet_type"] == "user_message"
    assert good["error"] is None
    assert {
        "offset": 0x78,
        "bytes": "02000000",
        "header": "TransactionHeader",
        "section": "[MS-MQMQ] 2.2.20.5",
        "name": "TxSequenceNumber",
        "mask": None,
        "value": "2",
        "meaning": "Position in the sequence, from 1.",
    } in good["fields"]
    cut = json.loads(printed(capsys, "--json", EXAMPLES["A"][:150].hex()))
    assert (cut["error"]["code"], cut["error"]["offset"]) == ("bytes_missing", 150)


@pytest.mark.parametrize("arguments", [["no such file"], ["10 0"], [""], ["-"], ["\udcff\x1b"]])
def test_what_is_no_packet_is_wrong_use(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" \n")))
    assert cli.main(["decode-packet", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("msmq-replay decode-packet: ")
    assert said.isprintable()
