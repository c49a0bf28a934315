"""Attempts to connect that fail: what STREAMS says of them, and the finding, from captures made frame by frame."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pages import report
from pipeline import ingest
from replay_tables import with_keys
from warehouses import derived
from wiretap import (
    ACK,
    BILLION,
    FIN,
    NEW_YEAR,
    RST,
    SYN,
    Record,
    Sent,
    ethernet,
    goodbye,
    handshake,
    ipv4,
    pcap,
    udp,
)

from jobs.simulator import build
from udfs.ingest.options import IngestOptions

CLIENT, SERVER = (UUID(int=number) for number in (1, 2))
REQUEST = build.establish_connection(CLIENT)
ANSWER = build.establish_connection(CLIENT, SERVER)
REFUSAL = build.establish_connection(CLIENT, SERVER, refused=True)
UNANSWERED = [Sent(False, 1000, 0, SYN)] * 3
RESET = [Sent(False, 1000, 0, SYN), Sent(True, 0, 1001, RST | ACK)]
SILENT = [*handshake(1000, 5000), *goodbye(1001, 5001)]
OPEN = handshake(1000, 5000)


def exchange(request: bytes, answer: bytes) -> list[Sent]:
    """A connection with a handshake of the protocol."""
    asked, said = 1001 + len(request), 5001 + len(answer)
    sent = [*OPEN, Sent(False, 1001, 5001, ACK, request), Sent(True, 5001, asked, ACK, answer)]
    return [*sent, Sent(True, said, asked, FIN | ACK), Sent(False, asked, said + 1, FIN | ACK)]


WORKS = exchange(REQUEST, ANSWER)
SCENES: dict[str, tuple[list[tuple[int, list[Sent]]], str | None, str]] = {
    "10.1.0.1": ([(0, UNANSWERED), (60, UNANSWERED)], "warning", "2 connections had no answer"),
    "10.1.0.12": (
        [(0, UNANSWERED), (990, UNANSWERED)],
        "warning",
        "1 connection had no answer",
    ),
    "10.1.0.2": ([(0, RESET), (60, WORKS)], "info", "1 was refused by a reset"),
    "10.1.0.3": ([(0, WORKS), (60, SILENT)], "warning", "1 opened and carried nothing"),
    "10.1.0.4": ([(0, WORKS), (60, WORKS)], None, ""),
    "10.1.0.5": ([(990, UNANSWERED)], None, ""),
    "10.1.0.6": ([(990, RESET)], "warning", "1 was refused by a reset"),
    "10.1.0.7": ([(0, exchange(REQUEST, b""))], "warning", "1 was closed without an answer to the handshake"),
    "10.1.0.8": ([(0, exchange(REQUEST, REFUSAL))], "warning", "1 was refused in the handshake"),
    "10.1.0.11": ([(0, [one for one in exchange(REQUEST, b"") if not one.flags & SYN])], None, ""),
    "10.1.0.10": (
        [(0, exchange(b"\x11" + REQUEST[1:], b""))],
        "warning",
        "1 began with another version of the protocol",
    ),
    "10.1.0.9": ([(0, [one for one in WORKS if not one.by_server])], None, ""),
}
"""By address: its exchanges with the hub, each with its second; the severity of its finding, or None; words of that."""
HUB = "10.9.0.1"


def record(second: float, frame: bytes) -> Record:
    return Record(frame, NEW_YEAR * BILLION + int(second * BILLION))


def capture() -> bytes:
    """A capture of 1,000 s with all scenes."""
    found = []
    for address, (tries, *_) in SCENES.items():
        for number, (begin, sent) in enumerate(tries):
            found += [
                record(begin + at / 10, one.frame(client=(address, 50_000 + number), server=(HUB, 1801)))
                for at, one in enumerate(sent)
            ]
    post = Sent(False, 1, 1, ACK, b"POST /msmq/private$/orders HTTP/1.1").frame(server=("10.9.0.2", 80))
    found += [record(30, post), record(31, post), record(32, ethernet(ipv4(bytes(40), protocol=113)))]
    found.append(record(1000, ethernet(ipv4(udp(b"the end", ports=(1, 2)), protocol=17))))
    return pcap(sorted(found, key=lambda one: one.time_ns))


@pytest.mark.parametrize(
    ("sent", "attempts"),
    [
        (UNANSWERED, ["no_answer"]),
        (RESET, ["refused"]),
        (SILENT, ["silent"]),
        (OPEN, ["silent"]),
        ([*OPEN, Sent(True, 5001, 1001, RST | ACK)], ["silent"]),
        (WORKS, [None, None]),
        (exchange(REQUEST, b""), [None]),
        ([Sent(False, 1001, 5001, ACK)], []),  # no SYN: it may have carried bytes before
        ([*OPEN, Sent(True, 5001, 3001, ACK)], [None]),  # bytes were acknowledged that no capture has
        ([Sent(True, 5000, 1001, SYN | ACK)], ["silent"]),
    ],
)
def test_a_connection_without_bytes_has_one_row(tmp_path: Path, sent: list[Sent], attempts: list[str | None]) -> None:
    (tmp_path / "one.pcap").write_bytes(pcap([record(at, one.frame()) for at, one in enumerate(sent)]))
    streams = ingest([tmp_path / "one.pcap"], IngestOptions()).streams
    assert [row["attempt"] for row in streams] == attempts
    for row in streams:
        if row["attempt"]:
            assert (row["src_ip"], row["from_initiator"], row["recovered_bytes"]) == ("10.0.0.1", True, 0)
            times = (NEW_YEAR * BILLION, (NEW_YEAR + len(sent) - 1) * BILLION)
            assert (row["first_ns"], row["last_ns"]) == times


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The findings of a night by the address that could not connect."""
    file = tmp_path_factory.mktemp("attempts") / "attempts.pcap"
    file.write_bytes(capture())
    tables = derived(file)
    found = [row for row in tables["findings"].to_dicts() if row["kind"] == "cannot_connect"]
    (read,) = tables["captures"].to_dicts()
    assert read["not_judged"] == [{"what": "http", "records": 2}, {"what": "multicast", "records": 1}]
    assert '<tr><th scope="row">other traffic</th><td>http</td><td class="n">2</td>' in report(tables)
    assert "10.1.0.1" not in tables["stream_ends"]["address"]
    assert all(row["session_id"] == f"{row['explanation'].split()[0]}->{HUB}" for row in found)
    return {row["explanation"].split()[0]: row for row in found}


