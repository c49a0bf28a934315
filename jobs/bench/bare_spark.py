"""Starts Spark with Delta, writes one small table and reads it back: the least that a run can cost.

`python -m jobs.bench.bare_spark` does so with Spark's default settings and prints wall and CPU seconds of the whole
process tree, as JSON; with `--tuned` it takes those of `conf/spark-defaults.conf`.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from jobs.app.spark_session import open_session, spark_defaults
from jobs.bench.measure import cpu_seconds

_DELTA = ("spark.jars.packages", "spark.sql.extensions", "spark.sql.catalog.spark_catalog")


def open_bare() -> SparkSession:
    """Returns a session with Spark's default settings, and Delta."""
    builder = SparkSession.builder.master("local[2]").appName("bare")
    settings = spark_defaults()
    for key in _DELTA:
        builder = builder.config(key, settings[key])
    return builder.getOrCreate()


def run(spark: SparkSession, folder: Path) -> int:
    """Writes and reads the table; returns its number of rows."""
    spark.range(1000).selectExpr("id", "cast(id as string) AS name").write.format("delta").save(str(folder / "table"))
    return spark.read.format("delta").load(str(folder / "table")).count()


def main() -> int:
    """Runs once and prints the cost; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuned", action="store_true", help="with the settings of conf/spark-defaults.conf")
    tuned = parser.parse_args().tuned
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        rows = run(open_session("bare") if tuned else open_bare(), Path(folder))
        cpu_s = sum(cpu_seconds())
    cost = {"rows": rows, "wall_s": round(time.monotonic() - began, 1), "cpu_s": round(cpu_s, 1)}
    print(json.dumps(cost))  # noqa: T201 - the result
    return 0


if __name__ == "__main__":
    sys.exit(main())
