"""Simulated captures, read back by the reader they are made for."""

import filecmp
import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pipeline import WHOLE, ingest
from plain_replay import Night, differences
from tiers import merge_needs

from jobs import cli
from jobs.simulator import START_NS, simulate
from jobs.simulator.events import SECOND, Action
from jobs.simulator.network import Direction
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


def captures(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.pcap"))


def records(capture: Path) -> Iterator[Records]:
    cursor = open_capture(open_source(str(capture), Compression.NONE))
    assert isinstance(cursor, Cursor)
    for block in read_blocks(open_source(str(capture), Compression.NONE, cursor.offset), cursor):
        assert not block.faults
        yield block.records


def frames(capture: Path) -> Iterator[tuple[int, bytes]]:
    for block in records(capture):
        for start, size, time_ns in zip(block.start, block.captured, block.time_ns, strict=True):
            yield int(time_ns), block.buffer[start : start + size].tobytes()


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


@pytest.mark.parametrize("first", merge_needs([0], range(0, 30, 6)))
def test_the_truth_is_met_by_the_plain_loop_and_by_the_product(first: int) -> None:
    assert differences(range(first, first + 6)) == []


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
    file.write_text("[simulate]\nmessages = 40\ndisorder = 0")
    command = ["simulate", "--out", str(tmp_path / "out"), "--config", str(file)]
    assert cli.main(command) == 0
    found = Night(captures(tmp_path / "out"))
    assert len(found.messages) == 40
