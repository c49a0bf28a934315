"""The publish lock and its rollback, checked without Spark: the product's lock on tables that are Python lists."""

import json
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tiers import merge_needs

from jobs.cli.errors import ConflictError, JobError
from jobs.tables import lock_state, publish_lock
from jobs.tables.declared import POLL_S
from jobs.tables.lock_state import LockState
from jobs.tables.log import SET_PROPERTIES, Commit, rows_version
from jobs.tables.publish_lock import PublishLock, restore_target
from jobs.tables.running import Mark
from schemas.ingest import CAPTURES, PACKETS, STREAMS
from schemas.messages import MESSAGES
from schemas.table import Table

TABLES = (CAPTURES, PACKETS, STREAMS, MESSAGES)
CREATE = "CREATE TABLE"
SECONDS = 100
NAMES = [table.name for table in TABLES]
Rows = tuple[str, ...]


class Killed(BaseException):
    """The process is gone: nothing of the program handles this."""


@dataclass
class Warehouse:
    """Tables as lists of commits, with the rows after each, and the clock that dates them."""

    commits: dict[str, list[Commit]] = field(default_factory=dict)
    rows: dict[str, list[Rows]] = field(default_factory=dict)
    file: Path | None = None
    """The file that runs mark, if they see one another."""
    now: float = 1_000_000.0

    def __post_init__(self) -> None:
        self.commit("captures", CREATE, ())

    def commit(self, table: str, operation: str, rows: Rows, /, **parameters: Any) -> None:
        """Appends a commit, after which the table has these rows."""
        log = self.commits.setdefault(table, [])
        log.append(Commit(len(log), datetime.fromtimestamp(self.now, UTC), operation, parameters))
        self.rows.setdefault(table, []).append(rows)

    def newest(self, table: str) -> Rows:
        """Returns the table's rows."""
        return self.rows[table][-1] if table in self.rows else ()

    @property
    def content(self) -> dict[str, list[str]]:
        """The rows of all tables, sorted."""
        return {table: sorted(self.newest(table)) for table in NAMES}


