"""Captures read one night after another, each only once: the tables are those of one night with all of them."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import wiretap
from pipeline import (
    WHOLE,
    Row,
    assemble,
    extract_captures,
    frames,
    index_captures,
    ingest,
    kind_of,
    stream,
    unpack_runs,
)
from wiretap import Sent, conversation, fast_open, pcap

from udfs.passes import preframe
from udfs.passes.options import CaptureFile, IngestOptions
from udfs.tcp.overlap import Overlap

KINDS = ("stream", "gap", "packet", "quarantine")


class Nights:
    """The tables of ingest without Spark, a capture a night."""

    def __init__(self, options: IngestOptions) -> None:
        """Begin with empty tables."""
        self.options = options
        self.rows: dict[str, list[tuple[str, Row]]] = {kind: [] for kind in KINDS}
        self.names: dict[int, str] = {}
        self.files: dict[int, CaptureFile] = {}
        self.states: dict[bytes, Row] = {}
        self.captures: list[Row] = []
        self.needs_payload = self.rewinds = 0

    def read(self, uri: Path) -> None:
        """One night."""
        rank = len(self.captures)
        self.captures += index_captures([uri], self.options)
        self.names[rank] = self.captures[rank]["capture_id"]
        self.files[rank] = CaptureFile(self.names[rank], str(uri))
        extracted = extract_captures(self.captures[rank:], self.options, first=rank)
        here = set(filter(None, extracted["connection"].to_pylist()))
        bases = {packed: row for packed, row in self.states.items() if packed in here}
        rows = self._assemble(extracted, bases, final=False)
        flagged = kind_of(rows, "needs_payload")
        rows = [
            row for row in rows if row["endpoints"] not in {row["endpoints"] for row in rows if row["needs_payload"]}
        ]
        for row in flagged:
            packed = row["packed"]
            first = 0 if row["rewind"] else rank
            base = bases.pop(packed) if row["rewind"] and packed in bases else None
            more = extract_captures(self.captures[first:], self.options, [packed], first=first)
            some = {packed: bases[packed]} if packed in bases else {}
            rows += (redone := self._assemble(more, some, final=True))
            self.needs_payload, self.rewinds = self.needs_payload + 1, self.rewinds + (base is not None)
            if base is not None:
                self._drop({endpoints for row in redone if (endpoints := row["endpoints"])}, {})
        tails = {tail["stream_id"]: tail["stream_offset"] for row in bases.values() for tail in row["tails"]}
        self._drop(set(), tails)
        self._keep(rows, extracted)

    def _assemble(self, extracted: pa.Table, bases: dict[bytes, Row], *, final: bool) -> list[Row]:
        states = {packed: row["state"] for packed, row in bases.items()}
        return assemble(extracted, self.files, self.options, batch=50, final=final, states=states)

    def _drop(self, endpoints: set[str], tails: dict[str, int]) -> None:
        """Remove what connections, or streams from some offset on, had."""
        for kind, rows in self.rows.items():
            self.rows[kind] = [
                (owner, row)
                for owner, row in rows
                if owner not in endpoints
                and not (row["stream_id"] in tails and (kind == "stream" or _offset(row) >= tails[row["stream_id"]]))
            ]

    def _keep(self, rows: list[Row], extracted: pa.Table) -> None:
        for row in rows:
            if row["framed_run"] is not None:
                packets = unpack_runs(extracted, [row["framed_run"]], self.files)
                self.rows["packet"] += [(row["endpoints"], packet) for packet in packets]
        for row in rows:
            for kind in KINDS:
                if row[kind] is not None:
                    self.rows[kind].append((row["endpoints"], row[kind]))
            if row["state"] is not None:
                self.states[row["state"]["packed"]] = row["state"]

    def table(self, kind: str) -> list[str]:
        """A table's rows, ranks in place of captures."""
        rank = {name: at for at, name in self.names.items()}
        rows = [dict(row) for _, row in self.rows[kind]]
        for row in rows:
            if "capture_id" in row:
                row["capture"] = rank[row.pop("capture_id")]
        return sorted(map(repr, map(_ordered, rows)))


def _offset(row: Row) -> int:
    offset: int | None = row["stream_offset"]
    return -1 if offset is None else offset


def _ordered(row: Row) -> list[tuple[str, Any]]:
    return sorted(row.items())


class Told(NamedTuple):
    """How often nights had to look again, and back before what was carried over."""

    needs_payload: int
    rewinds: int


