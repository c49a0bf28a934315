"""Lets one run at a time write to a warehouse, and rolls back the runs that ended before they were done.

Delta has no transaction over several tables, so a property of `captures` is the lock. A commit that sets it names the
version of `captures` that its run had read, and counts only if it is the next version: of two runs that try at once,
one succeeds. The newest commit that counts is the lock's state (`LockState`).

The state records the version of every table after the last step that was completed. A run that finds the lock held by a
dead run takes it over with these versions, restores every table whose rows have changed since, and goes on. A holder
that has marked the folder on this machine is dead when its mark is gone. Of any other nobody can know that: it is dead
when whoever waits for it has seen no renewal for `claim_seconds`, by its own clock. A thread renews the lock four times
in that time. An operator who knows that it is dead need not wait (`takes_over`); if it lives after all, it stops at its
next commit.
"""

import os
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import chain, takewhile
from threading import Event, RLock, Thread
from uuid import uuid4

from jobs.cli.errors import ConflictError, JobError, UsageError, first_line, known_error
from jobs.cli.logs import progress, warn
from jobs.tables import damage, log
from jobs.tables.declared import POLL_S
from jobs.tables.lock_state import PROPERTY, RELEASED, Derived, LockState, Watch, current_state
from jobs.tables.log import Commit, rows_version
from jobs.tables.running import Mark
from jobs.tables.warehouse import Warehouse
from schemas.ingest import CAPTURES
from schemas.table import Table
from schemas.tables import INGESTED, TABLES
from udfs.frames.parallel import run_in_parallel

_FENCE = "msmq.fence"
_RENEWALS = 4
_ATTEMPTS = 20
_LONGEST_REASON = 300
_PROCESS = re.compile(r"process (\d+) on (.+)")
_LOST = "Another run took this one for dead and rolled back what it wrote."


def restore_target(commits: Iterable[Commit], recorded: int | None) -> int | None:
    """Returns the version to restore so that a table's rows are those of the recorded version; None if they are.

    The commits are in order, newest first. A table that did not exist then, or was dropped and created since, goes back
    to its first version, which is empty.
    """
    version: int | None = None
    for commit in commits:
        if version is None:
            version = recorded if recorded is not None and recorded <= commit.version else 0
        if commit.version <= version:
            break
        if commit.changes_rows:
            return version
    return None


