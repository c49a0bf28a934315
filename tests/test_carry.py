"""Captures read one night after another, each only once: the tables are those of one night with all of them."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, islice, pairwise, product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import wiretap
from pipeline import WHOLE, frames, ingest_more, stream
from random_packets import any_packet, damaged, user_message
from table_frames import sorted_rows
from test_framing import hostile_stream
from tiers import merge_needs
from wiretap import ACK, PSH, Sent, conversation, fast_open, goodbye, handshake, msmq, pcap

from jobs.engines.in_process import InProcess
from schemas.ingest import CAPTURES, INTERNAL_CONNECTIONS, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from udfs.ingest import connections, preframe
from udfs.ingest.flow import LateError
from udfs.ingest.options import IngestOptions
from udfs.msmq import framing, stream_window
from udfs.tcp.delivery import Overlap

TABLES = (CAPTURES, INTERNAL_CONNECTIONS, STREAMS, STREAM_GAPS, PACKETS, QUARANTINE)
OF_A_RUN = ("ingested_at", "first_instance", "tails", "state")
"""Columns that tell of the run that wrote a row."""


def same(
    tmp_path: Path, captures: list[bytes], options: IngestOptions = WHOLE, order: Sequence[list[int]] | None = None
) -> None:
    """Reads the captures in one night, and in nights of this order, by default one each; the tables are the same."""
    uris = written(tmp_path, captures)
    once, nights = InProcess(50), InProcess(50)
    ingest_more(once, uris, options)
    order = order or [[at] for at in range(len(uris))]
    for night in order:
        ingest_more(nights, [uris[at] for at in night], options)
    for table in TABLES:
        one, other = (sorted_rows(of.read(table), *OF_A_RUN) for of in (nights, once))
        assert one == other, table.name


def written(folder: Path, captures: list[bytes]) -> list[str]:
    """Writes captures and returns their names."""
    uris = [str(folder / f"{at}.pcap") for at in range(len(captures))]
    for uri, data in zip(uris, captures, strict=True):
        Path(uri).write_bytes(data)
    return uris


def cut(rng: random.Random, sent: list[bytes], nights: int) -> list[bytes]:
    """The frames as captures that follow one another."""
    records = wiretap.records(sent)
    places = sorted(rng.randrange(len(records) + 1) for _ in range(nights - 1))
    return [pcap(records[low:high]) for low, high in pairwise([0, *places, len(records)])]


Damage = Callable[[random.Random, list[Sent]], list[Sent]]


def lost(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    return [one for one in sent if rng.random() > 0.05]


def doubled(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    return [one for one in sent for _ in range(1 + (rng.random() < 0.1))]


DAMAGE: dict[str, Damage] = {
    "none": lambda _, sent: sent,
    "lost": lost,
    "swapped": lambda rng, sent: [sent[i] for i in sorted(range(len(sent)), key=lambda i: i + rng.random() * 3)],
    "doubled": doubled,
    "beheaded": lambda rng, sent: sent[rng.randrange(3, len(sent) // 2) :],
}


WAYS = [(damage, *way) for damage in DAMAGE for way in ((False, False), (True, False), (False, True))]
"""How frames are damaged, whether there is preframing, and whether captures are late."""
OF_EACH_DAMAGE = [(at % 12, *way) for at, way in enumerate(WAYS) if at % 3 == at // 3 % 3]
"""Each damage once, and the rest of the ways by turns, each with a seed."""


@pytest.mark.parametrize(
    ("seed", "damage", "preframing", "late"),
    merge_needs(OF_EACH_DAMAGE, [(seed, *way) for seed in range(12) for way in WAYS]),
)
def test_nights_are_one_night(
    seed: int, damage: str, preframing: bool, late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every policy of overlaps; also of captures that are late."""
    rng = random.Random(seed)
    if preframing:
        monkeypatch.setattr(preframe, "RUN_BYTES", 60)
        monkeypatch.setattr(preframe, "TAIL_BYTES", 30)
    talks = []
    for flow in range(rng.randrange(1, 3)):
        request, response = (stream(rng, rng.randrange(2, 30), largest=rng.choice([60, 2000]))[0] for _ in range(2))
        sent = conversation(rng, request, response, largest=rng.choice([100, 1460]))
        talks += frames(DAMAGE[damage](rng, sent), client=("10.0.0.1", 50_000 + flow))
    captures = cut(rng, talks, rng.randrange(2, 6))
    order = [[at] for at in rng.sample(range(len(captures)), len(captures))] if late else None
    same(tmp_path, captures, replace(WHOLE, overlap=list(Overlap)[seed % len(Overlap)]), order)


