"""The benchmark's own instruments."""

import os
import subprocess
import sys

import pytest

from jobs.bench.measure import cpu_seconds, measured, watch


def test_time_of_a_child_that_has_ended_counts() -> None:
    cost = measured(os.system, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")

    assert 0 < cost.python_s <= sum(cpu_seconds())


_STEPS = """
import json, sys, time
def end(step): print(json.dumps({"step": step, "seconds": 1}), file=sys.stderr, flush=True)
print("not JSON", file=sys.stderr, flush=True)
print(json.dumps({"message": "of no step", "seconds": 1}), file=sys.stderr, flush=True)
sum(range(80_000_000))
end("busy")
held = bytearray(100 << 20)
time.sleep(1)
end("idle")
"""


def test_a_command_is_watched_step_by_step() -> None:
    found = watch([sys.executable, "-c", _STEPS])

    busy, idle = found.steps["busy"], found.steps["idle"]
    assert busy.cpu_s > idle.cpu_s
    assert idle.wall_s >= 1
    assert found.cost.cpu_s >= busy.cpu_s + idle.cpu_s - 0.01
    assert found.python_mb >= 100
    assert found.jvm_mb == 0


def test_a_command_that_fails_is_an_error_with_its_log() -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        watch([sys.executable, "-c", "import sys; sys.exit('wrong')"])

    assert "wrong" in failed.value.stderr
