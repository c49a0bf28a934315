"""Runs that are killed, that meet, that fail: the tables end as if nothing had happened."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from warehouses import CAPTURES, all_rows, rows, without_spark
from warehouses import config as any_config

from jobs.cli.config import Config
from jobs.cli.errors import ConflictError, JobError, UsageError
from jobs.commands import ingest, maintain, nightly, repair, replay, status
from jobs.commands.maintain import without_outdated_states
from jobs.tables import delta_commits, log, parquet_files, publish_lock
from jobs.tables.in_catalog import InCatalog
from jobs.tables.in_folder import InFolder
from jobs.tables.layout import DECLARATION
from jobs.tables.own_tables import require_own
from jobs.tables.provenance import derive
from jobs.tables.running import Mark
from jobs.tables.through_spark import ThroughSpark
from schemas.history import MESSAGE_HISTORY
from schemas.ingest import INTERNAL_CONNECTIONS, PACKETS, STREAM_GAPS
from schemas.replay import SEQUENCES
from schemas.table import Table
from schemas.tables import REPLAYED, TABLES
from udfs.frames.tables import schema_of
from udfs.ingest import flow

GAP = pl.DataFrame([("s", 1, 2, "c", None, None, 0)], schema_of(STREAM_GAPS.arrow), orient="row")
BRANCHES = [CAPTURES / f"branches_0000{number}.pcap.gz" for number in range(3)]


def config(warehouse: Path, *captures: Path, **options: Any) -> Config:
    """Options with which a warehouse is not processed in memory, as a large one is."""
    return any_config(warehouse, *captures, **{"in_memory_bytes": 0, "in_memory_messages": 0} | options)


class Killed(BaseException):
    """Nothing of the program gets to handle it."""


@contextmanager
def killed_after(commits: Sequence[str]) -> Iterator[None]:
    """Ends the program when it has committed to each of these tables in turn."""
    waiting, settle = list(commits), delta_commits._settle

    def killing(place: str, version: int) -> None:
        settle(place, version)
        if waiting and waiting[0] == Path(place).name:
            waiting.pop(0)
            if not waiting:
                raise Killed

    with pytest.raises(Killed), mock.patch.object(delta_commits, "_settle", killing):
        yield


def executions(spark: SparkSession) -> int:
    """Counts the queries that Spark has begun, this question among them."""
    jvm: Any = spark._jvm
    ids = getattr(getattr(jvm.org.apache.spark.sql.execution, "SQLExecution$"), "MODULE$")
    return int(ids.nextExecutionId())


class FirstNight(NamedTuple):
    """The tables after the first of the captures, and how many queries that took."""

    warehouse: Path
    queries: int


@pytest.fixture(scope="module")
def counted_night(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FirstNight:
    warehouse = tmp_path_factory.mktemp("first")
    before = executions(spark)
    nightly.run(spark, any_config(warehouse, BRANCHES[0]))
    return FirstNight(warehouse, executions(spark) - before - 1)


@pytest.fixture(scope="module")
def first_night(counted_night: FirstNight) -> Path:
    """The tables after the first of the captures."""
    return counted_night.warehouse


@pytest.fixture
def warehouse(first_night: Path, tmp_path: Path) -> Path:
    """The tables after the first of the captures, to be written to."""
    shutil.copytree(first_night, tmp_path / "warehouse")
    return tmp_path / "warehouse"


def test_a_small_night_in_tasks_makes_few_queries_and_the_tables_of_one_in_memory(
    spark: SparkSession, first_night: Path, warehouse: Path, tmp_path: Path
) -> None:
    """Connections go on from the first capture to the second."""
    shutil.copytree(first_night, tmp_path / "in memory")
    nightly.run(spark, any_config(tmp_path / "in memory", BRANCHES[1]))
    before = executions(spark)
    nightly.run(spark, config(warehouse, BRANCHES[1]))
    assert executions(spark) - before - 1 <= 160
    assert all_rows(warehouse) == all_rows(tmp_path / "in memory")


def test_a_small_night_makes_few_commits_and_queries(counted_night: FirstNight) -> None:
    """One that creates a table and one that fills it, beside the lock's; a table without rows is not written to."""
    commits = {table.name: len(log.versions(str(counted_night.warehouse / table.name))) for table in TABLES}
    assert commits.pop("captures") == 7, "the replay fills in what they can show"
    assert commits.pop("quarantine") <= 3, "written by ingest and by decode"
    assert max(commits.values()) <= 2
    assert counted_night.queries <= 10


def test_a_small_night_killed_at_a_commit_ends_as_if_it_never_had_been(
    spark: SparkSession, first_night: Path, tmp_path: Path
) -> None:
    """In the replay, of which the first commit creates the table."""
    with killed_after(["verdicts", "verdicts"]):
        nightly.run(spark, any_config(tmp_path, BRANCHES[0]))
    nightly.run(spark, any_config(tmp_path, BRANCHES[0]))
    assert all_rows(tmp_path) == all_rows(first_night)


