"""Surveying captures: in ranges side by side the same comes out as in one, whatever the file and the ranges."""

import gzip
import hashlib
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import wiretap
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from test_reader import damaged, frames
from wiretap import Record, enhanced, interface, pcap, pcap_header, pcap_record, pcapng, section

from schemas.ingest import CaptureReason, CaptureStatus, Compression
from schemas.staging import INDEX, RANGES
from udfs import on_spark
from udfs.capture import files
from udfs.capture.files import Source, open_source
from udfs.capture.reader import NO_TIME, Cursor, open_capture, read_blocks
from udfs.passes import index
from udfs.passes.index import index_files, ranges, stitch, walk_ranges
from udfs.passes.options import IngestOptions

BETWEEN, FOUND = to_arrow_schema(RANGES.spark), to_arrow_schema(INDEX.spark)
PIECE = 500
WHOLE = 1 << 30
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def small_pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few KB are large ones."""
    if "full_size" not in request.fixturenames:
        monkeypatch.setattr(files, "HASH_BYTES", PIECE)


@pytest.fixture
def full_size() -> None:
    """The length of a piece is what it is."""


def index_file(path: Path, survey_bytes: int, *, split_bytes: int = 3_000) -> Row:
    options = IngestOptions(split_bytes=split_bytes, survey_bytes=survey_bytes)
    (row,) = index_files([str(path)], options, BETWEEN, FOUND).to_pylist()
    return dict(row)


def cut(row: Row) -> Row:
    """The row without what is said of seams."""
    return row | {"seams": None}


def by_ranges(path: Path, data: bytes, sizes: tuple[int, ...] = (1_500, 5_000, 20_000)) -> dict[int, Row]:
    """The rows at each size of a range, after holding them to the row of one range, and that to the reader's own."""
    path.write_bytes(data)
    whole = index_file(path, WHOLE)
    assert whole["seams"] is None
    exact(path, whole)
    rows = {size: index_file(path, size) for size in sizes}
    for size, row in rows.items():
        assert cut(row) == whole, f"ranges of {size}"
    return rows


def exact(path: Path, row: Row) -> None:
    """The row says what a walk over the file says, and so do walks from each cursor to the next."""
    start = open_capture(open_source(str(path), Compression.NONE))
    assert isinstance(start, Cursor)
    cursors = [Cursor.from_json(cursor) for cursor in row["cursors"]]
    assert cursors[0] == start
    assert [c.offset for c in cursors] == sorted({c.offset for c in cursors})
    walks = []
    for places in ([start], cursors):
        blocks = [
            found
            for place, stop in zip(places, [*(c.offset for c in places[1:]), None], strict=True)
            for found in read_blocks(open_source(str(path), Compression.NONE, place.offset), place, stop)
        ]
        records = [
            (b.records.first_frame + i, time) for b in blocks for i, time in enumerate(b.records.time_ns.tolist())
        ]
        walks.append((records, [found.fault for found in blocks if found.fault]))
    assert walks[0] == walks[1]
    records, faults = walks[0]
    times = [time for _, time in records if time != NO_TIME]
    assert row["packet_count"] == len(records)
    assert (row["first_ns"], row["last_ns"]) == (min(times, default=None), max(times, default=None))
    first = faults[0] if faults else None
    assert (row["reason"], row["detail"]) == ((first.reason, first.detail) if first else (None, None))
    assert row["status"] == (CaptureStatus.PARTIAL if faults else CaptureStatus.OK)


SOME = frames(random.Random(3), 200)
STYLES: dict[str, Callable[[list[Record]], bytes]] = {
    "pcap": pcap,
    "big endian, modified": lambda content: pcap(content, order=">", modified=True),
    "pcapng": pcapng,
    "pcapng, big endian": lambda content: pcapng(content, order=">"),
}


