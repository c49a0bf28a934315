"""Starts Spark with Delta, writes one small table and reads it back: the least that a run can cost.

`python -m jobs.bench.bare_spark` prints wall and CPU seconds of the whole process tree, as JSON.
"""

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from jobs.app.spark_session import open_session
from jobs.bench.measure import cpu_seconds


def run(folder: Path) -> int:
    """Writes and reads the table; returns its number of rows."""
    spark = open_session("bare")
    spark.range(1000).selectExpr("id", "cast(id as string) AS name").write.format("delta").save(str(folder / "table"))
    return spark.read.format("delta").load(str(folder / "table")).count()


def main() -> int:
    """Runs once and prints the cost; returns the exit code."""
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        rows = run(Path(folder))
        cpu_s = sum(cpu_seconds())
    cost = {"rows": rows, "wall_s": round(time.monotonic() - began, 1), "cpu_s": round(cpu_s, 1)}
    print(json.dumps(cost))  # noqa: T201 - the result
    return 0


if __name__ == "__main__":
    sys.exit(main())
