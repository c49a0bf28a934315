"""A night with nothing new is recognized without Spark; one with anything new is not."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from warehouses import CAPTURES, config

from jobs import main
from jobs.cli.capture_listing import Stamp, capture_files, stamps
from jobs.cli.command import Summary
from jobs.cli.config import Config
from jobs.cli.spark_session import FOR_FEW_ROWS, session_settings
from jobs.commands import nightly, status, unchanged_run
from jobs.tables import log, publish_lock
from jobs.tables.in_folder import InFolder
from jobs.tables.log import Commit
from jobs.tables.places import open_warehouse
from jobs.tables.through_spark import ThroughSpark
from schemas.ingest import CAPTURES as CAPTURES_TABLE
from schemas.ingest import PACKETS
from schemas.replay import VERDICTS


def recall(night: Config) -> Summary | None:
    """Returns what a night with the captures as they are now would print without Spark."""
    return unchanged_run.recall(night, stamps(capture_files(night.captures)))


@pytest.fixture
def again(spark: SparkSession, orders: tuple[Path, Summary]) -> Config:
    """The options of the night of `orders`, which was the last one there."""
    night = config(orders[0], CAPTURES / "orders.pcapng")
    if recall(night) is None:  # another test has asked for another report since
        nightly.run(spark, night)
    return night


def test_the_same_night_is_known_again(orders: tuple[Path, Summary], again: Config) -> None:
    assert recall(again) == orders[1]
    assert recall(replace(again, json=True, log_format="json", fail_on=("duplicate",))) == orders[1]


def test_it_needs_no_java(orders: tuple[Path, Summary], tmp_path: Path) -> None:
    options = tmp_path / "options.toml"
    options.write_text("[report]\nsince = 'last'\n")
    night = ["--captures", str(CAPTURES / "orders.pcapng"), "--warehouse", str(orders[0]), "--config", str(options)]
    done = subprocess.run(
        [sys.executable, "-m", "jobs.main", "nightly", "--json", "--fail-on", "duplicate", *night],
        env=os.environ | {"JAVA_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr  # --fail-on still counts
    assert "exit code 3: --fail-on names duplicate, which was found" in done.stderr
    said = json.loads(done.stdout)
    assert said.items() >= orders[1].items()
    assert (said["new_captures"], said["no_data"].partition(":")[0]) == (0, "No new capture came")
    assert "nothing new in 1 files" in done.stderr


def test_the_status_of_a_folder_needs_no_java(
    spark: SparkSession,
    orders: tuple[Path, Summary],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    night = config(orders[0], CAPTURES / "orders.pcapng")
    expected = status.run(spark, night)

    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("jobs.cli.spark_session.open_session", started)
    place = ["--warehouse", str(orders[0]), "--captures", *night.captures, "--json"]
    assert main.main(["status", *place]) == 0
    assert json.loads(capsys.readouterr().out).items() >= expected.items()
    assert expected["packets"]
    assert main.main(["status", "--warehouse", str(orders[0] / "nowhere")]) == 2
    assert main.main(["status"]) == 2
    with pytest.raises(AssertionError, match="Spark was started"):
        main.main(["status", "--catalog-schema", "a.b"])


@pytest.mark.parametrize(
    "option",
    [
        {"scope": "queue"},
        {"names": "hash"},
        {"since": "all"},
        {"captures": tuple(str(CAPTURES / name) for name in ("orders.pcapng", "branches_00000.pcap.gz"))},
        {"out": "there/is/no/such/report.html"},
    ],
)
def test_other_options_are_another_night(again: Config, option: dict[str, Any]) -> None:
    assert recall(replace(again, **option)) is None


def test_a_capture_written_to_is_another_night(again: Config) -> None:
    taken = stamps(again.captures)
    touched = {file: Stamp(stamp.size, (stamp.mtime_ns or 0) + 1) for file, stamp in taken.items()}
    assert unchanged_run.recall(again, touched) is None


def test_a_night_with_a_file_that_cannot_be_opened_looks_again(
    spark: SparkSession, again: Config, tmp_path: Path
) -> None:
    """Once it can be, its size and time are the same."""
    closed = Path("/proc/self/mem")  # its first bytes cannot be read, whoever asks
    if not closed.exists():
        pytest.skip("there is no such file")
    (tmp_path / "a.pcapng").write_bytes((CAPTURES / "orders.pcapng").read_bytes())
    (tmp_path / "b.pcapng").symlink_to(closed)
    night = config(tmp_path / "warehouse", tmp_path / "a.pcapng", tmp_path / "b.pcapng")
    nightly.run(spark, night)
    assert recall(night) is None
    assert recall(again) is not None


def write_to(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the log of the table say that it was written to once more."""

    def commits(place: str, of: Callable[[str], Iterator[Commit]] = log.commits) -> Iterator[Commit]:
        if place.endswith(f"/{table}"):
            yield Commit(log.versions(place)[0] + 1, datetime.now(UTC), "WRITE", {})
        yield from of(place)

    monkeypatch.setattr(log, "commits", commits)