class PublishLock:
    """Takes, renews and frees the lock of a warehouse for one run.

    Its methods raise ConflictError if another run took this one for dead.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        seconds: int,
        mark: Mark,
        undo: LockState | None = None,
        tables: Sequence[Table] = TABLES,
    ) -> None:
        """Undoes what a run did since it set the state `undo`, even if it was completed."""
        self.run = uuid4().hex
        self.held = warehouse.locked_by(self)
        """The warehouse to write to: its commits check the lock first."""
        self.derived: Derived = {}
        """The provenance of the steps so far; recorded with the next `end_step`."""
        self.rolled_back: list[str] = []
        """The dead runs whose commits this one rolled back, and why each ended."""
        self._warehouse, self._tables, self._seconds, self._mark, self._undo = warehouse, tables, seconds, mark, undo
        self._recorded = LockState(self.run, -1, seconds=seconds)
        self._renewed_at = 0.0
        self._is_lost = False
        self._one_thread = RLock()

    def acquire(self, *, takes_over: bool = False) -> None:
        """Waits until no other run holds the lock, takes it, and rolls back what a dead run left.

        `takes_over`: the run that holds it now is dead, as an operator knows.

        Raises:
            JobError: that run is alive on this machine.
        """
        is_waiting, watch, known_dead = False, Watch(self._seconds), ""
        while True:
            is_first_here = self._mark.take()
            self.held.forget(*self._tables)
            version, state = self._read()
            if takes_over:
                known_dead, takes_over = _gone_run(state, is_first_here=is_first_here), False
            is_gone = state is not None and state.run == known_dead
            if not (is_first_here and (is_gone or self._is_dead(state, watch))):
                if not is_waiting:
                    who = f"{state.owner}, which {state.activity(self._seconds)}" if state else "another run"
                    warn(f"waiting for {who}")
                is_waiting = True
                time.sleep(POLL_S)
                continue
            state = self._undo or state
            dead = None if state is None or state.is_released else state
            self.derived = deepcopy(state.derived) if state else {}
            if dead:
                self._recorded = replace(
                    self._recorded,
                    versions=dead.versions,
                    sizes=dead.sizes,
                    derived=dict(dead.derived),
                    machine=self._mark.machine,
                )
            else:
                self._snapshot_versions()
            if self._compare_and_set(version, None):
                break
        if dead:
            self._roll_back(dead)

    def _is_dead(self, state: LockState | None, watch: Watch) -> bool:
        """Returns whether nobody holds the lock, or who does is dead."""
        return state is None or state.is_known_dead(self._mark.machine) or watch.is_silent(state)

    def check(self, *, surely: bool = False) -> None:
        """Makes sure that this run holds the lock, and that no other takes it before half of `claim_seconds` is over.

        An operator may let another run take it earlier. That run commits a fence to every table before it looks at the
        rows. So a commit to a version that this run has not made itself asks `surely`, after it has read that version:
        then either the lock is lost, or the fence comes later and takes the version.
        """
        is_late = not self._is_lost and _now() - self._renewed_at > self._seconds / 2
        if surely or (is_late and not self._renew_alone()):
            self._confirm()
        if self._is_lost:
            raise ConflictError(_LOST)

    def _confirm(self) -> None:
        """Reads whether this run holds the lock; waits for no other thread, as the caller may be about to commit."""
        self._warehouse.forget(CAPTURES)
        self._require_held(self._read()[1])

    def _require_held(self, state: LockState | None) -> None:
        if state is None or state.run != self.run or state.ended is not None:
            self._is_lost = True
            raise ConflictError(_LOST)

    def _renew_alone(self) -> bool:
        """Renews the lock unless another thread is about to; returns whether it did.

        The caller may be about to commit to `captures`, and hold the log that the other thread waits for.
        """
        if not self._one_thread.acquire(blocking=self._warehouse.needs_spark):
            return False
        try:
            self.renew()
        finally:
            self._one_thread.release()
        return True

    def renew(self) -> None:
        """Commits a sign of life."""
        self._commit(None)

    def end_step(self) -> None:
        """Records the tables as they are: what was written so far stays when this run is killed."""
        self.check()
        if self._has_written():
            self.record()

    def rename_versions(self, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        """Notes that the rows that steps read or left in versions `before` are those of versions `after`."""
        for step in self.derived.values():
            for tables in (step["sources"], step["tables"]):
                tables |= {name: after[name] for name, version in tables.items() if before.get(name) == version}

    def record(self, ended: str | None = None) -> None:
        """Records the tables as they are, even if no row has changed: no run goes back to an earlier version."""
        self.check()
        with self._one_thread:
            self._snapshot_versions()
            self._commit(ended)

    def release(self) -> None:
        """Frees the lock after a run that was completed."""
        self.record(RELEASED)

    def fail(self, reason: str) -> None:
        """Ends a run that was not completed: frees the lock, unless the next run has something to roll back."""
        self._commit(reason[:_LONGEST_REASON] if self._has_written() else RELEASED)

    def _roll_back(self, dead: LockState) -> None:
        warn(f"{dead.owner} did not finish ({dead.failure}): rolling back what it wrote")
        for table in self._tables:
            if dead.ended is None:
                self._fence(table)
            target = restore_target(self._warehouse.commits_if_any(table), dead.versions.get(table.name))
            if target is None:
                continue
            progress(f"restoring {table.name} to version {target}")
            then = rows_version(commit for commit in self._warehouse.commits_if_any(table) if commit.version <= target)
            try:
                self.held.restore(table, target)
            except ConflictError:
                raise
            except Exception as error:
                cure = "Drop it if decode or replay makes it; otherwise ingest the captures into a new warehouse."
                said = known_error(error) or f"{first_line(error)} {cure}"
                raise JobError(f"The table {table.name} cannot be restored to version {target}: {said}") from error
            self.rename_versions({table.name: then}, {table.name: rows_version(self._warehouse.commits_if_any(table))})
            if table == CAPTURES:
                warn("captures that it had read are read again by the next night, so they have to be there still")
        self.held.forget(*self._tables)
        self.rolled_back.append(f"{dead.owner}: {dead.failure}")
        self.record()

    def _fence(self, table: Table) -> None:
        """Commits new metadata, with which Delta refuses a transaction that the silent run has begun on the table."""
        for _ in range(_ATTEMPTS):
            self.check()
            if next(iter(self._warehouse.commits_if_any(table)), None) is None:
                return
            with suppress(ConflictError):
                self._warehouse.set_properties(table, {_FENCE: self.run})
                return
        raise ConflictError(f"Something else writes {table.name} all the time.")

    def _has_written(self) -> bool:
        return any(self._has_written_to(table, self._recorded.versions.get(table.name)) for table in self._tables)

    def _has_written_to(self, table: Table, recorded: int | None) -> bool:
        newest = self.held.newest_entry(table)
        if newest is None or newest[0] == recorded:
            return False
        return restore_target(self.held.commits_if_any(table), recorded) is not None

    def _snapshot_versions(self) -> None:
        """Notes the tables as they are, to be recorded with the next commit."""
        self.held.forget(CAPTURES)  # to which the lock commits, too
        newest = run_in_parallel(partial(self.held.newest_entry, table) for table in self._tables)
        found = {table.name: entry for table, entry in zip(self._tables, newest, strict=True) if entry}
        self._recorded = replace(
            self._recorded,
            versions={name: version for name, (version, _) in found.items()},
            sizes={name: size for name, (_, size) in found.items() if size is not None},
            derived=dict(self.derived),
            machine=self._mark.machine,
        )

    def _read(self) -> tuple[int, LockState | None]:
        """Returns the newest version of `captures`, and the lock's state in it."""
        commits = iter(self._warehouse.commits(CAPTURES))
        newest = next(commits)
        return newest.version, current_state(chain([newest], commits))

    def _commit(self, ended: str | None) -> None:
        with self._one_thread:
            for _ in range(_ATTEMPTS):
                version, state = self._read()
                self._require_held(state)
                if self._compare_and_set(version, ended):
                    return
        raise ConflictError("The publish lock cannot be renewed: something else writes `captures` all the time.")

    def _compare_and_set(self, after: int, ended: str | None) -> bool:
        """Sets the lock's state if nothing was committed to `captures` after this version; returns whether it did."""
        began = _now()
        state = replace(self._recorded, after=after, ended=ended)
        with suppress(ConflictError):
            self._warehouse.set_properties(CAPTURES, {PROPERTY: state.text}, by=_this_process())
        newer = takewhile(lambda commit: commit.version > after, self._warehouse.commits(CAPTURES))
        is_set = any(found.run == self.run for found in map(LockState.of, newer) if found and found.after == after)
        if is_set:
            self._renewed_at = began
        return is_set


