"""Keeps the tables quick to read and no larger than they must be.

Deletes old states of connections, compacts small files (OPTIMIZE), and deletes the files that no version of the last
`vacuum_hours` needs (VACUUM). The costs: older versions can no longer be read, and queries that have been running for
longer fail. The two newest states of each connection stay, and those of the last `state_days` of capture time. A
capture that arrives later than that makes its connections start again: all of their captures are read again or, if
these are gone, the late bytes go to quarantine. The rows of `internal_connections` themselves stay: without them a late
capture would look like the first.

Tables in a folder of this machine are clustered once there are too many messages to be replayed in memory; Spark alone
can write them from then on. If `vacuum_hours` is 0, what their logs say of older versions is deleted, too: it contains
values of rows that are gone.

Registered tables get the view `message_history`, as replays make it, and in Unity Catalog keys and tags.

Before all that, the messages are judged once more (`jobs.steps.audit`): what was wrong is put right.

The publish lock is held, so that no run writes meanwhile, and what a dead run left is rolled back first, while the
versions that this needs still exist.
"""

from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.logs import progress
from jobs.app.parallel import run_in_parallel
from jobs.steps import audit, in_memory, unchanged_run
from jobs.transforms.retention import without_outdated_states
from jobs.warehouse import damage, publish_lock
from jobs.warehouse.catalog import describe
from jobs.warehouse.publish_lock import PublishLock
from jobs.warehouse.spark_rows import checkpoint
from jobs.warehouse.store import Warehouse
from schemas.ingest import CAPTURES, INTERNAL_CONNECTIONS
from schemas.table import Table
from schemas.tables import TABLES


def run(spark: SparkSession, config: Config) -> Summary:
    """Maintains every table; returns what was removed, and what was wrong."""
    warehouse = Warehouse.of(spark, config)
    warehouse.require(CAPTURES, "ingest")
    with publish_lock.hold(warehouse, config.claim_seconds) as (held, lock):
        small = in_memory.with_few_messages(held, config)
        found = audit.step(small, config)
        tables = [table for table in TABLES if held.has(table)]
        outdated = checkpoint(without_outdated_states(held.read(INTERNAL_CONNECTIONS), config.state_days))
        states = outdated.count()
        if states:
            held.merge(INTERNAL_CONNECTIONS, outdated, update=True)
        removed, added = 0, 0
        is_large = held.is_local and small.local is None
        for table in tables:
            if is_large and table.clustered_by and not held.is_clustered(table):
                held.cluster(table)
            before, after = held.optimize(table)
            removed, added = removed + before, added + after
            progress(f"maintain: {table.name}: {before} files became {after}")
        if held.catalog_schema:
            describe(held)
        lock.end_step()  # from here on nothing is rolled back to a version whose files VACUUM deletes
        for table in tables:
            held.vacuum(table, config.vacuum_hours)
        if held.is_local:
            run_in_parallel(partial(held.checkpoint, table) for table in tables)
            if not config.vacuum_hours:
                _shorten_logs(held, lock, config, tables)
    return {
        "tables": warehouse.place,
        "states_removed": states,
        "files_put_together": removed,
        "files_made_of_them": added,
    } | found


def _shorten_logs(held: Warehouse, lock: PublishLock, config: Config, tables: Sequence[Table]) -> None:
    """Deletes of the tables' logs what belongs to versions that VACUUM has made unreadable.

    It holds the least and the greatest value of columns in files that are gone: names, if these were kept once.
    """
    before = held.versions(tables)
    lock.record()  # else the next run would go back to a version that is gone
    for table in tables:
        damage.shorten(held.location(table.name))
    damage.forget(config.warehouse)
    after = held.versions(tables)
    lock.rename_versions(before, after)
    unchanged_run.rename_versions(config, before, after)
