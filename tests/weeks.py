"""A warehouse of many nights: each is the demonstration's morning again, a day later, at first without its trouble."""

from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import polars as pl
import pyarrow as pa
from deltalake import write_deltalake
from night_truth import STORIES
from warehouses import derived

from jobs.simulator import demo, simulate
from jobs.tables import delta_commits
from jobs.tables.layout import DECLARATION
from schemas.table import Table
from schemas.tables import TABLES
from udfs.frames.derivation import Frames, to_arrow

TROUBLED = {0: "both", 16: "both"}
"""Nights with messages lost, stuck, repeated and expired."""
_DAY = timedelta(days=1)
_OF_ONE_NIGHT = {"capture_id", "stream_id", "connection_id", "session_id", "scope_key", "incident_id", "receiver"}
"""Names that no two nights share: a sender has another receiver each night."""


def write_nights(warehouse: Path, nights: int) -> None:
    """Writes the tables of so many nights, whose captures have holes."""
    of_night = [_night(TROUBLED.get(night, "neither")) for night in range(nights)]
    for table in TABLES:
        rows = [_later(table, tables[table.name], night) for night, tables in enumerate(of_night)]
        _write(warehouse, table, to_arrow(pl.concat(rows)).cast(table.arrow))


def write_empty(warehouse: Path) -> None:
    """Writes all tables without a row."""
    for table in TABLES:
        _write(warehouse, table, table.arrow.empty_table())


def _write(warehouse: Path, table: Table, rows: pa.Table) -> None:
    """Creates a table as declared, without its constraints."""
    write_deltalake(str(warehouse / table.name), rows)
    delta_commits.set_properties(str(warehouse / table.name), {DECLARATION: table.fingerprint})


@cache
def _night(story: str) -> Frames:
    with TemporaryDirectory() as folder, mock.patch.object(demo, "STORIES", STORIES[story]):
        simulate(folder, 1, 0, is_demo=True, loss=0.005)
        return derived(f"{folder}/*.pcap")


def _later(table: Table, rows: pl.DataFrame, night: int) -> pl.DataFrame:
    """Returns the rows of a night so many days later."""
    times = [name for name in table.names if name.endswith("_ns") and rows.schema[name] == pl.Int64]
    return rows.select(table.names).with_columns(
        pl.selectors.datetime() + night * _DAY,
        pl.col(times) + night * _DAY // timedelta(microseconds=1) * 1_000,
        pl.selectors.by_name(_OF_ONE_NIGHT, require_all=False) + f", night {night}",
    )