# --- ranges that fit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
def test_ranges_of_a_sound_file_fit(style: str, tmp_path: Path) -> None:
    rows = by_ranges(tmp_path / "a", STYLES[style](SOME))
    assert [row["seams"] for row in rows.values()] == [None] * len(rows)
    assert rows[1_500]["packet_count"] == 200
    places = [Cursor.from_json(cursor).offset for cursor in rows[1_500]["cursors"]]
    assert [place // 3_000 for place in places] == list(range(len(places))), "a split every 3,000 bytes"


@pytest.mark.parametrize("style", STYLES)
def test_records_longer_than_ranges(style: str, tmp_path: Path) -> None:
    content = frames(random.Random(4), 40, smallest=14, largest=9000)
    rows = by_ranges(tmp_path / "a", STYLES[style](content), (500, 1_000, 1_500, 2_000))
    assert [row["seams"] for row in rows.values()] == [None] * 4


def test_every_range_of_a_small_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seams at every byte of a record, its header and its end."""
    monkeypatch.setattr(files, "HASH_BYTES", 7)
    path = tmp_path / "a"
    for make in (pcap, pcapng):
        path.write_bytes(make(SOME[:12]))
        whole = index_file(path, WHOLE, split_bytes=1_000)
        for size in range(700, path.stat().st_size, 61):
            row = index_file(path, size, split_bytes=1_000)
            assert {name: row[name] for name in row if name != "capture_id"} == {
                name: whole[name] for name in row if name != "capture_id"
            }


def test_several_interfaces_of_a_files_head(tmp_path: Path) -> None:
    data = section() + interface() + interface(link=wiretap.SLL, resolution=9)
    data += b"".join(enhanced(r.data, r.time_ns // 1000, number=i % 2) for i, r in enumerate(SOME))
    rows = by_ranges(tmp_path / "a", data)
    assert [row["seams"] for row in rows.values()] == [None] * len(rows)


def test_each_byte_is_read_about_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    class Counted:
        def __init__(self, source: Source) -> None:
            self.fault = source.fault
            self._source = source

        def read(self, size: int) -> bytes:
            nonlocal read
            data = self._source.read(size)
            read += len(data)
            return data

    def counted(uri: str, compression: Compression, offset: int = 0) -> Counted:
        return Counted(open_source(uri, compression, offset))

    path = tmp_path / "a"
    monkeypatch.setattr(index, "open_source", counted)
    for make in (pcap, pcapng):
        path.write_bytes(make(SOME * 10))
        size = path.stat().st_size
        for survey_bytes, most in ((WHOLE, 1.001), (200_000, 1.1)):
            read = 0
            assert index_file(path, survey_bytes)["seams"] is None
            # Besides its range: the file's head, once a file, and up to a block behind the range.
            assert size <= read - index._HEAD_BYTES * (survey_bytes < size) <= size * most


# --- ranges that do not ---------------------------------------------------------------------------------------------


def decoy(tmp_path: Path, inner: bytes, outer: Callable[[list[Record]], bytes], body: bytes) -> tuple[Row, Row]:
    """A transfer of a capture lies over the begin of a range: what is found there is no record of this file."""
    content = [*SOME[:10], Record(body), *SOME[10:]]
    data = outer(content)
    begin = (data.index(inner) + len(inner) // 2) // PIECE * PIECE
    rows = by_ranges(tmp_path / "a", data, (begin, WHOLE))
    return rows[begin], rows[WHOLE]


def test_a_capture_inside_a_record(tmp_path: Path) -> None:
    inner = b"".join(pcap_record(Record(bytes(50))) for _ in range(100))
    row, _ = decoy(tmp_path, inner, pcap, bytes(40) + inner)
    assert row["seams"].startswith("1 of ")
    assert row["reason"] is None
    assert row["packet_count"] == 201


def test_a_pcapng_inside_a_record(tmp_path: Path) -> None:
    inner = enhanced(bytes(50)) * 100
    row, _ = decoy(tmp_path, inner, pcapng, bytes(40) + inner)
    assert row["seams"].startswith("1 of ")
    assert row["reason"] is None
    assert row["packet_count"] == 201


def test_interface_in_the_middle(tmp_path: Path) -> None:
    """The times behind it would be right, and the link types wrong: a seam compares what is known too."""
    rows = [enhanced(r.data, r.time_ns // 1000) for r in SOME * 2]
    data = section() + interface() + b"".join([*rows[:200], interface(link=wiretap.SLL, resolution=9), *rows[200:]])
    found = by_ranges(tmp_path / "a", data)
    begin = len(section() + interface() + b"".join(rows[:200])) // 20_000 * 20_000 + 20_000
    assert f"begins at byte {begin}." in found[20_000]["seams"]


def test_sections_in_the_middle(tmp_path: Path) -> None:
    data = b"".join(pcapng(SOME[i : i + 50], order="<>"[i // 50 % 2]) for i in range(0, 200, 50)) * 2
    assert all(row["seams"] for row in by_ranges(tmp_path / "a", data).values())


@pytest.mark.parametrize("second", [pcap(SOME), pcap(SOME, order=">"), pcapng(SOME)])
def test_files_joined(second: bytes, tmp_path: Path) -> None:
    """Ranges in the second file find records, of which there are none."""
    first = pcap(SOME)
    rows = by_ranges(tmp_path / "a", first + second)
    assert {row["reason"] for row in rows.values()} == {CaptureReason.CONCATENATED_FILE}
    assert {row["packet_count"] for row in rows.values()} == {200}


def test_damage_at_a_seam(tmp_path: Path) -> None:
    """The first record of each range in turn has a broken header."""
    parts = [pcap_record(r) for r in SOME[:60]]
    ends = [24]
    for part in parts:
        ends.append(ends[-1] + len(part))
    for broken in range(1, 59):
        hurt = [*parts[:broken], b"\xff" * 16 + parts[broken][16:], *parts[broken + 1 :]]
        begin = ends[broken] // PIECE * PIECE
        if begin:
            by_ranges(tmp_path / "a", pcap_header() + b"".join(hurt), (begin,))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("style", ["plain", "modified", "pcapng"])
def test_damaged_files(style: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    content = frames(rng, 100, smallest=rng.choice([14, 54]), largest=rng.choice([100, 1514, 9000]))
    order = rng.choice("<>")
    if style == "pcapng":
        parts = [enhanced(r.data, r.time_ns // 1000, order=order) for r in content]
        head, header = section(order=order) + interface(order=order), 28
    else:
        modified = style == "modified"
        parts = [pcap_record(r, order=order, modified=modified) for r in content]
        head, header = pcap_header(order=order, modified=modified), 24 if modified else 16
    data = head + damaged(rng, parts, header=header)[0]
    data = data[: len(data) - rng.choice([0, 0, rng.randrange(60)])]
    by_ranges(tmp_path / "a", data)


@pytest.mark.parametrize("seed", range(12))
def test_random_bytes_wrong(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    data = bytearray(rng.choice(list(STYLES.values()))(frames(rng, 150, smallest=14, largest=rng.choice([60, 1514]))))
    for _ in range(int(len(data) * rng.choice([0.0005, 0.005, 0.05, 0.3])) + 1):
        data[rng.randrange(24, len(data))] = rng.choice([0, 0xFF, rng.randrange(256)])
    by_ranges(tmp_path / "a", bytes(data))


@pytest.mark.parametrize("tail", [bytes(30_000), b"\xff" * 30_000, random.Random(5).randbytes(30_000)])
@pytest.mark.parametrize("make", [pcap, pcapng])
def test_ranges_without_a_record(make: Callable[[list[Record]], bytes], tail: bytes, tmp_path: Path) -> None:
    by_ranges(tmp_path / "a", make(SOME[:50]) + tail)
    by_ranges(tmp_path / "b", make(SOME[:50]) + tail + b"".join(make(SOME[50:]).partition(SOME[50].data)[1:]))


# --- files ------------------------------------------------------------------------------------------------------------


def test_identity(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for size in (0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 7 * PIECE + 3):
        data = (pcap(SOME))[:size]
        path.write_bytes(data)
        pieces = [data[at : at + PIECE] for at in range(0, size, PIECE)]
        digests = b"".join(hashlib.sha256(piece).digest() for piece in pieces)
        expected = hashlib.sha256(data if size <= PIECE else digests).hexdigest()
        for survey_bytes in (0, 1, 600, 1_000, WHOLE):
            row = index_file(path, survey_bytes)
            assert (row["capture_id"], row["size_bytes"]) == (expected, size)


@pytest.mark.parametrize("data", [b"", b"text\n" * 1000, pcap_header()[:20], bytes(3000)])
def test_no_capture(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    row = index_file(path, WHOLE)
    assert row["status"] == CaptureStatus.UNREADABLE
    assert row["raw"] == data[:28] or not data
    assert all(index_file(path, size) == row for size in (500, 1_000))


def test_packed_files_are_one_range(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a", tmp_path / "b"
    plain.write_bytes(pcap(SOME))
    packed.write_bytes(gzip.compress(pcap(SOME)))
    row, of_plain = index_file(packed, 500), index_file(plain, 500)
    same = ("packet_count", "first_ns", "last_ns", "status", "format", "seams")
    assert [row[name] for name in same] == [of_plain[name] for name in same]
    assert row["compression"] == Compression.GZIP
    assert row["cursors"] == of_plain["cursors"][:1]
    assert row == index_file(packed, WHOLE)


def test_no_such_file(tmp_path: Path) -> None:
    row = index_file(tmp_path / "none", 500)
    assert (row["status"], row["reason"]) == (CaptureStatus.UNREADABLE, CaptureReason.NOT_READABLE)
    assert row["capture_id"] == hashlib.sha256(str(tmp_path / "none").encode()).hexdigest()


def passes(uris: list[str], options: IngestOptions) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    names = pa.RecordBatch.from_pylist([{"uri": uri} for uri in uris], pa.schema([("uri", pa.string())]))
    for found in ranges(options, BETWEEN)([names]):
        yield found, pa.Table.from_batches(walk_ranges(options, BETWEEN)([found]), BETWEEN)


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_bytes(pcap(SOME)[:70_000])])
def test_file_lost_or_shorter_meanwhile(change: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(pcap(SOME))
    options = IngestOptions(survey_bytes=20_000)
    (found,) = ranges(options, BETWEEN)([pa.RecordBatch.from_pylist([{"uri": str(path)}])])
    change(path)
    walked = list(walk_ranges(options, BETWEEN)([found]))
    (row,) = pa.Table.from_batches(stitch(options, FOUND)(walked), FOUND).to_pylist()
    assert (row["status"], row["reason"]) == (CaptureStatus.UNREADABLE, CaptureReason.NOT_READABLE)


def test_file_longer_meanwhile(tmp_path: Path) -> None:
    """It is surveyed as long as it was at first."""
    path = tmp_path / "a"
    path.write_bytes(pcap(SOME[:100])[:-30])
    row = index_file(path, WHOLE)
    options = IngestOptions(split_bytes=3_000, survey_bytes=20_000)
    (found,) = ranges(options, BETWEEN)([pa.RecordBatch.from_pylist([{"uri": str(path)}])])
    path.write_bytes(pcap(SOME))
    walked = list(walk_ranges(options, BETWEEN)([found]))
    assert pa.Table.from_batches(stitch(options, FOUND)(walked), FOUND).to_pylist() == [row]


def test_many_files_whose_rows_come_in_any_batches(tmp_path: Path) -> None:
    uris = []
    for i, make in enumerate([pcap, pcapng, pcap]):
        uris.append(tmp_path / str(i))
        uris[-1].write_bytes(make(SOME[: 60 * i + 20]))
    options = IngestOptions(split_bytes=3_000, survey_bytes=10_000)
    (found,) = (
        pa.Table.from_batches(
            ranges(options, BETWEEN)([pa.RecordBatch.from_pylist([{"uri": str(uri)} for uri in uris])]), BETWEEN
        )
        .combine_chunks()
        .to_batches()
    )
    rows = found.to_pylist()
    assert len(rows) > 12
    walked = pa.Table.from_batches(walk_ranges(options, BETWEEN)([found]), BETWEEN).combine_chunks()
    several = stitch(options, FOUND)(walked.to_batches(max_chunksize=7))
    assert [cut(row) for row in pa.Table.from_batches(several, FOUND).to_pylist()] == [
        index_file(uri, WHOLE) for uri in uris
    ]


# --- any size ---------------------------------------------------------------------------------------------------------


def sparse(path: Path, size: int) -> int:
    """A pcapng file of more than `size` bytes, most of them holes in blocks of 16 MiB; returns its records."""
    length = 16 << 20
    content = b"".join(enhanced(r.data, r.time_ns // 1000) for r in SOME[:5])
    count = 0
    with path.open("wb") as file:
        file.write(section() + interface())
        while file.tell() < size:
            file.write(content)
            count += 5
            file.write(struct.pack("<II", 0xBAD, length))
            file.seek(length - 12, 1)
            file.write(struct.pack("<I", length))
        file.write(content)
    return count + 5


@pytest.mark.usefixtures("full_size")
def test_any_size(tmp_path: Path) -> None:
    """Far behind 4 GiB; not every range is walked here, for time."""
    path = tmp_path / "large.pcapng"
    count = sparse(path, 9 << 29)
    options = IngestOptions()
    (found,) = ranges(options, BETWEEN)([pa.RecordBatch.from_pylist([{"uri": str(path)}])])
    assert found.column("begin").to_pylist() == [at << 30 for at in range(5)]
    (walked,) = walk_ranges(options, BETWEEN)([found.slice(4)])
    (row,) = walked.to_pylist()
    first, after = Cursor.from_json(row["first"]), Cursor.from_json(row["after"])
    assert 4 << 30 < first.offset < (4 << 30) + (17 << 20)
    assert after.offset == path.stat().st_size
    assert 0 < after.frame < count
    assert len(row["digests"]) == 32
    assert len(row["cursors"]) == 8


@pytest.mark.usefixtures("full_size")
def test_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A large file among small ones."""
    count = sparse(tmp_path / "large.pcapng", 1 << 30)
    uris = [str(tmp_path / name) for name in ("large.pcapng", "a", "b", "none")]
    (tmp_path / "a").write_bytes(pcap(SOME))
    (tmp_path / "b").write_bytes(b"")
    files = spark.createDataFrame([(uri,) for uri in uris], "uri string").repartition(2)
    options = IngestOptions()
    rows = {row["uri"]: row.asDict() for row in on_spark.index_files(files, options).collect()}
    small = index_files(uris[1:], options, BETWEEN, FOUND).to_pylist()
    assert [rows.get(uri) for uri in uris[1:]] == small
    large = rows[uris[0]]
    assert (large["packet_count"], large["status"], large["seams"]) == (count, CaptureStatus.OK, None)
    assert len(large["cursors"]) == 17
    assert len(rows) == 4
