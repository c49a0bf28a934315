"""Traffic that was captured twice, clocks that step back, and legs of routers: verdicts do not depend on them.

A conversation in captures of both ends of an address translation is judged once. Steps back of a capture's clock are
undone. What may only pass through a queue manager is not judged.
"""

import struct
from datetime import timedelta
from pathlib import Path

import plain_copies
import pytest
from plain_replay import BOTH_ENDS, CLOCK_STEP, Row, difference, differences, read
from pyspark.sql import SparkSession
from replay_tables import NULL, T0, Replayed, Tables, attributes_of, finding_of, plain, replay, with_keys
from test_operations import killed_after
from tiers import merge_needs
from warehouses import all_rows, config, rows

from jobs.simulator import CAPTURE_PREFIX, simulate
from jobs.steps import nightly
from schemas.replay import FindingKind

SEED, BLOCK = 4, 4
BLOCKS = merge_needs([0], range(3))


@pytest.mark.parametrize("options", [BOTH_ENDS, CLOCK_STEP], ids=["both ends", "clock step"])
@pytest.mark.parametrize("block", BLOCKS)
def test_neither_captures_of_both_ends_nor_a_clock_that_steps_back_change_a_verdict(block: int, options: Row) -> None:
    assert differences(range(block * BLOCK, (block + 1) * BLOCK), **options) == []


def ahead(capture: Path, seconds: int) -> None:
    """Writes the capture again beside it, by a clock that is ahead."""
    records = bytearray(capture.read_bytes())
    at = 24
    while at < len(records):
        second, _, length, _ = struct.unpack_from("<IIII", records, at)
        struct.pack_into("<I", records, at, second + seconds)
        at += 16 + length
    capture.with_name(f"{CAPTURE_PREFIX}_ahead.pcap").write_bytes(records)


@pytest.mark.parametrize(("seconds", "twice"), [(30, False), (3_600, True)])
def test_a_second_capture_by_another_clock_changes_no_verdict(tmp_path: Path, seconds: int, twice: bool) -> None:
    simulate(str(tmp_path), SEED, 200, bodies=(0, 500), file_bytes=1 << 40)
    (capture,) = tmp_path.glob(f"{CAPTURE_PREFIX}_*.pcap")
    ahead(capture, seconds)
    night, truth = read(tmp_path)
    assert difference(SEED, truth, night, night.fates_of_product()) is None
    assert bool(plain_copies.copies(night.raw)) is twice


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures of both ends, of which that of the receivers' end has a clock that steps back by 300 s."""
    captures = tmp_path_factory.mktemp("both_ends")
    simulate(str(captures), SEED, 400, bodies=(0, 500), both_ends=True, **CLOCK_STEP)
    return captures


def test_verdicts_of_both_ends_are_the_truth_and_lead_back_to_their_messages(folder: Path) -> None:
    night, truth = read(folder)
    assert difference(SEED, truth, night, night.fates_of_product()) is None
    replayed = night.replayed()
    kept = ("stream_id", "stream_offset", "captured_ns", "captured_at", "capture_id", "last_frame", "message_id")
    messages, verdicts = (
        {tuple(row[name] for name in kept) for row in table.to_dicts()}
        for table in (replayed.sources.messages, replayed.verdicts)
    )
    assert verdicts <= messages
    assert len(verdicts) == replayed.verdicts.height
    answered = [row for row in replayed.verdicts.to_dicts() if row["ack_latency_ms"] is not None]
    for row in answered:  # its time of acknowledgment is by the same clock
        latency = row["acknowledged_at"] - row["captured_at"]
        assert latency / timedelta(milliseconds=1) == pytest.approx(row["ack_latency_ms"], abs=0.002)
    assert len(answered) > 100
    (stepped,) = [row for row in plain(replayed.findings) if row["kind"] == FindingKind.CLOCK_STEPPED]
    assert stepped["severity"] == "warning"
    assert " stepped back 1 time, first by 299.8 s at record 694. " in stepped["explanation"]
    assert {one["capture_id"] for one in stepped["witness"]} == {stepped["witness"][0]["capture_id"]}


