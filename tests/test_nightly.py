"""Whole captures through the whole job, on a local Spark with Delta."""

import json
import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable
from plain_replay import expected, truths
from pyspark.sql import SparkSession
from test_damage import captured
from warehouses import CAPTURES, all_rows, config, in_duckdb, rows, without_spark
from wiretap import damaged

from jobs.cli import command
from jobs.cli.capture_listing import stamps
from jobs.cli.command import Summary
from jobs.cli.errors import UsageError
from jobs.cli.summary_text import for_people
from jobs.commands import decode, increments, ingest, nightly
from jobs.commands.headline import NOT_TOLD
from jobs.simulator import CAPTURE_PREFIX, simulate
from schemas.history import MESSAGE_HISTORY
from schemas.ingest import CAPTURES as CAPTURES_TABLE
from schemas.outcomes import Outcome, count_column
from schemas.tables import TABLES


def assert_truth(warehouse: Path, truth: Path) -> None:
    verdicts = sorted(rows(warehouse, "verdicts"), key=lambda row: row["replay_order"])
    of_scopes = expected(json.loads(truth.read_text()))
    assert truths(verdicts, {source for source, queue in of_scopes if queue is not None}) == of_scopes


def test_every_verdict_of_a_capture_and_of_a_ring_buffer_is_the_truth(
    orders: tuple[Path, Summary], branches: Path
) -> None:
    assert_truth(orders[0], CAPTURES / "orders.truth.json")
    assert_truth(branches, CAPTURES / "branches.truth.json")


def test_the_summary_says_what_was_found(orders: tuple[Path, Summary]) -> None:
    _, summary = orders
    assert summary["captures"] == {"ok": 1}
    assert summary["transactional_messages"] == 131
    assert summary["acks"] == {"order_ack": 24}
    assert summary["verdicts"]["in_order"] == 50
    assert summary["quarantine"] == {}
    assert summary["books"] == {"balanced": 1 + 12 + 12 + 2 * 6, "unbalanced": 0}  # two books of each of six scopes


def test_the_literal_reading_judges_arrivals_and_tells_nothing_else(
    spark: SparkSession, orders: tuple[Path, Summary], tmp_path: Path
) -> None:
    summary = nightly.run(spark, config(tmp_path, CAPTURES / "orders.pcapng", reading="literal"))
    verdicts = Counter(row["verdict"] for row in rows(tmp_path, "verdicts"))
    assert verdicts.total() == len(rows(orders[0], "verdicts"))
    assert summary["verdicts"] == verdicts != orders[1]["verdicts"]
    assert [rows(tmp_path, name) for name in ("outcomes", "transactions", "findings", "incidents")] == [[]] * 4
    for table in ("sequences", "sessions"):
        sums = rows(tmp_path, table)
        assert {name: sum(row[name] for row in sums) for name in verdicts} == verdicts
        assert {row[count_column(outcome)] for row in sums for outcome in Outcome} == {None}
    told = {name: summary[name] for name in ("headline", "outcomes", "lost", "lost_by", "stuck", "severities")}
    assert told == {"headline": NOT_TOLD, "outcomes": {}, "lost": None, "lost_by": [], "stuck": None, "severities": {}}
    assert summary["books"] == orders[1]["books"] | {"balanced": orders[1]["books"]["balanced"] - 6}  # no numbers
    assert for_people(summary).startswith(NOT_TOLD)
    page = (tmp_path / "report.html").read_text()
    assert NOT_TOLD in page
    assert "131 judged" in page
    before_sessions = page.partition('id="sessions"')[0]
    assert not [words for words in ("Nothing was lost", "There are none", "messages lost") if words in before_sessions]
    history = in_duckdb(tmp_path).table(MESSAGE_HISTORY.name)
    found = history.aggregate("outcome, lost, stuck, sum(arrivals)").fetchall()
    assert found == [(None, None, None, verdicts.total())]


@pytest.mark.slow
@pytest.mark.parametrize("most", [pytest.param(0, id="in tasks"), 1_000_000])
def test_few_captures_and_messages_are_processed_here_though_the_warehouse_is_large(
    spark: SparkSession, branches: Path, tmp_path: Path, most: int
) -> None:
    """One capture is small enough, and two are not; one comes late, and connections go on from one to the next."""
    for number in (1, 0, 2):
        capture = CAPTURES / f"branches_0000{number}.pcap.gz"
        options = config(tmp_path, capture, in_memory_bytes=most)
        assert increments.fit(without_spark(tmp_path), options, stamps([str(capture)])) is bool(most)
        nightly.run(spark, options)
    assert all_rows(tmp_path) == all_rows(branches)


