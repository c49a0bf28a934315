"""Keeps the tables quick to read and no larger than they must be.

Deletes old states of connections, compacts small files (OPTIMIZE), and deletes the files that no version of the last
`vacuum_hours` needs (VACUUM). The costs: older versions can no longer be read, and queries that have been running for
longer fail. The two newest states of each connection stay, and those of the last `state_days` of capture time. A
capture that arrives later than that makes its connections start again: all of their captures are read again or, if
these are gone, the late bytes go to quarantine. The rows of `internal_connections` themselves stay: without them a late
capture would look like the first.

Tables in a folder of this machine are sorted once there are too many messages to be replayed in memory. If
`vacuum_hours` is 0, what their logs say of older versions is deleted, too: it contains values of rows that are gone.

Before all that, the messages are judged once more (`jobs.commands.audit`): what was wrong is put right.

The publish lock is held, so that no run writes meanwhile, and what a dead run left is rolled back first, while the
versions that this needs still exist.
"""

import os
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.cli.command import Summary
from jobs.cli.config import Config
from jobs.cli.logs import progress
from jobs.commands import audit, increments
from jobs.tables import publish_lock
from jobs.tables.own_tables import require_own
from jobs.tables.places import open_warehouse
from jobs.tables.publish_lock import PublishLock
from jobs.tables.spark_rows import checkpoint
from jobs.tables.warehouse import Warehouse
from schemas.ingest import CAPTURES, INTERNAL_CONNECTIONS
from schemas.table import Table
from schemas.tables import TABLES

_DAY_NS = 86_400 * 10**9
_KEPT = 2
"""States of each connection that are kept however old: a run resumes from the latest, or from the one before it."""


def run(spark: SparkSession, config: Config) -> Summary:
    """Maintains every table; returns what was removed, and what was wrong."""
    warehouse = open_warehouse(spark, config)
    require_own(warehouse)
    warehouse.require(CAPTURES, "ingest")
    with publish_lock.hold(warehouse, config.claim_seconds) as (held, lock):
        small = increments.with_few_messages(held, config)
        found = audit.step(small, config)
        tables = [table for table in TABLES if held.has(table)]
        outdated = checkpoint(without_outdated_states(held.read(INTERNAL_CONNECTIONS), config.state_days))
        states = outdated.count()
        if states:
            held.merge(INTERNAL_CONNECTIONS, outdated, update=True)
        removed, added = 0, 0
        is_large = not increments.can_judge_all(small)
        for table in tables:
            before, after = held.optimize(table, sort=is_large)
            removed, added = removed + before, added + after
            progress(f"maintain: {table.name}: {before} files became {after}")
        os.sync()  # Spark waits for no disk
        lock.end_step()  # from here on nothing is rolled back to a version whose files VACUUM deletes
        for table in tables:
            held.vacuum(table, config.vacuum_hours)
        os.sync()
        for table in tables:
            held.checkpoint(table)
        if not (config.vacuum_hours or held.needs_spark):
            _shorten_logs(held, lock, tables)
    return {
        "tables": warehouse.place,
        "states_removed": states,
        "files_put_together": removed,
        "files_made_of_them": added,
    } | found


def without_outdated_states(connections: DataFrame, days: int) -> DataFrame:
    """Returns rows of INTERNAL_CONNECTIONS, without their states, of captures that end so many days before the last.

    The two newest states of each connection are kept.
    """
    states = connections.where("state is not null")
    of_connection = Window.partitionBy("endpoints").orderBy(F.struct("first_ns", "last_ns", "capture_id").desc())
    newest = states.agg((F.max("last_ns") - days * _DAY_NS).alias("horizon"))
    return (
        states.withColumn("nth", F.row_number().over(of_connection))
        .join(F.broadcast(newest))
        .where((F.col("nth") > _KEPT) & (F.col("last_ns") < F.col("horizon")))
        .withColumns({name: F.lit(None) for name in ("first_instance", "tails", "state")})
        .drop("nth", "horizon")
    )


def _shorten_logs(held: Warehouse, lock: PublishLock, tables: Sequence[Table]) -> None:
    """Deletes of the tables' logs what belongs to versions that VACUUM has made unreadable.

    It holds the least and the greatest value of columns in files that are gone: names, if these were kept once.
    """
    before = held.versions(tables)
    lock.record()  # else the next run would go back to a version that is gone
    for table in tables:
        held.shorten_log(table)
    lock.rename_versions(before, held.versions(tables))
    lock.record()