@pytest.mark.slow
def test_a_run_killed_right_after_it_named_copies_ends_as_if_it_never_had_been(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    processed, tmp_path = tmp_path / "processed", tmp_path / "killed"
    nightly.run(spark, config(processed, folder / "simulated_*.pcap"))
    given = config(tmp_path, folder / "simulated_*.pcap")
    with killed_after(["streams"] * 3):  # created, written by ingest, named copies by the replay
        nightly.run(spark, given)
    assert rows(tmp_path, "streams") == rows(processed, "streams")
    assert rows(tmp_path, "books") != rows(processed, "books")
    nightly.run(spark, given)
    assert all_rows(tmp_path) == all_rows(processed)


# --- scenes of how traffic was captured: at both ends, by clocks that differ, on legs of routers ----------------------

SECOND = 1_000_000_000
A, B, ROUTER, SOURCE = (f"00000000-0000-0000-0000-00000000000{n}" for n in range(1, 5))
LEGS: dict[str, tuple[list[str], int, int]] = {
    "10.0.1.1": ([], 0, 1),
    "10.0.1.2": ([B], 0, 0),
    "10.0.1.3": ([ROUTER], 1, 0),
    "10.0.1.4": ([B, ROUTER], 0, 1),
}
"""The queue managers that handshakes name at an address; how many messages for B pass through it, or may do so."""


def add_legs(tables: Tables) -> None:
    """Adds connections without a handshake: one message names its queue manager, and one has a direct format name."""
    for address, (elsewhere, *_) in LEGS.items():
        tables.stream(f"{address}>", "10.0.1.9", address)
        for at, source, named in ((1, f"{SOURCE} {address}", B), (2, f"{A} {address}", NULL)):
            tables.message((f"{address}>", at), T0 + at, (1, 1, 0), source_queue_manager=source)
            tables.rows["messages"][-1] |= {"queue_manager_address": named, "message_id": f"{source}\\1"}
        for number, server in enumerate(elsewhere, 1):
            tables.connection(f"{address} {number}", "10.0.1.8", address)
            tables.handshake(f"{address} {number}", "elsewhere", server)


def add_captures_of_both_ends(tables: Tables) -> None:
    """Adds one conversation of five messages, of which each end lacks some; the near end's clock is 7 s ahead."""
    for end, host, late, lacking, length in (
        ("far", "10.0.0.1", 0, (3,), 100),
        ("near", "192.168.0.1", 7, (2, 4), 200),
    ):
        begun = {
            "first_captured_at": T0 // 1000 + late * 1_000_000,
            "missing_bytes": length,
            "recovered_bytes": 500 - length,
        }
        tables.stream(f"{end}>", host, "10.0.0.9", initial_seq=77, **begun)
        tables.stream(f"{end}<", "10.0.0.9", host, initial_seq=88, **begun | {"missing_bytes": 0})
        tables.handshake(end, A, B)
        for row in tables.rows["handshakes"][-2:]:
            row["time_stamp_ms"] = 5
        for at in range(5):
            if at in lacking:
                tables.unread(f"{end}>", 100 * at, 100)
            else:
                ns = T0 + (at + late) * SECOND
                key = f"{end}>", 100 * at
                tables.message(key, ns, (1, at + 1, at), source_queue_manager=SOURCE, capture_id=end)


@pytest.fixture(scope="module")
def united() -> Replayed:
    tables = Tables()
    add_legs(tables)
    add_captures_of_both_ends(tables)
    return replay(tables.sources())


def test_sessions_leave_out_copies_and_say_what_passes_through(united: Replayed) -> None:
    sessions = {row.session_id: row for row in attributes_of(united.sessions)}
    both = sessions[f"{A}->{B}"]
    assert (both.connections, both.transactional, both.missing_bytes) == (1, 5, 0)
    for address, (_, passing, unknown) in LEGS.items():
        session = sessions[f"10.0.1.9->{address}"]
        assert (session.transactional, session.passing_through, session.receiver_unknown) == (2, passing, unknown)


def test_a_finding_names_what_was_captured_twice(united: Replayed) -> None:
    twice = [finding_of(with_keys(row)) for row in plain(united.findings) if row["kind"] == FindingKind.CAPTURED_TWICE]
    assert {one.session_id: (one.severity, one.messages, one.witness) for one in twice} == {
        f"{A}->{B}": ("info", 1, ("far>@0", "near>@0")),
        f"{B}->{A}": ("info", 1, ("far<@0", "near<@0")),
    }
