"""Compressed captures: every byte that expands before a fault is kept, in reads of any size."""

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import wiretap

from schemas.ingest import CaptureReason, Compression
from udfs.capture.files import content_bytes, detect_compression, open_source


def packed(path: Path, data: bytes) -> tuple[bytes, CaptureReason | None, Compression]:
    """Returns content, fault and compression of a compressed file, which are the same in reads of any size."""
    path.write_bytes(data)
    kind, size = detect_compression(str(path))
    assert size == len(data)
    results = []
    for size in (5_000, 1 << 16, 8 << 20):
        source = open_source(str(path), kind)
        results.append((b"".join(iter(lambda: source.read(size), b"")), source.fault))  # noqa: B023 - used at once
    assert results[0] == results[1] == results[2]
    content, fault = results[0]
    if len(content) > 10:
        again = open_source(str(path), kind, 10)
        assert again.read(5) == content[10:15]
    return content, fault, kind


CONTENT = wiretap.pcap(wiretap.records(map(random.Random(2).randbytes, range(100, 1500, 3))))


def zstd(data: bytes) -> bytes:
    out: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return out


def test_fault_24_packed(tmp_path: Path) -> None:
    assert packed(tmp_path / "a", gzip.compress(CONTENT)) == (CONTENT, None, Compression.GZIP)
    assert packed(tmp_path / "b", zstd(CONTENT)) == (CONTENT, None, Compression.ZSTD)
    assert packed(tmp_path / "c", CONTENT) == (CONTENT, None, Compression.NONE)
    several = b"".join(gzip.compress(CONTENT[at : at + 9000]) for at in range(0, len(CONTENT), 9000))
    assert packed(tmp_path / "d", several + bytes(512)) == (CONTENT, None, Compression.GZIP)
    assert packed(tmp_path / "e", zstd(CONTENT[:9000]) + zstd(CONTENT[9000:])) == (CONTENT, None, Compression.ZSTD)


@pytest.mark.parametrize("place", [0.999, 0.5, 0.1])
@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_fault_24_packed_and_cut_or_damaged(pack: Callable[[bytes], bytes], place: float, tmp_path: Path) -> None:
    """Nearly all content before the place is kept."""
    data = pack(CONTENT)
    at = int(len(data) * place)
    damaged = data[:at] + bytes(byte ^ 0x5A for byte in data[at : at + 40]) + data[at + 40 :]
    faults = {CaptureReason.TRUNCATED_COMPRESSION, CaptureReason.CORRUPT_COMPRESSION}
    for name, given, expected in (("cut", data[:at], faults), ("bad", damaged, faults | {None})):
        content, fault, _ = packed(tmp_path / name, given)
        assert fault in expected  # a damaged byte may be one that no check covers
        assert fault is None or content == CONTENT[: len(content)] or name == "bad"
        assert len(content) > len(CONTENT) * place - 140_000
    assert packed(tmp_path / "more", gzip.compress(CONTENT) + b"no gzip")[1] is CaptureReason.CORRUPT_COMPRESSION


def test_fault_24_member_across_a_chunk(tmp_path: Path) -> None:
    """A second member is found when its first byte is the last of the bytes that are read together."""
    first = random.Random(3).randbytes((1 << 20) - 200)
    for shift in range(400):
        size = len(gzip.compress(first + bytes(shift), compresslevel=0))
        if size == (1 << 20) - 1:
            break
    else:
        pytest.fail("no size fits")
    data = gzip.compress(first + bytes(shift), compresslevel=0) + gzip.compress(CONTENT)
    assert packed(tmp_path / "two", data)[:2] == (first + bytes(shift) + CONTENT, None)


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_fault_91_a_small_bomb_expands_no_further_than_a_large_one(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    for size in (256 << 10, 16 << 20):
        data = pack(bytes(size))
        (tmp_path / "bomb").write_bytes(data)
        expanded = min(size, max(1 << 20, 250 * len(data)))
        assert content_bytes(str(tmp_path / "bomb"), 1 << 40) == expanded
        assert content_bytes(str(tmp_path / "bomb"), 1 << 20) == min(size, 1 << 20)  # counted up to a limit
        content, fault, _ = packed(tmp_path / "bomb", data)
        assert (len(content), fault) == (expanded, None if expanded == size else CaptureReason.EXPANSION_LIMIT)


def test_fault_91_honest_captures_are_whole(tmp_path: Path) -> None:
    """Equal messages, bodies of zeros only, and captures of one small frame."""
    captures = {
        "equal messages": sent_again_and_again(random.Random(5).randbytes(284), 3_000),
        "zeros": sent_again_and_again(bytes(4 << 20), 1),
        "small and zero": sent_again_and_again(bytes(64 << 10), 1),
        "one frame": wiretap.pcap([wiretap.Record(bytes(60_000))]),
    }
    for content in captures.values():
        for data in (gzip.compress(content), zstd(content)):
            assert packed(tmp_path / "a", data)[:2] == (content, None)


def sent_again_and_again(body: bytes, count: int) -> bytes:
    """A capture of equal messages in frames of an Ethernet network, each with times and numbers of its own."""
    rng = random.Random(6)
    stream = wiretap.msmq(16 + len(body), body) * count
    packets = (
        wiretap.ipv4(wiretap.tcp(stream[at : at + 1460], seq=at), identification=at // 1460 % 65_536, sums=at < 15_000)
        for at in range(0, len(stream), 1460)
    )
    frames = wiretap.records(map(wiretap.ethernet, packets))
    return wiretap.pcap([frame._replace(time_ns=frame.time_ns + rng.randrange(10**6)) for frame in frames])