def same(tmp_path: Path, captures: list[bytes], options: IngestOptions = WHOLE) -> Told:
    """Read the captures in one night and in as many as there are."""
    uris = [tmp_path / f"{at}.pcap" for at in range(len(captures))]
    for uri, data in zip(uris, captures, strict=True):
        uri.write_bytes(data)
    run_in_parallel = ingest(uris, options)
    nights = Nights(options)
    for uri in uris:
        nights.read(uri)
    assert nights.table("stream") == sorted(map(repr, map(_ordered, run_in_parallel.streams)))
    assert nights.table("gap") == sorted(map(repr, map(_ordered, run_in_parallel.gaps)))
    assert nights.table("packet") == sorted(map(repr, map(_ordered, run_in_parallel.packets)))
    of_streams = [row for row in run_in_parallel.quarantine if row["stage"] in ("framing", "tcp")]
    assert nights.table("quarantine") == sorted(map(repr, map(_ordered, of_streams)))
    return Told(nights.needs_payload, nights.rewinds)


def cut(rng: random.Random, sent: list[bytes], nights: int) -> list[bytes]:
    """The frames as captures that follow one another."""
    records = wiretap.records(sent)
    places = sorted(rng.randrange(len(records) + 1) for _ in range(nights - 1))
    return [pcap(records[low:high]) for low, high in pairwise([0, *places, len(records)])]


Damage = Callable[[random.Random, list[Sent]], list[Sent]]


def lost(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    return [one for one in sent if rng.random() > 0.05]


def swapped(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    order = sorted(range(len(sent)), key=lambda at: at + rng.random() * 3)
    return [sent[at] for at in order]


def doubled(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    return [one for one in sent for _ in range(1 + (rng.random() < 0.1))]


def beheaded(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    return sent[rng.randrange(3, len(sent) // 2) :]


def as_sent(_: random.Random, sent: list[Sent]) -> list[Sent]:
    return sent


DAMAGE: list[Damage] = [as_sent, lost, swapped, doubled, beheaded]


@pytest.mark.parametrize("preframing", [False, True])
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("seed", range(12))
def test_nights_are_one_night(
    seed: int, damage: Damage, preframing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    if preframing:
        monkeypatch.setattr(preframe, "RUN_BYTES", 60)
        monkeypatch.setattr(preframe, "TAIL_BYTES", 30)
    talks = []
    for flow in range(rng.randrange(1, 3)):
        request, response = (stream(rng, rng.randrange(2, 30), largest=rng.choice([60, 2000]))[0] for _ in range(2))
        sent = conversation(rng, request, response, largest=rng.choice([100, 1460]))
        talks += frames(damage(rng, sent), client=("10.0.0.1", 50_000 + flow))
    same(tmp_path, cut(rng, talks, rng.randrange(2, 6)))


@pytest.mark.parametrize("overlap", [Overlap.WINDOWS, Overlap.LAST])
@pytest.mark.parametrize("seed", range(4))
def test_every_overlap_policy(seed: int, overlap: Overlap, tmp_path: Path) -> None:
    rng = random.Random(seed)
    request, _ = stream(rng, 20)
    talk = frames(doubled(rng, conversation(rng, request, b"")))
    same(tmp_path, cut(rng, talk, 4), replace(WHOLE, overlap=overlap))


@pytest.mark.parametrize("seed", range(6))
def test_garbage_is_carried_over(seed: int, tmp_path: Path) -> None:
    """Out of step when the night ends, and in step again in the next."""
    rng = random.Random(seed)
    packets = stream(rng, 6)[1]
    data = b"".join([*packets[:3], rng.randbytes(4000), *packets[3:]])
    same(tmp_path, cut(rng, frames(conversation(rng, data, b"", largest=300)), 5))


def test_a_hole_that_the_next_night_fills(tmp_path: Path) -> None:
    """The segment that was missing is the next capture's first: the bytes behind it are looked at again."""
    rng = random.Random(1)
    request, _ = stream(rng, 20, largest=2000)
    talk = frames(conversation(rng, request, b"", largest=500))
    records = wiretap.records([*talk[:10], *talk[11:20], talk[10], *talk[20:]])
    assert same(tmp_path, [pcap(records[:19]), pcap(records[19:])]) == Told(1, 1)


@pytest.mark.parametrize("acknowledged", [700, 333, 0])
@pytest.mark.parametrize("records_of_first", range(1, 5))
def test_data_on_a_syn_whose_answer_is_of_the_next_night(
    acknowledged: int, records_of_first: int, tmp_path: Path
) -> None:
    (request, _), (response, _) = stream(random.Random(1), 8), stream(random.Random(2), 5)
    records = wiretap.records(frames(fast_open(request, response, 700, acknowledged)))
    same(tmp_path, [pcap(records[:records_of_first]), pcap(records[records_of_first:])])
