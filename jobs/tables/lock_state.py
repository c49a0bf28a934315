"""Declares the state of the publish lock: who holds it, whether that run is dead, and what it wrote before."""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Self

from jobs.tables.declared import POLL_S
from jobs.tables.log import SET_PROPERTIES, Commit

Derived = dict[str, dict[str, Any]]
"""By step: the versions of the sources, the options, and the versions of the tables that it derived from them."""
PROPERTY = "msmq.lock"
RELEASED = "released"
_OF_THE_COMMIT = ("at", "by")


@dataclass(frozen=True, slots=True)
class LockState:
    """Says who holds the lock or held it last, and the tables' versions when its last step was completed."""

    run: str
    after: int
    """The version of `captures` that the run had read; the state counts if it was committed as the next one."""
    versions: dict[str, int] = field(default_factory=dict)
    """Of each table that existed: its newest version then, which rolling back restores."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Of these versions in a folder of this machine: the bytes of the entry in the table's log."""
    derived: Derived = field(default_factory=dict)
    ended: str | None = None
    """"released", or why the run failed; None while it is running."""
    machine: str = ""
    """The machine on which the run has marked the folder (`Mark.machine`); empty where it has not."""
    seconds: int = 0
    """The run's own `claim_seconds`, in which it renews the lock."""
    at: datetime | None = None
    by: str = ""
    """The process that set this state, from the user metadata of its commit."""

    @classmethod
    def of(cls, commit: Commit) -> Self | None:
        """Reads the state from a commit of `captures`; None where it sets none, or one that does not count."""
        if commit.operation != SET_PROPERTIES:
            return None
        names = {one.name for one in fields(cls)}
        try:
            given = json.loads(json.loads(commit.parameters["properties"])[PROPERTY])
            state = cls(**{name: value for name, value in given.items() if name in names})
            if commit.version != state.after + 1:
                return None
            return replace(state, at=commit.at.astimezone(UTC), by=commit.user_metadata)
        except (AttributeError, KeyError, TypeError, ValueError):
            return None

    @property
    def text(self) -> str:
        """Returns the state as the value of the property."""
        return json.dumps({name: value for name, value in asdict(self).items() if name not in _OF_THE_COMMIT})

    @property
    def is_released(self) -> bool:
        """Returns whether the run was completed, so that there is nothing to roll back."""
        return self.ended == RELEASED

    @property
    def owner(self) -> str:
        """Returns who holds it, for a person."""
        since = f", last seen at {self.at:%Y-%m-%d %H:%M:%S} UTC" if self.at else ""
        return f"{self.by or 'another run'}{since}"

    def is_known_dead(self, machine: str) -> bool:
        """Returns whether the run has ended, for who has the mark of the folder on a machine."""
        return self.ended is not None or machine == self.machine != ""

    def activity(self, seconds: int) -> str:
        """Returns what a run that is not known to be dead is doing, for who may keep silent for `seconds`."""
        return (
            "is writing to these tables, or gone: on another machine, that shows after "
            f"{max(seconds, self.seconds)} s without renewal"
        )

    @property
    def failure(self) -> str:
        """Returns why the run did not finish."""
        return self.ended or "killed"


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
