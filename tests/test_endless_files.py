"""Files that a command line names and that block, never end or are far too large: a sentence each, and at once."""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from jobs import cli
from jobs.app.config import Config
from jobs.app.errors import UsageError
from jobs.app.muted import read_muted
from jobs.app.names import Names
from jobs.app.text_files import MOST_BYTES, write_text

_SECONDS = 5


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def _device(_: Path) -> Path:
    return Path("/dev/zero")


def _large(folder: Path) -> Path:
    with (folder / "large").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    return folder / "large"


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


def why(make: Make) -> str:
    return "it has more than 64 MiB" if make is _large else "it is a folder, a pipe or a device, and no regular file"


READ: dict[str, Callable[[str], object]] = {
    "The configuration": lambda path: Config.load({}, path),
    "The names file": Names.read,
    "The file of muted findings": read_muted,
}


@pytest.mark.parametrize(
    ("what", "make"), [("The configuration", _large), *((what, make) for what in READ for make in NO_FILES)]
)
def test_what_options_name_are_small_files(what: str, make: Make, tmp_path: Path) -> None:
    path = make(tmp_path)
    with pytest.raises(UsageError) as raised:
        READ[what](str(path))
    assert str(raised.value) == f"{what} {path} cannot be read: {why(make)}."


@pytest.mark.parametrize("make", [*NO_FILES, _large])
def test_a_packet_is_in_a_small_file(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(tmp_path)
    assert cli.main(["decode-packet", str(path)]) == 2
    assert capsys.readouterr().err == f"msmq-replay decode-packet: '{path}' cannot be read: {why(make)}.\n"


def test_what_is_written_replaces_no_pipe_and_no_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not behind a link either, which is followed elsewhere. A report goes the same way (`write_text`)."""
    _pipe(tmp_path)
    (tmp_path / "link").symlink_to("pipe")
    assert cli.main(["dissector", "--out", str(tmp_path / "link")]) == 1
    assert f"msmq-replay dissector: {tmp_path / 'link'} cannot be written: {why(_pipe)}." in capsys.readouterr().err
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "other").symlink_to("file")
    write_text(str(tmp_path / "other"), "text")
    assert (tmp_path / "file").read_text() == "text"
    assert (tmp_path / "other").is_symlink()


def test_standard_input_ends_at_some_time(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/zero").open(encoding="latin-1") as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        assert cli.main(["decode-packet", "-"]) == 2
    assert "Standard input cannot be read: it has more than 64 MiB." in capsys.readouterr().err


class _Folder(io.BytesIO):
    """What `< folder` gives: it opens, and cannot be read."""

    def read(self, size: int | None = -1) -> bytes:
        raise IsADirectoryError(21, "Is a directory", size)


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "Standard input is closed."), (_Folder(), "Standard input cannot be read: Is a directory.")],
)
def test_standard_input_may_be_missing(
    given: _Folder | None, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", given and io.TextIOWrapper(given))
    assert cli.main(["decode-packet", "-"]) == 2
    assert capsys.readouterr().err == f"msmq-replay decode-packet: {said}\n"
