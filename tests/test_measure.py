"""The benchmark's own instruments."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from jobs.bench.measure import Cost, Moved, cpu_seconds, measured, read_moved, watch_workers


def _task(finish_ms: int, shuffled: int, sent: str, written: int) -> str:
    return json.dumps(
        {
            "Event": "SparkListenerTaskEnd",
            "Task Info": {
                "Finish Time": finish_ms,
                "Accumulables": [
                    {"Name": "data sent to Python workers", "Update": sent},
                    {"Name": "number of output rows", "Update": "7"},
                ],
            },
            "Task Metrics": {
                "Shuffle Write Metrics": {"Shuffle Bytes Written": shuffled},
                "Output Metrics": {"Bytes Written": written},
            },
        }
    )


def test_bytes_are_counted_for_the_work_in_whose_time_a_task_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join([_task(1_500, 10, "20", 30), _task(2_500, 1, "2", 3), _task(2_600, 1, "2", 3)]))

    assert read_moved(log, [Cost(1, 2, 0, 0), Cost(2, 3, 0, 0), Cost(3, 4, 0, 0)]) == [
        Moved(shuffled=10, through_arrow=20, written=30),
        Moved(shuffled=2, through_arrow=4, written=6),
        Moved(shuffled=0, through_arrow=0, written=0),
    ]


def test_time_of_a_child_that_has_ended_counts() -> None:
    cost = measured(os.system, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")

    assert 0 < cost.python_s <= sum(cpu_seconds())


def test_memory_of_a_worker_that_has_ended_is_remembered() -> None:
    peak_mb = watch_workers(0.05)
    holding = "import time; held = bytearray(300 << 20); time.sleep(1)"
    subprocess.run([sys.executable, "-c", holding, "pyspark.daemon"], check=True)
    time.sleep(0.2)

    assert peak_mb() >= 300
