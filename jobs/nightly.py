"""Everything in order: ingest, decode, replay, report."""

import sys

from pyspark.sql import SparkSession

from jobs import command, decode, ingest, replay, report
from jobs.command import Summary
from jobs.config import Config
from jobs.summary import summary
from jobs.warehouse import Warehouse


def run(spark: SparkSession, config: Config) -> Summary:
    """One night; returns what it left."""
    warehouse = Warehouse.of(spark, config)
    for step in (ingest.step, decode.step, replay.step, report.step):
        step(warehouse, config)
    place = report.destination(warehouse, config)
    return summary(warehouse) | ({} if place is None else {"report": place})


if __name__ == "__main__":
    sys.exit(command.main("nightly", run, sys.argv[1:]))
