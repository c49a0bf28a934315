"""Lets one run at a time write to a warehouse, and rolls back the runs that ended before they were done.

Delta has no transaction over several tables, so a property of `captures` is the lock. A commit that sets it names the
version of `captures` that its run had read, and counts only if it is the next version: of two runs that try at once,
one succeeds. The newest commit that counts is the lock's state (`LockState`).

The state records the version of every table after the last step that was completed. A run that finds the lock held by a
dead run takes it over with these versions, restores every table whose rows have changed since, and goes on. A holder of
this machine and PID namespace is dead when its process is gone. Of any other nobody can know that: it is dead when
whoever waits for it has seen no renewal for `claim_seconds`, by its own clock. A thread renews the lock four times in
that time.
"""

import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, takewhile, tee
from threading import Event, RLock, Thread
from typing import Protocol
from uuid import uuid4

from jobs.app.errors import ConflictError, JobError, first_line
from jobs.app.logs import progress, warn
from jobs.app.parallel import run_in_parallel
from jobs.warehouse import damage, log
from jobs.warehouse.durable import settle
from jobs.warehouse.lock_state import HOLDING, PROPERTY, RELEASED, Derived, LockState, Watch, current_state
from jobs.warehouse.log import Commit, rows_version
from jobs.warehouse.processes import Process
from jobs.warehouse.store import Warehouse
from jobs.warehouse.tables import CONFLICT, POLL_S, is_local, path_in
from schemas.ingest import CAPTURES
from schemas.tables import INGESTED, TABLES

_FENCE = "msmq.fence"
_RENEWALS = 4
_ATTEMPTS = 20
_LONGEST_REASON = 300
_LOST = "Another run took this one for dead and rolled back what it wrote."
_BY_NAME = {table.name: table for table in TABLES}


def restore_target(commits: Iterable[Commit], recorded: int | None) -> int | None:
    """Returns the version to restore so that a table's rows are those of the recorded version; None if they are.

    The commits are in order, newest first. A table that did not exist then, or was dropped and created since, goes back
    to its first version, which is empty.
    """
    newest, older = tee(commits)
    first = next(newest, None)
    if first is None or first.version == recorded:
        return None
    version = recorded if recorded is not None and recorded < first.version else 0
    newer, older = tee(older)
    before = rows_version(commit for commit in older if commit.version <= version)
    if before < 0:  # the log begins later
        return version if any(commit.changes_rows for commit in newer) else None
    return None if rows_version(chain([first], newest)) == before else version


class Ledger(Protocol):
    """Declares what the lock needs of a warehouse."""

    def tables(self) -> Sequence[str]:
        """Names all tables that a run may write; the first is `captures`."""

    def commits(self, table: str) -> Iterable[Commit]:
        """Returns the table's commits, newest first; none where it does not exist."""

    def set_property(self, table: str, name: str, value: str) -> None:
        """Sets a property of the table in one commit, once; raises ConflictError if another commit prevents it."""

    def restore(self, table: str, version: int) -> None:
        """Puts back the table's rows of that version; raises ConflictError if the run no longer holds the lock."""

    def settle(self) -> dict[str, list[int]]:
        """Waits until what was written is on the disk; returns what each table was left as (`LockState.left`)."""


