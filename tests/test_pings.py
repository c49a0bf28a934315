"""MSMQ's pings by UDP: what ingest counts of them, and what is said of those without an answer."""

import random
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import wiretap
from pipeline import WHOLE, block_of, ingest_more
from warehouses import config, looked_at
from wiretap import (
    BILLION,
    NEW_YEAR,
    Record,
    cooked,
    cooked2,
    ethernet,
    fragments4,
    ipv4,
    ipv6,
    loopback,
    pcap,
    udp,
)

from jobs.cli.summary_text import for_people
from jobs.commands.summary import summary
from jobs.engines.in_process import InProcess
from schemas.ingest import CAPTURES
from schemas.replay import FINDINGS
from udfs.network.dissect import find_segments

OLD, NEW, OLD6, NEW6 = "10.1.0.5", "10.1.0.20", "fd00::5", "fd00::20"
GUID = b"\x11\xea\x26\xc6\xb6\xe6\x49\x97\x95\x95\x91\x50\x55\x73\x58\xd1"  # of the client in [MS-MQQB] 4.1.3
PING = b"\x01\x80" + b"\x48\x55" + b"\x0d\xf0\xad\x8b" + GUID
"""Flags (RC, and a garbage bit), Signature, Cookie and QMGuid, as in [MS-MQQB] 2.2.7."""
FRAME = ethernet(ipv4(udp(PING), protocol=17))
ASKED, ANSWERED = (4000, 3527), (3527, 4000)


def datagram(payload: bytes, *hosts: str, ports: tuple[int, int] = ASKED) -> bytes:
    """A frame with a UDP datagram."""
    packet = udp(payload, ports=ports)
    ip = ipv6(packet, hosts=(hosts[0], hosts[1]), protocol=17) if ":" in hosts[0] else None
    return ethernet(ip or ipv4(packet, hosts=(hosts[0], hosts[1]), protocol=17))


def ping(second: float, cookie: int, source: str, target: str, ports: tuple[int, int] = ASKED) -> Record:
    """A ping, or the answer to one."""
    data = PING[:4] + cookie.to_bytes(4, "little") + GUID
    return Record(datagram(data, source, target, ports=ports), NEW_YEAR * BILLION + int(second * BILLION))


def answer(second: float, cookie: int, source: str = NEW, target: str = OLD) -> Record:
    return ping(second, cookie, source, target, ANSWERED)


def cookies(frames: Sequence[bytes], link: int = wiretap.ETHERNET) -> tuple[list[int], int]:
    """The cookies of the pings in a block, and how many datagrams to their port are none."""
    _, rejected, _ = find_segments(block_of(frames, link), (1801,))
    return [] if rejected.pings is None else rejected.pings.cookie.tolist(), rejected.not_judged["bad_ping"]


@pytest.mark.parametrize(
    ("frame", "link"),
    [
        (FRAME, wiretap.ETHERNET),
        (
            ethernet(ipv4(udp(PING), protocol=17, options=bytes(8)), tags=(0x8100, 0x88A8), trailer=b"end"),
            wiretap.ETHERNET,
        ),
        (ethernet(ipv6(udp(PING, ports=ANSWERED), protocol=17)), wiretap.ETHERNET),
        (cooked(ipv4(udp(PING), protocol=17)), wiretap.SLL),
        (cooked2(ipv6(udp(PING), protocol=17)), wiretap.SLL2),
        (loopback(ipv4(udp(PING), protocol=17)), wiretap.NULL),
        (ipv4(udp(PING), protocol=17), wiretap.RAW),
    ],
)
def test_a_ping_is_found_on_every_link(frame: bytes, link: int) -> None:
    assert cookies([frame, b"", frame], link) == ([0x8BADF00D] * 2, 0)


@pytest.mark.parametrize(
    ("frame", "bad"),
    [
        (datagram(PING[:2] + b"\x55\x48" + PING[4:], OLD, NEW), 1),
        (datagram(PING + b"\0", OLD, NEW), 1),
        (datagram(PING[:23], OLD, NEW), 1),
        (datagram(b"\x48\x55" * 4, OLD, NEW), 1),
        (datagram(b"name" * 6, OLD, NEW, ports=ANSWERED), 0),  # an ordinary client may have this port, too
        (datagram(PING, OLD, NEW, ports=(4000, 4001)), 0),
        (ethernet(ipv4(wiretap.tcp(PING, ports=ASKED))), 0),
        *((ethernet(part), 0) for part in fragments4(udp(PING), [16], protocol=17)),
        *((FRAME[:size], 0) for size in range(14 + 20 + 8 + 8)),  # cut before the end of the cookie
    ],
)
def test_what_is_no_ping_is_counted_where_one_was_due(frame: bytes, bad: int) -> None:
    assert cookies([frame]) == ([], bad)
    assert cookies([frame, FRAME[:50], frame]) == ([0x8BADF00D], 2 * bad)  # cut behind the cookie


