"""A command that refuses a warehouse changes nothing in it."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, cast

import polars as pl
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from test_delta_commits import any_rows
from tiers import merge_needs
from warehouses import CAPTURES, config, without_spark

from jobs.cli.code_version import VERSION
from jobs.cli.errors import JobError, UsageError
from jobs.commands import decode, ingest, maintain, nightly, repair, replay, report, status
from jobs.tables import delta_commits, log, publish_lock
from jobs.tables.layout import DECLARATION
from jobs.tables.log_files import FOLDER
from jobs.tables.own_tables import require_own
from schemas.ingest import BOOKS, INTERNAL_CONNECTIONS, PACKETS, STREAMS
from schemas.ingest import CAPTURES as CAPTURES_TABLE
from schemas.messages import MESSAGES
from schemas.replay import VERDICTS
from schemas.table import Table
from schemas.tables import LAYOUT, TABLES

COMMANDS = (nightly, ingest, decode, replay, report, maintain, repair, status)
READING = (replay, report)
"""The commands that read tables which `decode` or `replay` derived, and derive none of them again."""


def declared_otherwise(*tables: Table) -> Callable[[Path], None]:
    """Makes tables as another version declares them."""

    def change(warehouse: Path) -> None:
        for table in tables:
            delta_commits.set_properties(str(warehouse / table.name), {DECLARATION: "another"})

    return change


def early(warehouse: Path) -> None:
    """Puts a table into the place of packets that lacks a column which all rows have now."""
    shutil.rmtree(warehouse / PACKETS.name)
    columns = tuple(column for column in PACKETS if column.name != "packet_type")
    of_then = replace(PACKETS, columns=columns)
    delta_commits.create(str(warehouse / PACKETS.name), of_then, {DECLARATION: "another"})


def with_another_column(warehouse: Path) -> None:
    """Makes a table with a column that this version does not have."""
    declared_otherwise(STREAMS)(warehouse)
    DeltaTable(str(warehouse / STREAMS.name)).alter.add_columns([Field("later", "long")])


def newer(warehouse: Path) -> None:
    """Makes a warehouse of a later version, with a column more and a table more."""
    with_another_column(warehouse)
    shutil.copytree(warehouse / STREAMS.name, warehouse / "later")
    for table in (STREAMS, CAPTURES_TABLE):
        later = {"msmq.layout": str(LAYOUT + 1), "msmq.version": "99.1.0"}
        delta_commits.set_properties(str(warehouse / table.name), later)


def foreign(warehouse: Path) -> None:
    """Puts another program's table into the place of one."""
    shutil.rmtree(warehouse / VERDICTS.name)
    write_deltalake(str(warehouse / VERDICTS.name), pl.DataFrame({"verdict": ["guilty"]}).to_arrow())


def all_foreign(warehouse: Path) -> None:
    """Puts another program's tables into the places of all."""
    for table in TABLES:
        shutil.rmtree(warehouse / table.name)
        write_deltalake(str(warehouse / table.name), pl.DataFrame({"name": ["x"]}).to_arrow())


def notes(warehouse: Path) -> None:
    """Puts files into the place of a table."""
    shutil.rmtree(warehouse / VERDICTS.name)
    (warehouse / VERDICTS.name).mkdir()
    (warehouse / VERDICTS.name / "notes.txt").write_text("of the court")


def half(*tables: Table) -> Callable[[Path], None]:
    """Leaves tables of ingest out."""

    def remove(warehouse: Path) -> None:
        for table in tables:
            shutil.rmtree(warehouse / table.name)

    return remove


CHANGES: dict[str, tuple[Callable[[Path], None], type[JobError], str]] = {
    "early": (early, JobError, "packets was made by a version before 1.0 .* without packet_type, which no"),
    "column": (with_another_column, JobError, "streams was made by .* with columns that this version lacks: later"),
    "foreign": (foreign, UsageError, "verdicts in .* was not made by msmq-replay"),
    "all foreign": (all_foreign, UsageError, "captures in .* was not made by msmq-replay"),
    "notes": (notes, UsageError, "verdicts is no table of msmq-replay"),
    "half": (half(STREAMS, INTERNAL_CONNECTIONS), UsageError, "no table internal_connections, streams in .* but rows"),
    "half, without the lock": (half(CAPTURES_TABLE), UsageError, "no table captures in .*, but rows in packets"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with all tables, and rows in some."""
    folder = tmp_path_factory.mktemp("made")
    with publish_lock.hold(without_spark(folder), 60) as (held, lock):
        for table in TABLES:
            held.create(table)
        for table in (PACKETS, CAPTURES_TABLE, MESSAGES, BOOKS):
            held.append(table, any_rows(Random(1), table, 3))
        lock.end_step()
    return folder


@pytest.fixture
def warehouse(made: Path, tmp_path: Path) -> Path:
    """The warehouse, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "warehouse"))


