"""Refuses a warehouse that a run cannot go on with, before it writes anything."""

from collections.abc import Collection
from functools import partial
from pathlib import Path

from jobs.cli.errors import JobError, UsageError
from jobs.tables import damage, log
from jobs.tables.publish_lock import require_whole
from jobs.tables.warehouse import Warehouse
from schemas.table import Table
from schemas.tables import INGESTED, TABLES
from udfs.frames.parallel import run_in_parallel

_ELSEWHERE = "Choose another place for the warehouse."
_CURE = "Use that version, or ingest the captures into a new warehouse."


def require_own(warehouse: Warehouse, *, reads: Collection[Table] = (), mends: bool = False) -> None:
    """Makes sure that this version can go on with what is at the warehouse's place; writes nothing.

    The tables of ingest have to be as declared, and all there once one of them has rows. So has a derived table that
    the command `reads`; others are derived again, whichever version made them. `mends`: damaged tables do not
    matter.

    Raises:
        DamagedError: a commit of a table is lost or damaged.
        JobError: another version made a table.
        UsageError: something else has the place of a table, or tables of ingest are missing.
    """
    asked = [table for table in TABLES if not _is_damaged(warehouse, table)]
    found = run_in_parallel(partial(_declaration, warehouse, table) for table in asked)
    for table, declaration in zip(asked, found, strict=True):
        if declaration == "":
            raise UsageError(f"The table {table.name} in {warehouse.place} was not made by msmq-replay. {_ELSEWHERE}")
        if declaration in (None, table.fingerprint):
            continue
        made = f"The table {table.name} in {warehouse.place} was made by another version of msmq-replay"
        if table in INGESTED:
            raise JobError(f"{made}, with other columns or values. {_CURE}")
        if table in reads:
            raise JobError(f"{made}: run msmq-replay repair, which derives it again.")
    of_ingest = [(table, declaration) for table, declaration in zip(asked, found, strict=True) if table in INGESTED]
    missing = [table.name for table, declaration in of_ingest if declaration is None]
    there = [table for table, declaration in of_ingest if declaration is not None]
    if missing and (filled := [table.name for table in there if warehouse.count(table) != 0]):
        raise UsageError(
            f"There is no table {', '.join(missing)} in {warehouse.place}, but rows in {', '.join(filled)}: put back "
            "what is missing, or ingest the captures into a new warehouse."
        )
    if not mends:
        require_whole(warehouse)


def _declaration(warehouse: Warehouse, table: Table) -> str | None:
    """Returns the fingerprint of the table that is there; "" if it has none, None without a table."""
    if warehouse.has(table):
        return warehouse.declaration(table) or ""
    place = warehouse.own_logs.get(table.name)
    if place is not None and _holds_something(Path(place)):
        raise UsageError(f"{place} is no table of msmq-replay, but has the place of one. {_ELSEWHERE}")
    return None


def _holds_something(place: Path) -> bool:
    """Returns whether there is more than what a run leaves that was killed when it began to create a table."""
    return place.exists() and not (place.is_dir() and all(found.name == log.FOLDER for found in place.iterdir()))


def _is_damaged(warehouse: Warehouse, table: Table) -> bool:
    place = warehouse.own_logs.get(table.name)
    return place is not None and damage.is_damaged(place)
