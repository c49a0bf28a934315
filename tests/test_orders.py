"""The lists for the back office name each message that is lost, and nothing in them is calculated or forged."""

import csv
import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import polars as pl
import pytest
import wiretap
from oracle import summed
from test_look import look
from test_monitoring import HOSTILE, samples

from jobs import main
from jobs.commands.orders import CHECK_ACCEPTED, COLUMNS, SEND_AGAIN, _cell, _look_first
from jobs.simulator import build, simulate
from schemas.ingest import CAPTURES
from schemas.replay import ENDS
from udfs.frames.tables import schema_of

FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\nx", '=HYPERLINK("http://x","y")', " =1+1", "\uff1d1+1")


def written(folder: Path, name: str) -> tuple[list[dict[str, str]], list[dict[str, Any]]]:
    """Returns the rows of a list as CSV and as NDJSON."""
    with (folder / f"{name}.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    return rows, [json.loads(line) for line in (folder / f"{name}.ndjson").read_text().split("\n")[:-1]]


def sent_from(capture: str, number: int) -> bytes:
    """Returns what a record of a little-endian pcap file carries, and the next ones of its direction."""
    data, at = Path(capture).read_bytes(), 24
    frames = []
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "little")
        frames.append(data[at + 16 : at + 16 + size])
        at += 16 + size
    endpoints = slice(26, 38)
    first = frames[number - 1]
    alike = (one for one in frames[number - 1 : number + 5] if one[endpoints] == first[endpoints])
    return b"".join(one[34 + (one[46] >> 4) * 4 :] for one in alike)


