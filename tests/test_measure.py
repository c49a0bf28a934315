"""The benchmark's own instruments."""

import sys

from measure import watch

_STEPS = """
import json, sys, time
def end(step): print(json.dumps({"step": step, "seconds": 1}), file=sys.stderr, flush=True)
print("not JSON", file=sys.stderr, flush=True)
print(json.dumps({"message": "of no step", "seconds": 1}), file=sys.stderr, flush=True)
sum(range(30_000_000))
end("busy")
held = bytearray(100 << 20)
time.sleep(0.75)  # a line that is read late shortens the step after it
end("idle")
"""


def test_a_command_is_watched_step_by_step() -> None:
    found = watch([sys.executable, "-c", _STEPS])

    busy, idle = found.steps["busy"], found.steps["idle"]
    assert busy.cpu_s > idle.cpu_s
    assert idle.wall_s >= 0.5
    assert found.cost.cpu_s >= busy.cpu_s + idle.cpu_s - 0.01
    assert found.together_mb >= found.python_mb >= 100
    assert len(found.pythons_mb) == 1
    assert found.jvm_mb == 0


_KILLED = """
import os, signal, time
reading, writing = os.pipe()
pid = os.fork()
if pid == 0:
    while time.process_time() < 0.4: pass
    os.write(writing, b"1")
    time.sleep(60)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that nobody waits for it, and no process counts it
os.read(reading, 1)
time.sleep(0.6)
os.kill(pid, signal.SIGKILL)
time.sleep(0.3)
"""


def test_what_a_killed_process_had_spent_counts() -> None:
    assert watch([sys.executable, "-c", _KILLED]).cost.cpu_s > 0.35
