"""Everything in order: ingest, decode, replay, report."""

import sys
from functools import partial

from pyspark.sql import SparkSession

from jobs import accounts, command, decode, ingest, replay, report
from jobs.command import Summary
from jobs.config import Config
from jobs.summary import summary
from jobs.together import together
from jobs.warehouse import Warehouse


def run(spark: SparkSession, config: Config) -> Summary:
    """One night; returns what it left. Done once more when another run was writing while the books were balanced."""
    warehouse = Warehouse.of(spark, config)
    found = _night(warehouse, config)
    if found["books"]["unbalanced"]:
        warehouse = Warehouse.of(spark, config)  # what the first has seen of the tables' histories is out of date
        found = _night(warehouse, config)
    report.step(warehouse, config)
    place = report.destination(warehouse, config)
    return found | ({} if place is None else {"report": place})


def _night(warehouse: Warehouse, config: Config) -> Summary:
    ingest.step(warehouse, config)
    decode.step(warehouse, config)
    together((partial(accounts.step, warehouse), partial(replay.step, warehouse, config)))
    return summary(warehouse)


if __name__ == "__main__":
    sys.exit(command.main("nightly", run, sys.argv[1:]))
