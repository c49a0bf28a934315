"""Survey, scan and assemble over whole captures, without Spark: nothing is lost, nothing counted twice."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import wiretap
from pipeline import WHOLE, Ingested, frames, ingest, ingest_more, look, stream
from tiers import merge_needs
from wiretap import (
    ACK,
    FIN,
    RST,
    SYN,
    Record,
    Sent,
    conversation,
    ethernet,
    fragments4,
    pcap,
    pcapng,
    tcp,
)

from jobs.engines.in_process import InProcess
from jobs.simulator import simulate
from schemas.ingest import CAPTURES, STREAM_GAPS
from udfs.ingest import assemble, preframe
from udfs.ingest.options import IngestOptions
from udfs.tcp.delivery import Overlap, Piece, deliver
from udfs.tcp.direction import Direction

WITHOUT_BODIES = IngestOptions()
REQUEST, REQUESTS = stream(random.Random(1), 30)
RESPONSE, RESPONSES = stream(random.Random(2), 20)
TALK = conversation(random.Random(3), REQUEST, RESPONSE)


ADDRESSES = [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")]


@pytest.mark.parametrize(("a", "b"), merge_needs(ADDRESSES[1:], ADDRESSES))
def test_a_whole_conversation(a: str, b: str, tmp_path: Path) -> None:
    """Its checksums are all wrong, as where the network card fills them in (32)."""
    taken = wiretap.records(frames(TALK, client=(a, 50_000), server=(b, 1801)))
    for data in (pcap(taken), pcapng(taken)):
        found = look(tmp_path, data)
        assert (found.framed(a), found.framed(b)) == (REQUESTS, RESPONSES)
        assert (found.quarantine, found.gaps) == ([], [])
        assert found.counts == {"segments": len(TALK), "others": 0}
        assert [(s["src_port"], s["from_initiator"], s["initial_seq"]) for s in found.streams] == [
            (50_000, True, 1000),
            (1801, False, 5000),
        ]
        ends = ("10.0.0.1:50000", "10.0.0.2:1801") if a == "10.0.0.1" else ("[fd00::1]:50000", "[fd00::2]:1801")
        assert found.streams[0]["stream_id"] == f"{ends[0]}>{ends[1]}#0"
        last = [i for i, s in enumerate(TALK, 1) if not s.by_server and s.payload]
        assert found.packets[len(REQUESTS) - 1]["last_frame"] == last[-1]
        assert found.packets[0]["first_frame"] == last[0]


def test_the_longest_time_of_a_tcp_window_of_0(tmp_path: Path) -> None:
    """The server's window is 0 three times; the FIN without a window is the last segment but one."""
    data = REQUEST[:3000]
    sent = [
        *wiretap.handshake(1000, 5000),
        Sent(False, 1001, 5001, ACK, data[:1000]),
        Sent(True, 5001, 2001, ACK, window=0),  # second 4
        Sent(True, 5001, 2001, ACK),
        Sent(False, 2001, 5001, ACK, data[1000:2000]),
        Sent(True, 5001, 3001, ACK, window=0),  # second 7
        Sent(False, 2001, 5001, ACK, data[1000:2000]),
        Sent(True, 5001, 3001, ACK, window=0),
        Sent(True, 5001, 3001, ACK),
        Sent(False, 3001, 5001, ACK, data[2000:]),
        Sent(True, 5001, 4001, FIN | ACK, window=0),  # second 12
        Sent(False, 4001, 5002, FIN | ACK),
    ]
    (row,) = look(tmp_path, pcap(wiretap.records(frames(sent), step_ns=wiretap.BILLION))).streams
    first = row["first_ns"] - 3 * wiretap.BILLION
    assert (row["window_shut_from_ns"] - first, row["window_shut_ms"]) == (7 * wiretap.BILLION, 3_000)
    assert row["connection_last_ns"] - first == 13 * wiretap.BILLION
    (row,) = look(tmp_path, pcap(wiretap.records(frames(sent[:10]), step_ns=wiretap.BILLION))).streams  # it stays at 0
    assert (row["window_shut_from_ns"] - first, row["window_shut_ms"]) == (7 * wiretap.BILLION, 2_000)
    whole = look(tmp_path, pcap(wiretap.records(frames(TALK)))).streams
    assert {(row["window_shut_from_ns"], row["window_shut_ms"]) for row in whole} == {(None, None)}