@pytest.mark.slow
def test_a_night_killed_again_and_again_ends_as_if_it_never_had_been(
    spark: SparkSession, warehouse: Path, branches: Path
) -> None:
    """In ingest, while that is rolled back, with all packets written but the step not ended, in decode, in replay."""
    night = config(warehouse, *BRANCHES[1:])
    maintain.run(spark, night)
    for kills in (["internal_connections"], ["captures", "packets"], ["packets"], ["messages"], ["verdicts"]):
        with killed_after(kills):
            nightly.run(spark, night)
    nightly.run(spark, night)
    assert all_rows(warehouse) == all_rows(branches)


@pytest.mark.slow
def test_repair_leaves_nothing_of_a_killed_run_whose_captures_are_gone(
    spark: SparkSession, warehouse: Path, first_night: Path
) -> None:
    with killed_after(["packets"]):
        ingest.run(spark, config(warehouse, BRANCHES[1]))
    assert rows(warehouse, "packets") != rows(first_night, "packets")
    said = status.run(spark, config(warehouse))
    assert "did not finish (killed)" in said["runs"][0]
    assert said["pending"]["decode"] == "out of date: messages, acks, handshakes, session_acks"
    repaired = repair.run(spark, config(warehouse))
    assert len(repaired["undone"]) == 1
    assert repaired["derived_again"] == []  # rolled back, the sources are what the tables were derived from
    assert all_rows(warehouse) == all_rows(first_night)
    said = status.run(spark, config(warehouse, BRANCHES[1]))
    assert (said["runs"], said["pending"]) == ([], {"captures": 1})


