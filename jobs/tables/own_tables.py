"""Refuses a warehouse that a run cannot go on with, before it writes anything."""

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from jobs.cli.code_version import VERSION
from jobs.cli.errors import JobError, UsageError
from jobs.tables import damage
from jobs.tables.layout import DECLARATION, is_newer, maker, plan, types_of
from jobs.tables.log_files import FOLDER
from jobs.tables.publish_lock import require_whole
from jobs.tables.warehouse import Warehouse
from schemas.table import Table, sql_type
from schemas.tables import INGESTED, KEPT, TABLES
from udfs.frames.parallel import run_in_parallel

_ELSEWHERE = "Choose another place for the warehouse."


def require_own(
    warehouse: Warehouse,
    *,
    reads: Collection[Table] = (),
    writes: bool = True,
    upgrades: bool = False,
    mends: bool = False,
) -> None:
    """Makes sure that this version can go on with what is at the warehouse's place; writes nothing.

    The tables that nothing derives again have to be as declared, or to become that where the command `upgrades` them;
    those of ingest have to be all there once one of them has rows. A derived table that the command `reads` has to be
    as declared, too; others are derived again, whichever version made them. To a warehouse of a newer version nothing
    `writes`; it is read as far as all columns that this one knows are there. `mends`: damaged tables do not matter.

    Raises:
        DamagedError: a commit of a table is lost or damaged.
        JobError: another version made a table.
        UsageError: something else has the place of a table, or tables of ingest are missing.
    """
    asked = [table for table in TABLES if not _is_damaged(warehouse, table)]
    with warehouse.without_compiling():
        properties = run_in_parallel(partial(_properties, warehouse, table) for table in asked)
    found = {table: of for table, of in zip(asked, properties, strict=True) if of is not None}
    for table, of in found.items():
        if DECLARATION not in of:
            raise UsageError(f"The table {table.name} in {warehouse.place} was not made by msmq-replay. {_ELSEWHERE}")
    newer = [table for table, of in found.items() if is_newer(of)]
    if newer and (writes or not all(_can_be_read(warehouse, table) for table in newer)):
        maker_of = maker(found[newer[0]])
        raise JobError(
            f"The warehouse {warehouse.place} was made or upgraded by version {maker_of} of msmq-replay, and this is "
            f"{VERSION}: use {maker_of} or a later one."
        )
    for table, of in found.items():
        if not newer and of[DECLARATION] != table.fingerprint:
            _require_upgradable(warehouse, table, of, reads=table in reads, upgrades=upgrades)
    of_ingest = [table for table in asked if table in INGESTED]
    missing = [table.name for table in of_ingest if table not in found]
    there = [table for table in of_ingest if table in found]
    if missing and (filled := [table.name for table in there if warehouse.count(table) != 0]):
        raise UsageError(
            f"There is no table {', '.join(missing)} in {warehouse.place}, but rows in {', '.join(filled)}: put back "
            "what is missing, or ingest the captures into a new warehouse."
        )
    if not mends:
        require_whole(warehouse)


def _require_upgradable(
    warehouse: Warehouse, table: Table, properties: Mapping[str, str], *, reads: bool, upgrades: bool
) -> None:
    """Makes sure that a table of another declaration can become this version's, by this command if it has to now."""
    made = f"The table {table.name} in {warehouse.place} was made by {maker(properties)} of msmq-replay"
    if table in KEPT:
        plan(table, warehouse.columns(table), properties)
        if not upgrades:
            raise JobError(f"{made}: run msmq-replay nightly, which upgrades it.")
    elif reads:
        raise JobError(f"{made}: run msmq-replay repair, which derives it again.")


def _can_be_read(warehouse: Warehouse, table: Table) -> bool:
    """Returns whether a table of a newer version has all columns that this version reads."""
    there = types_of(warehouse.columns(table))
    return all(there.get(column.name) == sql_type(column.type) for column in table)


def _properties(warehouse: Warehouse, table: Table) -> Mapping[str, str] | None:
    """Returns the properties of the table that is there; None without a table."""
    if (found := warehouse.properties_if_any(table)) is not None:
        return found
    place = warehouse.own_logs.get(table.name)
    if place is not None and _holds_something(Path(place)):
        raise UsageError(f"{place} is no table of msmq-replay, but has the place of one. {_ELSEWHERE}")
    return None


def _holds_something(place: Path) -> bool:
    """Returns whether there is more than what a run leaves that was killed when it began to create a table."""
    return place.exists() and not (place.is_dir() and all(found.name == FOLDER for found in place.iterdir()))


def _is_damaged(warehouse: Warehouse, table: Table) -> bool:
    place = warehouse.own_logs.get(table.name)
    return place is not None and damage.is_damaged(place)
