"""Keeps the tables quick to read and no larger than they must be.

Deletes old states of connections, compacts small files (OPTIMIZE), and deletes the files that no version of the last
`vacuum_hours` needs (VACUUM). The costs: older versions can no longer be read, and queries that have been running for
longer fail. The two newest states of each connection stay, and those of the last `state_days` of capture time. A
capture that arrives later than that makes its connections start again: all of their captures are read again or, if
these are gone, the late bytes go to quarantine. The rows of `internal_connections` themselves stay: without them a late
capture would look like the first.

Registered tables get the view `message_history` and, in Unity Catalog, keys and tags.

The publish lock is held, so that no run writes meanwhile, and what a dead run left is rolled back first, while the
versions that this needs still exist.
"""

from pyspark.sql import SparkSession

from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.logs import progress
from jobs.transforms.retention import without_outdated_states
from jobs.warehouse import publish_lock
from jobs.warehouse.catalog import describe
from jobs.warehouse.checkpoint import checkpoint
from jobs.warehouse.store import Warehouse
from schemas.ingest import CAPTURES, INTERNAL_CONNECTIONS
from schemas.tables import TABLES


def run(spark: SparkSession, config: Config) -> Summary:
    """Maintains every table; returns what was removed."""
    warehouse = Warehouse.of(spark, config)
    warehouse.require(CAPTURES, "ingest")
    with publish_lock.hold(warehouse, config.claim_seconds) as (held, lock):
        tables = [table for table in TABLES if held.has(table)]
        outdated = checkpoint(without_outdated_states(held.read(INTERNAL_CONNECTIONS), config.state_days))
        states = outdated.count()
        if states:
            held.merge(INTERNAL_CONNECTIONS, outdated, update=True)
        removed, added = 0, 0
        for table in tables:
            before, after = held.optimize(table)
            removed, added = removed + before, added + after
            progress(f"maintain: {table.name}: {before} files became {after}")
        if held.catalog_schema:
            describe(held)
        lock.end_step()  # from here on nothing is rolled back to a version whose files VACUUM deletes
        for table in tables:
            held.vacuum(table, config.vacuum_hours)
    return {
        "tables": warehouse.place,
        "states_removed": states,
        "files_put_together": removed,
        "files_made_of_them": added,
    }
