"""Everything in order: ingest, decode, replay, report."""

from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from jobs.app import command
from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.parallel import run_in_parallel
from jobs.app.spark_session import codegen_for_size, open_session
from jobs.steps import decode, ingest, reconcile, replay, report, unchanged_run
from jobs.steps.summary import captured_bytes, summary
from jobs.warehouse.store import Warehouse


def run(spark: SparkSession, config: Config) -> Summary:
    """One night; returns what it left. Done once more when another run was writing while the books were balanced."""
    return _night(spark, config) or _night(spark, config, last=True)


def _night(spark: SparkSession, config: Config, *, last: bool = False) -> Summary:
    """What the tables say; nothing where their books do not balance, unless this is the `last` go."""
    warehouse = Warehouse.of(spark, config)
    taken = ingest.step(warehouse, config)
    keeping = warehouse.keeping()
    with codegen_for_size(spark, captured_bytes(keeping)) as few:
        warehouse = keeping if few else warehouse
        decode.step(warehouse, config)
        run_in_parallel((partial(reconcile.step, warehouse), partial(replay.step, warehouse, config)))
        found = summary(warehouse)
        balanced = not found["books"]["unbalanced"]
        if not balanced and not last:
            return {}
        report.step(warehouse, config)
    place = report.destination(warehouse, config)
    found |= {} if place is None else {"report": place}
    if balanced:
        unchanged_run.remember(warehouse, config, taken, found)
    return found


def main(arguments: Sequence[str]) -> int:
    """The command; Spark is started when there is something to do."""

    def night(config: Config) -> Summary:
        return unchanged_run.recall(config) or run(open_session("msmq-replay nightly"), config)

    return command.main_alone("nightly", night, arguments)
