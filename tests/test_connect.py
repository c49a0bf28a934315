"""The whole pipeline through a Spark Connect server: the DataFrame API and SQL are all that it uses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from warehouses import CAPTURES, all_rows

from jobs.app.command import Summary


@pytest.mark.spark
def test_a_night_over_spark_connect(orders: tuple[Path, Summary], tmp_path: Path) -> None:
    capture = str(CAPTURES / "orders.pcapng")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "jobs.cli", "nightly", "--json"),
            *("--captures", capture, "--warehouse", str(tmp_path / "warehouse")),
        ],
        env=os.environ
        | {
            "SPARK_REMOTE": "local[2]",
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
