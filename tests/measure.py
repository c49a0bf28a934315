"""Measures wall and CPU time of all processes of a run, and the memory of each."""

import json
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
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


_Key = tuple[int, str]
"""The ID of a process, and when it began, because a later process may have its ID."""


@dataclass(slots=True)
class _Process:
    """Holds what was last seen of a process."""

    parent_id: int
    """The parent that it has now."""
    parent: _Key | None
    """The parent that it had when it was first seen; None for the root."""
    java: bool
    own: int
    """Ticks that it spent itself."""
    of_ended: int
    """Ticks of its children that ended, and for which it waited."""
    alive: bool = True


class Family:
    """Follows a process and its descendants: how much CPU time they spent, and how much memory they hold.

    A process that was killed, or for which nobody waited, counts with what it had spent when it was last seen.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._seen: dict[_Key, _Process] = {}
        self._lock = Lock()

    def look(self) -> list[tuple[bool, int]]:
        """Returns whether a living process is a JVM, and its ID; so of each."""
        with self._lock:
            return self._look()

    def ticks(self) -> int:
        """Looks, and returns the ticks of all processes since the root began, ended ones included."""
        with self._lock:
            self._look()
            children = defaultdict(list)
            for key, process in self._seen.items():
                children[process.parent].append(key)

            def spent(key: _Key) -> int:
                ended = living = 0
                for child in children[key]:
                    if self._seen[child].alive:
                        living += spent(child)
                    else:
                        ended += spent(child)
                return self._seen[key].own + max(self._seen[key].of_ended, ended) + living

            return sum(map(spent, children[None]))

    def _look(self) -> list[tuple[bool, int]]:
        found: dict[int, tuple[_Key, _Process]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                name, _, rest = path.read_text().rpartition(")")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended since
            fields, pid = rest.split(), int(path.parent.name)
            utime, stime, cutime, cstime = map(int, fields[11:15])
            process = _Process(int(fields[1]), None, name.endswith("(java"), utime + stime, cutime + cstime)
            found[pid] = (pid, fields[19]), process
        living = []
        for pid, (key, process) in found.items():
            if before := self._seen.get(key):
                process.parent = before.parent
            elif pid != self._root:
                if not self._descends(process.parent_id, found):
                    continue
                process.parent = found[process.parent_id][0]
            living.append((key, process))
        for process in self._seen.values():
            process.alive = False
        self._seen.update(living)
        return [(process.java, key[0]) for key, process in living]

    def _descends(self, pid: int, found: dict[int, tuple[_Key, _Process]]) -> bool:
        """Returns whether a process is the root or one of its descendants."""
        while pid in found:
            key, process = found[pid]
            if pid == self._root or key in self._seen:
                return True
            pid = process.parent_id
        return False


class Memory:
    """Watches, in a thread of its own, how much memory the processes of a family hold.

    What a process holds in its last quarter of a second may be missed.
    """

    def __init__(self, family: Family) -> None:
        self._family, self._ended = family, Event()
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
        for java, pid in self._family.look():
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
    last = Cost(0, 0)
    lines: list[str] = []

    def spent() -> Cost:
        return Cost(time.monotonic() - began, family.ticks() * _TICK_S)

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        family = Family(process.pid)
        with Memory(family) as memory:
            for line in process.stderr or ():
                lines.append(line)
                about = json.loads(line) if line.startswith("{") else {}
                if "seconds" in about and "step" in about:
                    now = spent()
                    steps[about["step"]], last = now.less(last), now
        cost = spent()  # the process has ended, and nobody has waited for it yet
    if process.returncode:
        failure = subprocess.CalledProcessError(process.returncode, command, stderr="".join(lines))
        failure.add_note("".join(lines[-_SHOWN:]))
        raise failure
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
