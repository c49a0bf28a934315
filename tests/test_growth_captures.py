"""What a capture file can multiply costs time and memory in proportion to its bytes, and so do many files."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from growth import assert_linear, peak_bytes
from pipeline import Row, index_captures
from test_files import zstd
from wiretap import Record, block, enhanced, interface, pcap_header, pcap_record, section

from jobs.cli import capture_listing
from jobs.cli.capture_listing import stamps
from schemas.ingest import CaptureReason, Compression
from udfs.capture.files import open_source
from udfs.capture.records import Cursor
from udfs.ingest.captures import split
from udfs.ingest.extract import extract_splits
from udfs.ingest.options import IngestOptions

OPTIONS = IngestOptions()
MIB = 1 << 20


def without_end(one: bytes) -> bytes:
    """The block with a wrong length at its end."""
    return one[:-4] + bytes(4)


GOOD, HEAD = enhanced(b"x" * 20), section() + interface()
BROKEN = without_end(block(5, b""))


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def index_one(path: Path) -> Row:
    (row,) = index_captures([path], OPTIONS)
    return row


def extracted(row: Row) -> list[int]:
    """Extracts a capture from its row of the index; returns how many rows each batch has."""
    splits = [pa.RecordBatch.from_pylist([one]) for one in split([row | {"capture": 1}])]
    return [batch.num_rows for batch in extract_splits(OPTIONS)(splits)]


def content_length(path: Path, kind: Compression) -> int:
    source = open_source(str(path), kind)
    return sum(map(len, iter(lambda: source.read(MIB), b"")))


@pytest.mark.slow
def test_what_is_kept_of_interfaces_where_splits_begin_is_bounded(tmp_path: Path) -> None:
    """At most 1.2 MB a split: a section has 16,384 interfaces, of at most 73 characters each."""
    path = written(tmp_path / "capture", section() + interface(resolution=255) * 70_000)
    (row,) = index_captures([path], IngestOptions(split_bytes=MIB))
    assert sum(map(len, row["cursors"])) < 1_200_000 * len(row["cursors"])
    assert len(Cursor.from_json(row["cursors"][-1]).interfaces) == 16_384


@pytest.mark.slow
@pytest.mark.parametrize("interfaces", [0, 30])
def test_blocks_of_pcapng_are_read_in_linear_time_and_memory(interfaces: int, tmp_path: Path) -> None:
    """With one row for each fault and two of counts, as nobody knows what the frames hold.

    What is done for a batch takes as long as for a hundred records.

    `test_reader.py` has more such files.
    """

    def make(n: int) -> Path:
        return written(tmp_path / str(n), HEAD + (interface() * interfaces + BROKEN + GOOD) * n)

    for n, cost in enumerate(assert_linear(lambda path: extracted(index_one(path)), make, 500), 1):
        assert sum(cost.result) == 500 * n + 2
        assert len(cost.result) < 20


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        pytest.param(Compression.GZIP, gzip.compress(b""), id="empty gzip members", marks=pytest.mark.slow),
        pytest.param(Compression.GZIP, gzip.compress(b"x" * 99), id="gzip members", marks=pytest.mark.slow),
        pytest.param(Compression.ZSTD, zstd(b"x"), id="zstd frames"),
    ],
)
def test_parts_of_compressed_files_are_expanded_in_linear_time_and_memory(
    kind: Compression, part: bytes, tmp_path: Path
) -> None:
    assert_linear(lambda path: content_length(path, kind), lambda n: written(tmp_path / str(n), part * n), 15_000)


def bombs(folder: Path, n: int) -> list[Path]:
    """So many captures of 1.2 KB that would expand to 1.2 GB together, for each thousand."""
    data = zstd(pcap_header() + pcap_record(Record(bytes(60_000))) * 200)
    folder.mkdir()
    return [written(folder / str(number), data + number.to_bytes(4)) for number in range(n)]


@pytest.mark.slow
def test_many_small_bombs_are_read_and_counted_in_proportion_to_their_files(tmp_path: Path) -> None:
    """Each one of these ends at 1 MiB, because 250 times its size is less."""
    small, large = assert_linear(
        lambda paths: index_captures(paths, OPTIONS), lambda n: bombs(tmp_path / str(n), n), 10
    )
    for cost in (small, large):
        assert {row["reason"] for row in cost.result} == {CaptureReason.EXPANSION_LIMIT}
        assert {(row["status"], row["content_bytes"]) for row in cost.result} == {("partial", MIB)}
        assert all(f"{MIB} bytes were read. If it is no bomb, expand it" in row["detail"] for row in cost.result)
        assert {row["packet_count"] for row in cost.result} == {(MIB - 24) // 60_016}
        files = stamps([row["uri"] for row in cost.result])
        assert capture_listing.bytes_of(files, 1 << 40) == len(files) * MIB


def test_memory_of_a_compressed_capture_does_not_grow_with_what_comes_out(tmp_path: Path) -> None:
    peaks = [
        peak_bytes(
            lambda path: content_length(path, Compression.GZIP),
            written(tmp_path / str(n), gzip.compress(bytes(n << 20))),
        )
        for n in (16, 32)
    ]
    assert peaks[1] < 1.2 * peaks[0] < 16 * MIB
