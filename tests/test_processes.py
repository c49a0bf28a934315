"""Which process a lock's holder is, and whether it is known to have ended."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.warehouse.processes import Process


def test_a_process_number_that_was_used_again_is_not_the_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        own = Process.own()
        started = int(Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19])
        assert not Process(own.place, other.pid, started).is_gone()
        assert Process(own.place, other.pid, started - 1).is_gone()
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has collected it
        assert Process(own.place, other.pid, started).is_gone()
    assert Process(own.place, other.pid, started).is_gone()


def test_a_process_of_another_user_or_one_that_cannot_be_seen_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Process.own()

    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    assert not own.is_gone()
    assert not own._replace(pid=1 << 22).is_gone()  # there is no such folder in /proc


def test_where_the_system_does_not_tell_a_process_nobody_is_known_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.warehouse.processes._PROC", tmp_path)
    assert Process.own() == ("", os.getpid(), 0)
    assert not Process("", 1 << 22, 0).is_gone()


_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")
_TELLING = "from jobs.warehouse.processes import Process; print(*Process.own(), sep='|')"


def test_a_process_of_another_container_is_not_known_to_be_gone() -> None:
    """It has the same host name, and a small number that nobody has here, or somebody else."""
    if shutil.which("unshare") is None or subprocess.run([*_NAMESPACE, "true"], check=False).returncode:
        pytest.skip("no PID namespace can be made here")
    told = subprocess.run([*_NAMESPACE, sys.executable, "-c", _TELLING], check=True, capture_output=True, text=True)
    place, pid, started = told.stdout.split("|")
    other = Process(place, int(pid), int(started))
    assert other.place not in ("", Process.own().place)
    assert not other.is_gone()
    assert not other._replace(pid=1 << 22).is_gone()
