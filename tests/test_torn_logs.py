"""The power fails, and commits are lost, empty, zeros or cut: each is named with its cure, no row lost in silence."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from test_delta_commits import any_rows
from warehouses import CAPTURES, all_rows, config, rows, without_spark

from jobs.cli.command import Summary
from jobs.cli.errors import JobError
from jobs.commands import increments, maintain, nightly, repair, report, status
from jobs.tables import delta_commits, log, publish_lock
from jobs.tables.log import DamagedError
from jobs.tables.places import open_warehouse
from jobs.tables.publish_lock import require_whole
from schemas.ingest import CAPTURES as CAPTURES_TABLE
from schemas.ingest import PACKETS, STREAM_GAPS
from schemas.messages import DECODED_TABLES, MESSAGES
from schemas.tables import REPLAYED, TABLES

NIGHT = CAPTURES / "orders.pcapng"
TEARS: dict[str, Callable[[Path], object]] = {
    "lost": lambda entry: entry.unlink(),
    "empty": lambda entry: entry.write_bytes(b""),
    "zeros": lambda entry: entry.write_bytes(bytes(entry.stat().st_size)),
    "cut": lambda entry: entry.write_bytes(entry.read_bytes()[: entry.stat().st_size // 2]),
    "cut behind a line": lambda entry: entry.write_bytes(entry.read_bytes().split(b"\n")[0] + b"\n"),
}


def newest(place: Path) -> Path:
    """Returns the newest entry of the table's log."""
    return log.entry(str(place), log.versions(str(place))[0])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse that two runs wrote without Spark: each a row of four tables."""
    folder = tmp_path_factory.mktemp("written")
    for seed in range(2):
        with publish_lock.hold(without_spark(folder), 3600) as (held, lock):
            for table in (STREAM_GAPS, PACKETS, CAPTURES_TABLE, MESSAGES):
                held.create(table)
                held.append(table, any_rows(Random(seed), table, 1))
            lock.end_step()
    return folder


@pytest.fixture
def small(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The warehouse, to be damaged. Nothing is due for a checkpoint."""
    monkeypatch.setattr(delta_commits, "_CHECKPOINT_EVERY", 1000)
    return Path(shutil.copytree(written, tmp_path / "tables"))


def counts(warehouse: Path) -> dict[str, int]:
    """Counts the rows of the four tables."""
    tables = (STREAM_GAPS, PACKETS, CAPTURES_TABLE, MESSAGES)
    return {table.name: len(rows(warehouse, table.name)) for table in tables}


def contents(warehouse: Path) -> dict[Path, bytes]:
    """Reads all files of a warehouse."""
    return {path: path.read_bytes() for path in warehouse.rglob("*") if path.is_file()}


def refused(warehouse: Path, table: str) -> None:
    """Says that no run begins, and why."""
    with (
        pytest.raises(DamagedError, match=rf"of the table \S+/{table} is damaged.* Run msmq-replay repair"),
        publish_lock.hold(without_spark(warehouse), 3600),
    ):
        pytest.fail("a run began to write")


@pytest.mark.parametrize("tear", [tear for tear in TEARS if tear != "lost"])
def test_a_damaged_commit_of_the_lock_is_named(small: Path, tear: str) -> None:
    """One that is lost, or whose second line is, takes nothing with it but the end of the run."""
    TEARS[tear](newest(small / "captures"))
    if tear == "cut behind a line":
        require_whole(without_spark(small))
        return
    refused(small, "captures")


@pytest.mark.parametrize("tear", TEARS)
@pytest.mark.parametrize(
    ("table", "undone", "left"),
    [
        ("packets", ["version 2 of packets was damaged"], (1, 1, 1, 1)),
        ("messages", [], (2, 2, 2, 1)),  # decode derives these rows again
    ],
)
def test_what_is_repaired(small: Path, tear: str, table: str, undone: list[str], left: tuple[int, ...]) -> None:
    """Tables of ingest go back to the version that the run found; derived tables lose only the damaged commit."""
    require_whole(without_spark(small))
    TEARS[tear](newest(small / table))
    refused(small, table)
    with publish_lock.hold(without_spark(small), 3600, mends=True) as (_, lock):
        assert [said.split(": ", 1)[1] for said in lock.rolled_back] == undone
        assert tuple(counts(small).values()) == left
    require_whole(without_spark(small))
    assert all(log.is_whole(str(small / table), version) for version in log.versions(str(small / table)))