def test_a_full_disk_is_told_and_the_next_run_is_whole(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = parquet_files.write_file

    def full(place: str, table: Table, rows: pa.Table) -> Any:
        if place.endswith(f"/{PACKETS.name}"):
            raise OSError(28, "No space left on 'device' \\ \"/\"")
        return write(place, table, rows)

    with monkeypatch.context() as patch:
        patch.setattr(delta_commits, "write_file", full)
        with pytest.raises(OSError, match="No space left"):
            ingest.run(spark, any_config(warehouse, BRANCHES[1]))
    (run,) = status.run(spark, config(warehouse))["runs"]
    assert "did not finish (OSError: [Errno 28] No space left on 'device' \\ \"/\")" in run
    ingest.run(spark, any_config(warehouse, BRANCHES[1]))
    assert {row["status"] for row in rows(warehouse, "captures")} == {"ok"}
    assert all(row["balanced"] for row in rows(warehouse, "books") if row["book"] != "packets")


@pytest.mark.slow
def test_two_runs_at_once_end_as_one(spark: SparkSession, warehouse: Path, branches: Path) -> None:
    def night(captures: list[Path]) -> None:
        nightly.run(spark.newSession(), config(warehouse, *captures))

    with ThreadPoolExecutor() as threads:
        for done in [threads.submit(night, captures) for captures in (BRANCHES[:2], BRANCHES[1:])]:
            done.result()
    assert all_rows(warehouse) == all_rows(branches)


@pytest.mark.parametrize("other", ["replacement", "fence"])
def test_a_write_that_meets_another_commit_is_a_conflict(spark: SparkSession, tmp_path: Path, other: str) -> None:
    """Of a run that was taken for dead: the commit that it has begun meets the fence, even if that changes no row."""
    tables, place = InFolder(spark, str(tmp_path)), str(tmp_path / STREAM_GAPS.name)
    tables.create(STREAM_GAPS)

    def overtaken(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if other == "fence":
            delta_commits.set_properties(place, {"msmq.fence": "run"})
        else:
            delta_commits.write(place, STREAM_GAPS, GAP, lambda **_: None, overwrite=True)
        yield from batches

    row = ("late", 1, 2, *[None] * (len(STREAM_GAPS.names) - 3))
    late = spark.createDataFrame([row], STREAM_GAPS.spark).coalesce(1)
    with pytest.raises(ConflictError, match="Something else wrote stream_gaps"):
        tables.replace(STREAM_GAPS, late.mapInArrow(overtaken, STREAM_GAPS.spark))
    assert tables.read_local(STREAM_GAPS).equals(GAP if other == "replacement" else GAP.clear())


def test_a_run_taken_for_dead_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InFolder, "mark", lambda _: Mark(None))  # as on another machine
    tables = without_spark(tmp_path)

    def write_twice() -> None:
        with publish_lock.hold(tables, 0) as (held, _):  # 0 seconds make every run silent
            held.create(STREAM_GAPS)
            held.append(STREAM_GAPS, GAP)
            with publish_lock.hold(tables, 0) as (_, other):
                assert len(other.rolled_back) == 1
            held.append(STREAM_GAPS, GAP)

    with pytest.raises(ConflictError, match="took this one for dead"):
        write_twice()
    assert tables.read_local(STREAM_GAPS).is_empty()


def test_tables_are_derived_once_from_the_same_sources_and_options(tmp_path: Path) -> None:
    """A table without rows too; and again when the options or a source changed, or the table was written since."""
    tables, nothing = without_spark(tmp_path), schema_of(SEQUENCES.arrow).to_frame()

    def derived(meanwhile: Callable[[], None] = lambda: None, **options: Any) -> bool:
        with publish_lock.hold(tables, 3600) as (held, _):
            held.create(STREAM_GAPS)
            return derive(held, "replay", (SEQUENCES,), (STREAM_GAPS,), lambda _: meanwhile(), **options)

    assert [derived(scope="auto"), derived(scope="auto")] == [True, False]
    assert [derived(scope="queue"), derived(scope="queue")] == [True, False]
    tables.replace(STREAM_GAPS, GAP)
    assert [derived(scope="queue"), derived(scope="queue")] == [True, False]
    delta_commits.write(str(tmp_path / SEQUENCES.name), SEQUENCES, nothing, lambda **_: None, overwrite=True)
    assert [derived(scope="queue"), derived(scope="queue")] == [True, False]
    with pytest.raises(ConflictError, match="wrote stream_gaps without the publish lock while replay read"):
        derived(lambda: tables.replace(STREAM_GAPS, GAP), scope="session")
    assert not derived(scope="queue")  # what that run did is rolled back
    with pytest.raises(JobError, match="holds the publish lock"):
        derive(tables, "replay", (SEQUENCES,), (STREAM_GAPS,), lambda _: None)


def test_a_commit_whose_answer_was_lost_is_made_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = ThroughSpark(spark, f"file://{tmp_path}")
    tables.create(STREAM_GAPS)
    write, answers = ThroughSpark._write, iter((True, False))

    def lossy(*arguments: Any) -> None:
        write(*arguments)
        if next(answers):
            raise PySparkException("[DELTA_CONCURRENT_WRITE] the answer was lost")

    monkeypatch.setattr(ThroughSpark, "_write", lossy)
    gap = spark.createDataFrame(GAP.rows(), STREAM_GAPS.spark)
    tables.merge(STREAM_GAPS, gap)
    assert rows(tmp_path, "stream_gaps") == GAP.to_dicts()


def test_a_capture_that_grows_while_it_is_read_is_left_for_the_next_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = tmp_path / "captures" / "growing.pcapng"
    growing.parent.mkdir()
    whole = (CAPTURES / "orders.pcapng").read_bytes()
    growing.write_bytes(whole[:200_000])
    find_new_captures = flow.find_new_captures

    def grown(*arguments: Any) -> Any:
        found = find_new_captures(*arguments)
        growing.write_bytes(whole)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(flow, "find_new_captures", grown)
        ingest.run(spark, any_config(tmp_path / "warehouse", growing.parent))
    assert rows(tmp_path / "warehouse", "captures") == []
    ingest.run(spark, any_config(tmp_path / "warehouse", growing.parent))
    assert [row["status"] for row in rows(tmp_path / "warehouse", "captures")] == ["ok"]


def test_names_of_files_and_folders_are_only_names(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = tmp_path / "it's `x` $(reboot) ..; DROP TABLE"
    capture = tmp_path / "captures" / "a'b`c\"\x1b[31m\n..\\%2e{x}.pcapng"
    capture.parent.mkdir()
    shutil.copy(CAPTURES / "orders.pcapng", capture)
    ingest.run(spark, any_config(warehouse, capture))
    assert [row["uri"] for row in rows(warehouse, "captures")] == [str(capture)]
    assert status.run(spark, config(warehouse, capture.parent))["pending"]["captures"] == 0
    assert {path.name for path in tmp_path.iterdir()} == {warehouse.name, "captures"}


def test_of_old_states_the_two_newest_of_each_connection_stay(spark: SparkSession) -> None:
    day = 86_400 * 10**9
    states = [
        ("a", 1 * day, "1"),  # old: goes
        ("a", 2 * day, "2"),  # old: goes
        ("a", 65 * day, "3"),  # old, and the connection's second newest
        ("a", 99 * day, "4"),
        ("b", 1 * day, "1"),  # old, and its newest
        ("c", 71 * day, "5"),  # within the days
        ("c", 72 * day, "6"),
        ("c", 100 * day, "7"),
    ]
    rows_of: list[Any] = [
        (endpoints, b"", last - 1, last, capture, 1, [], "state") for endpoints, last, capture in states
    ]
    frame = spark.createDataFrame([*rows_of, ("a", b"", 0, 1, "0", None, None, None)], INTERNAL_CONNECTIONS.spark)
    found = without_outdated_states(frame, 30)
    assert sorted((row["endpoints"], row["capture_id"], row["state"]) for row in found.collect()) == [
        ("a", "1", None),
        ("a", "2", None),
    ]
    assert found.columns == list(INTERNAL_CONNECTIONS.names)


@pytest.mark.parametrize("made", [True, False])
def test_a_table_that_another_run_is_making_is_waited_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, made: bool
) -> None:
    """Of a table that Spark is making there is a folder before there is a commit."""
    begun = tmp_path / STREAM_GAPS.name / "_delta_log" / "begun"
    begun.parent.mkdir(parents=True)
    begun.touch()
    waits = []

    def meanwhile(seconds: float) -> None:
        waits.append(seconds)
        if made and len(waits) == 2:
            shutil.rmtree(tmp_path / STREAM_GAPS.name)
            ThroughSpark(spark, str(tmp_path)).create(STREAM_GAPS)

    monkeypatch.setattr("jobs.tables.warehouse.time", SimpleNamespace(sleep=meanwhile))
    tables = ThroughSpark(spark, str(tmp_path))
    if made:
        tables.create(STREAM_GAPS)
        assert tables.has(STREAM_GAPS)
    else:
        with pytest.raises(UsageError, match=r"stream_gaps.* cannot be created: its folder holds something else"):
            tables.create(STREAM_GAPS)
        assert begun.exists()
    assert len(waits) == (2 if made else 5)


@pytest.mark.slow
def test_new_packets_are_decoded_alone_and_a_table_that_other_hands_wrote_is_derived_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    derived = list(REPLAYED)
    captures = [CAPTURES / "orders.pcapng"]
    nightly.run(spark, config(tmp_path, *captures))
    nightly.run(spark, config(tmp_path, *captures, BRANCHES[0]))
    (decoded,) = DeltaTable(str(tmp_path / "messages")).history(1)
    assert decoded["operationParameters"]["mode"] == "Append"
    before = all_rows(tmp_path, derived)
    DeltaTable(str(tmp_path / "transactions")).delete("instance = 1")
    replay.run(spark, config(tmp_path))
    assert all_rows(tmp_path, derived) == before


@pytest.fixture
def schema(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    spark.sql(f"CREATE DATABASE night LOCATION '{tmp_path / 'night.db'}'")
    yield "spark_catalog.night"
    spark.sql("DROP DATABASE night CASCADE")


def test_the_view_of_an_earlier_version_gives_way_to_the_table(spark: SparkSession, schema: str) -> None:
    tables = InCatalog(spark, schema)
    spark.sql(f"CREATE VIEW {schema}.{MESSAGE_HISTORY.name} AS SELECT 'lost' AS outcome")
    require_own(tables, upgrades=True)
    assert not tables.has(MESSAGE_HISTORY)
    for _ in range(2):
        tables.create(MESSAGE_HISTORY, derived=True)
        assert tables.has(MESSAGE_HISTORY)
        assert tables.columns(MESSAGE_HISTORY).names == MESSAGE_HISTORY.names
        assert tables.properties(MESSAGE_HISTORY)[DECLARATION] == MESSAGE_HISTORY.fingerprint


@pytest.mark.slow
def test_tables_can_be_registered_in_a_catalog(spark: SparkSession, schema: str) -> None:
    night = Config.load({"captures": [str(CAPTURES / "orders.pcapng")], "catalog_schema": schema}, None)
    spark.sql(f"CREATE VIEW {schema}.message_history AS SELECT 'as before 1.0' AS outcome")
    summary = nightly.run(spark, night)
    assert summary["transactional_messages"] == 131
    registered = {row["tableName"] for row in spark.sql(f"SHOW TABLES IN {schema}").collect()}
    assert {table.name for table in TABLES} <= registered
    assert nightly.run(spark, night) == summary
    history = spark.table(f"{schema}.message_history")
    assert [(field.name, field.dataType.simpleString()) for field in history.schema] == [
        (field.name, field.dataType.simpleString()) for field in MESSAGE_HISTORY.spark
    ]
    assert history.schema["outcome"].metadata["comment"].startswith("What became of it")
    outcomes = {row["outcome"]: row["count"] for row in history.groupBy("outcome").count().collect()}
    assert outcomes["delivered"] == summary["outcomes"]["delivered"]
    locks = [row["operation"] for row in spark.sql(f"DESCRIBE HISTORY {schema}.captures").collect()]
    assert locks.count(log.SET_PROPERTIES) == 4, "two runs take the lock and free it, and record no steps"
    assert maintain.run(spark, night)["rows_new"] == {}
    assert replay.run(spark, replace(night, reading="literal")) != summary
