"""A run that is killed while it writes to tables in a store: seen at once on its machine, taken over elsewhere."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import IO, Any, cast

import polars as pl
import pytest

from jobs.cli.errors import JobError
from jobs.tables import publish_lock
from jobs.tables.in_store import InStore
from jobs.tables.mirror import Store, alone_in
from jobs.tables.running import Mark
from schemas.ingest import CAPTURES, STREAM_GAPS
from udfs.frames.tables import schema_of

pytest.importorskip("obstore", reason="Tables in object stores need the package obstore.")

_SECONDS = 600
_AT_ONCE_S = 60
_WRITING = """
import socket, sys
uri, machine = sys.argv[1:]
if machine: socket.gethostname = lambda: machine
from test_take_over import gap, in_store
from jobs.cli.errors import ConflictError
from jobs.tables import publish_lock
from schemas.ingest import STREAM_GAPS
try:
    with publish_lock.hold(in_store(uri), 600) as (held, lock):
        held.create(STREAM_GAPS)
        held.append(STREAM_GAPS, gap(1))
        lock.end_step()
        for offset in (2, 3):
            held.append(STREAM_GAPS, gap(offset))
            print("wrote", flush=True)
            input()
except ConflictError as error:
    print(error, flush=True)
"""


def in_store(uri: str) -> InStore:
    """A view of its own."""
    return InStore(cast(Any, None), uri, store=Store.open(uri))


def gap(offset: int) -> pl.DataFrame:
    """A gap at an offset."""
    rows = [{"stream_id": "a", "stream_offset": offset, "length": 1}]
    return pl.DataFrame(rows, schema_of(STREAM_GAPS.arrow))


def offsets(uri: str) -> list[int]:
    """The stream offsets of the gaps that the table has."""
    return sorted(in_store(uri).read_local(STREAM_GAPS)["stream_offset"])


@contextmanager
def writer(uri: str, folder: Path, machine: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process that has written a gap that it has not recorded, and waits; with a `machine`, one that is not this."""
    temporary = folder / (machine or "here")
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, "-c", _WRITING, uri, machine]
    environment = {"PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path]), "TMPDIR": str(temporary)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as running:
        try:
            assert cast(IO[str], running.stdout).readline() == "wrote\n"
            yield running
        finally:
            running.kill()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's folder for temporary files."""
    (tmp_path / "here").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "here"))


def test_a_run_that_was_killed_here_is_rolled_back_at_once(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/tables"
    with writer(uri, tmp_path) as running:
        state = publish_lock.read_state(in_store(uri))
        assert state is not None
        assert not publish_lock.is_dead(in_store(uri), state)
        with pytest.raises(JobError, match=f"process {running.pid} on .* is alive on this machine"):  # noqa: SIM117 - in it
            with publish_lock.hold(in_store(uri), _SECONDS, takes_over=True):
                pass
    began = monotonic()
    with publish_lock.hold(in_store(uri), _SECONDS) as (_, lock):
        assert len(lock.rolled_back) == 1
    assert monotonic() - began < _AT_ONCE_S
    assert offsets(uri) == [1]
    assert not [*(tmp_path / "here").glob("*.lock")]


def test_a_run_that_was_killed_elsewhere_is_taken_over(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/tables"
    with writer(uri, tmp_path, "elsewhere"):
        pass
    state = publish_lock.read_state(in_store(uri))
    assert state is not None
    assert not publish_lock.is_dead(in_store(uri), state)
    began = monotonic()
    with publish_lock.hold(in_store(uri), _SECONDS, takes_over=True) as (_, lock):
        assert len(lock.rolled_back) == 1
    assert monotonic() - began < _AT_ONCE_S
    assert offsets(uri) == [1]


def test_a_run_that_lives_after_all_stops_at_its_next_commit(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/tables"
    with writer(uri, tmp_path, "elsewhere") as running:
        with publish_lock.hold(in_store(uri), _SECONDS, takes_over=True) as (held, _):
            held.append(STREAM_GAPS, gap(9))
            said, _ = running.communicate("\n", timeout=_AT_ONCE_S)
        assert said == "Another run took this one for dead and rolled back what it wrote.\n"
    assert offsets(uri) == [1, 9]


def test_a_late_commit_to_captures_does_not_wait_for_the_thread_that_renews_the_lock(tmp_path: Path) -> None:
    """The thread waits for the log of `captures`, which the commit holds."""
    uri, ended = f"file://{tmp_path}/tables", Event()

    def commit_late() -> None:
        with publish_lock.hold(in_store(uri), _SECONDS) as (held, lock):
            lock._renewed_at -= _SECONDS
            with alone_in(cast(InStore, held)._at(CAPTURES)):
                Thread(target=lock.renew, daemon=True).start()
                wait_for(lambda: is_taken(lock._one_thread))
                lock.check()
            wait_for(lambda: monotonic() - lock._renewed_at < _SECONDS)
        ended.set()

    Thread(target=commit_late, daemon=True).start()
    assert ended.wait(_AT_ONCE_S)


def is_taken(by_one: Any) -> bool:
    """Whether another thread holds this lock of threads."""
    if by_one.acquire(blocking=False):
        by_one.release()
        return False
    return True


def wait_for(is_so: Callable[[], bool]) -> None:
    """Waits until something is so."""
    until = monotonic() + _AT_ONCE_S
    while not is_so():
        assert monotonic() < until
        sleep(0.01)


def test_a_mark_is_that_of_its_file(tmp_path: Path) -> None:
    """A container of this machine with other temporary files has another; a link is not followed."""
    mark, other = Mark.of_place("s3://lake/a"), Mark.of_place("s3://lake/a")
    assert mark.take()
    assert not other.take()
    first = mark.machine
    assert len(first.split()) == 2
    mark.free()
    assert other.take()
    assert other.machine != first
    assert Mark.of_place("s3://lake/b").take()
    other.free()
    linked = Mark.of_place("s3://lake/a")
    assert linked.file is not None
    linked.file.symlink_to(tmp_path / "secret")
    assert (linked.take(), linked.machine) == (True, "")
    assert not (tmp_path / "secret").exists()