def files(warehouse: Path) -> dict[str, str]:
    """Every file of the warehouse, and with it all versions of all tables."""
    found = (path for path in warehouse.rglob("*") if path.is_file())
    return {str(path.relative_to(warehouse)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def name_of(given: ModuleType | str) -> str:
    """The name of a command, or of a change."""
    return given if isinstance(given, str) else given.__name__.rpartition(".")[2]


def refuses(command: ModuleType, warehouse: Path, error: type[JobError], said: str) -> None:
    before = files(warehouse)
    assert any(log.versions(str(warehouse / table.name)) for table in TABLES)
    captures = [CAPTURES / "orders.pcapng"]
    with pytest.raises(error, match=said):
        command.run(cast(Any, None), config(warehouse, *captures))
    assert files(warehouse) == before


NAMES = tuple(CHANGES)
IN_TURN = [(command, NAMES[(at + nth) % len(NAMES)]) for at, command in enumerate(COMMANDS) for nth in range(2)]
"""Two of the changes for each command."""


@pytest.mark.parametrize(("command", "name"), merge_needs(IN_TURN, product(COMMANDS, NAMES)), ids=name_of)
def test_a_refused_command_changes_nothing(warehouse: Path, command: ModuleType, name: str) -> None:
    require_own(without_spark(warehouse), reads=TABLES)
    change, error, said = CHANGES[name]
    change(warehouse)
    refuses(command, warehouse, error, said)


@pytest.mark.parametrize("command", READING, ids=name_of)
def test_a_command_refuses_derived_tables_of_another_version_only_where_it_reads_them(
    warehouse: Path, command: ModuleType
) -> None:
    declared_otherwise(MESSAGES)(warehouse)
    refuses(command, warehouse, JobError, "messages in .* was made by .*: run msmq-replay repair")
    require_own(without_spark(warehouse))


def test_what_a_run_may_have_left_is_not_refused(warehouse: Path, tmp_path: Path) -> None:
    """No table at all, those of a first night that was killed at once, and derived tables that were dropped."""
    require_own(without_spark(tmp_path / "nothing"))
    with publish_lock.hold(without_spark(tmp_path / "begun"), 60) as (held, _):
        held.create(PACKETS)
    (tmp_path / "begun" / STREAMS.name / FOLDER).mkdir(parents=True)
    require_own(without_spark(tmp_path / "begun"))
    half(VERDICTS, BOOKS)(warehouse)
    require_own(without_spark(warehouse), mends=True)


@pytest.mark.parametrize("command", [decode, replay, report, maintain, status], ids=name_of)
def test_a_command_that_does_not_upgrade_says_which_one_does(warehouse: Path, command: ModuleType) -> None:
    declared_otherwise(PACKETS)(warehouse)
    refuses(
        command, warehouse, JobError, f"made by {VERSION} of msmq-replay: run msmq-replay nightly, which upgrades it"
    )


@pytest.mark.parametrize("command", [nightly, ingest, decode, replay, maintain, repair], ids=name_of)
def test_a_newer_warehouse_is_not_written_to(warehouse: Path, command: ModuleType) -> None:
    newer(warehouse)
    refuses(
        command, warehouse, JobError, f"upgraded by version 99.1.0 of msmq-replay, and this is {VERSION}: use 99.1.0"
    )


def test_a_newer_warehouse_is_read_as_long_as_all_columns_are_there(warehouse: Path) -> None:
    newer(warehouse)
    require_own(without_spark(warehouse), reads=(BOOKS,), writes=False)
    early(warehouse)
    delta_commits.set_properties(str(warehouse / PACKETS.name), {"msmq.layout": str(LAYOUT + 1)})
    with pytest.raises(JobError, match=r"use 99\.1\.0"):
        require_own(without_spark(warehouse), reads=(BOOKS,), writes=False)
