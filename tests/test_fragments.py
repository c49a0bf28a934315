"""Fragments of IP datagrams: in any order, cut anywhere, copied, damaged, mixed with others."""

import random
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pipeline import block_of
from tiers import merge_needs
from wiretap import BILLION, ethernet, fragments4, fragments6, ipv4, ipv6, option_header, tcp

from jobs.engines.in_process import InProcess
from schemas.staging import EXTRACTED, Counted
from udfs.capture.records import NO_TIME
from udfs.frames.derivation import to_arrow, to_frame
from udfs.ingest.defragment import defragment
from udfs.ingest.options import IngestOptions
from udfs.network.checksums import intact
from udfs.network.dissect import find_segments
from udfs.network.segment_rows import fragment_rows, segment_rows

KEYS = [("key", "ascending"), ("capture", "ascending"), ("frame", "ascending")]
OPTIONS = IngestOptions(keep_bodies=True, quarantine_raw_bytes=10)
Row = dict[str, Any]


class Found(NamedTuple):
    """Holds the segments and faults made of fragments, and counts by capture: of segments, of other traffic."""

    segments: list[Row]
    faults: list[Row]
    counts: dict[int, tuple[int, int]]

    def payloads(self) -> list[tuple[int, bytes]]:
        """Of each segment its record, and its payload."""
        return [(row["frame"], row["payload"]) for row in self.segments]

    def lost(self) -> list[int]:
        """The records in quarantine."""
        return sorted(row["frame_number"] for row in self.faults)


def rows_of(*captures: Sequence[bytes], step_ns: int | None = 1) -> pa.Table:
    """The fragments in the IP packets of captures, each packet in a frame of its own."""
    batches = []
    for rank, packets in enumerate(captures):
        held = block_of([ethernet(packet) for packet in packets])
        times = np.full(len(packets), NO_TIME) if step_ns is None else np.arange(len(packets)) * step_ns
        held = held._replace(time_ns=times)
        taken, rejected, found = find_segments(held, OPTIONS.ports)
        assert (len(taken.frame), rejected.reason) == (0, [])
        batches.append(fragment_rows(held.buffer, found, rank))
    return pick(pa.Table.from_batches(batches, EXTRACTED), "fragment")


def pick(rows: pa.Table, kind: str) -> pa.Table:
    """The rows of one kind, as a pass gets them."""
    return to_arrow(InProcess().pick(to_frame(rows), kind, "capture"))


def run(rows: pa.Table, options: IngestOptions = OPTIONS, *, batch: int = 1000) -> Found:
    """All rows that come out, each fragment being in one of them or counted once."""
    ordered = rows.sort_by(KEYS).combine_chunks().to_batches(max_chunksize=batch)
    out = pa.Table.from_batches(defragment(options)(iter(ordered)), EXTRACTED)
    found, faults, counted = (pick(out, kind).to_pylist() for kind in ("segment", "fault", "count"))
    assert out.num_rows == len(found) + len(faults) + len(counted)
    assert all((row["stage"], row["reason"]) == ("frame", "ip_fragment") for row in faults)
    each = {(row["capture"], row["what"]): row["records"] for row in counted}
    counts = {
        row["capture"]: (each.get((row["capture"], Counted.SEGMENT), 0), each.get((row["capture"], Counted.OTHER), 0))
        for row in counted
    }
    by_capture = Counter(row["capture"] for row in faults)
    by_capture.update({capture: sum(both) for capture, both in counts.items()})
    assert by_capture == Counter(rows.column("capture").to_pylist())
    return Found(found, faults, counts)


def look(*captures: Sequence[bytes], step_ns: int | None = 1) -> Found:
    """What becomes of the fragments in captures, however batches cut them."""
    rows = rows_of(*captures, step_ns=step_ns)
    found = run(rows)
    for batch in (1, 2, 3, 5):
        assert run(rows, batch=batch) == found
    assert run(rows, replace(OPTIONS, batch_bytes=1), batch=2).counts == found.counts
    return found


def whole(packet: bytes) -> Row:
    """The row of a segment in a datagram that was not fragmented."""
    held = block_of([ethernet(packet)])
    found, *_ = find_segments(held, OPTIONS.ports)
    (row,) = pick(pa.Table.from_batches([segment_rows(held.buffer, found, 0)]), "segment").to_pylist()
    return dict(row)


