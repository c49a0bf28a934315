"""Everything in order: ingest, decode, replay."""

import sys

from pyspark.sql import SparkSession

from jobs import command, decode, ingest, replay
from jobs.command import Summary
from jobs.config import Config


def run(spark: SparkSession, config: Config) -> Summary:
    """One night; returns the summaries of its steps in one."""
    return ingest.run(spark, config) | decode.run(spark, config) | replay.run(spark, config)


if __name__ == "__main__":
    sys.exit(command.main("nightly", run, sys.argv[1:]))