def test_fault_26_times_do_not_order(tmp_path: Path) -> None:
    """Nor do splits and framed runs change which time is the last one."""
    middle = next(at for at, sent in enumerate(TALK) if at > 20 and not sent.payload)  # an acknowledgment
    late = [10**6 if at == middle else at for at in range(len(TALK))]
    for stamps in ([5] * len(TALK), list(range(len(TALK), 0, -1)), [2**32 - 1] * len(TALK), late):
        found = look(tmp_path, pcap(Record(f, stamp * 10**9) for f, stamp in zip(frames(TALK), stamps, strict=True)))
        assert (found.framed(), found.framed("10.0.0.2")) == (REQUESTS, RESPONSES)
        assert {row["connection_last_ns"] for row in found.streams} == {max(stamps) * 10**9}


@pytest.mark.parametrize("tags", merge_needs([[0x8100]], [[], [0x8100]]))
def test_fault_27_28_seen_twice(tags: list[int], tmp_path: Path) -> None:
    """By a mirror port, or from another place whose clock is off: one stream, each packet once."""
    once = frames(TALK)
    copies = [f[:12] + b"\x81\x00\x00\x07" * len(tags) + f[12:22] + bytes([f[22] - 1]) + f[23:] for f in once]
    there = wiretap.records(once)
    early, late = (
        wiretap.records(copies, start_ns=(wiretap.NEW_YEAR + seconds) * wiretap.BILLION) for seconds in (-7200, 120)
    )
    merged = [record for pair in zip(there, early, strict=True) for record in pair]
    for data in ([pcap(merged)], [pcap(there), pcap(late)]):
        found = look(tmp_path, *data)
        assert (found.framed(), found.framed("10.0.0.2")) == (REQUESTS, RESPONSES)
        assert (found.quarantine, found.gaps, len(found.streams)) == ([], [], 2)
        assert not any(s["conflict"] for s in found.streams)


