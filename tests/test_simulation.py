"""Simulated captures, read back by the reader they are made for."""

import filecmp
import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import dpkt
import numpy as np
import pytest

from schemas.ingest import Compression, PacketType
from schemas.replay import Reason, Verdict
from udfs import tcp
from udfs.frames import ACK, SYN, segments
from udfs.framing import Framer
from udfs.names import guid_text
from udfs.simulation.capture import RingBuffer
from udfs.simulation.events import MICROSECOND, Faults
from udfs.simulation.network import Direction, SegmentFault
from udfs.packet import Walk
from udfs.records import Cursor, Records, open_capture, read_blocks
from udfs.simulation import START_NS, simulate
from udfs.storage import open_source
from udfs.tcp import Connections, Overlap, Piece, Segment, settle

SEED, MESSAGES = 7, 1200


class Traffic(NamedTuple):
    """A simulated folder, and what was written to each direction of each connection, in order of the first write."""

    folder: Path
    written: list[list[bytes]]


class Arrival(NamedTuple):
    """A packet and the number, in all files, of the record after which it and all before it had arrived."""

    record: int
    packet: bytes


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    written: dict[Direction, list[bytes]] = defaultdict(list)
    write = Direction.write

    def recorded(self: Direction, packet: bytes, *rest: Any) -> None:
        written[self].append(bytes(packet))
        write(self, packet, *rest)

    folder = tmp_path_factory.mktemp("simulated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Direction, "write", recorded)
        simulate(str(folder), SEED, MESSAGES)
    return Traffic(folder, list(written.values()))


def captures(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.pcap"))


def records(capture: Path) -> Iterator[Records]:
    cursor = open_capture(open_source(str(capture), Compression.NONE))
    assert isinstance(cursor, Cursor)
    for block in read_blocks(open_source(str(capture), Compression.NONE, cursor.offset), cursor):
        assert block.fault is None
        yield block.records


def frames(capture: Path) -> Iterator[tuple[int, bytes]]:
    for block in records(capture):
        for start, size, time_ns in zip(block.start, block.captured, block.time_ns, strict=True):
            yield int(time_ns), block.buffer[start : start + size].tobytes()


def conversations(folder: Path) -> dict[frozenset[bytes], list[tuple[int, Segment]]]:
    """The segments between two endpoints with the numbers of their records."""
    found: dict[frozenset[bytes], list[tuple[int, Segment]]] = defaultdict(list)
    count = 0
    for capture in captures(folder):
        for block in records(capture):
            taken, rejected, _ = segments(block, [1801])
            assert not rejected.reason
            columns = (taken.seq, taken.ack, taken.flags, taken.length, taken.payload, taken.frame)
            for ends, seq, ack, flags, length, payload, frame in zip(taken.endpoints, *columns, strict=True):
                source, target = ends[:18].tobytes(), ends[18:].tobytes()
                data = block.buffer[payload : payload + length].tobytes()
                segment = Segment(source > target, int(seq), int(ack), int(flags), int(length), data)
                found[frozenset((source, target))].append((count + int(frame), segment))
            records_read = block.first_frame + len(block.start) - 1
        count += records_read
    return found


def streams(folder: Path) -> Iterator[tuple[tcp.Direction, list[Piece], list[int]]]:
    """Every direction that carried bytes, its pieces, and the numbers of the records."""
    for numbered in conversations(folder).values():
        tracker = Connections()
        for index, (_, segment) in enumerate(numbered):
            tracker.take(segment._replace(frame=index))
        tracker.rest()
        assert not tracker.outside
        for connection in tracker.found:
            for side in connection.sides:
                if pieces := settle(side, Overlap.FIRST):
                    yield side, pieces, [number for number, _ in numbered]


def arrivals(side: tcp.Direction, pieces: list[Piece], numbers: list[int]) -> list[Arrival]:
    framer = Framer(mid_stream=side.isn is None, raw_kept=64)
    ends = [piece.end for piece in pieces]
    complete = list(accumulate((numbers[piece.segment.frame] for piece in pieces), max))
    found = []
    parts = [part for piece in pieces for part in framer.feed(data_of(piece))]
    for framed in [*parts, *framer.rest()]:
        assert not framed.unframed
        for start, size in zip(framed.starts, framed.sizes, strict=True):
            last = int(np.searchsorted(ends, framed.base + start + size))
            found.append(Arrival(complete[last], framed.data[start : start + size]))
    return found


def data_of(piece: Piece) -> bytes | memoryview:
    return piece.segment.payload[piece.skip : piece.skip + piece.end - piece.start]


def test_the_same_seed_writes_the_same_bytes(traffic: Traffic, tmp_path: Path) -> None:
    simulate(str(tmp_path), 1, 30)  # is replaced
    simulate(str(tmp_path), SEED, MESSAGES)
    names = sorted(path.name for path in traffic.folder.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert filecmp.cmpfiles(traffic.folder, tmp_path, names, shallow=False) == (names, [], [])


def test_what_was_sent_is_read_back_and_nothing_else(traffic: Traffic) -> None:
    read = []
    for side, pieces, numbers in streams(traffic.folder):
        assert side.gaps == []
        assert side.rejected == []
        assert not side.conflict
        read.append([arrival.packet for arrival in arrivals(side, pieces, numbers)])
    assert sorted(read) == sorted(traffic.written)


def test_the_truth_lists_the_messages_in_order_of_arrival(traffic: Traffic) -> None:
    arrived: dict[tuple[str, str | None], list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    truth = json.loads((traffic.folder / "truth.json").read_text())
    several = {scope["source_queue_manager"] for scope in truth if "destination_queue" in scope}
    for found in streams(traffic.folder):
        for record, packet in arrivals(*found):
            walk = Walk.over(packet, None, len(packet))
            assert walk.error is None
            assert not walk.violations
            if walk.packet_type is PacketType.USER_MESSAGE and "TransactionHeader" in walk.headers:
                user, transaction = walk.headers["UserHeader"], walk.headers["TransactionHeader"]
                source = guid_text(user.source_queue_manager)
                queue = walk.columns["destination_queue"] if source in several else None
                row = {
                    "id": str(transaction.tx_sequence_timestamp << 32 | transaction.tx_sequence_ordinal),
                    "no": transaction.tx_sequence_number,
                    "prev": transaction.previous_tx_sequence_number,
                    "mid": user.message_id_ordinal,
                }
                arrived[source, queue].append((record, row))
    expected = {
        (scope["source_queue_manager"], scope.get("destination_queue")): [
            {name: row[name] for name in ("id", "no", "prev", "mid")} for row in scope["rows"]
        ]
        for scope in truth
    }
    in_order = {scope: [row for _, row in sorted(rows, key=lambda r: r[0])] for scope, rows in arrived.items()}
    assert in_order == expected
    assert len({(source, row["mid"]) for (source, _), rows in expected.items() for row in rows}) > 0.98 * MESSAGES


def test_every_verdict_comes_about(traffic: Traffic) -> None:
    truth = json.loads((traffic.folder / "truth.json").read_text())
    rows = [row for scope in truth for row in scope["rows"]]
    assert {row["verdict"] for row in rows} == set(Verdict)
    assert {row["reason"] for row in rows} == {None, *Reason} - {Reason.CAPTURE_GAP}
    assert any(int(row["id"]) >= 1 << 63 for row in rows)  # the high bit of TimeStamp
    assert any(int(row["id"]) & 1 << 31 for row in rows)  # and of Ordinal
    assert any(row["no"] == 0xFFFFFFFF for row in rows)
    for scope in truth:
        state = None
        for row in scope["rows"]:
            if state is not None:
                assert row["before"] == state
            state = row["before"] if row["accepted"] is False else [row["id"], row["no"]]


def test_checksums_are_right(traffic: Traffic) -> None:
    for capture in captures(traffic.folder):
        for _, frame in frames(capture):
            ip = dpkt.ethernet.Ethernet(frame).data
            if isinstance(ip, dpkt.ip.IP):
                assert dpkt.in_cksum(ip.__bytes__()[:20]) == 0
                protocol, segment = ip.p, frame[34 : 14 + ip.len]
            else:
                protocol, segment = ip.nxt, frame[54 : 54 + ip.plen]
            pseudo = ip.src + ip.dst + len(segment).to_bytes(4, "big") + protocol.to_bytes(4, "big")
            assert dpkt.in_cksum(pseudo + segment) == 0


def test_connections_cross_files_wrap_and_lack_their_beginning(traffic: Traffic) -> None:
    ends = []
    for capture in captures(traffic.folder):
        taken = [segments(block, [1801])[0] for block in records(capture)]
        ends.append({frozenset((e[:18].tobytes(), e[18:].tobytes())) for part in taken for e in part.endpoints})
    assert len(ends) > 2
    assert all(before & after for before, after in pairwise(ends))
    for parts in conversations(traffic.folder).values():
        assert any(segment.length for _, segment in parts)
    found = [side for side, _, _ in streams(traffic.folder)]
    assert any(side.isn is None for side in found)
    assert any(side.isn and side.isn % (1 << 32) + side.done > 1 << 32 for side in found)
    syns = [
        sum(segment.flags & (SYN | ACK) == SYN for _, segment in parts)
        for parts in conversations(traffic.folder).values()
    ]
    assert max(syns) > 1  # a port that is used again


def test_segments_come_twice_late_and_cut_otherwise(traffic: Traffic) -> None:
    repeated = late = recut = 0
    for numbered in conversations(traffic.folder).values():
        seen: set[tuple[bool, int, int]] = set()
        starts: set[tuple[bool, int]] = set()
        highest = {False: 0, True: 0}
        for _, segment in numbered:
            if segment.length:
                extent = segment.from_b, segment.seq, segment.length
                repeated += extent in seen
                late += segment.seq < highest[segment.from_b] and extent not in seen
                recut += extent[:2] in starts and extent not in seen
                seen.add(extent)
                starts.add(extent[:2])
                highest[segment.from_b] = max(highest[segment.from_b], segment.seq)
    assert min(repeated, late, recut) > 0


@pytest.mark.parametrize("nanoseconds", [True, False])
def test_record_times_strictly_increase(tmp_path: Path, *, nanoseconds: bool) -> None:
    ring = RingBuffer(tmp_path, "ring", 100, nanoseconds=nanoseconds)
    for time_ns in (START_NS, START_NS, START_NS - 5, START_NS + 2 * MICROSECOND + 7):
        ring.write(time_ns, b"\xaa" * 60)
    ring.close()
    names = [capture.name for capture in captures(tmp_path)]
    assert names == [f"ring_{number:05}_20260302080000.pcap" for number in range(4)]
    times = [time_ns - START_NS for capture in captures(tmp_path) for time_ns, _ in frames(capture)]
    assert times == ([0, 1, 2, 2007] if nanoseconds else [0, 1000, 2000, 3000])


def test_every_kind_of_fault_strikes_before_any_strikes_again() -> None:
    faults = Faults(Random(1), 1.0, tuple(SegmentFault))
    assert {faults.strike() for _ in SegmentFault} == set(SegmentFault)
    assert Faults(Random(1), 0.0, tuple(SegmentFault)).strike() is None
