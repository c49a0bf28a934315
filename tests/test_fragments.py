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
from wiretap import BILLION, ethernet, fragments4, fragments6, ipv4, ipv6, option_header, tcp

from jobs.engine.in_process import InProcess
from schemas.staging import EXTRACTED, Counted
from udfs.capture.records import NO_TIME
from udfs.derive.frames import to_arrow, to_frame
from udfs.network.dissect import find_segments, intact
from udfs.network.segment_rows import fragment_rows, segment_rows
from udfs.passes.defragment import defragment
from udfs.passes.options import IngestOptions

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
        taken, rejected, found, _ = find_segments(held, OPTIONS.ports)
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


@pytest.mark.parametrize("missing", range(3))
def test_fault_21_one_missing(missing: int) -> None:
    parts = [FIRST, MIDDLE, LAST]
    sizes = [48, 40, 40]
    del parts[missing], sizes[missing]
    found = look(parts)
    assert (found.segments, found.counts) == ([], {})
    assert [(row["frame_number"], row["capture"], row["length"]) for row in found.faults] == [
        (1, 0, sizes[0]),
        (2, 0, sizes[1]),
    ]
    assert [row["raw"] for row in found.faults] == [part[20:30] for part in parts]
    assert {row["detail"] for row in found.faults} == {
        f"Record {frame} is a fragment of an IP datagram that could not be reassembled." for frame in (1, 2)
    }


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


@pytest.mark.parametrize("seed", range(30))
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


class Piece(NamedTuple):
    """A fragment for the plain loop."""

    offset: int
    more: bool
    length: int
    payload: bytes


def plain(pieces: Sequence[Piece]) -> tuple[list[tuple[int, bytes, int]], dict[int, int], list[int]]:
    """What becomes of fragments with one key, byte by byte.

    The datagrams (index of the fragment that completed them, bytes before the first hole, length); for each fragment of
    one the number of the datagram; the fragments that are lost.
    """
    done: list[tuple[int, bytes, int]] = []
    owner: dict[int, int] = {}
    lost: list[int] = []
    waiting: list[int] = []
    before: set[Piece] = set()

    def stop() -> None:
        for i in waiting:
            if pieces[i] in before and i in copies:
                owner[i] = len(done) - 1
            else:
                lost.append(i)
        waiting.clear()

    copies: set[int] = set()
    for index, piece in enumerate(pieces):
        if piece in before:
            copies.add(index)
        elif all(i in copies for i in waiting):
            stop()
        waiting.append(index)
        seen: set[int] = set()
        held: dict[int, int] = {}
        ends = [pieces[i].offset + pieces[i].length for i in waiting if not pieces[i].more]
        for i in waiting:
            offset, _, length, payload = pieces[i]
            seen |= set(range(offset, offset + length))
            held = {offset + at: byte for at, byte in enumerate(payload)} | held
        if ends and all(at in seen for at in range(ends[0])):
            data = bytearray()
            while len(data) < ends[0] and len(data) in held:
                data.append(held[len(data)])
            behind = [i for i in waiting if pieces[i].offset >= ends[0] and pieces[i].length]
            lost += behind
            owner |= dict.fromkeys(set(waiting) - set(behind), len(done))
            done.append((index, bytes(data), ends[0]))
            before = {pieces[i] for i in waiting if i in owner}
            waiting.clear()
    stop()
    return done, owner, lost


def fate(data: bytes, length: int) -> Row | bool | None:
    """What a whole datagram is: the row of a segment, None for one to other ports, False for one that is damaged."""
    held = block_of([ethernet(ipv4(data, total=20 + length))])
    found, rejected, *_ = find_segments(held, OPTIONS.ports)
    if len(found.frame):
        return whole(ipv4(data, total=20 + length))
    return False if rejected.reason else None


@pytest.mark.parametrize("seed", range(60))
def test_fault_21_any_fragments_against_a_plain_loop(seed: int) -> None:
    """One key; few contents that overlap, contradict and repeat each other."""
    rng = random.Random(seed)
    ports = rng.choice([(50_000, 1801), (50_000, 1801), (50_000, 443)])
    sources = [tcp(rng.randbytes(rng.randrange(12, 30)), seq=i, ports=ports) for i in range(2)]
    if rng.random() < 0.2:
        sources.append(rng.randbytes(32))
    pool = []
    for source in sources:
        for _ in range(rng.randrange(3, 9)):
            start, end = sorted(rng.sample([*range(0, len(source), 8), len(source)], 2))
            kept = rng.randrange(end - start + 1) if rng.random() < 0.1 else end - start
            more = end < len(source) or rng.random() < 0.03
            if start or more:
                pool.append(Piece(start, more, end - start, source[start : start + kept]))
    pieces = [rng.choice(pool) for _ in range(rng.randrange(60) if pool else 0)]
    done, owner, lost = plain(pieces)
    fates = [fate(data, length) for _, data, length in done]

    rank = sorted(rng.randrange(3) for _ in pieces)
    captures = [[i for i in range(len(pieces)) if rank[i] == capture] for capture in range(3)]
    rows = rows_of(*([fragment(pieces[i]) for i in own] for own in captures))
    place = [(rank[i], captures[rank[i]].index(i) + 1) for i in range(len(pieces))]
    found = run(rows)
    for batch in (1, 3, 7):
        assert run(rows, batch=batch) == found
    for size in (1, 50):
        small = run(rows, replace(OPTIONS, batch_bytes=size))
        assert sorted_rows(small) == sorted_rows(found)

    assert [row | {"time_ns": 0} for row in found.segments] == [
        expected | {"capture": place[index][0], "frame": place[index][1]}
        for (index, _, _), expected in zip(done, fates, strict=True)
        if isinstance(expected, dict)
    ]
    lost += [i for i, number in owner.items() if fates[number] is False]
    assert sorted((row["capture"], row["frame_number"]) for row in found.faults) == sorted(place[i] for i in lost)
    counted = Counter(rank[i] for i, n in owner.items() if isinstance(fates[n], dict))
    others = Counter(rank[i] for i, n in owner.items() if fates[n] is None)
    assert found.counts == {
        capture: (counted[capture], others[capture]) for capture in sorted(counted.keys() | others.keys())
    }


def fragment(piece: Piece) -> bytes:
    """The fragment as a datagram, cut where the snap length did."""
    packet = ipv4(piece.payload, fragment=piece.offset // 8 | piece.more << 13, total=20 + piece.length)
    assert len(packet) == 20 + len(piece.payload)
    return packet


def sorted_rows(found: Found) -> tuple[list[str], list[str], dict[int, tuple[int, int]]]:
    return sorted(map(repr, found.segments)), sorted(map(repr, found.faults)), found.counts