@pytest.mark.parametrize("table", ["captures", "packets", "verdicts", "books"])
def test_a_table_written_to_is_another_night(again: Config, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    write_to(table, monkeypatch)
    assert recall(again) is None


def test_what_is_not_there_or_cannot_be_read_is_to_be_done(
    again: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recall(replace(again, warehouse=str(tmp_path))) is None
    (tmp_path / "last_night.json").write_text("{")
    assert recall(replace(again, warehouse=str(tmp_path))) is None
    assert "Spark has to find out whether anything is new" in capsys.readouterr().err


def test_a_table_written_to_meanwhile_leaves_the_night_unknown(
    spark: SparkSession, orders: tuple[Path, Summary], again: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr("jobs.commands.unchanged_run.write_text", lambda place, _: written.append(place))
    with publish_lock.hold(open_warehouse(spark, again), again.claim_seconds) as (warehouse, lock):
        unchanged_run.remember(warehouse, again, {}, orders[1])
        assert written == [f"{orders[0]}/last_night.json"]
        with monkeypatch.context() as patch:
            write_to("verdicts", patch)
            unchanged_run.remember(warehouse, again, {}, orders[1])
        assert len(written) == 1
        assert lock.derived.keys() == {"decode", "books", "replay", "names"}


def test_the_log_says_what_spark_says(spark: SparkSession, orders: tuple[Path, Summary]) -> None:
    both = InFolder(spark, str(orders[0])), ThroughSpark(spark, f"file://{orders[0]}")
    for table in (CAPTURES_TABLE, PACKETS, VERDICTS):
        read, asked = (list(warehouse.commits(table)) for warehouse in both)
        assert [(one.version, one.operation) for one in read] == [(one.version, one.operation) for one in asked]
        assert log.rows_version(read) == log.rows_version(asked)
        for one, other in zip(read, asked, strict=True):
            assert abs(one.at.timestamp() - other.at.timestamp()) < 60
    states = map(publish_lock.read_state, both)
    assert [state.derived.keys() for state in states if state] == [{"decode", "books", "replay", "names"}] * 2


def test_settings_for_few_rows_do_not_stay(spark: SparkSession) -> None:
    """Also one that was not set before, else a large capture would be read by one task."""
    keys = ("spark.sql.codegen.wholeStage", "spark.sql.leafNodeDefaultParallelism")
    before = [str(spark.conf.get(key)) for key in keys]
    try:
        spark.conf.set(keys[0], "true")
        spark.conf.unset(keys[1])
        with session_settings(spark, FOR_FEW_ROWS):
            assert [spark.conf.get(key, None) for key in keys] == ["false", "1"]
        assert [spark.conf.get(key, None) for key in keys] == ["true", None]
    finally:
        for key, value in zip(keys, before, strict=True):
            spark.conf.set(key, value)