def test_copies_of_framed_bytes_are_read_again_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that comes again in a later split, cut otherwise: the same bytes change nothing, others are told."""
    monkeypatch.setattr(preframe, "RUN_BYTES", 60)
    monkeypatch.setattr(preframe, "TAIL_BYTES", 30)
    talk = conversation(random.Random(3), REQUEST, largest=1000)
    data = [one for one in talk if one.payload and not one.by_server]
    half = len(data[3].payload) // 2
    again = replace_payload(data[3], data[3].payload[half:] + data[4].payload[:9], at=half)
    other = replace_payload(again, bytes(len(again.payload)), at=0)
    split = replace(WHOLE, split_bytes=30_000)
    for copy, looked_again in ((again, 0), (other, 1)):
        path = tmp_path / f"{looked_again}.pcap"
        path.write_bytes(pcap(wiretap.records(frames([*talk[:-4], copy, *talk[-4:]]))))
        found = ingest([path], split)
        assert found.framed() == REQUESTS
        assert (found.framed_runs > 0, found.needs_payload) == (not looked_again, looked_again)
        assert [row["conflict"] for row in found.streams] == [looked_again == 1]


def replace_payload(sent: Sent, payload: bytes, *, at: int) -> Sent:
    return sent._replace(seq=sent.seq + at, payload=payload)


def test_fault_21_fragments(tmp_path: Path) -> None:
    """Every third data segment is fragmented: in order, in reverse, and once with a fragment missing."""
    talk = conversation(random.Random(3), REQUEST, largest=1400)
    data = [at for at, one in enumerate(talk) if len(one.payload) > 800 and not one.by_server]
    assert len(data) > 9

    def record(at: int, *, reverse: bool = False, without: int | None = None) -> list[bytes]:
        datagram = tcp(talk[at].payload, seq=talk[at].seq, ack=talk[at].ack, flags=talk[at].flags)
        parts = fragments4(datagram, [400, 800], identification=at)
        kept = [part for number, part in enumerate(parts) if number != without]
        return [ethernet(part) for part in (reversed(kept) if reverse else kept)]

    whole = [[one] for one in frames(talk)]
    whole[data[1]], whole[data[4]] = record(data[1]), record(data[4], reverse=True)
    found = look(tmp_path, pcap(wiretap.records(chain.from_iterable(whole))))
    assert found.framed() == REQUESTS
    assert (found.gaps, found.quarantine) == ([], [])
    whole[data[7]] = record(data[7], without=1)
    found = look(tmp_path, pcap(wiretap.records(chain.from_iterable(whole))))
    assert [row["length"] for row in found.gaps] == [len(talk[data[7]].payload)]
    assert [reason for stage, reason, _ in found.reasons() if stage == "frame"] == ["ip_fragment"] * 2


def test_fault_45_reset_inside_a_frame(tmp_path: Path) -> None:
    sent = [*wiretap.handshake(1000, 5000), Sent(False, 1001, 1, ACK, REQUESTS[0][:100]), Sent(True, 5001, 1101, RST)]
    found = look(tmp_path, pcap(wiretap.records(frames(sent))))
    assert found.reasons() == [("framing", "incomplete_frame", min(100, len(REQUESTS[0])))]


def test_fault_48_far_off_the_window(tmp_path: Path) -> None:
    sent = [*TALK[:20], Sent(False, 1001 + 2**30, 0, ACK, b"far off"), *TALK[20:]]
    found = look(tmp_path, pcap(wiretap.records(frames(sent))))
    assert found.reasons() == [("tcp", "outside_window", 7)]
    assert (found.quarantine[0]["frame_number"], found.quarantine[0]["stream_id"]) == (21, None)
    assert found.framed() == REQUESTS


def test_faults_53_54_many_flows(tmp_path: Path) -> None:
    """Sixty at once with equal numbers, two of each address, some from port 1801 to port 1801."""
    rng = random.Random(5)
    flows = []
    expected = {}
    for i in range(60):
        client = (f"10.1.{i // 2}.9", 1801 if i % 3 == 0 else 40_000 + i)
        server = ("10.0.1.1", 1801)
        data, packets = stream(rng, rng.randrange(1, 9), largest=500)
        back, answers = stream(rng, rng.randrange(1, 9), largest=500)
        sent = conversation(rng, data, back, largest=300)
        flows.append([s.frame(client=client, server=server) for s in sent])
        names = [f"{ip}:{port}" for ip, port in (client, server)]
        expected[f"{names[0]}>{names[1]}#0"] = (packets, True)
        expected[f"{names[1]}>{names[0]}#0"] = (answers, False)
    mixed = []
    while flows := [flow for flow in flows if flow]:
        mixed.append(rng.choice(flows).pop(0))
    found = look(tmp_path, pcap(wiretap.records(mixed)))
    assert {s["stream_id"]: s["from_initiator"] for s in found.streams} == {k: way for k, (_, way) in expected.items()}
    for stream_id, (packets, _) in expected.items():
        assert [row["raw"] for row in found.packets if row["stream_id"] == stream_id] == packets
    assert found.quarantine == []


def test_fault_16_simple_packets_have_no_time(tmp_path: Path) -> None:
    data = wiretap.section() + wiretap.interface() + b"".join(map(wiretap.simple, frames(TALK)))
    found = look(tmp_path, data)
    assert found.framed() == REQUESTS
    assert {row["captured_ns"] for row in found.packets} == {None}
    assert {(s["first_ns"], s["last_ns"]) for s in found.streams} == {(None, None)}


def test_stray_syn_and_stream_of_acknowledgments_only(tmp_path: Path) -> None:
    sent = [Sent(False, 1000, 0, SYN), Sent(True, 5000, 1001, SYN | ACK), Sent(True, 5001, 3001, ACK)]
    found = look(tmp_path, pcap(wiretap.records(frames(sent))))
    assert [(s["recovered_bytes"], s["missing_bytes"], s["first_ns"]) for s in found.streams] == [(0, 2000, None)]


# --- large captures, in parts -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some MB of simulated traffic with disorder, in one file."""
    folder = tmp_path_factory.mktemp("traffic")
    simulate(str(folder), 11, 2500, bodies=(1000, 1000), disorder=0.01, file_bytes=1 << 40)
    (file,) = folder.glob("*.pcap")
    return file


