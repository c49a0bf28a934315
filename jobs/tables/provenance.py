"""Derives tables only when something is new: knows from which versions of which tables a step derived them.

The publish lock records it (`LockState.derived`), and a run that holds the lock adds to it. Versions are those of
`Warehouse.versions`: equal versions mean equal rows.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jobs.cli.errors import ConflictError, JobError
from jobs.tables.lock_state import Derived
from jobs.tables.publish_lock import PublishLock
from jobs.tables.warehouse import Warehouse
from schemas.table import Table
from udfs.frames.parallel import run_in_parallel


def derive(
    warehouse: Warehouse,
    step: str,
    tables: Sequence[Table],
    sources: Sequence[Table],
    write: Callable[[Mapping[str, int]], None],
    *,
    always: bool = False,
    **options: Any,
) -> bool:
    """Has `write` derive the tables, unless they were derived from the sources as they are; returns whether it did.

    With `always`, it does so in any case. `write` gets what `sources_read` returns.

    Tables that do not exist, or are of another declaration, are created first. The run holds the publish lock.
    A table that is a source as well has a column that `write` fills in.

    Raises:
        ConflictError: something that does not take the publish lock wrote a source meanwhile.
    """
    derived = _held(warehouse).derived
    own = [table for table in tables if table not in sources]
    run_in_parallel(partial(warehouse.create, table, derived=True) for table in own)
    read = sources_read(warehouse, step, own, **options)
    now = warehouse.versions(sources, read)
    if now.items() <= read.items() and not always:
        return False
    write(read)
    warehouse.forget(*sources)
    filled = {table.name for table in tables}
    left = warehouse.versions(sources, now)
    if moved := [name for name, version in left.items() if now[name] != version and name not in filled]:
        raise ConflictError(f"Something wrote {', '.join(moved)} without the publish lock while {step} read it.")
    derived[step] = {"sources": left, "options": _digest(options), "tables": warehouse.versions(tables)}
    return True


def sources_read(warehouse: Warehouse, step: str, tables: Sequence[Table], **options: Any) -> Mapping[str, int]:
    """Returns the versions of the sources from which the step derived the tables, by name.

    Empty if the tables have changed since, or were derived with other options.
    """
    recorded = _held(warehouse).derived.get(step, {})
    if recorded.get("options") != _digest(options):
        return {}
    left = recorded["tables"]
    return recorded["sources"] if warehouse.versions(tables, left).items() <= left.items() else {}


def out_of_date(
    warehouse: Warehouse, derived: Derived, step: str, tables: Sequence[Table], sources: Sequence[Table]
) -> list[str]:
    """Names the tables that are not as the step left them, or all if a source has changed since."""
    recorded = derived.get(step, {"sources": {}, "tables": {}})
    read, left = recorded["sources"], recorded["tables"]
    if not warehouse.versions(sources, read).items() <= read.items():
        return [table.name for table in tables]
    return [name for name, version in warehouse.versions(tables, left).items() if left.get(name) != version]


def is_current(warehouse: Warehouse, versions: Mapping[str, int]) -> bool:
    """Returns whether these versions of the tables are what this run's steps have read and left."""
    derived = _held(warehouse).derived.values()
    return all((step["sources"] | step["tables"]).items() <= versions.items() for step in derived)


def _digest(options: Any) -> str:
    """Returns a short hash of options that JSON can hold."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:16]


def _held(warehouse: Warehouse) -> PublishLock:
    if not isinstance(warehouse.lock, PublishLock):
        raise JobError("Only a run that holds the publish lock can derive tables.")
    return warehouse.lock
