"""Situations that operators describe: what the console says of small captures of them, and what it must not say."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import dpkt
import pytest
from warehouses import config

from jobs.cli.command import Summary
from jobs.cli.summary_text import for_people
from jobs.commands import look

CAPTURES = Path(__file__).parent / "captures" / "reports"
_FIRST_LINES = 5


@cache
def summary(name: str) -> Summary:
    """Returns what a look at one of the captures says."""
    return look.run(config(Path(), CAPTURES / f"{name}.pcap"))


class Said(NamedTuple):
    """What the first lines say and do not say."""

    must: tuple[str, ...]
    must_not: tuple[str, ...] = ("Nothing was lost.", "delivered", "What to do: Nothing")


SITUATIONS = {
    "firewall_one_way": Said(
        ("10 messages were never acknowledged", "10.1.0.20 could not connect to 10.1.0.5", "firewall", "not over")
    ),
    "nonexistent_queue": Said(
        (
            "5 messages were never acknowledged",
            r"to DIRECT=OS:hub\private$\nosuch",
            "Go to 10.1.0.20",
            "Its TCP acknowledged all bytes of these connections, so the packets arrived: look",
            "whether this queue exists on 10.1.0.20",
        )
    ),
    "moved_to_new_machine": Said(
        (
            *("20 unknown", "another one answers", "at 10.1.0.9", "10.1.0.5 could not connect to 10.1.0.20"),
            "40 messages of this sequence went to the old one",
        ),
        ("60 delivered", "Nothing was lost."),
    ),
    "waiting_to_connect": Said(
        ("10.1.0.5 could not connect to 10.1.0.20: 5 connections had no answer, from 2026-09-21 14:13:20", "firewall")
    ),
    "no_right_to_send": Said(
        ("10 messages were lost", "the sender has no access to the queue", "Go to 10.1.0.20", "the right to send"),
        ("Go to 0", "missing or full"),
    ),
    "clocks_and_short_life": Said(
        (
            "10 messages were lost",
            "the time to reach the queue ran out",
            "clocks",
            "clock, 3,600 s before it was captured",
        ),
        ("missing or full", "quota"),
    ),
    "extension_header": Said(
        ("10 of 20 confirmed by the receiver", "9 pending, 1 awaited", "Go to 10.1.0.5"), ("lost since",)
    ),
    "answers_on_another_path": Said(
        ("No loss was seen", "none of 60 confirmed by the receiver"), ("Nothing was lost", "stuck", "never ack")
    ),
}


HOW_SURE = {
    "firewall_one_way": "what became of them: unknown; why: shown by captured packets",
    "nonexistent_queue": "what became of them: unknown; why: unknown",
    "no_right_to_send": "what became of them: confirmed by an acknowledgment; why: shown by captured packets",
    "extension_header": "what became of them: inferred from the rules; why: inferred from the rules",
}


def test_the_first_line_says_from_where_to_where_since_when_and_where_to_go() -> None:
    for name in set(SITUATIONS) - {"answers_on_another_path"}:
        first = summary(name)["headline"].partition("\n")[0]
        assert "10.1.0.5" in first, name
        assert "Go to 10.1.0." in first or "Look on 10.1.0.20 whether" in first, name
        assert " UTC" in first, name


@pytest.mark.parametrize("name", HOW_SURE)
def test_how_sure_outcome_and_cause_are(name: str) -> None:
    said = for_people(summary(name))
    assert f"How sure: {HOW_SURE[name]}\n" in said


def test_where_the_receiver_cannot_connect_the_sender_comes_first() -> None:
    said = for_people(summary("firewall_one_way"))
    assert "What to do: Go to 10.1.0.5, the sender, and to 10.1.0.20, the receiver. " in said


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_first_lines_say_what_happened_where_and_what_to_do(name: str) -> None:
    first = "\n".join(for_people(summary(name)).splitlines()[:_FIRST_LINES])
    said = SITUATIONS[name]
    assert [words for words in said.must if words not in first] == []
    assert [words for words in said.must_not if words in first] == []


def _of_one_direction(capture: Path, *, from_port: bool) -> bytes:
    """Returns a little-endian capture with the frames alone that the MSMQ port sent, or that it was sent."""
    data, at = capture.read_bytes(), 24
    made = data[:at]
    while at < len(data):
        size = 16 + int.from_bytes(data[at + 8 : at + 12], "little")
        packet = dpkt.ethernet.Ethernet(data[at + 16 : at + size])
        if (packet.data.data.sport == 1801) is from_port:
            made += data[at : at + size]
        at += size
    return made


@pytest.mark.parametrize(
    ("name", "from_port", "must", "must_not"),
    [
        (
            "firewall_one_way",
            False,
            ("The captures hold one direction only", "10 messages were sent again and again", "outgoing queues"),
            ("never acknowledged, ", "could not connect", "Nothing was lost"),
        ),
        (
            "no_right_to_send",
            False,
            ("The captures hold one direction only", "No loss was seen, and no refusal", "dead-letter queue"),
            ("Nothing was lost",),
        ),
        (
            "no_right_to_send",
            True,
            ("No transactional message was found", "10 acknowledgments say that a message was refused or not read"),
            ("Nothing was lost", "could not"),
        ),
        ("firewall_one_way", True, ("only one direction of some connections",), ("Nothing was lost", "sent nothing")),
    ],
)
def test_one_direction_alone_tells_what_it_shows(
    tmp_path: Path, name: str, *, from_port: bool, must: tuple[str, ...], must_not: tuple[str, ...]
) -> None:
    (tmp_path / "half.pcap").write_bytes(_of_one_direction(CAPTURES / f"{name}.pcap", from_port=from_port))
    first = look.run(config(Path(), tmp_path / "half.pcap"))["headline"]
    assert [words for words in must if words not in first] == []
    assert [words for words in must_not if words in first] == []