def _gone_run(state: LockState | None, *, is_first_here: bool) -> str:
    """Returns the run that holds the lock, "" for none; `is_first_here`: no other run of this machine is seen to write.

    Raises:
        JobError: it is alive on this machine.
    """
    if not is_first_here or (state is not None and state.ended is None and _is_process_here(state.by)):
        who = state.owner if state else "another run"
        raise JobError(f"{who} is alive on this machine, so it is not taken over: wait for it, or end it.")
    return state.run if state else ""


def _is_process_here(name: str) -> bool:
    """Returns whether there is a process of this name (`_this_process`) on this machine."""
    found = _PROCESS.fullmatch(name)
    if found is None or found[2] != socket.gethostname():
        return False
    try:
        os.kill(int(found[1]), 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def read_state(warehouse: Warehouse) -> LockState | None:
    """Reads the state of the lock; None where no run ever took it."""
    return current_state(warehouse.commits_if_any(CAPTURES))


def is_dead(warehouse: Warehouse, state: LockState) -> bool:
    """Returns whether the run that has set the state is known to have ended."""
    mark = warehouse.mark()
    try:
        return mark.take() and state.is_known_dead(mark.machine)
    finally:
        mark.free()


def require_whole(warehouse: Warehouse) -> None:
    """Makes sure that no commit of a table whose log this process writes is lost or damaged.

    Raises:
        DamagedError: one is.
    """
    if places := warehouse.own_logs:
        captures = places[CAPTURES.name]
        damage.require_whole({CAPTURES.name: captures}, None)
        damage.require_whole(places, current_state(log.commits(captures)))


def _mend(warehouse: Warehouse) -> LockState | None:
    """Sets damaged commits aside; returns the state to go back to if rows were lost that nothing can derive again."""

    def states() -> list[LockState]:
        return list(filter(None, map(LockState.of, warehouse.commits_if_any(CAPTURES))))

    return damage.mend(warehouse.own_logs, {table.name for table in INGESTED}, states)


@contextmanager
def hold(
    warehouse: Warehouse, seconds: int, *, mends: bool = False, takes_over: bool = False
) -> Iterator[tuple[Warehouse, PublishLock]]:
    """Holds the publish lock: waits for another run, rolls back a dead one, and creates `captures` where there is none.

    Yields the warehouse to write to, whose commits check the lock first. An error ends the run with its reason.
    `mends`: sets lost or damaged commits aside, instead of failing. `takes_over`: as `PublishLock.acquire` does.

    Raises:
        ConflictError: another run took this one for dead. DamagedError: a commit of a table is lost or damaged.
        JobError: the run to take over is alive. UsageError: the tables are where none can be taken over.
    """
    if takes_over and warehouse.needs_spark:
        raise UsageError(
            f"A run that writes to {warehouse.place} cannot be taken over: Spark, which alone commits there, does not "
            "look at the lock each time. Wait for claim_seconds."
        )
    undo = _mend(warehouse) if mends else None
    if not mends:
        require_whole(warehouse)
    if not warehouse.has(CAPTURES):
        warehouse.create(CAPTURES)
    mark, is_done = warehouse.mark(), Event()
    lock = PublishLock(warehouse, seconds, mark, undo)
    try:
        with warehouse.without_compiling():
            lock.acquire(takes_over=takes_over)
        Thread(target=_keep_renewing, args=(lock, seconds, is_done), daemon=True).start()
        yield lock.held, lock
        lock.release()
    except (Exception, KeyboardInterrupt) as error:
        with suppress(Exception):  # the first error counts
            lock.fail(f"{type(error).__name__}: {first_line(error)}")
        raise
    finally:
        is_done.set()
        mark.free()


def _keep_renewing(lock: PublishLock, seconds: int, is_done: Event) -> None:
    while not is_done.wait(max(1, seconds / _RENEWALS)):
        with suppress(Exception):  # the run finds out at its next commit
            lock.renew()


def _this_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _now() -> float:
    """Returns seconds by a clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
