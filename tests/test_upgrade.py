"""Warehouses of earlier layouts, kept as they were, go on with this version.

Each file in tests/layouts has a warehouse that an earlier version made of some captures, and these and later captures.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock
from zipfile import ZipFile

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from test_operations import Killed, killed_after
from tiers import merge_needs
from warehouses import all_rows, config, in_duckdb, without_spark

from jobs.cli.code_version import VERSION
from jobs.commands import nightly
from jobs.tables import delta_commits, layout
from schemas.ingest import CAPTURES, STREAM_GAPS
from schemas.messages import MESSAGES
from schemas.tables import KEPT

LAYOUTS = sorted((Path(__file__).parent / "layouts").glob("*.zip"))
ADDED = ("read_by", "ports", "overlap", "damaged_count")
"""Columns of `captures` that older rows lack."""
KILLS = (["captures"], ["captures", "captures", "streams"], ["internal_connections"], ["packets"], ["messages"])
"""Commits after which a night is killed: while it upgrades, and when rows were written."""


@pytest.fixture(params=merge_needs(LAYOUTS[:1], LAYOUTS), ids=lambda path: path.stem)
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with a warehouse and captures."""
    ZipFile(request.param).extractall(tmp_path)
    return tmp_path


@pytest.fixture
def oldest(tmp_path: Path) -> Path:
    """The same of the oldest layout, of which most has to be upgraded."""
    ZipFile(LAYOUTS[0]).extractall(tmp_path)
    return tmp_path


def nights(spark: SparkSession, folder: Path, warehouse: str, *, first: bool) -> Path:
    """Runs the second night on a warehouse, after the `first` if it has not been yet."""
    for captures in [["first"]] * first + [["first", "second"]]:
        nightly.run(spark, config(folder / warehouse, *(folder / "captures" / name for name in captures)))
    return folder / warehouse


def said(warehouse: Path) -> dict[str, list[Any]]:
    """Reads the rows of all tables, without the folders of captures."""
    tables = all_rows(warehouse)
    for row in (row for rows in tables.values() for row in rows):
        row.update({name: Path(row[name]).name for name in ("first_uri", "accepted_uri") if row.get(name)})
        for packet in row.get("witness") or ():
            if isinstance(packet, dict) and packet["uri"]:
                packet["uri"] = Path(packet["uri"]).name
    return {name: sorted(rows, key=repr) for name, rows in tables.items()}


def test_a_warehouse_of_an_earlier_layout_goes_on_as_if_this_version_had_made_it(
    spark: SparkSession, earlier: Path
) -> None:
    before = all_rows(earlier / "warehouse", [table for table in KEPT if (earlier / "warehouse" / table.name).exists()])
    upgraded, made = (nights(spark, earlier, name, first=name == "made") for name in ("warehouse", "made"))
    found, expected = said(upgraded), said(made)
    had_release = all(row.get("read_by") for row in before[CAPTURES.name])
    old = {row["capture_id"] for row in before[CAPTURES.name]}
    for rows in (found, expected):
        for row in rows[CAPTURES.name]:
            if row["capture_id"] in old:
                row.update(dict.fromkeys(ADDED))
        rows[CAPTURES.name].sort(key=lambda row: str(row["capture_id"]))
    assert found == expected
    for table in KEPT:
        assert DeltaTable(str(upgraded / table.name)).schema().to_arrow() is not None
        assert set(spark.read.format("delta").load(str(upgraded / table.name)).columns) == set(table.names)
    assert layout.maker(without_spark(upgraded).properties(STREAM_GAPS)) == VERSION
    struct = DeltaTable(str(upgraded / MESSAGES.name)).schema().to_arrow().field("session_header")
    assert "user_msg_sequence_number" in str(struct.type)
    told = [2, 6][had_release]
    assert in_duckdb(upgraded).sql("SELECT count(*), count(read_by) FROM captures").fetchall() == [(6, told)]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [KILLS[:2], KILLS], ids=["as it upgrades", "again and again"])
def test_a_night_that_is_killed_while_it_upgrades_begins_again(
    spark: SparkSession, oldest: Path, kills: list[list[str]]
) -> None:
    for commits in kills:
        with killed_after(commits):
            nights(spark, oldest, "warehouse", first=False)
    found = said(nights(spark, oldest, "warehouse", first=False))
    ZipFile(LAYOUTS[0]).extractall(oldest / "again")
    assert found == said(nights(spark, oldest / "again", "warehouse", first=False))


@pytest.mark.slow
def test_a_night_that_is_killed_after_any_commit_while_it_upgrades_loses_nothing(
    spark: SparkSession, oldest: Path
) -> None:
    commits = 0
    settle = delta_commits._settle

    def counting(place: str, version: int) -> None:
        nonlocal commits
        settle(place, version)
        commits += 1
        if commits == killed_at:
            raise Killed

    killed_at = 0
    with mock.patch.object(delta_commits, "_settle", counting):
        expected = said(nights(spark, oldest, "warehouse", first=False))
        all_commits = commits
        for killed_at in range(1, all_commits + 1):
            folder, commits = oldest / str(killed_at), 0
            ZipFile(LAYOUTS[0]).extractall(folder)
            with suppress(Killed):  # the last commit of a night frees the lock
                nights(spark, folder, "warehouse", first=False)
            assert said(nights(spark, folder, "warehouse", first=False)) == expected, killed_at
    assert all_commits > 20
