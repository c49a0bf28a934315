"""Finish what a run left that was killed: undo what it had published, and derive again what is out of date.

Captures are not needed: those that were not finished are in no table any more, and the next `nightly` reads them; with
`--captures` they are read at once. A table of `decode` or `replay` that was dropped is made again.
"""

from pyspark.sql import SparkSession

from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.steps import decode, ingest, reconcile, replay
from jobs.steps.summary import summary
from jobs.warehouse import publish_lock
from jobs.warehouse.store import Warehouse
from schemas.ingest import CAPTURES, PACKETS


def run(spark: SparkSession, config: Config) -> Summary:
    """Bring all tables up to date; returns what was done, and what they hold."""
    warehouse = Warehouse.of(spark, config)
    warehouse.require(CAPTURES, "ingest")
    warehouse.require(PACKETS, "ingest")
    undone = [f"{claim.owner}: {claim.ended or 'killed'}" for claim in publish_lock.open_claims(warehouse)]
    publish_lock.settle(warehouse, config.claim_seconds)
    if config.captures:
        ingest.step(warehouse, config)
    derived = {
        "decode": decode.step(warehouse, config),
        "books": reconcile.step(warehouse),
        "replay": replay.step(warehouse, config),
    }
    return {"undone": undone, "derived_again": [step for step, was in derived.items() if was]} | summary(warehouse)
