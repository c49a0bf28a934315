"""Measures wall and CPU time of all processes of a run, memory of its workers, and bytes that Spark moved."""

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PYTHON_METRICS = ("data sent to Python workers", "data returned from Python workers")


class Cost(NamedTuple):
    """Holds the cost of some work: begin and end (seconds since 1970), CPU seconds of Python and of the JVM."""

    began: float
    ended: float
    python_s: float
    jvm_s: float

    @property
    def wall_s(self) -> float:
        """Returns the seconds from begin to end."""
        return self.ended - self.began

    @property
    def cpu_s(self) -> float:
        """Returns the CPU seconds of all processes."""
        return self.python_s + self.jvm_s


class Moved(NamedTuple):
    """Holds the bytes that some work wrote for a shuffle, sent through Arrow (both ways) and wrote to tables."""

    shuffled: int
    through_arrow: int
    written: int


def cpu_seconds() -> tuple[float, float]:
    """Returns user and system time of this process and its descendants, ended ones included, for Python and the JVM."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, tuple[bool, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended since, and its parent counts it
        fields, pid = rest.split(), int(path.parent.name)
        children[int(fields[1])].append(pid)
        ticks[pid] = name.endswith("(java"), sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    total, family = [0, 0], [os.getpid()]
    while family:
        pid = family.pop()
        java, spent = ticks[pid]
        total[java] += spent
        family += children[pid]
    return total[False] * _TICK_S, total[True] * _TICK_S


def measured(work: Callable[..., Any], *arguments: Any) -> Cost:
    """Runs the work and returns its cost."""
    began, (python_s, jvm_s) = time.time(), cpu_seconds()
    work(*arguments)
    after_python_s, after_jvm_s = cpu_seconds()
    return Cost(began, time.time(), after_python_s - python_s, after_jvm_s - jvm_s)


def watch_workers(every_s: float = 1.0) -> Callable[[], float]:
    """Watches Python workers from now on; the returned function gives the most memory, in MB, that one has held.

    It looks often, because Spark ends a worker that has been idle for a minute.
    """
    most = 0.0

    def watch() -> None:
        nonlocal most
        while True:
            most = max(most, _peak_worker_mb())
            time.sleep(every_s)

    Thread(target=watch, daemon=True).start()
    return lambda: most


def _peak_worker_mb() -> float:
    """Returns the most memory, in MB, that a living worker has held at once."""
    peaks = [0]
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            worker = b"pyspark.daemon" in path.with_name("cmdline").read_bytes()
            lines = path.read_text().splitlines() if worker else []
        except (FileNotFoundError, ProcessLookupError):
            continue
        peaks += [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return max(peaks) / 1024


def read_moved(log: Path, costs: Iterable[Cost]) -> list[Moved]:
    """Returns what Spark moved during each piece of work, from the event log of its session."""
    tasks: list[tuple[float, Moved]] = []
    with log.open() as lines:
        for line in lines:
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd" and "Task Metrics" in event:
                tasks.append((event["Task Info"]["Finish Time"] / 1000, _of_task(event)))
    found = []
    for cost in costs:
        during = [task for at, task in tasks if cost.began <= at <= cost.ended]
        found.append(Moved(*map(sum, zip(*during, strict=True))) if during else Moved(0, 0, 0))
    return found


def _of_task(event: dict[str, Any]) -> Moved:
    metrics = event["Task Metrics"]
    through_arrow = sum(
        int(metric.get("Update", 0))
        for metric in event["Task Info"]["Accumulables"]
        if metric.get("Name") in _PYTHON_METRICS
    )
    return Moved(
        metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"],
        through_arrow,
        metrics["Output Metrics"]["Bytes Written"],
    )