class PublishLock:
    """Takes, renews and frees the lock of a warehouse for one run.

    Its methods raise ConflictError if another run took this one for dead.
    """

    def __init__(self, ledger: Ledger, seconds: int, undo: LockState | None = None) -> None:
        """Undoes what a run did since it set the state `undo`, even if it was completed."""
        self.run = uuid4().hex
        self.derived: Derived = {}
        """The provenance of the steps so far; recorded with the next `end_step`."""
        self.rolled_back: list[str] = []
        """The dead runs whose commits this one rolled back, and why each ended."""
        self._ledger, self._seconds, self._undo = ledger, seconds, undo
        self._captures = ledger.tables()[0]
        self._recorded: tuple[dict[str, int], Derived] = {}, {}
        self._left: dict[str, list[int]] = {}
        self._renewed_at = 0.0
        self._is_lost = False
        self._one_thread = RLock()

    def acquire(self) -> None:
        """Waits until no other run holds the lock, takes it, and rolls back what a dead run left."""
        is_waiting, watch = False, Watch(self._seconds)
        while True:
            version, state = self._read()
            if state and state.may_wake and (state.is_here or not watch.is_silent(state)):
                if not is_waiting:
                    warn(f"waiting for {state.owner}, which {state.activity(self._seconds)}")
                is_waiting = True
                time.sleep(POLL_S)
                continue
            if self._undo is not None:
                state = self._undo
            dead = None if state is None or state.is_released else state
            self._left = dict(state.left) if state and not self._undo else {}
            self.derived = dict(state.derived) if state else {}
            self._recorded = dict(dead.versions) if dead else self._newest(), dict(self.derived)
            HOLDING.add(self.run)  # before other threads of this process can see the commit
            if self._try(version, None):
                break
            HOLDING.discard(self.run)
        if dead:
            self._roll_back(dead)

    def check(self) -> None:
        """Makes sure that this run holds the lock, and that no other can take it for half of `claim_seconds`."""
        if not self._is_lost and _now() - self._renewed_at > self._seconds / 2:
            self.renew()
        if self._is_lost:
            raise ConflictError(_LOST)

    def renew(self) -> None:
        """Commits a sign of life."""
        self._commit(None)

    def end_step(self) -> None:
        """Records the tables as they are: what was written so far stays when this run is killed."""
        self.check()
        with self._one_thread:
            if self._has_written():
                self._record()
                self._commit(None)

    def rename_versions(self, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        """Records that the rows that steps read or left in versions `before` are those of versions `after`."""
        for step in self.derived.values():
            for tables in (step["sources"], step["tables"]):
                tables |= {name: after[name] for name, version in tables.items() if before.get(name) == version}
        self.record()

    def record(self) -> None:
        """Records the tables as they are, even if no row has changed: no run goes back to an earlier version."""
        self.check()
        with self._one_thread:
            self._record()
            self._commit(None)

    def release(self) -> None:
        """Frees the lock after a run that was completed."""
        self.check()
        with self._one_thread:
            self._left = self._ledger.settle()
            self._recorded = {}, dict(self.derived)
            self._commit(RELEASED)

    def fail(self, reason: str) -> None:
        """Ends a run that was not completed: frees the lock, unless the next run has something to roll back."""
        self._commit(reason[:_LONGEST_REASON] if self._has_written() else RELEASED)

    def _roll_back(self, dead: LockState) -> None:
        warn(f"{dead.owner} did not finish ({dead.failure}): rolling back what it wrote")
        for table in self._ledger.tables():
            if dead.may_wake:
                self._fence(table)
            target = restore_target(self._ledger.commits(table), dead.versions.get(table))
            if target is None:
                continue
            progress(f"restoring {table} to version {target}")
            try:
                self._ledger.restore(table, target)
            except ConflictError:
                raise
            except Exception as error:
                raise JobError(
                    f"The table {table} cannot be restored to version {target}: {first_line(error)} "
                    "Drop it if decode or replay makes it; otherwise ingest the captures into a new warehouse."
                ) from error
            if table == self._captures:
                warn("captures that it had read are read again by the next night, so they have to be there still")
        self.rolled_back.append(f"{dead.owner}: {dead.failure}")
        self._record()
        self._commit(None)

    def _fence(self, table: str) -> None:
        """Commits new metadata, with which Delta refuses a transaction that the silent run has begun on the table."""
        for _ in range(_ATTEMPTS):
            self.check()
            if next(iter(self._ledger.commits(table)), None) is None:
                return
            with suppress(ConflictError):
                self._ledger.set_property(table, _FENCE, self.run)
                return
        raise ConflictError(f"Something else writes {table} all the time.")

    def _has_written(self) -> bool:
        versions, _ = self._recorded
        tables = self._ledger.tables()
        return any(restore_target(self._ledger.commits(table), versions.get(table)) is not None for table in tables)

    def _record(self) -> None:
        self._left = self._ledger.settle()
        self._recorded = self._newest(), dict(self.derived)

    def _newest(self) -> dict[str, int]:
        tables = self._ledger.tables()
        found = run_in_parallel(partial(self._newest_of, table) for table in tables)
        return {table: version for table, version in zip(tables, found, strict=True) if version is not None}

    def _newest_of(self, table: str) -> int | None:
        return next((commit.version for commit in self._ledger.commits(table)), None)

    def _read(self) -> tuple[int, LockState | None]:
        """Returns the newest version of `captures`, and the lock's state in it."""
        commits = iter(self._ledger.commits(self._captures))
        newest = next(commits)
        return newest.version, current_state(chain([newest], commits))

    def _commit(self, ended: str | None) -> None:
        with self._one_thread:
            for _ in range(_ATTEMPTS):
                version, state = self._read()
                if state is None or state.run != self.run or state.ended is not None:
                    self._is_lost = True
                    raise ConflictError(_LOST)
                if self._try(version, ended):
                    return
        raise ConflictError("The publish lock cannot be renewed: something else writes `captures` all the time.")

    def _try(self, after: int, ended: str | None) -> bool:
        """Sets the lock's state if nothing was committed to `captures` after this version; returns whether it did."""
        began = _now()
        versions, derived = self._recorded
        place, pid, started = Process.own()
        host, seconds = socket.gethostname(), self._seconds
        state = LockState(self.run, host, pid, after, versions, derived, self._left, ended, place, started, seconds)
        with suppress(ConflictError):
            self._ledger.set_property(self._captures, PROPERTY, state.text)
        newer = takewhile(lambda commit: commit.version > after, self._ledger.commits(self._captures))
        is_set = any(found.run == self.run for found in map(LockState.of, newer) if found and found.after == after)
        if is_set:
            self._renewed_at = began
        return is_set


@dataclass
class _WarehouseLedger:
    """Gives the lock the warehouse: `bare`, whose commits check no lock, and `held`, to restore tables."""

    bare: Warehouse
    held: Warehouse
    since: float = field(default_factory=time.time)

    def tables(self) -> Sequence[str]:
        return tuple(_BY_NAME)

    def commits(self, table: str) -> Iterable[Commit]:
        return self.bare.commits_if_any(_BY_NAME[table])

    def set_property(self, table: str, name: str, value: str) -> None:
        try:
            self.bare.set_properties(_BY_NAME[table], {name: value})
        except Exception as error:
            if not CONFLICT.search(str(error)):
                raise
            raise ConflictError(f"Something else wrote {table} at the same time.") from error

    def restore(self, table: str, version: int) -> None:
        self.held.restore(_BY_NAME[table], version)

    def settle(self) -> dict[str, list[int]]:
        places = _places(self.bare.folder, self.bare.catalog_schema)
        run_in_parallel(partial(settle, place, self.since) for place in places.values())
        return damage.left(places)


def read_state(warehouse: Warehouse) -> LockState | None:
    """Reads the state of the lock; None where no run ever took it."""
    return current_state(warehouse.commits_if_any(CAPTURES))


def require_whole(folder: str, catalog_schema: str = "") -> None:
    """Makes sure that no commit of a table in a folder of this machine is lost or damaged.

    Raises:
        DamagedError: one is.
    """
    places = _places(folder, catalog_schema)
    if places:
        captures = places[CAPTURES.name]
        damage.require_whole({CAPTURES.name: captures}, {})
        state = current_state(log.commits(captures))
        damage.require_whole(places, state.left if state else {})


def _mend(warehouse: Warehouse) -> LockState | None:
    """Sets damaged commits aside; returns the state to go back to if rows were lost that nothing can derive again."""

    def states() -> list[LockState]:
        return list(filter(None, map(LockState.of, warehouse.commits_if_any(CAPTURES))))

    places = _places(warehouse.folder, warehouse.catalog_schema)
    return damage.mend(places, {table.name for table in INGESTED}, states)


def _places(folder: str, catalog_schema: str) -> dict[str, str]:
    """Returns the tables that lie in a folder of this machine, by name."""
    return {table.name: path_in(folder, table.name) for table in TABLES} if is_local(folder, catalog_schema) else {}


@contextmanager
def hold(warehouse: Warehouse, seconds: int, *, mends: bool = False) -> Iterator[tuple[Warehouse, PublishLock]]:
    """Holds the publish lock: waits for another run, rolls back a dead one, and creates `captures` where there is none.

    Yields the warehouse to write to, whose commits check the lock first. An error ends the run with its reason.
    `mends`: sets lost or damaged commits aside, instead of failing.

    Raises:
        ConflictError: another run took this one for dead. DamagedError: a commit of a table is lost or damaged.
    """
    undo = _mend(warehouse) if mends else None
    if not mends:
        require_whole(warehouse.folder, warehouse.catalog_schema)
    if not warehouse.has(CAPTURES):
        warehouse.create(CAPTURES)
    ledger = _WarehouseLedger(warehouse, warehouse)
    lock = PublishLock(ledger, seconds, undo)
    ledger.held = held = replace(warehouse, lock=lock, histories={})
    is_done = Event()
    try:
        lock.acquire()
        Thread(target=_keep_renewing, args=(lock, seconds, is_done), daemon=True).start()
        yield held, lock
        lock.release()
    except (Exception, KeyboardInterrupt) as error:
        with suppress(Exception):  # the first error counts
            lock.fail(f"{type(error).__name__}: {first_line(error)}")
        raise
    finally:
        is_done.set()
        HOLDING.discard(lock.run)


def _keep_renewing(lock: PublishLock, seconds: int, is_done: Event) -> None:
    while not is_done.wait(max(1, seconds / _RENEWALS)):
        with suppress(Exception):  # the run finds out at its next commit
            lock.renew()


def _now() -> float:
    """Returns seconds by a clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