class Schedule:
    """Lets one program at a time go on, from one access to the tables to the next, in a random order."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.turns: dict[int, threading.Semaphore] = {}
        self.ids: dict[int, int] = {}
        self.parked = threading.Semaphore(0)
        self.kill: dict[int, int] = {}
        self.freeze: dict[int, int] = {}
        self.frozen: set[int] = set()
        self.on_freeze: Callable[[], None] = lambda: None
        self.errors: dict[int, BaseException] = {}

    def point(self) -> None:
        """Marks an access to the tables: another program may go on first, or this one ends here."""
        me = self.ids.get(threading.get_ident())
        if me is None:  # a thread that a program waits for
            return
        if me in self.kill:
            self.kill[me] -= 1
            if not self.kill[me]:
                raise Killed
        if me in self.freeze:
            self.freeze[me] -= 1
            if not self.freeze[me]:
                self.frozen.add(me)
                self.on_freeze()
        self.parked.release()
        self.turns[me].acquire()

    def run(self, programs: Sequence[Callable[[], None]]) -> None:
        """Runs the programs to their ends; what they raised is in `errors`."""
        living = set(range(len(programs)))

        def start(number: int, program: Callable[[], None]) -> None:
            self.ids[threading.get_ident()] = number
            self.turns[number].acquire()
            try:
                program()
            except (Exception, Killed) as error:  # noqa: BLE001 - the test looks at all of them
                self.errors[number] = error
            del self.ids[threading.get_ident()]
            living.discard(number)
            self.parked.release()

        for number, program in enumerate(programs):
            self.turns[number] = threading.Semaphore(0)
            threading.Thread(target=start, args=(number, program), daemon=True).start()
        while living:
            awake = sorted(living - self.frozen)
            if not awake:
                self.frozen.clear()
                continue
            self.turns[self.rng.choice(awake)].release()
            assert self.parked.acquire(timeout=20)


class Run:
    """One run: its view of the tables, its lock, and a night that ingests captures and derives messages."""

    needs_spark = False

    def __init__(self, warehouse: Warehouse, point: Callable[[], None] = lambda: None, *, lossy: int = 0) -> None:
        self.warehouse, self.point = warehouse, point
        self.mark = Mark(warehouse.file)
        self.lock = PublishLock(cast(Any, self), SECONDS, self.mark, tables=TABLES)
        self.losses = random.Random(lossy) if lossy else None
        self.is_in_folder = False
        """Whether this run writes tables of a folder: then each commit checks the lock. Commits by Spark do not."""
        self.own: dict[str, int] = {}
        """By table, how many commits it had after the last one of this run."""

    def locked_by(self, lock: PublishLock) -> "Run":
        """Returns the tables, to which `write` checks the lock."""
        assert lock
        return self

    def forget(self, *_: Table) -> None:
        """Does nothing: each look reads all commits."""

    def commits_if_any(self, table: Table) -> Iterable[Commit]:
        """Returns the table's commits, newest first."""
        self.point()
        return self.warehouse.commits.get(table.name, [])[::-1]

    commits = commits_if_any

    def newest_entry(self, table: Table) -> tuple[int, None] | None:
        """Returns the table's newest version, as of a table that lies in no folder."""
        return next(((commit.version, None) for commit in self.commits_if_any(table)), None)

    def set_properties(self, table: Table, pairs: dict[str, str], *, by: str = "") -> None:
        """Commits properties; loses one commit in ten, and one answer in ten, where that is asked for."""
        assert by == (f"process {os.getpid()} on {socket.gethostname()}" if lock_state.PROPERTY in pairs else "")
        self.point()
        fate = self.losses.random() if self.losses else 1
        if fate < 0.1:
            raise ConflictError("not committed")
        properties = json.dumps(pairs)
        self.warehouse.commit(table.name, SET_PROPERTIES, self.warehouse.newest(table.name), properties=properties)
        if fate < 0.2:
            raise ConflictError("committed, but the answer was lost")

    def restore(self, table: Table, version: int) -> None:
        """Puts back the rows of a version."""
        self.write(table.name, "RESTORE", lambda _: self.warehouse.rows[table.name][version], version=str(version))

    def write(self, table: str, operation: str, change: Callable[[Rows], Rows], **parameters: str) -> None:
        """Makes a Delta transaction, which fails if metadata were committed since it began, and is tried again then.

        In a folder, it fails if anything was committed, and the lock is looked at if this run did not write last.
        """
        for _ in range(5):
            log = self.warehouse.commits.setdefault(table, [])
            begun = len(log)
            self.point()
            self.lock.check(surely=self.is_in_folder and operation != CREATE and self.own.get(table) != begun)
            self.point()
            if operation == CREATE and log:  # IF NOT EXISTS
                return
            since = log[begun:]
            if not since or not (self.is_in_folder or any(commit.operation == SET_PROPERTIES for commit in since)):
                self.warehouse.commit(table, operation, change(self.warehouse.newest(table)), **parameters)
                self.own[table] = len(log)
                return
        raise ConflictError("DELTA_METADATA_CHANGED")

    def process(self, *captures: str, takes_over: bool = False) -> None:
        """Runs a night as `hold` does, to the end of its process."""
        try:
            self.night(*captures, takes_over=takes_over)
        except Exception as error:
            with suppress(ConflictError):
                self.lock.fail(str(error))
            raise
        finally:
            self.mark.free()

    def night(self, *captures: str, takes_over: bool = False) -> None:
        """Writes one row of each table for each new capture; blind appends, so that nothing else finds duplicates."""
        self.lock.acquire(takes_over=takes_over)
        for table in NAMES:
            if not self.warehouse.commits.get(table):
                self.write(table, CREATE, lambda _: ())
        new = tuple(capture for capture in captures if capture not in self.warehouse.newest("captures"))
        if new:
            for table in ("packets", "streams", "captures"):
                self.write(table, "WRITE", lambda rows: rows + new)
            self.lock.end_step()
        if self.lock.derived.get("decode") != (derived := self.versions()):
            self.write("messages", "WRITE", lambda _: self.warehouse.newest("packets"))
            self.lock.derived["decode"] = derived | {"tables": self.versions()["tables"]}
        self.lock.release()

    def versions(self) -> dict[str, dict[str, int]]:
        """Returns the versions of the rows that a night reads and those that it derives."""
        of = {"sources": "packets", "tables": "messages"}
        return {kind: {name: rows_version(self.warehouse.commits[name][::-1])} for kind, name in of.items()}


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    tables = Warehouse(file=tmp_path / "running.lock")

    def sleep(seconds: float) -> None:
        tables.now += seconds

    clock = SimpleNamespace(
        monotonic=lambda: tables.now, clock_gettime=lambda _: tables.now, CLOCK_BOOTTIME=7, sleep=sleep
    )
    for module in (publish_lock, lock_state):
        monkeypatch.setattr(module, "time", clock)
    return tables


