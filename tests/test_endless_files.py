"""Files that a command line names and that block or never end: a sentence each, and at once."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from jobs import main
from jobs.cli.config import Config
from jobs.cli.errors import UsageError
from jobs.cli.names import Names
from jobs.cli.text_files import write_text

_SECONDS = 5


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def _device(_: Path) -> Path:
    return Path("/dev/zero")


NO_FILES = [_pipe, _device]
Make = Callable[[Path], Path]


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """Ends a test that waits for a pipe, or for the end of a device."""

    def give_up(_: int, __: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


WHY = "it is a folder, a pipe or a device, and no regular file"
READ: dict[str, Callable[[str], object]] = {
    "The configuration": lambda path: Config.load({}, path),
    "The names file": Names.read,
}


@pytest.mark.parametrize("what", READ)
@pytest.mark.parametrize("make", NO_FILES)
def test_what_options_name_are_small_files(what: str, make: Make, tmp_path: Path) -> None:
    path = make(tmp_path)
    with pytest.raises(UsageError) as raised:
        READ[what](str(path))
    assert str(raised.value) == f"{what} {path} cannot be read: {WHY}."


def test_what_is_written_replaces_no_pipe_and_no_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not behind a link either, which is followed elsewhere. A report goes the same way (`write_text`)."""
    _pipe(tmp_path)
    (tmp_path / "link").symlink_to("pipe")
    assert main.main(["dissector", "--out", str(tmp_path / "link")]) == 1
    assert f"msmq-replay dissector: {tmp_path / 'link'} cannot be written: {WHY}." in capsys.readouterr().err
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "other").symlink_to("file")
    write_text(str(tmp_path / "other"), "text")
    assert (tmp_path / "file").read_text() == "text"
    assert (tmp_path / "other").is_symlink()