# --- what `captures` says ---------------------------------------------------------------------------------------------


def rows_of_captures(paths: Sequence[Path], split_bytes: int = 1 << 40) -> list[dict[str, Any]]:
    """The rows of CAPTURES, in the order of the files."""
    engine = InProcess()
    ingest_more(engine, [str(path) for path in paths], replace(WHOLE, split_bytes=split_bytes))
    rows = {row["uri"]: row for row in engine.read(CAPTURES).to_dicts()}
    return [rows[str(path)] for path in paths]


def counted(tmp_path: Path, *captures: list[Record]) -> list[list[tuple[Any, ...]]]:
    """By capture its pings: source, destination, requests, answers, times in seconds. Splits do not matter."""
    paths = [tmp_path / f"{at}.pcap" for at in range(len(captures))]
    for path, records in zip(paths, captures, strict=True):
        path.write_bytes(pcap(records))
    found = [[row["pings"] for row in rows_of_captures(paths, size)] for size in (300, 1 << 40)]
    assert found[0] == found[1]
    return [
        [
            (*[one[name] for name in ("source", "destination", "requests", "answers")], *map(second, times(one)))
            for one in pings or ()
        ]
        for pings in found[0]
    ]


def times(row: dict[str, Any]) -> list[int | None]:
    return [row[name] for name in ("first_ns", "last_ns", "answered_ns")]


def second(ns: int | None) -> float | None:
    return None if ns is None else (ns - NEW_YEAR * BILLION) / BILLION


LAST = Record(datagram(b"other", OLD, NEW, ports=(1, 2)), (NEW_YEAR + 1000) * BILLION)
UNANSWERED = [ping(at, at, OLD, NEW) for at in (10, 20, 30)]


@pytest.mark.parametrize(
    ("records", "pings"),
    [
        ([LAST], []),
        ([*UNANSWERED, LAST], [(OLD, NEW, 3, 0, 10, 30, None)]),
        ([*UNANSWERED, *UNANSWERED, LAST], [(OLD, NEW, 3, 0, 10, 30, None)]),  # each was captured twice
        ([*UNANSWERED, answer(20.5, 20), LAST], [(OLD, NEW, 3, 1, 10, 30, 20.5)]),
        ([*UNANSWERED, answer(5, 20), LAST], [(OLD, NEW, 3, 1, 10, 30, 5)]),  # in which order does not matter
        ([*UNANSWERED, answer(31, 31), LAST], [(OLD, NEW, 3, 1, 10, 30, 31)]),  # to a ping that was not captured
        (
            [*UNANSWERED, answer(20.5, 20, "10.1.0.9"), LAST],
            [(OLD, "10.1.0.9", 0, 1, None, None, 20.5), (OLD, NEW, 3, 0, 10, 30, None)][::-1],
        ),
        ([ping(10, 1, OLD6, NEW6), LAST], [(OLD6, NEW6, 1, 0, 10, 10, None)]),
        ([ping(10, 1, OLD, NEW), ping(999.5, 2, OLD, NEW), LAST], [(OLD, NEW, 1, 0, 10, 10, None)]),  # still waits
        ([ping(1, 1, OLD, NEW, (3527, 3527)), LAST], [(OLD, NEW, 1, 0, 1, 1, None)]),
        (
            [ping(1, 1, OLD, NEW, (3527, 3527)), ping(1.5, 1, NEW, OLD, (3527, 3527)), LAST],
            [(NEW, OLD, 1, 1, None, None, 1), (OLD, NEW, 1, 1, None, None, 1.5)],
        ),
    ],
)
def test_pings_of_a_capture(tmp_path: Path, records: list[Record], pings: list[tuple[Any, ...]]) -> None:
    assert sorted(counted(tmp_path, records)[0]) == sorted(pings)


def test_pings_without_times(tmp_path: Path) -> None:
    data = b"".join(wiretap.simple(one.data) for one in UNANSWERED)
    (tmp_path / "one.pcapng").write_bytes(wiretap.section() + wiretap.interface() + data)
    (row,) = rows_of_captures([tmp_path / "one.pcapng"])
    (pings,) = row["pings"]
    assert (pings["requests"], pings["answers"], times(pings)) == (3, 0, [None] * 3)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")
