"""Writes progress and errors to stderr: lines for a person, or one JSON object a line."""

import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from jobs.cli.errors import JobError
from udfs.logs import LOG

_format = "text"


class _OnTerminal(logging.Handler):
    """Writes what `udfs` say as everything else is written."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record."""
        log(record.levelname.lower(), record.getMessage())


LOG.handlers = [_OnTerminal()]
LOG.setLevel(logging.INFO)
LOG.propagate = False


def log_as(log_format: str) -> None:
    """Sets the form of all later lines: "text" for a person, or "json" for one object a line."""
    global _format  # noqa: PLW0603 - a process has one stderr
    _format = log_format


def printable(text: str) -> str:
    """Returns the text with what cannot be seen as escapes: it cannot move a cursor, forge a line or reorder others."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def in_shell(text: str) -> str:
    """Returns the text as a word of bash or zsh, in which every character can be seen and none does anything."""
    if text.isprintable():
        return shlex.quote(text)
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    shown = (c if c.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(c)) for c in quoted)
    return f"$'{''.join(shown)}'"


@contextmanager
def step(name: str, number: int = 1, of: int = 1) -> Iterator[None]:
    """Says that step `number` of `of` begins and, when it has ended, how many seconds it took."""
    title = f"{number}/{of} {name}"
    began = time.monotonic()
    log("info", f"{title} …", step=name, number=number, steps=of)
    yield
    seconds = round(time.monotonic() - began, 1)
    log("info", f"{title}: {seconds} s", step=name, number=number, steps=of, seconds=seconds)


def progress(message: str) -> None:
    """Logs what the step is doing."""
    log("info", message)


def warn(message: str) -> None:
    """Logs what a person should still see when the run is over."""
    log("warning", message)


def log(level: str, message: str, **fields: Any) -> None:
    """Writes one line: for a person the message, with the time unless it is an error."""
    if _format == "json":
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, "level": level, "message": message} | fields)
    else:
        line = printable(message if level == "error" else f"{time.strftime('%H:%M:%S')} {message}")
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - stderr is for the terminal


def print_result(text: str, what: str = "The result") -> None:
    """Prints what a command found to stdout.

    Raises:
        JobError: it cannot be printed; the sentence begins with `what`.
    """
    with give_up_stdout(what):
        print(text, flush=True)  # noqa: T201 - the result


@contextmanager
def give_up_stdout(what: str) -> Iterator[None]:
    """Leaves stdout alone once it cannot be written, or its reader has read enough, as `head` does.

    Raises:
        JobError: it cannot be written; the sentence begins with `what`.
    """
    try:
        yield
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would fail again at the end
        if not isinstance(error, BrokenPipeError):
            raise JobError(f"{what} cannot be printed: {error}.") from error
