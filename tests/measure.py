"""Measures wall and CPU time of all processes of a run, and the memory of each."""

import json
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple, Self

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_EVERY_S = 0.25
_WATCHED = ("python", "tshark")  # programs, beside the JVM, whose memory is reported
_SHOWN = 20  # lines that a command logged before it failed


class Cost(NamedTuple):
    """Holds the cost of some work: wall seconds, and CPU seconds of all its processes."""

    wall_s: float
    cpu_s: float

    def less(self, other: "Cost") -> "Cost":
        """Returns what this costs more than the other."""
        return Cost(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


class Watched(NamedTuple):
    """Holds the cost of a command and of each step whose end it logged, and the most memory that its processes held."""

    cost: Cost
    steps: dict[str, Cost]
    jvm_mb: float
    pythons_mb: list[float]
    """The most memory of each process that is no JVM, the largest first."""
    together_mb: float
    """The largest sum of their memory at one moment; what forked processes share counts for each."""

    @property
    def python_mb(self) -> float:
        """Returns the most that a process held that is no JVM."""
        return self.pythons_mb[0] if self.pythons_mb else 0.0


def _family(root: int) -> list[tuple[bool, int, int]]:
    """Returns whether a process is a JVM, its ticks with those of ended children, and its ID; so of each descendant."""
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
    found, family = [], [root]
    while family:
        pid = family.pop()
        if pid in ticks:
            found.append((*ticks[pid], pid))
        family += children[pid]
    return found


class Memory:
    """Watches, in a thread of its own, how much memory a process and its descendants hold.

    What a process holds in its last quarter of a second may be missed.
    """

    def __init__(self, root: int) -> None:
        self._root, self._ended = root, Event()
        self._peaks: dict[int, tuple[bool, float]] = {}
        self.together_mb = 0.0
        """The largest sum of their memory at one moment; what forked processes share counts for each."""
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def look(self) -> None:
        """Notes the most memory that each process has held, and the sum of what they hold now."""
        together_mb = 0.0
        for java, _, pid in _family(self._root):
            if not java and not _program(pid).startswith(_WATCHED):
                continue  # a shell, or what a JVM forks, which shares all its memory for a moment
            peak_mb, now_mb = _memory_mb(pid)
            self._peaks[pid] = java, max(peak_mb, self._peaks.get(pid, (java, 0.0))[1])
            together_mb += now_mb
        self.together_mb = max(self.together_mb, together_mb)

    @property
    def jvm_mb(self) -> float:
        """Returns the most memory that a JVM held."""
        return max((peak for java, peak in self._peaks.values() if java), default=0.0)

    @property
    def python_mb(self) -> list[float]:
        """Returns the most memory that each other process held, the largest first."""
        return sorted((peak for java, peak in self._peaks.values() if not java), reverse=True)

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self.look()


def measured(work: Callable[[], Any]) -> Cost:
    """Runs the work, in this process and in processes that it waits for, and returns its cost."""
    began = os.times()
    work()
    ended = os.times()
    return Cost(ended.elapsed - began.elapsed, sum(ended[:4]) - sum(began[:4]))


def watch(command: Sequence[str]) -> Watched:
    """Runs a command that logs JSON to stderr, and returns what it cost, from outside and step by step.

    A step's cost is what was spent since the step before it ended.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    began = time.monotonic()
    steps: dict[str, Cost] = {}
    last, lines = Cost(0, 0), []

    def spent() -> Cost:
        ticks = sum(ticks for _, ticks, _ in _family(process.pid))
        return Cost(time.monotonic() - began, ticks * _TICK_S)

    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process,
        Memory(process.pid) as memory,
    ):
        before = last
        for line in process.stderr or ():
            last = spent()  # when the process has ended, its children are no longer its own
            lines.append(line)
            about = json.loads(line) if line.startswith("{") else {}
            if "seconds" in about and "step" in about:
                steps[about["step"]], before = last.less(before), last
    if process.returncode:
        failure = subprocess.CalledProcessError(process.returncode, command, stderr="".join(lines))
        failure.add_note("".join(lines[-_SHOWN:]))
        raise failure
    cost = last._replace(wall_s=time.monotonic() - began)
    return Watched(cost, steps, memory.jvm_mb, memory.python_mb, memory.together_mb)


def _program(pid: int) -> str:
    """Returns the name of the program that a process runs; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""


def _memory_mb(pid: int) -> tuple[float, float]:
    """Returns the most memory, in MB, that a living process has held, and what it holds now; zeros if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0, 0.0
    held = {line.split()[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith(("VmHWM:", "VmRSS:"))}
    return held.get("VmHWM:", 0.0), held.get("VmRSS:", 0.0)
