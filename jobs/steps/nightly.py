"""Runs ingest, decode, replay and report in order."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from jobs.app import command
from jobs.app.command import STARTING, Summary
from jobs.app.config import Config
from jobs.app.logs import step
from jobs.app.spark_session import codegen_for_size, open_session
from jobs.steps import decode, ingest, reconcile, replay, report, unchanged_run
from jobs.steps.summary import captured_bytes, summary
from jobs.warehouse import publish_lock
from jobs.warehouse.store import Warehouse

_STEPS = 5  # with the start of Spark


def run(spark: SparkSession, config: Config) -> Summary:
    """Runs one night under the publish lock; returns its summary."""
    warehouse = Warehouse.of(spark, config)
    with publish_lock.hold(warehouse, config.claim_seconds) as (held, lock):
        with step("ingest", 2, _STEPS):
            files = ingest.step(held, config)
            lock.end_step()
        with codegen_for_size(spark, captured_bytes(held)):
            with step("decode", 3, _STEPS):
                decode.step(held, config)
                lock.end_step()
            with step("replay", 4, _STEPS):
                replay.step(held, config)
                reconcile.step(held)
            with step("report", 5, _STEPS):
                found = summary(held)
                report.step(held, config)
        place = report.destination(held, config)
        found |= {} if place is None else {"report": place}
        if not found["books"]["unbalanced"]:
            unchanged_run.remember(held, config, files, found)
    return found


def main(arguments: Sequence[str]) -> int:
    """Runs the command; starts Spark only if something is new."""

    def night(config: Config) -> Summary:
        return unchanged_run.recall(config) or run(_start(config), config)

    return command.main_alone("nightly", night, arguments)


def _start(config: Config) -> SparkSession:
    with step(STARTING, 1, _STEPS):
        return open_session("msmq-replay nightly", verbose=config.verbose)
