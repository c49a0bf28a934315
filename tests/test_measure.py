"""The benchmark's own instruments."""

import sys
from collections import Counter
from pathlib import Path

from bench_nights import Capture, DaysWork, Extract, Night, beside_days_work, beside_tshark, verdicts_beside
from measure import Cost, Watched, watch

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
    assert found.together_mb >= found.python_mb >= 100
    assert len(found.pythons_mb) == 1
    assert found.jvm_mb == 0


_KILLED = """
import os, signal, time
pid = os.fork()
if pid == 0:
    end = time.process_time() + 1
    while time.process_time() < end: pass
    time.sleep(60)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that nobody waits for it, and no process counts it
time.sleep(3)
os.kill(pid, signal.SIGKILL)
time.sleep(0.5)
"""


def test_what_a_killed_process_had_spent_counts() -> None:
    assert watch([sys.executable, "-c", _KILLED]).cost.cpu_s >= 1


def watched(cpu_s: float, **steps: float) -> Watched:
    cost = Cost(2 * cpu_s, cpu_s)
    return Watched(cost, {name: Cost(0, spent) for name, spent in steps.items()}, 1000, [300, 200], 1500)


def test_a_day_s_work_beside_nights() -> None:
    verdicts = Counter({"in_order": 1_000, "gap": 2, "out_of_order": 3})
    nights = [
        Night(
            Capture(Path(f"{size}.pcap"), size),
            Path("warehouse"),
            watched(20 + size / 10),
            Extract(Cost(0, size / 20), 5),
            DaysWork(watched(10 + size / 5, tshark=size / 20), verdicts),
        )
        for size in (100, 500)
    ]
    assert beside_days_work(nights).splitlines()[2:] == [
        "| 100 | 60.0 | 30.0 | 5.0 | - | 1.00 | - | 1000 |",
        "| 500 | 220.0 | 110.0 | 25.0 | 200 | 1.57 | 2.00 | 1000 |",
    ]
    assert beside_tshark({"dropped": nights}).splitlines()[2:] == [
        "| dropped | 100 | 60.0 | 30.0 | - | 5.0 | 0.17 | - |",
        "| dropped | 500 | 140.0 | 70.0 | 100 | 25.0 | 0.36 | 0.50 |",
    ]
    without = [found._replace(tshark=None, days_work=None) for found in nights]
    assert beside_tshark({"kept": without}).splitlines()[2:] == [
        "| kept | 100 | 60.0 | 30.0 | - | - | - | - |",
        "| kept | 500 | 140.0 | 70.0 | 100 | - | - | - |",
    ]
    ours = {"in_order": 900, "new_sequence": 50, "gap_expired": 4}
    assert verdicts_beside(ours, verdicts).splitlines()[2:5] == [
        "| in order | 950 | 1,000 |",
        "| gap | 4 | 2 |",
        "| duplicate | 0 | 0 |",
    ]
