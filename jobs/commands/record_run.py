"""Records a completed run in the table `runs`, with the versions of the tables that it leaves."""

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import NamedTuple

import polars as pl

from jobs.cli import command
from jobs.cli.code_version import VERSION
from jobs.cli.command import Summary
from jobs.cli.config import DEFAULTS, NO_EFFECT, Config
from jobs.tables.warehouse import Warehouse
from schemas.runs import RUNS
from schemas.tables import TABLES
from udfs.frames.tables import schema_of


class Run(NamedTuple):
    """Holds what tells a run from others."""

    run_id: str
    command: str
    began_at: datetime


_NOT_RECORDED = {*NO_EFFECT} - {"fail_on"}  # on which the exit code depends


def record(warehouse: Warehouse, config: Config, run: Run, found: Summary, new_captures: int) -> None:
    """Appends the row of a run that holds the publish lock, after all of its other tables are written.

    `found` is its summary, of all tables. A run that changed nothing leaves none.
    """
    others = [table for table in TABLES if table != RUNS]
    tables = [{"table": name, "version": version} for name, version in warehouse.versions(others).items()]
    if not new_captures and tables in warehouse.read_local(RUNS, "tables")["tables"].to_list():
        return
    outcomes = found["outcomes"]
    told = found["lost"] is not None
    row = {
        "run_id": run.run_id,
        "command": run.command,
        "began_at": run.began_at,
        "ended_at": datetime.now(UTC),
        "version": VERSION,
        "options": json.dumps(_given(config), sort_keys=True),
        "new_captures": new_captures,
        "captures": sum(found["captures"].values()),
        "messages": found["messages"],
        "lost_messages": found["lost"],
        "stuck_messages": found["stuck"],
        "unacknowledged_messages": found["unacknowledged"] if told else None,
        "unknown_messages": outcomes.get("unknown", 0) if told else None,
        "exit_code": command.exit_code(found, config),
        "tables": tables,
    }
    warehouse.append(RUNS, pl.DataFrame([row], schema_of(RUNS.arrow)))


def _given(config: Config) -> Mapping[str, object]:
    """Returns the options with another value than their default."""
    names = [one.name for one in fields(config) if one.name not in _NOT_RECORDED]
    values = {name: getattr(config, name) for name in names}
    return {name: value for name, value in values.items() if value != getattr(DEFAULTS, name)}
