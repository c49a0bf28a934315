"""Simulated captures, read back by the reader they are made for."""

import filecmp
import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pipeline import WHOLE, ingest
from plain_replay import Night, Row, differences, read
from tiers import merge_needs

from jobs import main
from jobs.simulator import START_NS, simulate
from jobs.simulator.branches import TROUBLES, Trouble
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
    packets: dict[str, list[bytes]] = defaultdict(list)
    for row in sorted(found.packets, key=lambda row: (row["stream_id"], row["stream_offset"])):
        packets[row["stream_id"]].append(row["raw"])
    assert sorted(packets.values()) == sorted(traffic.arrived)
    assert found.gaps == []
    assert {row["reason"] for row in found.quarantine} <= {"incomplete_frame"}  # where a connection was cut
    assert not any(row["conflict"] for row in found.streams)
    assert any(row["mid_stream"] for row in found.streams)
    assert any((row["initial_seq"] or 0) + row["recovered_bytes"] > 1 << 32 for row in found.streams)


@pytest.mark.parametrize("first", merge_needs([0], range(0, 30, 3)))
def test_the_truth_is_met_by_the_plain_loop_and_by_the_product(first: int) -> None:
    """Of three nights, one is captured whole, one with losses, and one in part (`plain_replay.variant`)."""
    assert differences(range(first, first + 3)) == []


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


OPTIONS = [{}, {"troubles": True}, {"loss": 0.01, "begins_s": 5}]


@pytest.mark.parametrize("options", merge_needs(OPTIONS[:2], OPTIONS))
@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")
def test_tshark_finds_nothing_wrong_below_msmq(options: dict[str, Any], tmp_path: Path) -> None:
    simulate(str(tmp_path), SEED, 300, file_bytes=1 << 40, **options)
    (capture,) = captures(tmp_path)
    checks = [f"{name}.check_checksum:TRUE" for name in ("tcp", "ip")]
    wrong = "_ws.malformed || _ws.short || _ws.expert.severity >= error"
    wrong += " || ip.checksum.status == 0 || tcp.checksum.status == 0"
    run = partial(subprocess.check_output, text=True, stderr=subprocess.DEVNULL)
    command = ["tshark", "-r", str(capture), *(part for check in checks for part in ("-o", check))]
    assert run([*command, "-Y", wrong]) == ""
    count = run([*command, "-Y", "tcp", "-T", "fields", "-e", "frame.number"])
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
    assert main.main(command) == 0
    found = Night(captures(tmp_path / "out"))
    assert len(found.messages) == 40


class Troubled:
    """A night of senders in trouble: the truth of each, by its trouble, and what the captures have of it."""

    def __init__(self, folder: Path) -> None:
        self.night, truth = read(folder)
        self.scopes = {Trouble[scope["trouble"]]: scope for scope in truth if "trouble" in scope}
        self.others = [scope for scope in truth if "trouble" not in scope]
        self.streams = {row["stream_id"]: row for row in self.night.raw["streams"]}

    def connection(self, row: Row) -> str:
        """The TCP connection of a packet."""
        return str(self.streams[row["stream_id"]]["connection_id"])

    def outcomes(self, trouble: Trouble) -> list[tuple[int, str]]:
        """The number and the outcome of each message of the scope, but for those that are plainly delivered."""
        return [(row["no"], row["outcome"]) for row in self.scopes[trouble]["outcomes"]]

    def messages(self, trouble: Trouble) -> list[Row]:
        """The arrivals of the scope, in order of time."""
        scope = self.scopes[trouble]
        receiver = scope.get("receiving_queue_manager")
        ends = self.night.ends
        return [
            row
            for row in sorted(self.night.messages, key=lambda row: row["captured_ns"])
            if row["source_queue_manager"] == scope["source_queue_manager"]
            and receiver in (None, ends[row["stream_id"]].receiver_guid)
        ]

    def acks(self, trouble: Trouble) -> list[Row]:
        """The OrderAcks of the scope's sequences, in order of time."""
        ids = {int(row["id"]) for row in self.scopes[trouble]["rows"]}
        acks = (row for row in self.night.raw["acks"] if row["tx_sequence_id"] in ids)
        return sorted(acks, key=lambda row: row["captured_ns"])

    def session_acks(self, trouble: Trouble) -> list[Row]:
        """The SessionAcks on the connections of the scope's messages."""
        connections = set(map(self.connection, self.messages(trouble)))
        return [row for row in self.night.raw["session_acks"] if self.connection(row) in connections]

    def pauses_s(self, trouble: Trouble) -> list[int]:
        """The times between the first arrivals of one message."""
        messages = self.messages(trouble)
        first = [row["captured_ns"] for row in messages if row["message_id"] == messages[0]["message_id"]]
        return [round((then - before) / SECOND) for before, then in pairwise(first)][:4]


