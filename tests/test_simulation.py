"""Simulated captures, read back by the reader they are made for."""

import filecmp
import json
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from oracle import Heard, Key, heard
from pipeline import WHOLE, ingest
from plain_replay import Night, difference, differences, read
from tiers import merge_needs
from wiretap import ACK, SYN

from jobs import cli, simulator
from jobs.simulator import START_NS, managers, simulate
from jobs.simulator.branches import Fault
from jobs.simulator.capture import RingBuffer
from jobs.simulator.events import MICROSECOND, SECOND, Action, Faults
from jobs.simulator.network import Direction, SegmentFault
from schemas.ingest import Compression
from schemas.replay import Reason, Verdict
from udfs.capture.files import open_source
from udfs.capture.reader import open_capture, read_blocks
from udfs.capture.records import Cursor, Records

SEED, MESSAGES = 7, 1200


class Traffic(NamedTuple):
    """A simulated folder, and what arrived in each direction of each connection, in order of the first arrival."""

    folder: Path
    arrived: list[list[bytes]]


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    arrived: dict[Direction, list[bytes]] = defaultdict(list)
    write = Direction.write

    def recorded(self: Direction, packet: bytes, deliver: Action, *arguments: Any, **how: Any) -> None:
        sent = bytes(packet)

        def delivered(*these: Any) -> None:
            arrived[self].append(sent)
            deliver(*these)

        write(self, packet, delivered, *arguments, **how)

    folder = tmp_path_factory.mktemp("simulated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Direction, "write", recorded)
        simulate(str(folder), SEED, MESSAGES)
    return Traffic(folder, list(arrived.values()))


@pytest.fixture(scope="module")
def night(traffic: Traffic) -> Night:
    return Night(captures(traffic.folder))


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


def segments_of(capture: Path) -> list[Heard]:
    return [segment for _, frame in frames(capture) if (segment := heard(frame))]


def test_outcomes_are_told_where_the_capture_is_whole(tmp_path: Path) -> None:
    simulate(str(tmp_path), 2, 600, situations=True)
    scopes = json.loads((tmp_path / "truth.json").read_text())
    told = [scope for scope in scopes if "outcomes" in scope]
    assert len(told) > len(scopes) / 2
    displaced = 0
    for scope in told:
        accepted = {(row["id"], row["no"], row["mid"]) for row in scope["rows"] if row["accepted"]}
        arrived = {(row["id"], row["no"], row["mid"]) for row in scope["rows"]}
        slots = {key[:2] for key in accepted}
        for row in scope["outcomes"]:
            key = row["id"], row["no"], row["mid"]
            assert (key in arrived) == (row["mid"] is not None)
            if row["outcome"] != "displaced":  # by a clone, which may have the same message ID
                assert (key in accepted) == row["outcome"].startswith(("delivered", "not_read"))
            displaced += (row["outcome"] == "displaced") and key[:2] in slots
        assert {key for key in arrived if key not in accepted} <= {
            (row["id"], row["no"], row["mid"]) for row in scope["outcomes"]
        }
    assert displaced


def test_the_truth_of_the_demonstration_is_met(tmp_path: Path) -> None:
    """Its figures are tested with its report, `look` and the pages."""
    simulate(str(tmp_path), 1, 0, is_demo=True)
    night, scopes = read(tmp_path)
    assert not night.found.quarantine
    assert not difference(1, scopes, night, night.fates())


def test_the_senders_end_is_captured_before_translation(tmp_path: Path) -> None:
    simulate(str(tmp_path), SEED, 200, both_ends=True)
    near, far = (Night(sorted(tmp_path.glob(f"simulated_{kind}*.pcap"))) for kind in ("near", "0"))
    outside = {row["src_ip"] for row in far.tables["streams"]}
    assert {row["src_ip"] for row in near.tables["streams"] if row["src_ip"].startswith("192.168.")}
    assert not any(address.startswith("192.168.") for address in outside)
    assert {row["message_id"] for row in near.messages} <= {row["message_id"] for row in far.every_message}


def test_the_clock_steps_back_once(tmp_path: Path) -> None:
    simulate(str(tmp_path), SEED, 200, clock_step_s=-300)
    times = [time_ns for path in captures(tmp_path) for time_ns, _ in frames(path)]
    steps = [later - sooner for sooner, later in pairwise(times) if later < sooner]
    assert len(steps) == 1
    assert -300 * SECOND <= steps[0] < -290 * SECOND


def test_one_sender_can_have_half_of_the_messages(tmp_path: Path) -> None:
    simulate(str(tmp_path), SEED, MESSAGES, disorder=0, largest_sender=0.5)

    *others, most = sorted(len(sender["rows"]) for sender in json.loads((tmp_path / "truth.json").read_text()))
    assert most >= MESSAGES / 2 > sum(others) > 0


def test_the_same_seed_writes_the_same_bytes(traffic: Traffic, tmp_path: Path) -> None:
    simulate(str(tmp_path), 1, 30)  # is replaced
    simulate(str(tmp_path), SEED, MESSAGES)
    names = sorted(path.name for path in traffic.folder.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert filecmp.cmpfiles(traffic.folder, tmp_path, names, shallow=False) == (names, [], [])


def test_what_arrived_is_read_back_and_nothing_else(traffic: Traffic) -> None:
    """Some connections begin before the capture, and some sequence numbers wrap."""
    found = ingest(captures(traffic.folder), WHOLE)
    read: dict[str, list[bytes]] = defaultdict(list)
    for row in sorted(found.packets, key=lambda row: (row["stream_id"], row["stream_offset"])):
        read[row["stream_id"]].append(row["raw"])
    assert sorted(read.values()) == sorted(traffic.arrived)
    assert found.gaps == []
    assert {row["reason"] for row in found.quarantine} <= {"incomplete_frame"}  # where a connection was cut
    assert not any(row["conflict"] for row in found.streams)
    assert any(row["mid_stream"] for row in found.streams)
    assert any((row["initial_seq"] or 0) + row["recovered_bytes"] > 1 << 32 for row in found.streams)


@pytest.mark.parametrize("first", merge_needs([0], [0, 10, 20]))
def test_the_truth_is_met_by_the_plain_loop_and_by_the_product(first: int) -> None:
    assert differences(range(first, first + 10)) == []
    assert differences(range(first, first + 10), of_product=True) == []


def test_every_verdict_comes_about(traffic: Traffic) -> None:
    truth = json.loads((traffic.folder / "truth.json").read_text())
    rows = [row for scope in truth for row in scope["rows"]]
    messages = {(scope["source_queue_manager"], row["mid"]) for scope in truth for row in scope["rows"]}
    assert len(messages) > 0.95 * MESSAGES
    assert {row["verdict"] for row in rows} == set(Verdict)
    assert {row["reason"] for row in rows} >= {None, *Reason} - {Reason.CAPTURE_GAP, Reason.CLOCKS_DIFFER}
    assert any(int(row["id"]) >= 1 << 63 for row in rows)  # the high bit of TimeStamp
    assert any(int(row["id"]) & 1 << 31 for row in rows)  # and of Ordinal
    assert any(row["no"] == 0xFFFFFFFF for row in rows)
    for scope in truth:
        state = None
        for row in scope["rows"]:
            if state is not None:
                assert row["before"] == state
            state = row["before"] if row["accepted"] is False else [row["id"], row["no"]]


def test_connections_have_what_a_reader_must_bear(traffic: Traffic) -> None:
    """Connections cut by files, ports used again, and segments repeated, late and cut otherwise."""
    each = [segments_of(capture) for capture in captures(traffic.folder)]
    ends = [{segment.key for segment in segments} for segments in each]
    assert len(each) > 2
    assert all(before & after for before, after in pairwise(ends))
    seen = Counter[str]()
    opened = Counter(segment.key for segments in each for segment in segments if segment.flags & (SYN | ACK) == SYN)
    seen["used again"] = sum(count > 1 for count in opened.values())
    lengths: dict[tuple[Key, int], set[int]] = defaultdict(set)
    highest: Counter[Key] = Counter()
    for segment in (segment for segments in each for segment in segments if segment.length):
        others = lengths[segment.key, segment.seq]
        seen["repeated"] += segment.length in others
        seen["cut otherwise"] += bool(others - {segment.length})
        seen["late"] += segment.seq < highest[segment.key] and segment.length not in others
        others.add(segment.length)
        highest[segment.key] = max(highest[segment.key], segment.seq)
    assert min(seen[what] for what in ("used again", "repeated", "cut otherwise", "late")) > 0


def test_some_messages_pass_through_a_router(night: Night) -> None:
    routed = [row for row in night.every_message if night.passes_through(row)]
    arrived = [row for row in night.messages if row["hop_count"] == 1]
    assert {row["message_id"] for row in arrived} <= {row["message_id"] for row in routed}
    assert len(arrived) > 0.1 * MESSAGES
    assert all(row["hop_count"] == 0 for row in routed)


def test_messages_that_ask_for_a_final_ack_get_one_and_no_others_do(night: Night) -> None:
    asked = {row["message_id"] for row in night.messages if row["tx_final_ack_required"]}
    acknowledged = {row["acknowledged_message_id"] for row in night.acks if row["ack_type"] == "final_ack"}
    accepted = {row["message_id"] for row, (_, _, _, accepted, *_) in night.verdicts() if accepted is not False}
    assert len(asked) > 10
    assert acknowledged == asked & accepted


def test_an_unanswered_message_comes_again_as_scheduled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[MS-MQQB] 3.1.3.1: after 30 s three times, 300 s three times, 1,800 s three times."""
    monkeypatch.setattr(simulator, "RANDOM_FAULTS", (Fault.SILENT,))
    monkeypatch.setattr(managers, "_SILENCES_S", (7_000,))
    simulate(str(tmp_path), 1, 14, disorder=1)
    times: dict[str, list[int]] = defaultdict(list)
    for row in Night(captures(tmp_path)).messages:
        times[row["message_id"]].append(row["captured_ns"])
    most = max(times.values(), key=len)
    waits = [round((later - earlier) / SECOND) for earlier, later in pairwise(most)]
    assert waits == [30, 30, 30, 300, 300, 300, 1800, 1800, 1800, 21600]


@pytest.mark.parametrize("options", [{}, {"loss": 0.01, "begins_s": 5}])
@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")
def test_tshark_finds_nothing_wrong_below_msmq(options: dict[str, Any], tmp_path: Path) -> None:
    simulate(str(tmp_path), SEED, 300, file_bytes=1 << 40, **options)
    (capture,) = captures(tmp_path)
    checks = [f"{name}.check_checksum:TRUE" for name in ("tcp", "ip")]
    wrong = "_ws.malformed || _ws.short || _ws.expert.severity >= error"
    wrong += " || ip.checksum.status == 0 || tcp.checksum.status == 0"
    read = partial(subprocess.check_output, text=True, stderr=subprocess.DEVNULL)
    command = ["tshark", "-r", str(capture), *(part for check in checks for part in ("-o", check))]
    assert read([*command, "-Y", wrong]) == ""
    count = read([*command, "-Y", "tcp", "-T", "fields", "-e", "frame.number"])
    assert len(count.splitlines()) == sum(len(block.start) for block in records(capture))


def test_a_capture_that_misses_something(tmp_path: Path) -> None:
    """It begins late, loses frames in the middle, and its last record is cut."""
    simulate(str(tmp_path), SEED, 300, loss=0.05, begins_s=4, ends_s=20)
    found = Night(captures(tmp_path))
    assert [row["status"] for row in found.found.captures][-1] == "partial"
    assert [row["reason"] for row in found.found.quarantine if row["stage"] == "capture"] == ["truncated_record_body"]
    assert found.found.captures[0]["first_ns"] >= START_NS + 4 * SECOND
    assert found.found.captures[-1]["last_ns"] < START_NS + 20 * SECOND
    assert found.found.gaps
    assert any(row["mid_stream"] for row in found.found.streams)


def test_options_come_from_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text("[simulate]\nmessages = 40\nlargest_body = 100\nring_file_bytes = 9000\ndisorder = 0")
    command = ["simulate", "--out", str(tmp_path / "out"), "--config", str(file)]
    assert cli.main(command) == 0
    found = Night(captures(tmp_path / "out"))
    assert len(found.messages) == 40
    assert len(found.found.captures) > 4
    file.write_text("[simulate]\nlargest_body = 5")
    assert cli.main(command) == 2


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
