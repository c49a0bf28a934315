"""Reads a capture from standard input into a private temporary file."""

import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from jobs.app.errors import JobError, UsageError, known_error
from jobs.app.logs import progress, warn
from jobs.app.temporary import private_folder

STANDARD_INPUT = "-"
"""What a command line, and what is found, call it."""
_PIECE = 1 << 20


@contextmanager
def received(most: int) -> Iterator[Path]:
    """Yields a file with all that comes from standard input, or with a little more than `most` bytes of it.

    The file is deleted in the end.

    Raises:
        UsageError: nobody sends anything.
        JobError: it cannot be read or written.
    """
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        raise UsageError("No capture comes from standard input: send one, as in tcpdump -w - | msmq-replay look -")
    folder = private_folder()
    try:
        file = folder / "capture"
        progress("standard input: reading to its end")
        with _outliving_the_sender():
            _copy(sys.stdin.buffer, file, most)
        yield file
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy(source: BinaryIO, file: Path, most: int) -> None:
    size = 0
    try:
        with file.open("wb") as target:
            while size <= most and (data := source.read(_PIECE)):
                target.write(data)
                size += len(data)
    except OSError as error:
        raise known_error(error) or JobError(f"Standard input cannot be read: {error}") from error


@contextmanager
def _outliving_the_sender() -> Iterator[None]:
    """Goes on after the first interruption from the keyboard, which also ends the program that sends the capture."""
    handled = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or handled is not signal.default_int_handler:
        yield
        return

    def go_on(*_: object) -> None:
        signal.signal(signal.SIGINT, handled)
        warn("standard input: interrupted, going on with what came; once more ends this, too")

    signal.signal(signal.SIGINT, go_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handled)