BODY = bytes(range(1, 101))
SEGMENT = tcp(BODY, seq=7, ack=9, flags=0x18, options=bytes(8))
FIRST, MIDDLE, LAST = fragments4(SEGMENT, [48, 88])


def test_fault_21_ipv6_extension_headers_in_the_fragments() -> None:
    options = b"\x06" + option_header(3)
    found = look(fragments6(options + SEGMENT, [16, 40], protocol=60))
    assert found.segments == [whole(ipv6(SEGMENT)) | {"frame": 3, "time_ns": 2}]
    udp = look(fragments6(b"\x11" + option_header(3) + SEGMENT, [16, 40], protocol=60))
    assert (udp.segments, udp.faults, udp.counts) == ([], [], {0: (0, 3)})


def test_fault_21_fragments_within_a_fragment() -> None:
    inner = b"\x2c" + option_header() + struct.pack(">BxHI", 6, 1, 5) + SEGMENT
    found = look(fragments6(inner, [16], protocol=60))
    assert (found.segments, found.lost()) == ([], [1, 2])


def part(start: int, data: bytes, *, more: bool = True, length: int | None = None) -> bytes:
    """A fragment of the same datagram with other data; `length`: its length on the wire if the capture holds less."""
    return ipv4(data, fragment=start // 8 | more << 13, total=20 + (len(data) if length is None else length))


OTHER = part(40, b"\xee" * 48)
DAMAGED = [part(0, bytes(24)), part(24, bytes(8), more=False)]
ELSEWHERE = fragments4(tcp(BODY, ports=(50_000, 443)), [48, 88])
CASES: dict[str, tuple[list[bytes], list[tuple[int, bytes]], list[int], tuple[int, int]]] = {
    # fragments; records and payloads of segments; records that are lost; how many are counted: of segments, of others
    "in order": ([FIRST, MIDDLE, LAST], [(3, BODY)], [], (3, 0)),
    "in reverse": ([LAST, MIDDLE, FIRST], [(3, BODY)], [], (3, 0)),
    "the first is missing": ([MIDDLE, LAST], [], [1, 2], (0, 0)),
    "one is missing": ([FIRST, LAST], [], [1, 2], (0, 0)),
    "the last is missing": ([FIRST, MIDDLE], [], [1, 2], (0, 0)),
    "of overlapping ones the first wins": (
        [FIRST, OTHER, LAST],
        [(3, BODY[:20] + b"\xee" * 40 + BODY[60:])],
        [],
        (3, 0),
    ),
    "the first end counts, and what lies behind it is lost": (
        [FIRST, part(88, b"behind"), part(48, b"end", more=False)],
        [(3, BODY[:20] + b"end")],
        [2],
        (2, 0),
    ),
    "each comes twice": ([FIRST, FIRST, MIDDLE, MIDDLE, LAST, LAST], [(5, BODY)], [], (6, 0)),
    "some come again": ([FIRST, MIDDLE, LAST, MIDDLE, LAST], [(3, BODY)], [], (5, 0)),
    "all come again": ([FIRST, MIDDLE, LAST] * 2, [(3, BODY)], [], (6, 0)),
    "some come again, and another datagram": (
        [FIRST, MIDDLE, LAST, LAST, OTHER, FIRST, LAST],
        [(3, BODY), (7, BODY[:12] + b"\xee" * 48 + BODY[60:])],
        [],
        (7, 0),
    ),
    "no TCP header": (DAMAGED, [], [1, 2], (0, 0)),
    "no TCP header, and one comes again": ([*DAMAGED, DAMAGED[0]], [], [1, 2, 3], (0, 0)),
    "to other ports": ([*ELSEWHERE, ELSEWHERE[0]], [], [], (0, 4)),
    "cut by the snap length": ([FIRST, part(48, BODY[20:25], length=40), LAST], [(3, BODY[:25])], [], (3, 0)),
}


@pytest.mark.parametrize("what", CASES)
def test_fault_21_what_becomes_of_fragments(what: str) -> None:
    packets, segments, lost, counts = CASES[what]
    found = look(packets)
    assert (found.payloads(), found.lost()) == (segments, lost)
    assert found.counts == ({0: counts} if any(counts) else {})
    assert all(row["length"] == len(BODY) for row in found.segments) or "end" in what
    assert [row["raw"] for row in found.faults] == [packets[frame - 1][20:30] for frame in lost]
    details = {f"Record {frame} is a fragment of an IP datagram that could not be reassembled." for frame in lost}
    assert {row["detail"] for row in found.faults} == details


def test_fault_21_identification_used_again_after_a_loss() -> None:
    """Fragments a minute apart are not of one datagram."""
    second = fragments4(tcp(BODY[::-1], seq=107, options=bytes(8)), [48, 88])
    found = look([FIRST, MIDDLE, *second], step_ns=25 * BILLION)
    assert (found.payloads(), found.lost()) == ([], [1, 2, 3, 4, 5])
    found = look([FIRST, ipv4(b"", protocol=17), ipv4(b"", protocol=17), *second], step_ns=25 * BILLION)
    assert (found.payloads(), found.lost()) == ([(6, BODY[::-1])], [1])
    found = look([FIRST, *[ipv4(b"", protocol=17)] * 3, MIDDLE, LAST], step_ns=None)
    assert found.payloads() == [(6, BODY)]
    assert found.segments[0]["time_ns"] is None


def test_fault_21_more_than_a_datagram_holds() -> None:
    beyond = ipv4(bytes(16), fragment=0x1FFF)
    found = look([FIRST, beyond, MIDDLE, LAST])
    assert (found.payloads(), found.lost()) == ([(4, BODY)], [2])
    largest = tcp(bytes(65_515 - 20))
    found = look(fragments4(largest, range(1480, 65_515, 1480)))
    assert [row["length"] for row in found.segments] == [65_495]
    largest = tcp(bytes(65_535 - 20))
    found = look(fragments6(largest, range(1448, 65_535, 1448)))
    assert [row["length"] for row in found.segments] == [65_515]


def test_fault_21_fragments_without_end() -> None:
    """No more of them are waited with than a datagram may have."""
    many = [ipv4(bytes(8), fragment=1 + i | 0x2000) for i in range(2000)]
    found = look([*many, FIRST, MIDDLE, LAST])
    assert (found.payloads(), found.counts) == ([(2003, BODY)], {0: (3, 0)})
    assert found.lost() == list(range(1, 2001))
    noise = [ipv4(bytes([i + 1]) * 1400, fragment=6 | 0x2000) for i in range(94)]
    found = look([*noise, FIRST, LAST])
    assert found.payloads() == [(96, BODY[:20] + bytes([94]) * 80)]
    assert found.lost() == list(range(1, 94))


def test_fault_21_duplicates_take_no_room() -> None:
    first, last = fragments4(tcp(bytes(2000)), [1400])
    found = look([*[first] * 100, last])
    assert (found.payloads(), found.counts) == ([(101, bytes(2000))], {0: (101, 0)})


@pytest.mark.parametrize("seed", merge_needs(range(6), range(30)))
def test_fault_21_any_fragments_of_distinct_datagrams(seed: int) -> None:
    """Every datagram whose fragments are all there comes out as if it had not been fragmented."""
    rng = random.Random(seed)
    packets: list[tuple[bytes, int]] = []
    complete: dict[int, Row] = {}
    holed = set()
    for number in range(rng.randrange(1, 25)):
        options = bytes(4 * rng.randrange(11))
        segment = tcp(rng.randbytes(rng.randrange(100, 3000)), seq=number, ack=rng.randrange(9), options=options)
        cuts = rng.sample(range(8, len(segment), 8), rng.randrange(1, 12))
        cut, packet = rng.choice([(fragments4, ipv4(segment, sums=True)), (fragments6, ipv6(segment, sums=True))])
        parts = cut(packet[-len(segment) :], cuts, identification=number)
        if rng.random() < 0.2:
            parts.pop(rng.randrange(len(parts)))
            holed.add(number)
        else:
            complete[number] = whole(packet)
        order = [(part, number) for part in parts]
        if rng.random() < 0.5:
            rng.shuffle(order)
        places = sorted(rng.randrange(len(packets) + 1) for _ in order)
        for shift, (place, entry) in enumerate(zip(places, order, strict=True)):
            packets.insert(place + shift, entry)
    last = {number: frame for frame, (_, number) in enumerate(packets, 1)}
    found = look([packet for packet, _ in packets])
    by_seq = {row["seq"]: row for row in found.segments}
    assert by_seq == {n: row | {"frame": last[n], "time_ns": last[n] - 1} for n, row in complete.items()}
    assert all(intact(row["header_sum"], row["payload"]) for row in found.segments)
    assert found.lost() == [frame for frame, (_, number) in enumerate(packets, 1) if number in holed]
