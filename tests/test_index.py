"""The index of a capture file: its identity, what a walk over it finds, and splits that find the same together."""

import gzip
import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pipeline import Row, index_captures
from test_files import zstd
from test_reader import frames
from wiretap import BILLION, Record, pcap, pcap_header, pcapng

from schemas.ingest import CaptureReason, CaptureStatus, Compression
from udfs.capture import files
from udfs.capture.records import Cursor
from udfs.ingest import index
from udfs.ingest.options import IngestOptions


def index_file(path: Path, *, split_bytes: int = 3_000) -> Row:
    (row,) = index_captures([path], IngestOptions(split_bytes=split_bytes))
    return row


SOME = frames(random.Random(3), 200)
STYLES: dict[str, Callable[[list[Record]], bytes]] = {
    "pcap": pcap,
    "big endian, modified": lambda content: pcap(content, order=">", modified=True),
    "pcapng": pcapng,
    "pcapng, big endian": lambda content: pcapng(content, order=">"),
}


# --- splits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
def test_a_split_begins_every_3000_bytes(style: str, tmp_path: Path) -> None:
    """The parts of a capture together hold what the whole file holds (`pipeline.look` compares them)."""
    (tmp_path / "a").write_bytes(STYLES[style](SOME))
    row = index_file(tmp_path / "a")
    found = tuple(row[name] for name in ("packet_count", "first_ns", "last_ns", "status", "reason"))
    assert found == (200, SOME[0].time_ns, SOME[-1].time_ns, "ok", None)
    places = [Cursor.from_json(cursor).offset for cursor in row["cursors"]]
    assert [place // 3_000 for place in places] == list(range(len(places)))


def test_a_windows_trace_is_refused_with_the_way_to_convert_it(tmp_path: Path) -> None:
    (tmp_path / "a.etl").write_bytes(bytes((0, 0, 1, 0)) + bytes(60))
    row = index_file(tmp_path / "a.etl")
    assert (row["status"], row["reason"]) == ("unreadable", "bad_magic")
    assert "pktmon etl2pcap" in row["detail"]


def test_steps_of_a_clock_are_told_from_damage(tmp_path: Path) -> None:
    """Two steps back of 40 years each: their sum would not fit in the times that the replay sets right."""
    years = 365 * 86_400 * BILLION
    for back, steps in ((1, 2), (40, None)):
        there, here = 41 * years, (41 - back) * years
        times = [there, here, here + 1, there, there + 1, here, here + 1]
        (tmp_path / "a").write_bytes(pcap([Record(b"x" * 60, time) for time in times]))
        row = index_file(tmp_path / "a")
        assert (row["clock_steps"] and len(row["clock_steps"])) == steps


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_identity_of_a_file_is_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for size in (0, 1, 5_000):
        path.write_bytes(pcap(SOME)[:size])
        for split_bytes in (0, 600, 1 << 20):
            row = index_file(path, split_bytes=split_bytes)
            assert (row["capture_id"], row["size_bytes"]) == (hashlib.sha256(path.read_bytes()).hexdigest(), size)


def test_packed_files_are_one_split(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a", tmp_path / "b"
    plain.write_bytes(pcap(SOME))
    packed.write_bytes(gzip.compress(pcap(SOME)))
    row, of_plain = index_file(packed), index_file(plain)
    same = ("packet_count", "first_ns", "last_ns", "status", "format", "content_bytes")
    assert row["content_bytes"] == len(pcap(SOME))
    assert [row[name] for name in same] == [of_plain[name] for name in same]
    assert row["compression"] == Compression.GZIP
    assert row["cursors"] == of_plain["cursors"][:1]


@pytest.mark.parametrize(
    ("data", "reason", "detail"),
    [
        (gzip.compress(b"")[:4] + bytes(99), "corrupt_compression", "is damaged; 0 bytes before the damage could be"),
        (zstd(b"x" * 99)[:4] + b"\xff" * 99, "corrupt_compression", "is damaged; 0 bytes before the damage could be"),
        (gzip.compress(pcap_header())[:-1], "truncated_compression", "is cut off; 24 bytes could be expanded."),
        (gzip.compress(pcap_header()[:20])[:-9], "truncated_compression", "is cut off; 20 bytes could be expanded."),
        (gzip.compress(b""), "empty_file", "expands to no bytes."),
        (zstd(b""), "empty_file", "expands to no bytes."),
    ],
    ids=["bad gzip", "bad zstd", "file header only", "file header cut", "gzip of nothing", "zstd of nothing"],
)
def test_a_compressed_file_without_a_record_says_why(data: bytes, reason: str, detail: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(data)
    row = index_file(tmp_path / "a")
    assert (row["reason"], row["packet_count"]) == (reason, 0)
    assert row["detail"].startswith(f"The compressed file {detail}")


def test_no_such_file(tmp_path: Path) -> None:
    row = index_file(tmp_path / "none")
    assert (row["status"], row["reason"]) == (CaptureStatus.UNREADABLE, CaptureReason.NOT_READABLE)
    assert row["capture_id"] == hashlib.sha256(str(tmp_path / "none").encode()).hexdigest()


def index_changing_file(path: Path, change: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch) -> Row:
    """The row of a file that changes after its size was found."""

    def detect_and_change(uri: str) -> tuple[Compression, int]:
        found = files.detect_compression(uri)
        change(path)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(index, "detect_compression", detect_and_change)
        return index_file(path)


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_bytes(pcap(SOME)[:70_000])])
def test_file_lost_or_shorter_meanwhile(
    change: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(pcap(SOME))
    row = index_changing_file(path, change, monkeypatch)
    assert (row["status"], row["reason"]) == (CaptureStatus.UNREADABLE, CaptureReason.NOT_READABLE)
    assert (row["packet_count"], row["cursors"]) == (0, [])


def test_file_longer_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is indexed as long as it was at first."""
    path = tmp_path / "a"
    path.write_bytes(pcap(SOME[:100])[:-30])
    row = index_file(path)
    assert index_changing_file(path, lambda path: path.write_bytes(pcap(SOME)), monkeypatch) == row