def test_a_large_night_is_a_row_of_increments(
    spark: SparkSession, branches: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each has the captures that fit in memory; files come in any order, increments in that of their times."""
    captures = [CAPTURES / f"branches_0000{number}.pcap.gz" for number in (2, 0, 1)]
    nightly.run(spark, config(tmp_path, *captures, in_memory_bytes=1_000_000))
    said = re.findall(r"2/5 (ingest[^:…]*) …|ingest: (\d+ new captures)", capsys.readouterr().err)
    titles = ["ingest", "ingest, increment 2 of 3", "ingest, increment 3 of 3"]
    assert said == [one for title in titles for one in ((title, ""), ("", "1 new captures"))]
    assert all_rows(tmp_path) == all_rows(branches)
    assert len({row["ingested_at"] for row in rows(tmp_path, "captures", without=())}) == 1


def test_the_same_captures_again_change_nothing(spark: SparkSession, orders: tuple[Path, Summary]) -> None:
    warehouse, summary = orders
    others = [table.name for table in TABLES if table != CAPTURES_TABLE]  # its properties hold the lock
    before = {name: DeltaTable(str(warehouse / name)).version() for name in others}
    captures = rows(warehouse, CAPTURES_TABLE.name, without=())
    again = nightly.run(spark, config(warehouse, CAPTURES / "orders.pcapng"))
    assert {name: DeltaTable(str(warehouse / name)).version() for name in others} == before
    assert rows(warehouse, CAPTURES_TABLE.name, without=()) == captures
    assert again == summary


def test_odd_files_are_data_and_the_run_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    night = tmp_path / "night"
    night.mkdir()
    whole = (CAPTURES / "orders.pcapng").read_bytes()
    (night / "a_cut.pcapng").write_bytes(whole[:200_001])
    (night / "b_empty.pcap").write_bytes(b"")
    (night / "c_text.pcap").write_text("<html>404 not found</html>")
    (night / "d_whole.pcapng").write_bytes(whole)
    (night / "e_again.pcapng").write_bytes(whole)
    warehouse = tmp_path / "warehouse"
    summary = ingest.run(spark, config(warehouse, night))
    captures = {row["uri"].rpartition("/")[2]: row for row in rows(warehouse, "captures")}
    assert {name: (row["status"], row["reason"]) for name, row in captures.items()} == {
        "a_cut.pcapng": ("partial", "truncated_block"),
        "b_empty.pcap": ("unreadable", "empty_file"),
        "c_text.pcap": ("unreadable", "bad_magic"),
        "d_whole.pcapng": ("ok", None),
    }
    quarantined = sorted((row["stage"], row["reason"]) for row in rows(warehouse, "quarantine"))
    assert quarantined == [("capture", "bad_magic"), ("capture", "empty_file"), ("capture", "truncated_block")]
    assert summary["books"]["unbalanced"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2_000, 400))
def test_a_night_of_damaged_captures_ends_with_its_books_balanced(
    spark: SparkSession, tmp_path: Path, first: int
) -> None:
    """400 captures that tell of the same few connections, at times anywhere from 1970 to 2116, and some of messages."""
    captures = []
    for seed in range(first, first + 400):
        for part, data in enumerate(captured(seed).files):
            captures.append(tmp_path / f"{seed:04}-{part}.cap")
            captures[-1].write_bytes(data)
    simulate(str(tmp_path / "messages"), first, 400, situations=True)
    rng, file_header = Random(first), 24
    for capture in sorted((tmp_path / "messages").glob(f"{CAPTURE_PREFIX}_*.pcap")):
        data = capture.read_bytes()
        capture.write_bytes(data[:file_header] + damaged(rng, data[file_header:], times=20, kinds=6, longest=100))
        captures.append(capture)
    summary = nightly.run(spark, config(tmp_path / "warehouse", *captures))
    assert summary["books"]["unbalanced"] == 0
    assert sum(summary["verdicts"].values()) > 100


def test_a_folder_without_captures_is_an_empty_night(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    summary = nightly.run(spark, config(tmp_path / "warehouse", tmp_path / "captures"))
    assert summary["captures"] == {}
    assert summary["messages"] == 0


def test_what_is_not_there_is_wrong_use(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no"):
        ingest.run(spark, config(tmp_path, tmp_path / "missing.pcap"))
    with pytest.raises(UsageError, match="Nothing matches"):
        ingest.run(spark, config(tmp_path, tmp_path / "*.pcap"))
    with pytest.raises(UsageError, match="run msmq-replay ingest first"):
        decode.run(spark, config(tmp_path / "nowhere"))


def test_exit_codes_and_json(
    spark: SparkSession, orders: tuple[Path, Summary], capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark  # the command takes the active session
    arguments = ["--captures", str(CAPTURES / "orders.pcapng"), "--warehouse", str(orders[0]), "--json"]
    assert command.main("nightly", nightly.run, arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.items() >= orders[1].items()
    assert command.main("nightly", nightly.run, [*arguments, "--fail-on", "duplicate,unknown"]) == 3
    assert command.main("nightly", nightly.run, arguments[:2]) == 2
    assert command.main("nightly", nightly.run, [*arguments, "--fail-on", "nonsense"]) == 2