def hostile(rng: random.Random) -> bytes:
    """Returns packets of all kinds, damaged ones, packets in bodies, TLS records, and garbage."""
    parts = []
    for _ in range(rng.randrange(1, 7)):
        kind = rng.random()
        if kind < 0.5:
            parts.append(any_packet(rng))
        elif kind < 0.65:
            parts.append(damaged(rng, any_packet(rng)))
        elif kind < 0.75:
            parts.append(user_message(rng, ["tx"])[: rng.randrange(20, 300)])
        elif kind < 0.85:
            parts.append(hostile_stream(rng))
        else:
            parts.append(
                bytes([rng.choice([20, 23]), 3, rng.randrange(6), 0, rng.randrange(256)]) * rng.randrange(1, 9)
            )
    return b"".join(parts)


@pytest.mark.parametrize(
    ("seed", "keep_bodies", "windowed"),
    merge_needs(
        [(1, False, True)],
        product(range(4), (False, True), (False, True)),
    ),
)
def test_what_is_no_packet_is_carried_over(
    seed: int, keep_bodies: bool, windowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nights end out of step, in decoys and in packets of at most 400 bytes, of which some are not decided yet."""
    if windowed:
        monkeypatch.setattr(stream_window, "LARGEST_PACKET", 400)
        monkeypatch.setattr(stream_window, "LOOKAHEAD", 2 * (400 + 16) + 16)
        monkeypatch.setattr(framing, "_WINDOW", 500)
    rng = random.Random(seed)
    ways = []
    for flow in range(30):
        data = b"".join(hostile(rng) for _ in range(1 + 2 * windowed))
        sent = conversation(rng, data, largest=rng.choice([50, 200]), opened=rng.random() < 0.7, closed=False)
        ways.append(frames(lost(rng, sent) if flow % 2 else sent, client=("10.0.0.1", 50_000 + flow)))
    mixed = []
    while ways := [way for way in ways if way]:
        mixed.append(rng.choice(ways).pop(0))
    same(tmp_path, cut(rng, mixed, 8), replace(WHOLE, keep_bodies=keep_bodies))


def test_connections_that_cannot_go_on_keep_their_rows(tmp_path: Path) -> None:
    """Many between the same ports, the newest of which comes later."""
    talks = [
        [*handshake(at, 5000 + at), Sent(False, at + 1, 5001 + at, ACK, msmq(48)), *goodbye(at + 49, 5001 + at)]
        for at in range(1000, 400_000, 10_000)
    ]
    found = wiretap.records(frames(chain.from_iterable(talks)))
    last = len(talks[-1])
    same(tmp_path, [pcap(found[:-last]), pcap(found[-last:])])


def test_data_on_a_syn_whose_answer_is_of_the_next_night(tmp_path: Path) -> None:
    """The data are acknowledged wholly, in part or not at all; the first night has one to four of the records."""
    (request, _), (response, _) = stream(random.Random(1), 8), stream(random.Random(2), 5)
    first, second = [], []
    for port, (acknowledged, many) in enumerate(product((700, 333, 0), range(1, 5)), 50_000):
        sent = fast_open(request, response, 700, acknowledged)
        records = wiretap.records(frames(sent, client=("10.0.0.1", port)))
        first += records[:many]
        second += records[many:]
    same(tmp_path, [pcap(first), pcap(second)])


def test_a_late_capture_undoes_nothing_that_its_neighbour_filled(tmp_path: Path) -> None:
    """The second capture has a segment that was lost in the first; the third comes when the fourth is there."""
    text = b"".join(msmq(600, bytes([number]) * 584) for number in range(50))
    sent = [Sent(False, 1001 + at, 5001, ACK | PSH, text[at : at + 1000]) for at in range(0, len(text), 1000)]
    parts = [
        [*handshake(1000, 5000), *sent[:10], *sent[11:15], Sent(True, 5001, 1001 + 10_000, ACK)],
        [sent[10], *sent[15:20]],
        sent[20:25],
        [*sent[25:], *goodbye(1001 + len(text), 5001)],
    ]
    taken = iter(wiretap.records(frames(chain.from_iterable(parts))))
    same(tmp_path, [pcap(islice(taken, len(part))) for part in parts], order=[[0], [1, 3], [2]])


def test_a_state_that_lacks_a_late_capture_is_not_resumed_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of five acknowledged parts of a stream are late: when the second one comes, states lack the first one."""
    monkeypatch.setattr(connections, "_RECENT_BYTES", 0)
    sent = handshake(1000, 5000)
    for at in range(1001, 6001, 1000):
        sent += [Sent(False, at, 5001, ACK | PSH, msmq(1000)), Sent(True, 5001, at + 1000, ACK)]
    taken = wiretap.records(frames(sent))
    places = [0, 5, 7, 9, 11, 13]
    captures = [pcap(taken[low:high]) for low, high in pairwise(places)]
    same(tmp_path, captures, order=[[0], [2], [4], [1], [3]])


def thirds(tmp_path: Path) -> list[str]:
    """Three captures of one connection."""
    rng = random.Random(1)
    records = wiretap.records(frames(conversation(rng, stream(rng, 20)[0], b"", largest=500)))
    places = [0, len(records) // 3, 2 * len(records) // 3, len(records)]
    return written(tmp_path, [pcap(records[low:high]) for low, high in pairwise(places)])


def test_a_late_capture_needs_only_its_later_neighbours(tmp_path: Path) -> None:
    uris, nights, once = thirds(tmp_path), InProcess(), InProcess()
    ingest_more(once, uris, WHOLE)
    for at in (0, 2):
        ingest_more(nights, [uris[at]], WHOLE)
    Path(uris[0]).unlink()
    assert ingest_more(nights, [uris[1]], WHOLE).needs_payload == 1
    assert sorted_rows(nights.read(PACKETS)) == sorted_rows(once.read(PACKETS))
    assert sorted_rows(nights.read(QUARANTINE)) == sorted_rows(once.read(QUARANTINE))


def test_a_late_capture_goes_to_quarantine_when_a_later_neighbour_is_gone(tmp_path: Path) -> None:
    uris, nights = thirds(tmp_path), InProcess()
    for at in (0, 2):
        ingest_more(nights, [uris[at]], WHOLE)
    packets = sorted_rows(nights.read(PACKETS))
    Path(uris[2]).unlink()
    late = ingest_more(nights, [uris[1]], WHOLE)
    assert sorted_rows(nights.read(PACKETS)) == packets
    (capture,) = late.captures
    rejected = [row for row in late.quarantine if row["reason"] == "outside_window"]
    assert {row["capture_id"] for row in rejected} == {capture["capture_id"]}
    assert sum(row["length"] for row in rejected) == sum(nights.read(STREAM_GAPS)["length"].to_list()) > 0


def test_a_late_capture_is_refused_when_nothing_is_left_to_resume_from(tmp_path: Path) -> None:
    uris, engine = thirds(tmp_path), InProcess()
    ingest_more(engine, uris[2:], WHOLE)
    Path(uris[2]).unlink()
    connections = engine.tables["internal_connections"]
    engine.tables["internal_connections"] = connections.with_columns(state=pl.lit(None, pl.String))
    with pytest.raises(LateError, match="put these back"):
        ingest_more(engine, uris[:1], WHOLE)
    assert engine.read(CAPTURES).height == 1


# --- from which state a connection goes on when bytes come that belong before the latest ------------------------------

FAR = 3 << 20


def state(*sides: dict[str, Any]) -> str:
    orderly = {"isn": 0, "acked": FAR, "fixed": 1, "done": FAR, "gaps": []}
    return json.dumps({"connections": [{"instance": 0, "sides": [orderly, orderly | side]} for side in sides]})


@pytest.mark.parametrize(
    ("side", "is_complete"),
    [
        ({}, True),
        ({"gaps": [[50, 10], [1 << 20, 10]]}, True),
        ({"gaps": [[50, 10], [FAR - 100_000, 10]]}, False),  # its frame may be captured late
        ({"gaps": [[2000, 10]], "acked": 1500}, False),  # it will be sent again
        ({"gaps": [[2000, 10]], "acked": None}, False),
        ({"isn": None}, True),
        ({"isn": None, "done": 100_000}, False),  # an earlier byte may be captured late
        ({"isn": None, "done": 0, "fixed": None, "acked": None}, True),
    ],
)
def test_a_state_is_complete_when_nothing_before_it_can_still_come(side: dict[str, Any], *, is_complete: bool) -> None:
    assert connections.is_complete(state({}, side)) is is_complete
