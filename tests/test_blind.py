"""A run that could not see says so: which of the situations it is, the next step, and the words of --fail-on."""

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import wiretap
from oracle import summed
from test_fitness import cut_at
from test_look import look
from wiretap import ethernet, ipv4, pcap, records, tcp

from jobs import main
from jobs.cli.alarm import matched
from jobs.cli.config import FAIL_ON
from jobs.commands import nightly
from jobs.simulator import build, simulate
from udfs.replay.fitness.nothing import why_nothing

SENDER, RECEIVER = UUID(int=7), UUID(int=8)
START = "No transactional message was found, so there is nothing to judge. "


def conversation(packets: Iterable[bytes]) -> bytes:
    sent = wiretap.conversation(random.Random(1), b"".join(packets))
    return pcap(records([summed(one.frame()) for one in sent]))


def express(number: int) -> bytes:
    return build.user_message(SENDER, message_id=number, label="not in a transaction", body=b"body")


def web(*ports: int, payload: bytes = b"GET / HTTP/1.1") -> bytes:
    return pcap(records([ethernet(ipv4(tcp(payload, ports=(50_000, port)))) for port in ports for _ in range(3)]))


MSMQ = express(1)
SITUATIONS = {
    "no file": ({}, "No capture was found: no file is there.", ["no_new_captures", "no_messages"]),
    "other ports": (
        {"a.pcap": web(8443, 80)},
        (
            "The captures hold 6 frames, none of the TCP ports of MSMQ (--ports). TCP was seen on ports 80 and 8443 "
            "only: is MSMQ on another port? --ports names it."
        ),
        ["no_messages"],
    ),
    "MSMQ on another port": (
        {"a.pcap": web(8801, payload=MSMQ)},
        (
            "The captures hold 3 frames, none of the TCP ports of MSMQ (--ports). What was seen on port 8801 looks "
            "like MSMQ: read the captures again with --ports 8801 (nightly: and with --again)."
        ),
        ["no_messages"],
    ),
    "no TCP": (
        {"a.pcap": pcap(records([ethernet(bytes(46), kind=0x0806)]))},
        (
            "The captures hold 1 frame, none of the TCP ports of MSMQ (--ports). No other TCP was seen. Look whether "
            "this is the interface, or the mirror port, on which sender and receiver speak, and which filter was set."
        ),
        ["no_messages"],
    ),
    "no frame": ({"a.pcap": pcap([])}, "The captures hold no frame.", ["no_messages"]),
    "no message in a transaction": (
        {"a.pcap": conversation([express(1), express(2)])},
        "The captures hold 2 messages, none of them transactional:",
        ["cannot_connect", "no_messages"],
    ),
    "no capture": (
        {"a.etl": b"a trace of another format"},
        (
            "{folder}/a.etl (bad magic) is no capture that can be read: give pcap or pcapng. A trace (.etl) has to be "
            "converted first."
        ),
        ["no_messages", "unreadable"],
    ),
    "an empty file": ({"b.pcap": b""}, "{folder}/b.pcap is empty. Look whether", ["no_messages", "unreadable"]),
    "no captures": (
        {"a.etl": b"a trace of another format", "b.pcap": b""},
        "None of 2 files is a capture that can be read: the first is ",
        ["no_messages", "unreadable"],
    ),
    "no capture among others": (
        {"a.etl": b"a trace of another format", "b.pcap": web(80)},
        (
            "The captures hold 3 frames, none of the TCP ports of MSMQ (--ports). TCP was seen on port 80 only: is "
            "MSMQ on another port? --ports names it. Besides, 1 file is no capture that can be read."
        ),
        ["no_messages", "unreadable"],
    ),
}


