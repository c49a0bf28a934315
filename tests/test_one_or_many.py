"""The same records as one capture, as forty, in splits of 1 MB and whole: the same tables."""

import random
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from pipeline import Ingested, ingest

from jobs.simulator import simulate
from udfs.passes import assemble
from udfs.passes.options import IngestOptions
from udfs.tcp.connections import Direction
from udfs.tcp.overlap import Overlap, Piece, deliver

OPTIONS = IngestOptions()
PCAP_HEADER = 24


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some MB of simulated traffic with disorder, in one file."""
    folder = tmp_path_factory.mktemp("traffic")
    simulate(str(folder), 11, 2500, bodies=(1000, 1000), disorder=0.01, file_bytes=1 << 40)
    (file,) = folder.glob("*.pcap")
    return file


@pytest.fixture(scope="module")
def whole(capture: Path) -> Ingested:
    found = ingest([capture], replace(OPTIONS, split_bytes=1 << 40))
    assert found.framed_runs > 10
    assert len(found.packets) > 2500
    return found


def records(capture: Path) -> list[bytes]:
    """The capture's records, their headers included."""
    data, at, found = capture.read_bytes(), PCAP_HEADER, []
    while at < len(data):
        size = 16 + int.from_bytes(data[at + 8 : at + 12], "little")
        found.append(data[at : at + size])
        at += size
    return found


def numbered(found: Ingested, firsts: list[int]) -> dict[str, Any]:
    """What was found, with the numbers that records have in the whole. Where a packet begins is told per capture."""

    def row(one: dict[str, Any]) -> str:
        one = dict(one)
        before = firsts[one.pop("capture")] if "capture" in one else 0
        for name in ("last_frame", "frame_number"):
            if one.get(name) is not None:
                one[name] += before
        one.pop("first_frame", None)
        one.pop("detail", None)
        return repr(sorted(one.items()))

    kinds = {"streams": found.streams, "gaps": found.gaps, "packets": found.packets, "quarantine": found.quarantine}
    return {kind: sorted(map(row, rows)) for kind, rows in kinds.items()} | {"counts": found.counts}


@pytest.mark.parametrize("window_bytes", [80_000, 120_000])
@pytest.mark.parametrize("split_bytes", [300_000, 1 << 40])
def test_what_is_out_of_reach_is_handed_on(
    capture: Path, whole: Ingested, window_bytes: int, split_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection need not be in memory as a whole."""
    handed = []

    def counting(side: Direction, overlap: Overlap, before: int | None = None, **more: Any) -> list[Piece]:
        pieces = deliver(side, overlap, before, **more)
        handed.append(before is not None and bool(pieces))
        return pieces

    monkeypatch.setattr(assemble, "deliver", counting)
    found = ingest([capture], replace(OPTIONS, window_bytes=window_bytes, split_bytes=split_bytes))
    assert len(found.captures[0]["cursors"]) > 3 or split_bytes > 1 << 30
    assert sum(handed) > 5
    assert numbered(found, [0]) == numbered(whole, [0])


def test_what_comes_too_late_does_not_depend_on_splits(capture: Path) -> None:
    """In a window narrower than the disorder, segments are missing, the same ones in every split."""
    narrow = replace(OPTIONS, window_bytes=30_000)
    one, *others = (
        numbered(ingest([capture], replace(narrow, split_bytes=split)), [0]) for split in (1 << 40, 300_000, 50_000)
    )
    assert one["gaps"]
    assert others == [one, one]


@pytest.mark.parametrize("seed", range(3))
def test_forty_files(capture: Path, whole: Ingested, seed: int, tmp_path: Path) -> None:
    every = records(capture)
    rng = random.Random(seed)
    cuts = [0, *sorted(rng.sample(range(1, len(every)), 39)), len(every)]
    files = []
    for number, (low, high) in enumerate(pairwise(cuts)):
        files.append(tmp_path / f"{number:02}.pcap")
        files[-1].write_bytes(capture.read_bytes()[:PCAP_HEADER] + b"".join(every[low:high]))
    found = ingest(files, OPTIONS)
    counts = [row["packet_count"] for row in found.captures]
    assert numbered(found, [0, *accumulate(counts)]) == numbered(whole, [0])