@pytest.mark.parametrize("seed", range(3))
def test_pings_are_those_in_the_datagrams_that_tshark_finds(tmp_path: Path, seed: int) -> None:
    """Which does not know the protocol: endpoints and payloads come from it, and the rest from their bytes."""
    rng, records = random.Random(seed), []
    for at in range(300):
        hosts = rng.choice([(OLD, NEW), (NEW, OLD), (OLD6, NEW6), (NEW6, OLD6), ("10.1.0.9", NEW)])
        ports = rng.choice([ASKED, ANSWERED, ASKED, ANSWERED, (3527, 3527), (1, 2)])
        data = PING[:4] + rng.randrange(30).to_bytes(4, "little") + GUID
        data = rng.choice([data] * 5 + [data[:23], data + b"x", data[:2] + b"UH" + data[4:], b""])
        records.append(Record(datagram(data, *hosts, ports=ports), (NEW_YEAR + at) * BILLION))
    (tmp_path / "one.pcap").write_bytes(pcap([*records, LAST]))
    fields = ("ip.src", "ipv6.src", "ip.dst", "ipv6.dst", "udp.srcport", "udp.dstport", "udp.payload")
    wanted = [option for field in fields for option in ("-e", field)]
    command = ["tshark", "-r", str(tmp_path / "one.pcap"), "-Y", "udp.port==3527", "-T", "fields", *wanted]
    asked, back, bad = set[tuple[str, ...]](), set[tuple[str, ...]](), 0
    for line in subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines():
        ip, ip6, to, to6, port, to_port, payload = line.split("\t")
        if len(payload) != 48 or payload[4:8] != "4855":
            bad += to_port == "3527"
            continue
        if to_port == "3527":
            asked.add((ip or ip6, port, to or to6, to_port, payload[8:16]))
        if port == "3527":
            back.add((to or to6, to_port, ip or ip6, port, payload[8:16]))
    lone = {one for one in back - asked if one[1] != "3527"}
    due = {
        (str(ip_address(one[0])), str(ip_address(one[2]))): (
            sum((other[0], other[2]) == (one[0], one[2]) for other in asked),
            sum((other[0], other[2]) == (one[0], one[2]) for other in back & asked | lone),
        )
        for one in asked | lone
    }
    (row,) = rows_of_captures([tmp_path / "one.pcap"])
    assert {(one["source"], one["destination"]): (one["requests"], one["answers"]) for one in row["pings"]} == due
    assert row["not_judged"] == [{"what": "bad_ping", "records": bad}]
    assert row["other_count"] == 301
    assert asked & back
    assert len(due) > 4


# --- what is told of them ---------------------------------------------------------------------------------------------


def connected(second: float) -> list[Record]:
    """A connection from the old machine to the new one on which it sends bytes."""
    sent = wiretap.conversation(random.Random(1), b"LIOR" * 10)
    frames = [one.frame(client=(OLD, 50_000), server=(NEW, 1801)) for one in sent]
    return wiretap.records(frames, start_ns=(NEW_YEAR + int(second)) * BILLION)


@pytest.mark.parametrize(
    ("captures", "severity", "words"),
    [
        ([[*UNANSWERED, LAST]], "warning", "did not answer 3 of 3 pings (UDP port 3527)"),
        ([[*UNANSWERED[:2], LAST], [*UNANSWERED[2:], LAST]], "warning", "did not answer 3 of 3 pings"),
        ([[*connected(5), *UNANSWERED, LAST]], "warning", "does not connect before it has an answer"),
        ([[*UNANSWERED, *connected(40), LAST]], "info", "connected all the same, at 2024-01-01 00:00:40"),
        ([[*UNANSWERED, answer(30.5, 30), LAST]], "info", "did not answer 2 of 3 pings"),
        ([[*UNANSWERED, LAST], [*(answer(at, at) for at in (10, 20, 30)), LAST]], None, ""),  # one direction each
        pytest.param([[ping(999.5, 1, OLD, NEW), LAST]], None, "", marks=pytest.mark.slow),
        pytest.param([[LAST]], None, "", marks=pytest.mark.slow),
    ],
)
def test_a_finding_and_the_console_say_who_has_no_answer(
    tmp_path: Path, captures: list[list[Record]], severity: str | None, words: str
) -> None:
    paths = [tmp_path / f"{at}.pcap" for at in range(len(captures))]
    for path, records in zip(paths, captures, strict=True):
        path.write_bytes(pcap(records))
    engine = looked_at(config(Path(), *paths))
    found = [row for row in engine.read(FINDINGS).to_dicts() if row["kind"] == "unanswered_pings"]
    assert [row["severity"] for row in found] == ([severity] if severity else [])
    console = for_people(summary(engine, ""))
    assert ("unanswered pings" in console) is (severity is not None)
    for row in found:
        assert words in row["explanation"]
        assert f"{NEW} did not answer " in row["explanation"]
        assert f"from {OLD}, from 2024-01-01 00:00:10" in row["explanation"]
        assert row["explanation"] in console
        assert row["session_id"] == f"{OLD}->{NEW}"
