"""Who reads the versions in a row of `runs` sees the tables of one night, also while the next one writes."""

import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from threading import Event, Thread
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from warehouses import CAPTURES, all_rows, config

from jobs.cli.code_version import VERSION
from jobs.commands import nightly, repair, replay
from jobs.tables import delta_commits
from schemas.messages import MESSAGES
from schemas.outcomes import OUTCOMES
from schemas.replay import SEQUENCES, VERDICTS
from schemas.runs import RUNS

BRANCHES = [CAPTURES / f"branches_0000{number}.pcap.gz" for number in range(3)]
Moment = tuple[tuple[str, tuple[str, ...]], ...]
"""Of each table its rows, in an order of their own."""


def runs(warehouse: Path) -> list[dict[str, Any]]:
    """The runs, in order."""
    rows = DeltaTable(str(warehouse / RUNS.name)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["ended_at"])


def moment(warehouse: Path, run: dict[str, Any] | None = None) -> Moment:
    """Reads three tables in the versions that a run names, or in their newest."""
    versions = {one["table"]: one["version"] for one in run["tables"]} if run else {}
    names = [table.name for table in (VERDICTS, OUTCOMES, SEQUENCES)]
    read = {name: DeltaTable(str(warehouse / name), version=versions.get(name)).to_pyarrow_table() for name in names}
    return tuple((name, tuple(sorted(map(repr, rows.to_pylist())))) for name, rows in read.items())


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[set[Moment]]:
    """Reads the versions that the newest run names, again and again in a thread, and collects what it saw."""
    seen, is_done = set[Moment](), Event()

    def read() -> None:
        while not is_done.wait(0.2):
            if (tmp_path / RUNS.name / "_delta_log").exists() and (found := runs(tmp_path)):
                seen.add(moment(tmp_path, found[-1]))

    thread = Thread(target=read)
    thread.start()
    yield seen
    is_done.set()
    thread.join()


@pytest.mark.slow
def test_the_versions_of_a_run_are_one_moment(spark: SparkSession, tmp_path: Path, reader: set[Moment]) -> None:
    moments = []
    for captures in (BRANCHES[:1], BRANCHES[:2], BRANCHES):
        nightly.run(spark, config(tmp_path, *captures, fail_on=["lost"], webhook="https://chat.example/secret"))
        moments.append(moment(tmp_path))
    found = runs(tmp_path)
    assert [moment(tmp_path, run) for run in found] == moments
    assert len(set(moments)) == 3
    assert reader <= set(moments)
    assert len(reader) > 1
    assert [(row["version"], row["new_captures"], row["captures"]) for row in found] == [
        (VERSION, 1, 1),
        (VERSION, 1, 2),
        (VERSION, 1, 3),
    ]
    assert [row["exit_code"] for row in found] == [3 if row["lost_messages"] else 0 for row in found]
    assert found[0]["options"].startswith('{"captures": ')
    assert json.loads(found[0]["options"]).keys() == {"captures", "fail_on", "warehouse"}


@pytest.mark.slow
def test_a_copy_that_was_made_while_a_run_wrote_is_put_right_by_repair(spark: SparkSession, tmp_path: Path) -> None:
    """It has captures of a step that was not ended: they are read again."""
    made, copied, settle = tmp_path / "made", tmp_path / "copied", delta_commits._settle

    def copying(place: str, version: int) -> None:
        settle(place, version)
        if Path(place).name == MESSAGES.name and not copied.exists():
            copytree(made, copied)

    nightly.run(spark, config(made, *BRANCHES[:1]))
    with mock.patch.object(delta_commits, "_settle", copying):
        nightly.run(spark, config(made, *BRANCHES))
    repair.run(spark, config(copied))
    nightly.run(spark, config(copied, *BRANCHES))
    assert all_rows(copied) == all_rows(made)


def test_replay_and_repair_are_recorded_and_a_run_that_changes_nothing_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    nightly.run(spark, config(tmp_path, *BRANCHES[:1]))
    replay.run(spark, config(tmp_path))
    repair.run(spark, config(tmp_path))
    replay.run(spark, config(tmp_path, reading="literal"))
    repair.run(spark, config(tmp_path, *BRANCHES))
    found = [(row["command"], row["new_captures"], row["captures"]) for row in runs(tmp_path)]
    assert found == [("nightly", 1, 1), ("replay", 0, 1), ("repair", 2, 3)]
    assert [row["messages"] > 0 for row in runs(tmp_path)] == [True] * 3
    assert [row["lost_messages"] is None for row in runs(tmp_path)] == [False, True, False]
    assert moment(tmp_path, runs(tmp_path)[-1]) == moment(tmp_path)
