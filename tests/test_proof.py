"""What proves an incident is said with the message's name, and a missing message has neighbours."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pages import report
from warehouses import derived

from jobs.cli.summary_text import connection_in_words, for_people, missing_in_words
from jobs.commands.summary import summary
from jobs.engines.in_process import InProcess

REPORTS = Path(__file__).parent / "captures" / "reports"


def told(tables: dict[str, pl.DataFrame]) -> list[str]:
    """The lines of the console."""
    found = summary(InProcess(load=lambda table, *_: tables[table.name]), "")
    return [line.strip() for line in for_people(found).splitlines()]


@pytest.mark.parametrize(
    ("capture", "shown"),
    [
        # The arrivals of a message, and the connection back that failed.
        (
            "firewall_one_way",
            [
                (
                    "Proof: the connection from 10.1.0.20:55806 to 10.1.0.5:1801; filter: ip.addr == 10.1.0.20 && "
                    "ip.addr == 10.1.0.5 && tcp.port == 55806 && tcp.port == 1801"
                ),
                'Proof: frame 12: "order 503", captured; '
                + "; ".join(f'frame {number}: "order 503", sent again' for number in (20, 28, 36, 44)),
            ],
        ),
        # The message, and the FinalAck that refuses it.
        ("no_right_to_send", ['Proof: frame 12: "order 501", captured; frame 14: "order 501", FinalAck']),
        ("extension_header", ['Proof: frame 32: "order 512", refused']),
    ],
)
def test_the_console_names_messages_and_what_the_receiver_did(capture: str, shown: list[str]) -> None:
    lines = told(derived(str(REPORTS / f"{capture}.pcap")))
    proofs = [line.partition(" (/")[0] for line in lines if line.startswith("Proof: ")]
    assert proofs == shown


def test_a_message_that_a_receiver_waits_for_is_named_on_console_and_page() -> None:
    tables = derived(str(REPORTS / "extension_header.pcap"))
    said = 'The missing message is number 11, numbered between "order 510" and "order 512".'
    (line,) = (line for line in told(tables) if line.startswith("What to do: "))
    assert line.endswith(said)
    page = report(tables)
    assert said.replace('"', "&#34;") in page
    assert "<strong>order 512</strong>, Refused: expected number 11, got 12, which needs 11." in page


def test_a_refusal_by_final_ack_is_on_the_page() -> None:
    page = report(derived(str(REPORTS / "no_right_to_send.pcap")))
    assert "<strong>order 501</strong>, FinalAck. <small>frame 14 of no_right_to_send.pcap" in page


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (None, ""),
        (
            {"number": 1, "numbers": 1, "after": None, "before": "b"},
            'The missing message is number 1, numbered before "b".',
        ),
        (
            {"number": 9, "numbers": 1, "after": "a", "before": None},
            'The missing message is number 9, numbered after "a".',
        ),
        ({"number": 4, "numbers": 3, "after": None, "before": None}, "The missing messages are numbers 4 to 6."),
    ],
)
def test_missing_messages_in_words(missing: dict[str, Any] | None, said: str) -> None:
    assert missing_in_words(missing) == said


def test_a_connection_without_packets_is_named_with_a_filter() -> None:
    said = connection_in_words("[fd00::2]:49152>[fd00::5]:1801#0")
    assert said.endswith("ipv6.addr == fd00::2 && ipv6.addr == fd00::5 && tcp.port == 49152 && tcp.port == 1801")
    assert connection_in_words("strange") == "stream strange"