def test_a_table_of_which_no_commit_is_whole_is_set_aside_or_refused(small: Path) -> None:
    with publish_lock.hold(without_spark(small), 3600) as (held, _):
        held.create(REPLAYED[0])
    newest(small / REPLAYED[0].name).write_bytes(b"")
    with publish_lock.hold(without_spark(small), 3600, mends=True) as (held, _):
        assert not held.has(REPLAYED[0])
        held.create(REPLAYED[0])
    assert held.read_local(REPLAYED[0]).is_empty()
    for version in log.versions(str(small / "packets")):
        log.entry(str(small / "packets"), version).write_bytes(b"")
    newest(small / "captures").write_bytes(b"")
    before = contents(small)
    with pytest.raises(JobError, match=r"table .*/packets is damaged from its first entry on.* into a new warehouse"):
        publish_lock._mend(without_spark(small))
    assert contents(small) == before


@pytest.mark.parametrize("tear", ["empty", "zeros", "cut"])
def test_a_torn_checkpoint_is_named_and_repair_does_without(small: Path, tear: str) -> None:
    place = str(small / "packets")
    DeltaTable(place).create_checkpoint()
    require_whole(without_spark(small))
    (checkpoint,) = Path(place, "_delta_log").glob("*.checkpoint.parquet")
    TEARS[tear](checkpoint)
    with pytest.raises(DamagedError, match="/packets is damaged"):
        require_whole(without_spark(small))
    with publish_lock.hold(without_spark(small), 3600, mends=True) as (_, lock):
        assert lock.rolled_back == []
    assert not checkpoint.exists()
    assert counts(small) == dict.fromkeys(("stream_gaps", "packets", "captures", "messages"), 2)
    checkpoint.write_bytes(b"")
    log.entry(place, 0).unlink()  # so the log does not say any more what it held
    delta_commits._opened.clear()  # as in a process of its own
    publish_lock._mend(without_spark(small))
    with pytest.raises(JobError, match=r"/packets cannot be read.* into a new warehouse"):
        without_spark(small).create(PACKETS)


def test_rows_of_which_no_state_of_the_lock_is_known_without_are_refused(small: Path) -> None:
    for version in (1, 2):
        log.entry(str(small / "packets"), version).write_bytes(b"")
    for version in log.versions(str(small / "captures"))[:-1]:
        log.entry(str(small / "captures"), version).unlink()  # the states of the two runs
    newest(small / "messages").write_bytes(b"")
    before = contents(small)
    with pytest.raises(JobError, match=r"Rows of packets are lost, and nothing says which\. Ingest the captures into"):
        publish_lock._mend(without_spark(small))
    assert contents(small) == before


@pytest.mark.slow
@pytest.mark.parametrize("is_large", [False, True], ids=["without Spark", "by Spark"])
def test_every_table_of_a_night_is_watched_and_repaired(
    spark: SparkSession, orders: tuple[Path, Summary], tmp_path: Path, *, is_large: bool
) -> None:
    """Whoever wrote it last: a night, `status` and `report` stop before a damaged commit."""
    warehouse = tmp_path / "tables"
    shutil.copytree(orders[0], warehouse)
    night = config(warehouse, NIGHT, **({"in_memory_bytes": 0, "in_memory_messages": 0} if is_large else {}))
    if is_large:
        maintain.run(spark, night)
    whole = all_rows(warehouse)
    for table in TABLES:
        entry = newest(warehouse / table.name)
        kept = entry.read_bytes()
        for name in ("empty", "zeros", "cut"):
            TEARS[name](entry)
            with pytest.raises(DamagedError, match=f"/{table.name} is damaged"):
                require_whole(without_spark(warehouse))
        entry.write_bytes(kept)
    for table in (*DECODED_TABLES, *REPLAYED):
        TEARS["empty"](newest(warehouse / table.name))
    for command in (nightly, status, report):
        with pytest.raises(DamagedError, match="Run msmq-replay repair"):
            command.run(spark, night)
    lost = set() if is_large else {"decode", "replay"}  # maintain's commits move rows, and change none
    assert set(repair.run(spark, night)["derived_again"]) >= lost
    assert all_rows(warehouse) == whole
    TEARS["cut"](newest(warehouse / "packets"))
    assert len(repair.run(spark, config(warehouse))["undone"]) == 1
    nightly.run(spark, night)
    assert all_rows(warehouse) == whole
    assert (increments.with_few_messages(open_warehouse(spark, night), night).local is None) is is_large
