"""Measures wall and CPU time of all processes of a run, and the memory of each."""

import json
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import NamedTuple

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_EVERY_S = 0.25
_JAVA = "java"
_WATCHED = (_JAVA, "python", "tshark")  # programs whose memory is reported
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


@dataclass(slots=True)
class _Process:
    """Holds what was last seen of a process."""

    program: str
    parent: int
    """The parent that it had when it was first seen: another one may have inherited it since."""
    own: int
    """Ticks that it spent itself."""
    of_ended: int
    """Ticks of its children that ended, and for which it waited."""
    is_alive: bool
    most_mb: float


class _Session:
    """Follows the processes of a session (setsid): how much CPU time they spent, and how much memory they hold.

    A process that was killed, or for which nobody waited, counts with what it had spent when it was last seen. What one
    holds in its last quarter of a second may be missed.
    """

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._seen: dict[int, _Process] = {}
        self._lock = Lock()
        self.together_mb = 0.0

    def look(self) -> None:
        """Notes what every process has spent, and holds now."""
        with self._lock:
            for process in self._seen.values():
                process.is_alive = False
            together_mb = sum(map(self._look_at, Path("/proc").glob("[0-9]*")))
            self.together_mb = max(self.together_mb, together_mb)

    def _look_at(self, folder: Path) -> float:
        """Notes one process, if it is of the session; returns the MB that it holds now."""
        try:
            about, _, rest = (folder / "stat").read_text().rpartition(")")
            status = (folder / "status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            return 0.0  # it has ended since
        fields, pid, program = rest.split(), int(folder.name), about.partition("(")[2]
        if int(fields[3]) != self._leader:
            return 0.0
        utime, stime, cutime, cstime = map(int, fields[11:15])
        found = _Process(program, int(fields[1]), utime + stime, cutime + cstime, is_alive=True, most_mb=0.0)
        if before := self._seen.get(pid):
            found.parent, found.most_mb = before.parent, before.most_mb
        self._seen[pid] = found
        if not program.startswith(_WATCHED):
            return 0.0  # a shell, or what a JVM forks, which shares all its memory for a moment
        held_mb = {line[:5]: int(line.split()[1]) / 1024 for line in status if line.startswith(("VmHWM", "VmRSS"))}
        found.most_mb = max(found.most_mb, held_mb.get("VmHWM", 0.0))
        return held_mb.get("VmRSS", 0.0)

    def cpu_s(self) -> float:
        """Looks, and returns the CPU time of all processes since the leader began, ended ones included."""
        self.look()
        with self._lock:
            children = defaultdict(list)
            for pid, process in self._seen.items():
                children[process.parent].append(pid)

            def ticks(pid: int) -> int:
                of = dict.fromkeys((True, False), 0)
                for child in children[pid]:
                    of[self._seen[child].is_alive] += ticks(child)
                return self._seen[pid].own + max(self._seen[pid].of_ended, of[False]) + of[True]

            return ticks(self._leader) * _TICK_S

    def most_mb(self, *, java: bool) -> list[float]:
        """Returns the most memory that each JVM held, or each other process, the largest first."""
        of = (process for process in self._seen.values() if process.program.startswith(_WATCHED))
        return sorted((one.most_mb for one in of if (one.program == _JAVA) is java), reverse=True)


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
    ended = Event()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        session = _Session(process.pid)

        def sample() -> None:
            while not ended.wait(_EVERY_S):
                session.look()

        thread = Thread(target=sample, daemon=True)
        thread.start()
        for line in process.stderr or ():
            lines.append(line)
            about = json.loads(line) if line.startswith("{") else {}
            if "seconds" in about and "step" in about:
                now = Cost(time.monotonic() - began, session.cpu_s())
                steps[about["step"]], last = now.less(last), now
        cost = Cost(time.monotonic() - began, session.cpu_s())  # it has ended, and nobody has waited for it yet
        ended.set()
        thread.join()
    if process.returncode:
        failure = subprocess.CalledProcessError(process.returncode, command, stderr="".join(lines))
        failure.add_note("".join(lines[-_SHOWN:]))
        raise failure
    java_mb = session.most_mb(java=True)
    return Watched(cost, steps, java_mb[0] if java_mb else 0.0, session.most_mb(java=False), session.together_mb)
