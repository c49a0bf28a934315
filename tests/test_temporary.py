"""Folders for temporary files: who can open them, and that none stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.cli import temporary

_MAKING = "from jobs.cli.temporary import private_folder; print(private_folder(), flush=True); input()"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def start(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has made a folder, and waits."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", _MAKING]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_only_its_user_can_open_a_folder() -> None:
    before = os.umask(0)
    try:
        assert temporary.private_folder().stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


def test_what_a_killed_process_left_is_deleted_and_what_is_in_use_stays(folder: Path) -> None:
    process, made = start(folder)
    with process:
        (made / "blockmgr" / "0c").mkdir(parents=True)
        (made / "blockmgr" / "0c" / "block").write_bytes(b"captured")
        own = temporary.private_folder()
        assert made.exists()
        assert temporary.private_folder() != own
        assert own.exists()
        process.kill()
    temporary.private_folder()
    assert not made.exists()
    assert own.exists()


def test_nothing_else_is_deleted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "kept").touch()
    (folder / "msmq-replay-run-link").symlink_to(elsewhere)
    (folder / "msmq-replay-run-file").touch()
    (folder / "msmq-replay-other").mkdir()
    temporary.private_folder()
    assert (elsewhere / "kept").exists()
    assert (folder / "msmq-replay-run-file").exists()
    assert (folder / "msmq-replay-other").exists()


def test_processes_that_begin_at_once_get_folders_of_their_own(folder: Path) -> None:
    started = [start(folder) for _ in range(8)]
    assert len({made for _, made in started}) == len(started)
    assert all(made.exists() for _, made in started)
    for process, _ in started:
        process.communicate("")
