"""Traffic that was captured twice, clocks that step back, and legs of routers: verdicts do not depend on them.

A conversation in captures of both ends of an address translation is judged once. Steps back of a capture's clock are
undone. What may only pass through a queue manager is not judged.
"""

from datetime import timedelta
from pathlib import Path

import plain_copies
import pytest
from plain_replay import BOTH_ENDS, CLOCK_STEP, Row, difference, differences, read
from pyspark.sql import SparkSession
from replay_tables import T0, Replayed, Tables, plain, replay
from test_offsets import later, records_of
from test_operations import killed_after
from tiers import merge_needs
from warehouses import all_rows, config, rows

from jobs.cli.config import Form
from jobs.commands import nightly
from jobs.simulator import CAPTURE_PREFIX, simulate
from schemas.replay import FindingKind

SEED, BLOCK = 4, 2
SECOND = 1_000_000_000
BLOCKS = merge_needs([0], range(6))


BOTH = BOTH_ENDS | CLOCK_STEP


@pytest.mark.parametrize(
    "options", merge_needs([BOTH], [BOTH_ENDS, CLOCK_STEP, BOTH]), ids=["both ends", "clock step", "both"]
)
@pytest.mark.parametrize("block", BLOCKS)
def test_neither_captures_of_both_ends_nor_a_clock_that_steps_back_change_a_verdict(block: int, options: Row) -> None:
    assert differences(range(block * BLOCK, (block + 1) * BLOCK), **options) == []


def ahead(capture: Path, seconds: int) -> None:
    """Writes the capture again beside it, by a clock that is ahead."""
    whole = capture.read_bytes()
    records = b"".join(later(one, seconds) for one in records_of(whole))
    capture.with_name(f"{CAPTURE_PREFIX}_ahead.pcap").write_bytes(whole[:24] + records)


@pytest.mark.parametrize(("seconds", "twice"), [(30, False), (3_600, True)])
def test_a_second_capture_by_another_clock_changes_no_verdict(tmp_path: Path, seconds: int, twice: bool) -> None:
    simulate(str(tmp_path), SEED, 200, bodies=(0, 500), file_bytes=1 << 40)
    (capture,) = tmp_path.glob(f"{CAPTURE_PREFIX}_*.pcap")
    ahead(capture, seconds)
    night, truth = read(tmp_path)
    assert difference(SEED, truth, night, night.fates_of_product()) is None
    assert bool(plain_copies.copies(night.raw)) is twice


IN_VERDICTS = ("message_id", "tx_sequence_id", "tx_sequence_number", "verdict", "reason", "accepted", "evidence")
IN_OUTCOMES = ("scope_key", "tx_sequence_id", "tx_sequence_number", "message_id", "outcome", "arrivals", "numbers")


def judged(replayed: Replayed) -> list[list[str]]:
    """Returns what the replay says of arrivals, messages and incidents, but for the places that it names."""
    tables = (
        (replayed.verdicts, IN_VERDICTS),
        (replayed.outcomes, IN_OUTCOMES),
        (replayed.incidents, ("incident_id", "outcome", "explanation")),
    )
    return [sorted(map(str, table.select(columns).rows())) for table, columns in tables]


RENUMBERED = [Form.RENUMBERED, Form.RENUMBERED_TRANSLATED]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("form", RENUMBERED)
def test_a_firewall_that_draws_new_sequence_numbers_changes_no_verdict(tmp_path: Path, form: Form, seed: int) -> None:
    """Each of the taps inside and outside misses frames that the other has."""
    options: Row = {"bodies": (0, 500), "situations": seed % 2 == 1, "disorder": 0.2, "file_bytes": 1 << 40}
    for name in (Form.PLAIN, form):
        simulate(str(tmp_path / name), seed, 200, form=name, **options)
    plainly, renumbered = (read(tmp_path / name)[0] for name in (Form.PLAIN, form))
    assert plain_copies.copies(renumbered.raw)
    assert judged(renumbered.replayed) == judged(plainly.replayed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures of both ends, of which that of the receivers' end has a clock that steps back by 300 s."""
    captures = tmp_path_factory.mktemp("both_ends")
    simulate(str(captures), SEED, 400, bodies=(0, 500), both_ends=True, **CLOCK_STEP)
    return captures


def test_verdicts_of_both_ends_are_the_truth_and_lead_back_to_their_messages(folder: Path) -> None:
    night, truth = read(folder)
    assert difference(SEED, truth, night, night.fates_of_product()) is None
    replayed = night.replayed
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


def test_a_message_after_a_step_back_had_no_time_to_be_acknowledged() -> None:
    tables = Tables()
    tables.connection("A", "a", "r")
    tables.rows["captures"] = [{"capture_id": "c", "clock_steps": [{"frame": 2, "step_ns": -30 * SECOND}]}]
    tables.message(("A>", 0), T0, (7, 1, 0))
    tables.ack("A<", T0 + SECOND, (7, 1))
    tables.message(("A>", 10), T0 + 10 * SECOND, (7, 2, 1), last_frame=2)
    replayed = replay(tables.sources())
    assert replayed.stream_ends["last_ns"].max() == T0 + 40 * SECOND
    assert replayed.findings["kind"].to_list() == [FindingKind.CLOCK_STEPPED]


def test_no_message_is_older_for_a_step_back_after_it(tmp_path: Path) -> None:
    simulate(str(tmp_path), 2, 600, bodies=(10, 200), ends_s=720, **CLOCK_STEP)
    kinds = set(read(tmp_path)[0].replayed.findings["kind"])
    assert FindingKind.CLOCK_STEPPED in kinds
    assert FindingKind.EXPIRED_ON_ARRIVAL not in kinds


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
