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

from jobs.app.command import Summary
from jobs.app.spark_session import FOR_FEW_ROWS

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

from jobs import cli
sys.exit(cli.main())
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


@pytest.mark.parametrize(
    "in_memory", [pytest.param((), id="in memory"), pytest.param(("0",), marks=pytest.mark.slow, id="in tasks")]
)
def test_a_night_over_spark_connect(
    spark: SparkSession, orders: tuple[Path, Summary], tmp_path: Path, in_memory: tuple[str, ...]
) -> None:
    done = run_over_connect(
        spark,
        *(REFUSING, json.dumps(FOR_FEW_ROWS), "nightly", "--json"),
        *("--captures", str(CAPTURES / "orders.pcapng"), "--warehouse", str(tmp_path / "warehouse")),
        *(text for most in in_memory for text in ("--in-memory-bytes", most, "--in-memory-messages", most)),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["verdicts"] == orders[1]["verdicts"]
    assert all_rows(tmp_path / "warehouse") == all_rows(orders[0])
