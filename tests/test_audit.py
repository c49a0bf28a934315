"""A replay of everything finds, once a week, what the nights have left wrong; here without Spark."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from histories import History
from warehouses import config, without_spark

from jobs.cli import code_version
from jobs.cli.config import Config
from jobs.commands import audit, replay
from jobs.simulator import simulate
from jobs.tables import publish_lock
from jobs.tables.memory import Memory
from jobs.tables.warehouse import Warehouse
from schemas.ingest import PACKETS
from schemas.outcomes import OUTCOMES
from schemas.replay import VERDICTS
from schemas.table import Table
from schemas.tables import REPLAYED
from udfs.frames.derivation import Frames
from udfs.replay.order.sources import SOURCES


@contextmanager
def held(folder: Path) -> Iterator[Warehouse]:
    """The warehouse in a folder, held in memory by a run that has the publish lock."""
    with publish_lock.hold(without_spark(folder), 60) as (warehouse, _):
        yield replace(warehouse, local=Memory(1_000_000))


def write(folder: Path, tables: Frames) -> None:
    """Writes what a night has read and decoded."""
    with held(folder) as warehouse:
        for table in SOURCES:
            warehouse.create(table)
            warehouse.replace(table, tables[table.name])


def judge(folder: Path, options: Config) -> dict[str, Any]:
    with held(folder) as warehouse:
        return audit.step(warehouse, options)


def tables_of(folder: Path) -> dict[str, pl.DataFrame]:
    """The rows of the tables that a replay writes."""
    with held(folder) as warehouse:
        return {table.name: warehouse.read_local(table).sort(table.key) for table in REPLAYED}


def versions(folder: Path) -> dict[str, int]:
    return without_spark(folder).versions((*SOURCES, *REPLAYED))


def leave(folder: Path, table: Table, wrong: pl.DataFrame) -> None:
    """Leaves wrong rows, as a replay with an error would: the lock says that it made them."""
    with held(folder) as warehouse:
        warehouse.replace(table, wrong)
        lock = warehouse.lock
        assert isinstance(lock, publish_lock.PublishLock)
        lock.derived["replay"]["tables"] |= warehouse.versions([table])


@pytest.fixture(scope="module", autouse=True)
def _without_windows() -> Iterator[None]:
    """Without the one thing that a replay in memory asks of Spark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "add_states_in_memory", lambda _: None)
        yield


@cache
def two_nights() -> tuple[History, History]:
    """The history after the first and after the second night; its tables are never changed."""
    history = History()
    with TemporaryDirectory() as folder:
        simulate(folder, 3, 200, bodies=(10, 200), file_bytes=20_000, loss=0.01)
        captures = sorted(Path(folder).glob("*.pcap"))
        history.night(*captures[:-2])
        first = copy(history)
        history.night(*captures[-2:])
    return first, history


@pytest.fixture(scope="module")
def some_nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse after nights that judged what was new or open, only to be read."""
    folder = tmp_path_factory.mktemp("audit")
    for history in two_nights():
        write(folder / "warehouse", history.sources)
        with held(folder / "warehouse") as warehouse:
            assert replay.step(warehouse, config(folder))
    assert history.judged_last.height < history.replayed[VERDICTS.name].height / 2
    return folder / "warehouse"


@pytest.fixture
def nights(some_nights: Path, tmp_path: Path) -> Path:
    """The same, to be written to."""
    return Path(shutil.copytree(some_nights, tmp_path / "warehouse"))


@pytest.mark.slow
def test_tables_that_are_right_are_left_alone(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = versions(nights)
    found = judge(nights, config(nights))
    assert found == {"judged_again": tables_of(nights)[VERDICTS.name].height, "rows_gone": {}, "rows_new": {}}
    assert versions(nights) == before
    assert capsys.readouterr().err.splitlines()[-1].endswith("the tables of the replay are right")
    with held(nights) as warehouse:
        assert not replay.step(warehouse, config(nights)), "nothing is new"


def test_rows_that_are_wrong_are_put_right_and_named(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tables_of(nights)
    verdicts, outcomes = before[VERDICTS.name], before[OUTCOMES.name]
    is_wrong = pl.int_range(pl.len()) < 2
    leave(nights, VERDICTS, verdicts.with_columns(accepted=pl.col("accepted") ^ is_wrong))
    leave(nights, OUTCOMES, pl.concat([outcomes.slice(1), outcomes.slice(1, 1)]))
    with held(nights) as warehouse:
        assert not replay.step(warehouse, config(nights)), "a night does not see it"
    found = judge(nights, config(nights))
    assert found["rows_gone"] == {"verdicts": 2, "outcomes": 1}
    assert found["rows_new"] == {"verdicts": 2, "outcomes": 1}
    after = tables_of(nights)
    assert after[VERDICTS.name].equals(verdicts)
    assert after[OUTCOMES.name].equals(outcomes)
    warning = capsys.readouterr().err.splitlines()[-1]
    assert "verdicts (2 gone, 2 new), outcomes (1 gone, 1 new)" in warning
    assert f"a bug of msmq-replay {code_version.VERSION}" in warning
    assert judge(nights, config(nights))["rows_gone"] == {}
    with held(nights) as warehouse:
        assert not replay.step(warehouse, config(nights)), "the tables are those of a replay"


def test_it_says_why_it_judges_nothing(nights: Path, tmp_path: Path) -> None:
    def why(folder: Path, **options: Any) -> str:
        return str(judge(folder, config(folder, **options))["not_judged_again"])

    for folder, options in ((tmp_path / "new", {}), (nights, {"scope": "queue"})):
        assert "these options" in why(folder, **options)
    with publish_lock.hold(without_spark(nights), 60) as (warehouse, _):
        assert "in_memory_messages" in audit.step(warehouse, config(nights))["not_judged_again"]
    with held(nights) as warehouse:
        warehouse.replace(PACKETS, warehouse.read_local(PACKETS).slice(1))
    assert "all that was decoded" in why(nights)