def test_the_lists_name_what_is_lost_and_what_the_copy_sent(
    demonstration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = look(capsys, demonstration, "--out-orders", tmp_path / "lists")
    assert said["orders"] == {"folder": str(tmp_path / "lists"), SEND_AGAIN: 21, CHECK_ACCEPTED: 76}
    cells, lost = written(tmp_path / "lists", SEND_AGAIN)
    assert [*cells[0]] == [*lost[0]] == [*COLUMNS[SEND_AGAIN]]
    assert [row["label"] for row in cells] == [row["label"] for row in lost]
    assert {row["message_id"] for row in lost} == {row["message_id"] for row in said["rows"]["outcomes"] if row["lost"]}
    _, accepted = written(tmp_path / "lists", CHECK_ACCEPTED)
    assert [row["suspected_copy"] for row in accepted] == [True] * 44 + [False] * 32
    assert {row["sender_address"] for row in accepted if row["suspected_copy"]} == {"10.20.0.123"}
    doubted = [row["sender_address"] for row in lost if "seems to be a copy of another one" in row["look_first"]]
    assert doubted == ["10.20.0.123"] * 5
    assert [row["sender_address"] for row in lost].count("10.20.0.123") == 5
    assert not {(row["message_id"], row["sender_address"]) for row in lost} & {
        (row["message_id"], row["sender_address"]) for row in accepted
    }
    for row in (*lost, *accepted):
        assert row["label"].encode("utf-16-le") in sent_from(row["capture"], row["frame"])
        assert row["sent_at_utc"] <= row["first_seen_at_utc"]


def test_where_bytes_are_missing_one_looks_into_the_queue_before_a_message_is_sent_again(tmp_path: Path) -> None:
    """A whole capture asks for nothing first; nor does a number that another message has, however much is missing."""
    simulate(str(tmp_path), 901, 400, situations=True)
    captures = sorted(tmp_path.glob("*.pcap"))
    for name, chosen in {"whole": captures, "some": [*captures[:3], *captures[4:]]}.items():
        assert main.main(["look", *map(str, chosen), "--out-orders", str(tmp_path / name)]) == 0
    _, whole = written(tmp_path / "whole", SEND_AGAIN)
    of_a_copy = "so its application may have repeated old work: ask whether the message was meant at all."
    asked = {(row["outcome"], row["look_first"].rpartition(of_a_copy)[2]) for row in whole}
    assert {said for _, said in asked} == {""}
    _, some = written(tmp_path / "some", SEND_AGAIN)
    asked = {
        (row["outcome"], row["look_first"].rpartition(of_a_copy)[2].partition(", in which")[0].strip()) for row in some
    }
    assert asked == {
        ("displaced", ""),
        ("passed_by", "The captures lack 21,636 bytes, 1 file of their series and the beginning of 12 of 94 streams"),
    }


def test_a_refused_message_that_was_sent_before_the_captures_may_have_been_accepted_then() -> None:
    begun = datetime(2026, 3, 2, 8, 0, 20, 500_000, UTC)
    captures = pl.DataFrame([{"status": "ok", "first_captured_at": begun}], schema_of(CAPTURES.arrow))
    rows = pl.DataFrame(
        [
            {"outcome": outcome, "session_id": "a->b", "sent_at": begun.replace(second=second, microsecond=0)}
            | {"first_seen_at_utc": begun}
            for outcome in ("displaced", "passed_by")
            for second in (3, 20)
        ]
    )
    few = {ENDS.name: schema_of(ENDS.arrow).to_frame(), CAPTURES.name: captures}
    said = rows.select(look_first=_look_first(few))["look_first"].to_list()
    early = "By its sender's clock it was sent before the captures begin, so the receiver may have taken it then"
    assert [one.partition(": look")[0] for one in said] == [
        f"{early}, and not the other one with its number",
        "",
        early,
        "",
    ]


def test_what_is_shown_long_after_it_was_sent_may_be_a_resend() -> None:
    begun = datetime(2026, 3, 2, 8, 0, 20, tzinfo=UTC)
    captures = pl.DataFrame([{"status": "ok", "first_captured_at": begun}], schema_of(CAPTURES.arrow))
    few = {ENDS.name: schema_of(ENDS.arrow).to_frame(), CAPTURES.name: captures}
    rows = pl.DataFrame(
        [
            {"outcome": outcome, "session_id": "a->b", "sent_at": begun}
            | {"first_seen_at_utc": begun + timedelta(seconds=seconds)}
            for outcome, seconds in (("passed_by", 30), ("passed_by", 31), ("displaced", 31))
        ]
    )
    said = rows.select(look_first=_look_first(few))["look_first"].to_list()
    assert [one.partition(",")[0] for one in said] == [
        "",
        "By its sender's clock it was sent more than 30 s before the captures show it",
        "",
    ]


def test_without_a_loss_the_lists_are_empty(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(wiretap.pcap([]))
    assert main.main(["look", str(tmp_path / "a.pcap"), "--out-orders", str(tmp_path)]) == 0
    for name, columns in COLUMNS.items():
        assert (tmp_path / f"{name}.csv").read_bytes() == f"\ufeff{','.join(columns)}\r\n".encode()
        assert (tmp_path / f"{name}.ndjson").read_bytes() == b""


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.pcap").write_bytes(wiretap.pcap([]))
    assert main.main(["look", str(tmp_path / "a.pcap"), "--out-orders", str(tmp_path / "a.pcap" / "x")]) == 1
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("value", FORMULAS)
def test_no_cell_is_a_formula(value: str) -> None:
    assert _cell(value).startswith("'")
    assert _cell(f"x{value}").startswith("x")


def hostile(names: Sequence[str]) -> bytes:
    """A capture in which messages with these labels and queues are refused, and then passed by."""
    numbers = [(5, 1, 0), *((5, number, number - 1) for number in range(3, 3 + len(names))), (6, 1, 0)]
    packets = [
        build.user_message(
            UUID(int=7),
            message_id=place,
            sequence=sequence,
            destination=build.direct(f"OS:{name}\\private$\\q"),
            label=name,
            body=b"SECRET BODY",
        )
        for place, (sequence, name) in enumerate(zip(numbers, ("x", *names, "x"), strict=True), 1)
    ]
    sent = wiretap.conversation(random.Random(1), b"".join(packets))
    return wiretap.pcap(wiretap.records([summed(one.frame()) for one in sent]))


def test_hostile_names_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [*FORMULAS, HOSTILE, "a,b;c\"d'e", "\u202egnp", "<script>alert(1)</script>"]
    (tmp_path / "a.pcap").write_bytes(hostile(names))
    arguments = ("--scope", "session", "--out-orders", tmp_path, "--prometheus", tmp_path / "a.prom")
    said = look(capsys, tmp_path / "a.pcap", *arguments, "--out", tmp_path / "page.html")
    assert said["lost"] >= len(names)
    cells, rows = written(tmp_path, SEND_AGAIN)
    assert [row["label"] for row in rows if row["label"]] == names
    assert len(cells) == len(rows)
    for row in cells:
        assert all(not value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) for value in row.values())
        assert all(value.isprintable() for value in row.values())
    samples((tmp_path / "a.prom").read_text())
    assert "<script>alert" not in (tmp_path / "page.html").read_text()
    for file in (*tmp_path.glob("*.csv"), *tmp_path.glob("*.ndjson"), tmp_path / "a.prom"):
        assert b"SECRET BODY" not in file.read_bytes()
    assert main.main(["look", str(tmp_path / "a.pcap"), "--scope", "session"]) == 0
    printed = capsys.readouterr().out
    assert all(line.isprintable() for line in printed.split("\n"))