@pytest.fixture(scope="module", params=merge_needs([0], range(1, 12)))
def troubled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Troubled:
    folder = tmp_path_factory.mktemp("troubled")
    simulate(str(folder), request.param, 200, troubles=True)
    return Troubled(folder)


def test_every_trouble_comes_about(troubled: Troubled) -> None:
    assert [branch.trouble for branch in TROUBLES] == list(Trouble)
    assert set(troubled.scopes) == set(Trouble)
    assert {trouble: scope.get("cause") for trouble, scope in troubled.scopes.items()} == {
        trouble: trouble.cause for trouble in Trouble
    }


@pytest.mark.parametrize("trouble", [Trouble.FIREWALL, Trouble.NO_QUEUE, Trouble.ELSEWHERE, Trouble.CLOSING])
def test_what_is_sent_again_and_never_acknowledged_is_unacknowledged(troubled: Troubled, trouble: Trouble) -> None:
    rows = troubled.scopes[trouble]["rows"]
    numbers = sorted({row["no"] for row in rows})
    assert troubled.outcomes(trouble) == [(number, "unacknowledged") for number in numbers]
    accepted = len(numbers)
    assert [row["verdict"] for row in rows[:accepted]] == ["new_sequence", *["in_order"] * (accepted - 1)]
    assert {row["verdict"] for row in rows[accepted:]} == {"duplicate"}
    assert troubled.pauses_s(trouble) == [30, 30, 30, 300]
    assert all(row["ongoing"] for row in troubled.scopes[trouble]["incidents"])


def test_firewall(troubled: Troubled) -> None:
    assert troubled.acks(Trouble.FIREWALL) == troubled.session_acks(Trouble.FIREWALL) == []
    stream = troubled.streams[troubled.messages(Trouble.FIREWALL)[0]["stream_id"]]
    assert stream["acked_bytes"] == stream["recovered_bytes"]
    back = [row for row in troubled.streams.values() if row["src_ip"] == stream["dst_ip"] and row["dst_port"] == 1801]
    assert len(back) > 4
    assert {row["dst_ip"] for row in back} == {stream["src_ip"]}
    assert {row["attempt"] for row in back} == {"no_answer"}


def test_missing_queue(troubled: Troubled) -> None:
    assert troubled.acks(Trouble.NO_QUEUE) == []
    assert len(troubled.session_acks(Trouble.NO_QUEUE)) > 4


def test_acknowledgments_that_go_elsewhere(troubled: Troubled) -> None:
    acks = troubled.acks(Trouble.ELSEWHERE)
    first = troubled.messages(Trouble.ELSEWHERE)[0]
    sender, receiver = first["source_queue_manager"], troubled.night.ends[first["stream_id"]].receiver_guid
    assert len(acks) > 4
    for ack in acks:
        ends = troubled.night.ends[ack["stream_id"]]
        assert ends.sender == receiver
        assert ends.receiver_guid not in (None, sender)
        assert ack["queue_manager_address"] == sender


