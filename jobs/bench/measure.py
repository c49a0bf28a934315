"""Measures wall and CPU time of all processes of a run, and the memory of each."""

import json
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_EVERY_S = 0.25


class Cost(NamedTuple):
    """Holds the cost of some work: wall seconds, CPU seconds of Python and of the JVM."""

    wall_s: float
    python_s: float
    jvm_s: float

    @property
    def cpu_s(self) -> float:
        """Returns the CPU seconds of all processes."""
        return self.python_s + self.jvm_s

    def less(self, other: "Cost") -> "Cost":
        """Returns what this costs more than the other."""
        return Cost(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


class Watched(NamedTuple):
    """Holds the cost of a command and of each step whose end it logged, and the most memory that a process had."""

    cost: Cost
    steps: dict[str, Cost]
    python_mb: float
    jvm_mb: float


def cpu_seconds(root: int | None = None) -> tuple[float, float]:
    """Returns user and system time of a process and its descendants, ended ones included, for Python and the JVM.

    The process is this one if `root` is None.
    """
    processes = _family(root)
    spent = [sum(ticks for java, ticks, _ in processes if java is is_java) * _TICK_S for is_java in (False, True)]
    return spent[False], spent[True]


def _family(root: int | None) -> list[tuple[bool, int, int]]:
    """Returns of a process and its descendants: is it a JVM, its ticks with those of ended children, its number."""
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
    found, family = [], [os.getpid() if root is None else root]
    while family:
        pid = family.pop()
        if pid in ticks:
            found.append((*ticks[pid], pid))
        family += children[pid]
    return found


def measured(work: Callable[..., Any], *arguments: Any) -> Cost:
    """Runs the work and returns its cost."""
    began = Cost(time.monotonic(), *cpu_seconds())
    work(*arguments)
    return Cost(time.monotonic(), *cpu_seconds()).less(began)


def watch(command: Sequence[str]) -> Watched:
    """Runs a command that logs JSON to stderr, and returns what it cost, from outside and step by step.

    A step's cost is what was spent since the step before it ended.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    began, ended = time.monotonic(), Event()
    steps: dict[str, Cost] = {}
    last, lines, peaks = Cost(0, 0, 0), [], {False: 0.0, True: 0.0}

    def spent() -> Cost:
        return Cost(time.monotonic() - began, *cpu_seconds(process.pid))

    def look() -> None:
        while not ended.wait(_EVERY_S):
            for java, _, pid in _family(process.pid):
                peaks[java] = max(peaks[java], _peak_mb(pid))

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        Thread(target=look, daemon=True).start()
        before = last
        for line in process.stderr or ():
            last = spent()  # when the process has ended, its children are no longer its own
            lines.append(line)
            about = json.loads(line) if line.startswith("{") else {}
            if "seconds" in about and "step" in about:
                steps[about["step"]], before = last.less(before), last
    ended.set()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr="".join(lines))
    return Watched(last._replace(wall_s=time.monotonic() - began), steps, peaks[False], peaks[True])


def _peak_mb(pid: int) -> float:
    """Returns the most memory, in MB, that a living process has held at once; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return max((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), default=0) / 1024