@pytest.fixture
def elsewhere(warehouse: Warehouse) -> None:
    """Runs cannot see one another's marks."""
    warehouse.file = None


@pytest.fixture
def others_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of other runs are on another machine."""
    monkeypatch.setattr(publish_lock, "_is_process_here", lambda _: False)


def holder(warehouse: Warehouse) -> LockState | None:
    """The lock's state."""
    return lock_state.current_state(warehouse.commits["captures"][::-1])


WHOLE = {table: ["a", "b", "c"] for table in NAMES}


@pytest.mark.parametrize("seed", merge_needs(range(30), range(100)))
def test_runs_at_once_some_of_them_killed_end_as_one(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Three runs into an empty folder, in a random order of their accesses; some end at a random one of these."""
    rng = random.Random(seed)
    schedule = Schedule(rng)
    monkeypatch.setattr("jobs.tables.publish_lock.time.sleep", lambda _: schedule.point())
    runs = [Run(warehouse, schedule.point, lossy=seed) for _ in range(3)]
    schedule.kill = {number: rng.randrange(1, 80) for number in range(3) if rng.random() < 0.5}

    given = (("a", "b"), ("b", "c"), ("a", "b", "c"))
    schedule.run([partial(run.process, *captures) for run, captures in zip(runs, given, strict=True)])
    assert all(isinstance(error, Killed) for error in schedule.errors.values()), schedule.errors
    Run(warehouse).night("a", "b", "c")
    assert warehouse.content == WHOLE
    state = lock_state.current_state(warehouse.commits["captures"][::-1])
    assert state is not None
    assert state.is_released


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("seed", merge_needs(range(30), range(100)))
def test_a_run_that_was_taken_for_dead_stops_when_it_wakes_up(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """It freezes at a random access, within a transaction too, and wakes up when the others have ended."""
    rng = random.Random(seed)
    schedule = Schedule(rng)
    holders: list[LockState | None] = []

    def sleep(seconds: float) -> None:
        schedule.point()
        if holders and holders[0] == holder(warehouse):
            warehouse.now += seconds

    monkeypatch.setattr("jobs.tables.publish_lock.time.sleep", sleep)
    runs = [Run(warehouse, schedule.point) for _ in range(3)]
    schedule.freeze = {0: rng.randrange(1, 60)}
    schedule.on_freeze = lambda: holders.append(holder(warehouse))
    schedule.run([partial(run.process, "a", "b", "c") for run in runs])
    assert warehouse.content == WHOLE
    assert all(isinstance(error, ConflictError) for error in schedule.errors.values()), schedule.errors
    lost = {runs[number].lock.run for number in schedule.errors}
    assert lost <= {holder.run for holder in holders if holder}  # time passed for whoever held the lock


@pytest.mark.usefixtures("elsewhere")
def test_a_run_that_lost_its_lock_can_do_nothing_more(warehouse: Warehouse) -> None:
    """Not even end a transaction: what refuses it is the other run's fence, on a table that it did not restore too."""
    run, other = Run(warehouse), Run(warehouse)
    run.lock.acquire()
    run.write("packets", CREATE, lambda _: ())
    began = warehouse.now

    def take_over() -> None:
        run.point = lambda: None
        other.night("a", "b", "c")

    run.point = take_over
    with pytest.raises(ConflictError, match="took this one for dead"):
        run.write("packets", "WRITE", lambda rows: (*rows, "late"))
    assert SECONDS <= warehouse.now - began <= SECONDS + 2 * POLL_S
    assert len(other.lock.rolled_back) == 1
    for work in (run.lock.check, run.lock.renew, run.lock.end_step, run.lock.release):
        with pytest.raises(ConflictError, match="took this one for dead"):
            work()
    assert warehouse.content == WHOLE


@pytest.mark.usefixtures("elsewhere", "others_machine")
@pytest.mark.parametrize("seed", merge_needs(range(30), range(100)))
def test_a_living_run_that_is_taken_over_writes_nothing_more(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Operators take runs over that live, at random moments; no time passes, so that none counts as silent."""
    rng = random.Random(seed)
    schedule = Schedule(rng)
    monkeypatch.setattr("jobs.tables.publish_lock.time.sleep", lambda _: schedule.point())
    runs = [Run(warehouse, schedule.point, lossy=seed % 2) for _ in range(4)]
    for run in runs:
        run.is_in_folder = True
    operators = {number for number in range(4) if number and rng.random() < 0.5}

    def process(number: int) -> None:
        for _ in range(rng.randrange(60) if number in operators else 0):
            schedule.point()
        runs[number].process("a", "b", "c", takes_over=number in operators)

    schedule.run([partial(process, number) for number in range(4)])
    assert all(isinstance(error, ConflictError) for error in schedule.errors.values()), schedule.errors
    assert len(schedule.errors) <= len(operators)
    Run(warehouse).night("a", "b", "c")
    assert warehouse.content == WHOLE


def test_only_who_may_be_dead_is_taken_over(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not who has the mark of this machine, nor a process of this machine that is there; and only who held the lock."""
    run, other = Run(warehouse), Run(warehouse)
    run.lock.acquire()
    with pytest.raises(JobError, match="is alive on this machine, so it is not taken over"):
        other.lock.acquire(takes_over=True)
    here, gone = f"process {os.getpid()} on {socket.gethostname()}", f"process {2**22 + 1} on {socket.gethostname()}"
    state = replace(LockState("r", 0), by=here)
    assert publish_lock._is_process_here(here)
    with pytest.raises(JobError, match=f"{here}.* is alive"):
        publish_lock._gone_run(state, is_first_here=True)
    for by in (gone, f"process {os.getpid()} on another", "process 1" + "0" * 30 + f" on {socket.gethostname()}", ""):
        assert publish_lock._gone_run(replace(state, by=by), is_first_here=True) == "r"
    assert publish_lock._gone_run(replace(state, ended="killed"), is_first_here=True) == "r"
    assert publish_lock._gone_run(None, is_first_here=True) == ""
    run.mark.free()
    warehouse.file, taken = None, []

    def sleep(seconds: float) -> None:
        warehouse.now += seconds
        taken.append(holder(warehouse))

    monkeypatch.setattr(publish_lock, "_gone_run", lambda *_, **__: "a run that ended meanwhile")
    monkeypatch.setattr("jobs.tables.publish_lock.time.sleep", sleep)
    Run(warehouse).lock.acquire(takes_over=True)
    assert len(taken) >= SECONDS / POLL_S


def is_silent_after(seconds: float, watch: lock_state.Watch, warehouse: Warehouse) -> bool:
    """Whether someone who waits and looks at the lock meanwhile takes its holder for dead."""
    end = warehouse.now + seconds
    while True:
        state = holder(warehouse)
        assert state is not None
        if (silent := watch.is_silent(state)) or warehouse.now >= end:
            return silent
        warehouse.now += POLL_S


def test_a_run_that_writes_for_long_renews_its_lock(warehouse: Warehouse) -> None:
    run, other = Run(warehouse), Run(warehouse)
    run.lock.acquire()
    watch = lock_state.Watch(SECONDS)
    for _ in range(5):
        assert not is_silent_after(SECONDS * 0.6, watch, warehouse)
        run.write("packets", "WRITE", lambda rows: (*rows, "x"))
    run.lock.release()
    run.mark.free()
    other.lock.acquire()
    assert other.lock.rolled_back == []


def test_a_completed_step_stays_and_a_failed_one_is_rolled_back(warehouse: Warehouse) -> None:
    """A run that failed before it wrote leaves nothing to roll back; nor is a lock renewed that was freed."""
    run, after, last = Run(warehouse), Run(warehouse), Run(warehouse)
    run.lock.acquire()
    for table in NAMES[1:]:
        run.write(table, CREATE, lambda _: ())
    for table in ("packets", "messages"):
        run.write(table, "WRITE", lambda _: ("a",))
    run.lock.derived["decode"] = run.versions()
    run.lock.end_step()
    run.write("messages", "WRITE", lambda _: ("half",))
    run.lock.derived["decode"] = run.versions()
    run.lock.fail("OSError: No space left on device")
    run.mark.free()
    state = holder(warehouse)
    assert state is not None
    assert state.failure == "OSError: No space left on device"
    after.lock.acquire()
    assert (warehouse.newest("packets"), warehouse.newest("messages")) == (("a",), ("a",))
    assert after.lock.derived == {"decode": after.versions()}
    assert "No space left" in after.lock.rolled_back[0]
    after.lock.fail("UsageError: no such option")
    with pytest.raises(ConflictError):
        after.lock.renew()  # as a thread might
    after.mark.free()
    last.lock.acquire()
    assert last.lock.rolled_back == []


def test_a_table_that_cannot_be_restored_is_named(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, after = Run(warehouse), Run(warehouse)
    dead.lock.acquire()
    dead.write("packets", CREATE, lambda _: ())
    dead.write("packets", "WRITE", lambda _: ("half",))
    dead.mark.free()

    def gone(*_: object) -> None:
        raise OSError("files are missing\nat org.apache")

    monkeypatch.setattr(Run, "restore", gone)
    with pytest.raises(JobError, match="packets cannot be restored to version 0: files are missing Drop it if"):
        after.lock.acquire()


def test_a_process_of_this_machine_that_is_killed_is_known_to_be_dead(tmp_path: Path) -> None:
    """Whatever namespace it had its number in: the lock of its file ends with it. Elsewhere that proves nothing."""
    file, marking = tmp_path / "running.lock", "from jobs.tables.running import Mark; from pathlib import Path; "
    marking += "print(Mark(Path(sys.argv[1])).take(), flush=True); input()"
    mark, nowhere = Mark(file), Mark(tmp_path / "no such folder" / "running.lock")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", f"import sys; {marking}", file], **pipes) as other:  # type: ignore[call-overload] # pipes
        assert other.stdout.readline() == b"True\n"
        assert not mark.take()
        assert not mark.take()
        other.kill()
    assert mark.take()
    assert not Mark(file).take()
    state = LockState("r", 0, machine=mark.machine)
    assert state.is_known_dead(mark.machine)
    for elsewhere in ("another machine", ""):
        assert not state.is_known_dead(elsewhere)
        assert not replace(state, machine=elsewhere).is_known_dead(mark.machine)
    assert (nowhere.take(), nowhere.machine) == (True, "")
    assert not replace(state, machine="").is_known_dead(nowhere.machine)
    assert replace(state, ended="out of memory").is_known_dead("")


@pytest.mark.parametrize("hours", [-1000, 1000])
def test_only_silence_that_was_watched_proves_a_death(warehouse: Warehouse, hours: int) -> None:
    """Not a clock that is apart; not time in which nobody looked, as when both runs were stopped.

    Who may keep silent for a shorter time waits as long as the holder says.
    """
    run = Run(warehouse)
    run.lock.acquire()
    watch, hasty = lock_state.Watch(SECONDS), lock_state.Watch(20)
    for _ in range(10):
        newest = warehouse.commits["captures"][-1]
        warehouse.commits["captures"][-1] = newest._replace(at=newest.at + timedelta(hours=hours))
        assert not is_silent_after(SECONDS / 4, watch, warehouse)
        run.lock.renew()
    warehouse.now += 100 * SECONDS
    assert not is_silent_after(SECONDS * 0.9, hasty, warehouse)
    assert is_silent_after(SECONDS, hasty, warehouse)
    assert is_silent_after(SECONDS * 2, watch, warehouse)


def test_a_run_of_this_machine_that_is_silent_but_there_is_waited_for(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = Run(warehouse), Run(warehouse)
    run.lock.acquire()

    def sleep(seconds: float) -> None:
        warehouse.now += seconds
        if warehouse.now > 1_000_000 + 10 * SECONDS:
            run.lock.release()
            run.mark.free()

    monkeypatch.setattr("jobs.tables.publish_lock.time.sleep", sleep)
    other.lock.acquire()
    assert other.lock.rolled_back == []


def commit(version: int, operation: str, /, **parameters: str) -> Commit:
    return Commit(version, datetime.now(UTC), operation, parameters)


def history(*operations: str) -> list[Commit]:
    """Commits newest first."""
    return [commit(version, operation) for version, operation in enumerate(operations)][::-1]


@pytest.mark.parametrize(
    ("operations", "version"),
    [
        ((), -1),
        (("CREATE TABLE",), 0),
        (("CREATE TABLE", "WRITE", "OPTIMIZE", "SET TBLPROPERTIES", "VACUUM START", "VACUUM END"), 1),
        (("CREATE TABLE", "WRITE", "CLUSTER BY", "OPTIMIZE", "VACUUM START", "VACUUM END"), 1),
        (("CREATE TABLE", "WRITE", "MERGE", "RESTORE"), 3),
    ],
)
def test_the_version_whose_rows_a_table_has(operations: tuple[str, ...], version: int) -> None:
    """If only the newest commit is known, the result is its version."""
    commits = history(*operations)
    assert rows_version(commits) == version
    assert rows_version(commits[:1]) == (commits[0].version if commits else -1)


@pytest.mark.parametrize(
    ("operations", "recorded", "target"),
    [
        ((), None, None),  # no such table
        (("CREATE TABLE",), None, None),  # created since, and empty
        (("CREATE TABLE", "WRITE"), None, 0),  # created and written since
        (("CREATE TABLE", "WRITE"), 1, None),
        (("CREATE TABLE", "WRITE", "OPTIMIZE"), 1, None),  # other files, the same rows
        (("CREATE TABLE", "WRITE", "OPTIMIZE", "MERGE"), 2, 2),  # and the files of version 1 may be gone
        (("CREATE TABLE", "WRITE"), 7, 0),  # dropped and created again
    ],
)
def test_the_version_that_rolling_back_restores(
    operations: tuple[str, ...], recorded: int | None, target: int | None
) -> None:
    assert restore_target(history(*operations), recorded) == target


def test_what_is_no_state_is_left_out() -> None:
    run = LockState("r", 4)
    pairs = json.dumps({"msmq.lock": run.text})
    assert LockState.of(commit(5, SET_PROPERTIES, properties=pairs)) is not None
    assert LockState.of(commit(6, SET_PROPERTIES, properties=pairs)) is None  # another commit came between
    assert LockState.of(commit(5, "WRITE", properties=pairs)) is None
    older = json.dumps({"msmq.lock": json.dumps({"run": "r", "host": "h", "pid": 1, "after": 4, "place": "of 0.1"})})
    assert LockState.of(commit(5, SET_PROPERTIES, properties=older)) is not None
    for text in ("", "{", "[]", '{"msmq.lock": "{}"}', '{"msmq.lock": "{\\"run\\": 1, \\"what\\": 2}"}', '{"x": "y"}'):
        assert LockState.of(commit(5, SET_PROPERTIES, properties=text)) is None