@pytest.mark.parametrize("address", SCENES)
def test_a_finding_says_who_could_not_connect(findings: dict[str, dict[str, Any]], address: str) -> None:
    tries, severity, words = SCENES[address]
    row = findings.get(address)
    assert (row and row["severity"]) == severity
    if row:
        could_not = "connect to" if words.endswith(("no answer", "by a reset")) else "open a session with"
        waits = "; 1 more had no answer yet when the captures end." in row["explanation"]
        assert waits is (address == "10.1.0.12")
        assert f"could not {could_not} {HUB}: {words}, from 2024-01-01 00:" in row["explanation"]
        works = any(sent is WORKS for _, sent in tries)
        assert ("The captures show no connection from " in row["explanation"]) is not works
        assert with_keys(row)["witness"] == [f"{address}:50000>{HUB}:1801#0@0"] or works


def test_of_one_direction_alone_no_failure_is_told_that_the_other_may_refute(tmp_path: Path) -> None:
    """What clients send shows no answer to any of them; what servers send shows that a connection worked."""
    late = [(one, at) for at, one in enumerate([*WORKS, *UNANSWERED, *OPEN])]

    def told(*, by_server: bool) -> list[str]:
        frames = [
            record(at * 30, one.frame(client=("10.1.0.1", 50_000 + (at >= len(WORKS)) + (at >= len(WORKS) + 3))))
            for one, at in late
            if one.by_server is by_server
        ]
        file = tmp_path / f"{by_server}.pcap"
        file.write_bytes(pcap([*frames, record(10_000, ethernet(ipv4(udp(b"the end", ports=(1, 2)), protocol=17)))]))
        found = derived(file)["findings"].to_dicts()
        return [row["explanation"] for row in found if row["kind"] == "cannot_connect"]

    assert told(by_server=False) == []
    (silent,) = told(by_server=True)
    assert "1 opened and carried nothing" in silent
    assert "The last bytes on a connection that worked are of" in silent
