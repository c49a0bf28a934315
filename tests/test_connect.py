"""The whole pipeline through a Spark Connect server that refuses what serverless Databricks refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from warehouses import CAPTURES, all_rows

from jobs.app.command import Summary
from jobs.app.spark_session import FOR_FEW_ROWS, ONE_COMPILER

SERVER = " ".join(
    [
        *(f"--conf {key}={value}" for key, value in FOR_FEW_ROWS.items()),
        f"--driver-java-options '{ONE_COMPILER}'",
        "pyspark-shell",
    ]
)
"""Settings of the server, which its client may not change."""

REFUSING = """
import sys
from pyspark.errors import AnalysisException
from pyspark.sql.connect import conf, dataframe

def refuse(*_, **__):
    raise AnalysisException("[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported on serverless compute.")

for name in ("cache", "persist", "unpersist", "checkpoint", "localCheckpoint"):
    setattr(dataframe.DataFrame, name, refuse)
conf.RuntimeConf.set = refuse

from jobs import cli
sys.exit(cli.main())
"""


@pytest.mark.spark
@pytest.mark.parametrize(
    "in_memory", [pytest.param((), id="in memory"), pytest.param(("0",), marks=pytest.mark.slow, id="in tasks")]
)
def test_a_night_over_spark_connect(orders: tuple[Path, Summary], tmp_path: Path, in_memory: tuple[str, ...]) -> None:
    capture = str(CAPTURES / "orders.pcapng")
    done = subprocess.run(
        [
            *(sys.executable, "-c", REFUSING, "nightly", "--json"),
            *("--captures", capture, "--warehouse", str(tmp_path / "warehouse")),
            *(text for most in in_memory for text in ("--in-memory-bytes", most)),
        ],
        env=os.environ
        | {
            "SPARK_REMOTE": "local[2]",
            "PYSPARK_SUBMIT_ARGS": SERVER,
            "SPARK_TESTING": "1",  # the server takes a free port
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["verdicts"] == orders[1]["verdicts"]
    assert all_rows(tmp_path / "warehouse") == all_rows(orders[0])
