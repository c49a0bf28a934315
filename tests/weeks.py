"""A warehouse of many nights: each is the demonstration's morning again, a day later, at first without its trouble."""

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake
from night_incidents import STORIES
from warehouses import derived

from jobs.simulator import demo, simulate
from schemas.table import Table
from schemas.tables import TABLES

TROUBLED = {0: "both", 16: "both"}
"""Nights with messages lost, stuck, repeated and expired."""
_DAY = timedelta(days=1)
_OF_ONE_NIGHT = {"capture_id", "stream_id", "connection_id", "session_id", "scope_key", "incident_id", "receiver"}
"""Names that no two nights share: a sender has another receiver each night."""


def write_nights(warehouse: Path, nights: int) -> None:
    """Writes the tables of so many nights, whose captures have holes."""
    of_story = {story: _night(story) for story in ("both", "neither")}
    for table in TABLES:
        rows = [_later(table, of_story[TROUBLED.get(night, "neither")][table.name], night) for night in range(nights)]
        write_deltalake(str(warehouse / table.name), pa.concat_tables(rows))


def write_empty(warehouse: Path) -> None:
    """Writes all tables without a row."""
    for table in TABLES:
        write_deltalake(str(warehouse / table.name), table.arrow.empty_table())


def _night(story: str) -> dict[str, pa.Table]:
    with TemporaryDirectory() as folder, mock.patch.object(demo, "STORIES", STORIES[story]):
        simulate(folder, 1, 0, is_demo=True, loss=0.005)
        return derived(f"{folder}/*.pcap")


def _later(table: Table, rows: pa.Table, night: int) -> pa.Table:
    """Returns the rows of a night so many days later."""
    columns = []
    for field in table.arrow:
        column = rows[field.name]
        if pa.types.is_timestamp(field.type):
            column = pc.add(column, pa.scalar(night * _DAY, pa.duration("us")))
        elif field.name.endswith("_ns") and pa.types.is_int64(field.type):
            column = pc.add(column, night * _DAY // timedelta(microseconds=1) * 1_000)
        elif field.name in _OF_ONE_NIGHT:
            column = pc.binary_join_element_wise(column, f"night {night}", ", ")
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=table.arrow)
