"""A warehouse with more messages than there is the memory to judge: a night that brought few judges these here."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from histories import History, differences
from test_audit import held, tables_of, two_nights, write
from warehouses import config

from jobs.commands import audit, replay
from jobs.engines import in_process, on_spark
from jobs.tables.log import Commit, last_with_rows_of
from jobs.tables.memory import Memory
from jobs.tables.warehouse import Warehouse
from schemas.ingest import PACKETS


@pytest.fixture(autouse=True)
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[Warehouse]:
    """What was left to tasks. All rows are many, and the one thing that a replay in memory asks of Spark is missing."""
    asked: list[Warehouse] = []
    monkeypatch.setattr(replay, "_replay_on_spark", lambda warehouse, _: asked.append(warehouse))
    monkeypatch.setattr(replay, "session_settings", lambda *_: nothing())
    monkeypatch.setattr(replay, "add_states_in_memory", lambda _: None)
    monkeypatch.setattr(on_spark, "MANY_ROWS", 0)
    monkeypatch.setattr(in_process, "MANY_ROWS", 50)
    return asked


@contextmanager
def nothing() -> Iterator[None]:
    yield


def judge(folder: Path, most: int) -> bool:
    """Replays a warehouse with the memory to judge so many messages."""
    with held(folder) as warehouse:
        return replay.step(replace(warehouse, local=Memory(most)), config(folder))


def nights(folder: Path) -> Iterator[History]:
    """Writes what each night has left when it has decoded, and yields the history so far."""
    for history in two_nights():
        write(folder / "warehouse", history.sources)
        yield history


@pytest.mark.slow
def test_tables_are_those_of_all_messages(tmp_path: Path, tasks: list[Warehouse]) -> None:
    before = 0
    for history in nights(tmp_path):
        judged, packets = history.judged - before, history.sources[PACKETS.name].height
        assert judge(tmp_path / "warehouse", max(judged, packets // 2 + 1) if before else packets)
        assert list(differences(tables_of(tmp_path / "warehouse"), history.replayed)) == []
        before = history.judged
    assert not tasks
    assert judged < packets / 2
    with held(tmp_path / "warehouse") as warehouse:
        few = replace(warehouse, local=Memory(judged))
        assert "more packets" in audit.step(few, config(tmp_path))["not_judged_again"]


def test_tasks_judge_what_this_process_has_not_the_memory_for(tmp_path: Path, tasks: list[Warehouse]) -> None:
    first = next(nights(tmp_path))
    assert judge(tmp_path / "warehouse", first.sources[PACKETS.name].height - 1)
    assert [warehouse.local for warehouse in tasks] == [None]


@pytest.mark.slow
def test_tasks_judge_all_if_a_night_brings_too_many(
    tmp_path: Path, tasks: list[Warehouse], capsys: pytest.CaptureFixture[str]
) -> None:
    some = nights(tmp_path)
    first = next(some)
    judge(tmp_path / "warehouse", first.sources[PACKETS.name].height)
    assert not tasks
    judged, second = first.judged, next(some)
    memory = Memory(second.judged - judged - 1)
    with held(tmp_path / "warehouse") as warehouse:
        assert replay.step(replace(warehouse, local=memory), config(tmp_path))
    assert [warehouse.local for warehouse in tasks] == [None]
    assert not memory.tables, "tasks write other rows"
    assert "more messages are to be judged than there is memory for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("operations", "version"),
    [
        ((), 3),
        (("OPTIMIZE", "VACUUM END"), 5),
        (("OPTIMIZE", "WRITE", "OPTIMIZE"), 4),
        (("MERGE",), 3),
        (("WRITE", "OPTIMIZE", "VACUUM END"), 3),
    ],
)
def test_upkeep_leaves_the_rows_of_a_version(operations: tuple[str, ...], version: int) -> None:
    commits = [Commit(4 + nth, datetime.now(UTC), one, {}) for nth, one in enumerate(operations)]
    older = [Commit(at, datetime.now(UTC), "WRITE", {}) for at in range(4)]
    assert last_with_rows_of(3, reversed(older + commits)) == version
    assert last_with_rows_of(3, reversed(commits[1:])) == 3, "nothing tells what came next"
