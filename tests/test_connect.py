"""The whole pipeline through a Spark Connect server that refuses what serverless Databricks refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from warehouses import CAPTURES, all_rows

from jobs.cli.command import Summary
from jobs.cli.spark_session import FOR_FEW_ROWS
from schemas.tables import INGESTED
from udfs.replay.fitness.counts import FILLED

REFUSING = """
import json
import sys
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.connect import conf, dataframe

session = SparkSession.builder.getOrCreate()
for key, value in json.loads(sys.argv.pop(1)).items():
    session.conf.set(key, value)

def refuse(*_, **__):
    raise AnalysisException("[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported on serverless compute.")

for name in ("cache", "persist", "unpersist", "checkpoint", "localCheckpoint"):
    setattr(dataframe.DataFrame, name, refuse)
conf.RuntimeConf.set = refuse

from jobs import main
sys.exit(main.main())
"""


def run_over_connect(spark: SparkSession, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process of its own, as a client of the Connect server in the tests' JVM."""
    jvm: Any = spark._jvm
    server = getattr(getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={name: value for name, value in os.environ.items() if name != "PYSPARK_GATEWAY_PORT"}
        | {
            "SPARK_REMOTE": f"sc://localhost:{server.localPort()}",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def command_over_connect(spark: SparkSession, warehouse: Path, command: str, *options: str) -> Summary:
    """Runs a command on the capture of `orders`; returns its summary."""
    done = run_over_connect(
        spark,
        *(REFUSING, json.dumps(FOR_FEW_ROWS), command, "--json"),
        *("--captures", str(CAPTURES / "orders.pcapng"), "--warehouse", str(warehouse), *options),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


@pytest.mark.slow
def test_captures_are_ingested_over_spark_connect(
    spark: SparkSession, orders: tuple[Path, Summary], tmp_path: Path
) -> None:
    command_over_connect(spark, tmp_path, "ingest")
    ingested, of_night = (all_rows(folder, INGESTED) for folder in (tmp_path, orders[0]))
    for tables in (ingested, of_night):
        tables["captures"] = [row | dict.fromkeys(FILLED) for row in tables["captures"]]
    assert ingested == of_night


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [(), ("--in-memory-bytes", "0", "--in-memory-messages", "0")], ids=["in memory", "in tasks"]
)
def test_a_night_over_spark_connect(
    spark: SparkSession, orders: tuple[Path, Summary], tmp_path: Path, options: tuple[str, ...]
) -> None:
    summary = command_over_connect(spark, tmp_path, "nightly", *options)
    assert summary["verdicts"] == orders[1]["verdicts"]
    assert all_rows(tmp_path) == all_rows(orders[0])