@pytest.fixture(scope="module")
def unsplit(capture: Path) -> Ingested:
    found = ingest([capture], replace(WITHOUT_BODIES, split_bytes=1 << 40))
    assert found.framed_runs > 10
    assert len(found.packets) > 2500
    return found


@pytest.mark.parametrize(
    ("window_bytes", "split_bytes"),
    merge_needs([(80_000, 300_000), (120_000, 1 << 40)], product((80_000, 120_000), (300_000, 1 << 40))),
)
def test_fault_87_what_is_out_of_reach_is_handed_on(
    capture: Path, unsplit: Ingested, window_bytes: int, split_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = []

    def counting(side: Direction, overlap: Overlap, before: int | None = None, **more: Any) -> list[Piece]:
        pieces = deliver(side, overlap, before, **more)
        handed.append(before is not None and bool(pieces))
        return pieces

    monkeypatch.setattr(assemble, "deliver", counting)
    found = ingest([capture], replace(WITHOUT_BODIES, window_bytes=window_bytes, split_bytes=split_bytes))
    assert len(found.captures[0]["cursors"]) > 3 or split_bytes > 1 << 30
    assert sum(handed) > 5
    assert found.found == unsplit.found


@pytest.mark.slow
def test_what_comes_too_late_does_not_depend_on_splits(capture: Path) -> None:
    """In a window narrower than the disorder, segments are missing, the same ones in every split."""
    narrow = replace(WITHOUT_BODIES, window_bytes=30_000)
    one, *others = (ingest([capture], replace(narrow, split_bytes=split)) for split in (1 << 40, 300_000, 50_000))
    assert one.gaps
    assert [other.found for other in others] == [one.found] * 2


# --- when and where bytes are missing -----------------------------------------------------------------------------


def test_a_gap_says_in_which_capture_and_between_which_times_it_lies(tmp_path: Path) -> None:
    """Of the requests, a segment is lost inside the first capture, at the cut between both, and at the very end."""
    sent = [one for one in TALK if not one.by_server or not one.payload]
    data = [at for at, one in enumerate(sent) if one.payload]
    lost = data[3], data[9], data[-1]
    records = [record for at, record in enumerate(wiretap.records(frames(sent))) if at not in lost]
    cut = next(
        at for at, record in enumerate(records) if record.time_ns > wiretap.NEW_YEAR * wiretap.BILLION + 10**6 * lost[1]
    )
    uris = written(tmp_path, records[:cut], records[cut:])
    once, nights = InProcess(), InProcess()
    ingest_more(once, map(str, uris), WHOLE)
    for uri in uris:
        ingest_more(nights, [str(uri)], WHOLE)
    ids = {row["uri"]: row["capture_id"] for row in once.read(CAPTURES).to_dicts()}
    first, second = (ids[str(uri)] for uri in uris)

    def at(place: int) -> datetime:
        return datetime.fromtimestamp(wiretap.NEW_YEAR + place / 1000, UTC)

    for engine in (once, nights):
        of_requests = engine.read(STREAM_GAPS).filter(pl.col("stream_id").str.starts_with("10.0.0.1:"))
        found = of_requests.sort("stream_offset").to_dicts()
        told = [(row["capture_id"], row["last_before_at"], row["first_after_at"]) for row in found]
        assert told == [
            (first, at(data[2]), at(data[4])),
            (second, at(data[8]), at(data[10])),
            (second, at(data[-2]), None),
        ]
        assert [row["length"] for row in found] == [len(sent[place].payload) for place in lost]


def written(folder: Path, *captures: list[wiretap.Record]) -> list[Path]:
    uris = [folder / f"{at}.pcap" for at in range(len(captures))]
    for uri, records in zip(uris, captures, strict=True):
        uri.write_bytes(pcap(records))
    return uris


# --- who ended a connection, and when its receiver was seen last ------------------------------------------------------

OPENED = wiretap.handshake(1000, 5000)
ASKED = [Sent(False, 1001, 5001, ACK, REQUESTS[0]), Sent(True, 5001, 1001 + len(REQUESTS[0]), ACK)]
"""The request is second 3, its bare acknowledgment second 4."""
NEXT = 1001 + len(REQUESTS[0])
BY_CLIENT = [Sent(False, NEXT, 5001, FIN | ACK), Sent(True, 5001, NEXT + 1, FIN | ACK)]
BY_SERVER = [Sent(True, 5001, NEXT, FIN | ACK), Sent(False, NEXT, 5002, FIN | ACK), Sent(True, 5002, NEXT + 1, ACK)]
RESET = [Sent(True, 5001, NEXT, RST | ACK)]
HALF = BY_SERVER[:1]


Said = tuple[bool | None, int | None, int | None]
ENDS: list[tuple[list[Sent], Said]] = [
    ([], (None, None, 4)),
    (BY_CLIENT, (False, 5, 6)),
    (BY_SERVER, (True, 5, 7)),
    (HALF, (True, 5, 5)),
    (RESET, (True, 5, 5)),
    ([*BY_CLIENT[:1], *RESET], (False, 5, 6)),
]
"""How connections end that begin alike, and what `ends_of` has to find for each."""
ENDED = ("ended_ns", "receiver_last_ns")


def ends_of(found: Ingested) -> list[Said]:
    """For each client's stream: whether the server ended it, in which second, and that of its last segment."""
    rows = sorted((row for row in found.streams if row["src_ip"] == "10.0.0.1"), key=lambda row: int(row["src_port"]))
    first = wiretap.NEW_YEAR * wiretap.BILLION
    times = ([row[name] and (row[name] - first) // wiretap.BILLION for name in ENDED] for row in rows)
    return [(row["ended_by_receiver"], at, seen) for row, (at, seen) in zip(rows, times, strict=True)]


Records = list[wiretap.Record]
Captured = Callable[[Records, list[bool]], list[Records]]


def one_way_first(records: Records, is_back: list[bool], *, back: bool) -> Records:
    return [one for side in (back, not back) for one, of in zip(records, is_back, strict=True) if of is side]


def later(records: Records) -> Records:
    return [one._replace(time_ns=one.time_ns + wiretap.BILLION // 2) for one in records]


CAPTURED: dict[str, Captured] = {
    "whole": lambda records, _: [records],
    "the client first": lambda records, is_back: [one_way_first(records, is_back, back=False)],
    "the server first": lambda records, is_back: [one_way_first(records, is_back, back=True)],
    "both": lambda records, is_back: [one_way_first(records, is_back, back=back) for back in (False, True)],
    "each record twice": lambda records, _: [[one for one in records for _ in range(2)]],
    "the last one in another file": lambda records, _: [records[:-1], records[-1:]],
    "a second time, late": lambda records, _: [records, later(records)],
}


@pytest.mark.parametrize("way", CAPTURED)
def test_who_ended_a_connection(tmp_path: Path, way: str) -> None:
    """However it was captured: whole or one direction after the other, twice, or in files of which some are late."""
    captures: list[Records] = [[], []]
    for number, (end, _) in enumerate(ENDS):
        sent = [*OPENED, *ASKED, *end]
        records = wiretap.records(frames(sent, client=("10.0.0.1", 50_000 + number)), step_ns=wiretap.BILLION)
        for taken, part in zip(captures, CAPTURED[way](records, [one.by_server for one in sent]), strict=False):
            taken.extend(part)
    assert ends_of(look(tmp_path, *map(pcap, filter(None, captures)))) == [said for _, said in ENDS]


def test_who_ended_a_connection_without_times(tmp_path: Path) -> None:
    """The first FIN in the file; nobody can say when."""
    data = b"".join(map(wiretap.simple, frames([*OPENED, *ASKED, *BY_SERVER])))
    assert ends_of(look(tmp_path, wiretap.section() + wiretap.interface() + data)) == [(True, None, None)]