def test_receiver_that_closes(troubled: Troubled) -> None:
    assert troubled.acks(Trouble.CLOSING) == troubled.session_acks(Trouble.CLOSING) == []
    streams = {row["stream_id"] for row in troubled.messages(Trouble.CLOSING)}
    assert len(streams) > 4
    assert all(troubled.streams[stream]["closed"] for stream in streams)


def test_replaced_receiver(troubled: Troubled) -> None:
    scope = troubled.scopes[Trouble.REPLACED]
    (before,) = (one for one in troubled.others if one["source_queue_manager"] == scope["source_queue_manager"])
    assert before["outcomes"] == []
    last = before["rows"][-1]["no"]
    assert {row["tx_sequence_number"] for row in troubled.acks(Trouble.REPLACED)} <= set(range(1, last + 1))
    first = scope["rows"][0]
    assert (first["prev"], first["verdict"], first["reason"]) == (last, "unknown", "no_prior_state")
    assert {outcome for _, outcome in troubled.outcomes(Trouble.REPLACED)} == {"unknown"}
    assert troubled.pauses_s(Trouble.REPLACED) == [30, 30, 30, 300]
    old, new = (one["receiving_queue_manager"] for one in (before, scope))
    ends = [troubled.night.ends[row["stream_id"]] for row in troubled.messages(Trouble.REPLACED)]
    assert {end.receiver_guid for end in ends} == {new} != {old}


def test_acknowledgment_that_falls(troubled: Troubled) -> None:
    numbers = [number for number, _ in troubled.outcomes(Trouble.FALLING)]
    sequence_id = int(troubled.scopes[Trouble.FALLING]["outcomes"][0]["id"])
    *_, high, low = (row for row in troubled.acks(Trouble.FALLING) if row["tx_sequence_id"] == sequence_id)
    assert high["captured_ns"] + 20 * SECOND < low["captured_ns"]
    assert numbers == list(range(low["tx_sequence_number"] + 1, high["tx_sequence_number"] + 1))
    assert {outcome for _, outcome in troubled.outcomes(Trouble.FALLING)} == {"contradicted"}
    assert {row["verdict"] for row in troubled.scopes[Trouble.FALLING]["rows"]} == {"new_sequence", "in_order"}


def test_path_that_drops_large_segments(troubled: Troubled) -> None:
    messages = troubled.messages(Trouble.NARROW)
    lost = {number for number, _ in troubled.outcomes(Trouble.NARROW)}
    assert {outcome for _, outcome in troubled.outcomes(Trouble.NARROW)} == {"unacknowledged"}
    assert {row["tx_sequence_number"] for row in messages if row["body_size"] > 1_500} == lost
    assert max(row["tx_sequence_number"] for row in troubled.acks(Trouble.NARROW)) == min(lost) - 1
    resent = [row for row in messages if row["tx_sequence_number"] == min(lost)]
    assert len(resent) > 4
    for row in resent:
        stream = troubled.streams[row["stream_id"]]
        assert (stream["acked_bytes"], stream["ended_by_receiver"]) == (row["stream_offset"], False)
    assert all(row["ongoing"] for row in troubled.scopes[Trouble.NARROW]["incidents"])


def test_applications_that_stop_reading(troubled: Troubled) -> None:
    assert {outcome for _, outcome in troubled.outcomes(Trouble.UNREAD)} <= {"not_read"}
    acks = troubled.acks(Trouble.UNREAD)
    read = {row["tx_sequence_number"] for row in acks if row["ack_type"] == "final_ack"}
    sent = {row["tx_sequence_number"] for row in troubled.messages(Trouble.UNREAD)}
    (waiting,) = troubled.scopes[Trouble.UNREAD]["not_read"]
    assert 0 < waiting["messages"] == len(sent - read)
    assert 0 < max(read) < min(sent - read)
    assert max(row["tx_sequence_number"] for row in acks if row["ack_type"] == "order_ack") == max(sent)