@pytest.mark.parametrize(("files", "said", "words"), SITUATIONS.values(), ids=SITUATIONS)
def test_each_situation_without_a_message_has_its_sentence_and_its_words(
    files: Mapping[str, bytes], said: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    found = look(capsys, tmp_path, "--fail-on", "anything", code=3)
    assert f"{START}{said.format(folder=tmp_path)}" in found["headline"]
    assert matched(["anything"], found) == words
    assert matched(["lost", "stuck", "unknown"], found) == []


def test_what_cannot_be_judged_is_no_loss_to_fail_on(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(web(80))
    assert main.main(["look", str(tmp_path), "--fail-on", "lost,stuck,unknown"]) == 0


def test_frames_cut_short_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(str(tmp_path / "whole"), 5, 40)
    (tmp_path / "cut").mkdir()
    for path in (tmp_path / "whole").glob("*.pcap"):
        (tmp_path / "cut" / path.name).write_bytes(cut_at(path.read_bytes(), 128))
    found = look(capsys, tmp_path / "cut", "--fail-on", "missing_bytes", code=3)
    assert found["headline"].startswith("No message could be judged: ")
    assert matched(["anything"], found) == ["no_messages", "missing_bytes"]


def rows(**figures: Any) -> list[dict[str, Any]]:
    names = ("segment_count", "message_count", "acknowledgment_count", "packet_count", "cut_count")
    return [dict.fromkeys(names, 0) | {"status": "ok", "uri": "a", "not_judged": None} | figures]


@pytest.mark.parametrize(
    ("captures", "said"),
    [
        (rows(segment_count=9, acknowledgment_count=1), "The captures hold 1 acknowledgment, but not the messages."),
        (2 * rows(status="unreadable", reason="not_readable"), "a, the first of 2 such files, cannot be opened. Look "),
        (rows(segment_count=9), "The captures hold 9 segments of the TCP ports of MSMQ (--ports), but no message"),
        (rows(segment_count=9, cut_count=9), "No message could be judged: 9 of 9 segments of MSMQ in a are cut short"),
        (rows(segment_count=9, cut_count=1, message_count=1), "The captures hold 1 message, none of them "),
    ],
)
def test_what_was_captured_decides_the_sentence(captures: list[dict[str, Any]], said: str) -> None:
    assert why_nothing(captures).startswith(said)


def test_a_connection_that_failed_says_more_than_that_nothing_was_sent() -> None:
    assert why_nothing(rows(segment_count=9), has_failed=True) == ""
    unreadable = rows(status="unreadable", reason="bad_magic")
    assert why_nothing(rows(segment_count=9) + unreadable, has_failed=True).startswith("Besides, 1 file is no capture")
    lacking = why_nothing(rows(segment_count=9, missing_bytes=3), has_failed=True)
    assert "not the bytes that were sent in them: whether any message was lost cannot be known" in lacking
    assert why_nothing(rows(message_count=9), has_failed=True).startswith("The captures hold 9 messages, none of them ")


def test_ports_are_told_only_of_captures_without_msmq(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.pcap").write_bytes(web(1801, 80))
    assert "port 80" not in look(capsys, tmp_path)["headline"]


def test_a_night_on_which_all_is_well_matches_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(str(tmp_path), 1, 100, disorder=0.0)
    assert look(capsys, tmp_path / "*.pcap", "--fail-on", "anything")["confirmed"] == 100


def test_where_no_record_has_a_time_nothing_is_said_that_rests_on_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate(str(tmp_path), 1, 100, disorder=0.0)
    for path in tmp_path.glob("*.pcap"):
        data, at = bytearray(path.read_bytes()), 24
        while at < len(data):
            data[at : at + 8] = bytes(8)
            at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
        path.write_bytes(data)
    found = look(capsys, tmp_path / "*.pcap", "--fail-on", "anything", code=3)
    assert "without times" in found["headline"]
    assert "one direction" not in found["headline"]
    assert {"unreadable", "unconfirmed"} <= {*matched(["anything"], found)}
    assert found["lost"] == 0


LACKING = ("missing_bytes", "missing_files", "cut_segments", "damaged_segments", "not_whole", "without_times")
NEWEST = {"messages": 9} | dict.fromkeys(LACKING, 0)
SEEN = {"newest_captures": NEWEST, "new_captures": 1, "verdicts": {"in_order": 9}}


@pytest.mark.parametrize(
    ("summary", "fail_on", "found"),
    [
        ({}, ["anything"], []),
        ({"unconfirmed": 8}, ["unconfirmed"], ["unconfirmed"]),
        ({"unconfirmed": 8}, ["lost", "unknown"], []),
        ({"lost": 2, "unconfirmed": 8}, ["lost", "anything"], ["lost", "unconfirmed"]),
        # There is a verdict unknown wherever captures begin.
        ({"verdicts": {"unknown": 5}}, ["anything"], []),
        ({"verdicts": {"unknown": 5}}, ["unknown"], ["unknown"]),
        ({"outcomes": {"contradicted": 1}}, ["anything"], ["unknown"]),
        ({"unjudged": 1}, ["anything"], ["unknown"]),
        ({"severities": {"error": 1, "warning": 2}}, ["anything"], ["error"]),
        ({"failed_connections": ["10.0.0.2 could not connect."]}, ["anything"], ["cannot_connect"]),
        ({"findings": {"repeated_order_ack": 1}}, ["anything"], ["repeated_order_ack"]),
        ({"newest_captures": NEWEST | {"without_times": 1}}, ["anything"], ["unreadable"]),
        ({"new_captures": 0}, ["no_new_captures"], ["no_new_captures"]),
        ({"verdicts": {}}, ["no_messages"], ["no_messages"]),
    ],
)
def test_words_of_fail_on(summary: dict[str, Any], fail_on: list[str], found: list[str]) -> None:
    assert matched(fail_on, SEEN | summary) == found


def test_every_word_of_the_recipes_can_be_given() -> None:
    assert {"anything", "no_messages", "missing_bytes", "unreadable", "no_new_captures", "unconfirmed"} <= {*FAIL_ON}


def test_a_night_without_a_new_capture_says_so() -> None:
    found = nightly._nothing_new({"period": {"last": "2026-03-02 08:05:54 UTC"}}, {"a": (1, 2), "b": (3, 4)})  # type: ignore[dict-item]
    assert found == {
        "new_captures": 0,
        "no_data": "No new capture came: 2 files are there, and all were read before. Look whether the capturing "
        "machine still writes captures, and whether this is the folder. What follows ends at 2026-03-02 08:05:54 UTC.",
    }
    assert nightly._nothing_new({}, {})["no_data"].startswith("No new capture came: no file is there.")
