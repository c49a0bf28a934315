"""Declares the state of the publish lock: who holds it, whether that run is dead, and what it wrote before."""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

from jobs.warehouse.log import SET_PROPERTIES, Commit
from jobs.warehouse.processes import Process
from jobs.warehouse.tables import POLL_S

Derived = dict[str, dict[str, Any]]
"""By step: the versions of the sources, the options, and the versions of the tables that it derived from them."""
PROPERTY = "msmq.lock"
RELEASED = "released"
HOLDING: set[str] = set()
"""Runs of this process that hold a lock."""


@dataclass(frozen=True, slots=True)
class LockState:
    """Says who holds the lock or held it last, and the tables' versions when its last step was completed."""

    run: str
    host: str
    pid: int
    after: int
    """The version of `captures` that the run had read; the state counts if it was committed as the next one."""
    versions: dict[str, int] = field(default_factory=dict)
    """Of each table that existed: the version that rolling back restores."""
    derived: Derived = field(default_factory=dict)
    left: dict[str, list[int]] = field(default_factory=dict)
    """Of each table in a folder of this machine: its newest version then, and the bytes of its entry in the log."""
    ended: str | None = None
    """"released", or why the run failed; None while it is running."""
    place: str = ""
    started: int = 0
    """With `pid`, which process it is (`Process`)."""
    seconds: int = 0
    """The run's own `claim_seconds`, in which it renews the lock."""
    at: datetime | None = None

    @classmethod
    def of(cls, commit: Commit) -> Self | None:
        """Reads the state from a commit of `captures`; None where it sets none, or one that does not count."""
        if commit.operation != SET_PROPERTIES:
            return None
        try:
            state = cls(**json.loads(json.loads(commit.parameters["properties"])[PROPERTY]))
            return replace(state, at=commit.at.astimezone(UTC)) if commit.version == state.after + 1 else None
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def text(self) -> str:
        """Returns the state as the value of the property."""
        return json.dumps({name: value for name, value in asdict(self).items() if name != "at"})

    @property
    def is_released(self) -> bool:
        """Returns whether the run was completed, so that there is nothing to roll back."""
        return self.ended == RELEASED

    @property
    def may_wake(self) -> bool:
        """Returns whether the run may still be writing, or go on: its process is not known to be gone."""
        return self.ended is None and not self._is_gone

    @property
    def is_here(self) -> bool:
        """Returns whether the run's process is, or was, one of those that this process can see."""
        return self.place != "" and self.place == Process.own().place

    @property
    def owner(self) -> str:
        """Returns who holds it, for a person."""
        since = f", last seen at {self.at:%Y-%m-%d %H:%M:%S} UTC" if self.at else ""
        return f"process {self.pid} on {self.host}{since}"

    def activity(self, seconds: int) -> str:
        """Returns what a run that may wake is doing, for who may keep silent for `seconds`."""
        if self.is_here:
            return "is writing to these tables"
        return f"is writing to these tables, or gone: that shows after {max(seconds, self.seconds)} s without renewal"

    @property
    def failure(self) -> str:
        """Returns why the run did not finish."""
        return self.ended or "killed"

    @property
    def _is_gone(self) -> bool:
        process = Process(self.place, self.pid, self.started)
        return self.run not in HOLDING if self.place and process == Process.own() else process.is_gone()


class Watch:
    """Measures for how long a lock was not renewed, by this process's clock and while this process was looking."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._seen: tuple[str, int] | None = None
        self._looked_at = self._silence_s = 0.0

    def is_silent(self, state: LockState) -> bool:
        """Looks at the lock; returns whether it stayed the same for as long as neither run may keep silent.

        Of the time since the last look little counts: this process may have stood still, and so may what both write to.
        """
        now = time.monotonic()
        if self._seen == (state.run, state.after):
            self._silence_s += min(now - self._looked_at, 2 * POLL_S)
        else:
            self._seen, self._silence_s = (state.run, state.after), 0.0
        self._looked_at = now
        return self._silence_s >= max(self._seconds, state.seconds)


def current_state(commits: Iterable[Commit]) -> LockState | None:
    """Finds the lock's state in the commits of `captures`, newest first; None where no run ever took it."""
    return next(filter(None, map(LockState.of, commits)), None)
