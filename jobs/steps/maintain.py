"""Keep the tables quick to read and no larger than they must be.

Small files are put together (OPTIMIZE), old states of connections are removed, and files that no version within
`vacuum_hours` needs are deleted (VACUUM). What that costs: time travel ends there, a query that has been running for
longer fails, and a run that was killed before then can no longer be undone. Of the states of a connection the two
newest stay, and those of the last `state_days` of capture time: a capture that comes later than that sends its
connections back to their beginning, so that all of their captures are read again or, when these are gone, the late
bytes go to quarantine. `connection_captures` is never pruned: without it a late capture would look like the first.
"""

from pyspark.sql import SparkSession

from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.logs import progress
from jobs.transforms.retention import outdated_states
from jobs.warehouse import publish_lock
from jobs.warehouse.store import Warehouse
from schemas.ingest import CAPTURES, CONNECTION_STATES
from schemas.tables import TABLES


def run(spark: SparkSession, config: Config) -> Summary:
    """Do the upkeep of every table; returns what was removed."""
    warehouse = Warehouse.of(spark, config)
    warehouse.require(CAPTURES, "ingest")
    publish_lock.settle(warehouse, config.claim_seconds)
    tables = [table for table in TABLES if warehouse.has(table)]
    outdated = outdated_states(warehouse.read(CONNECTION_STATES), config.state_days).localCheckpoint()
    states = outdated.count()
    if states:
        with warehouse.tagged({"step": "maintain"}):
            warehouse.delete(CONNECTION_STATES, outdated)
    removed, added = 0, 0
    for table in tables:
        before, after = warehouse.optimize(table)
        removed, added = removed + before, added + after
        warehouse.vacuum(table, config.vacuum_hours)
        progress(f"maintain: {table.name}: {before} files became {after}")
    return {
        "tables": warehouse.place,
        "states_removed": states,
        "files_put_together": removed,
        "files_made_of_them": added,
    }
