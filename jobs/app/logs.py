"""Writes progress and errors to stderr: lines for a person, with a bar on a terminal, or one JSON object a line."""

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from jobs.app.errors import JobError

if TYPE_CHECKING:
    from rich.progress import Progress

_BAR = 20
_TAKEN = _BAR + 14
"""Characters of a line beside the title and what the step is doing."""


_format = "text"
_bar: "Progress | None" = None
"""The bar of the terminal; its only task is the command."""


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
def terminal_bar() -> Iterator[None]:
    """Shows a bar at the bottom of the terminal meanwhile, if lines are for a person, and `rich` is installed.

    Draws on a copy of stderr, because stderr leads to a file while the JVM starts.
    """
    global _bar  # noqa: PLW0603 - a process has one terminal
    if _format != "text" or not sys.stderr.isatty() or find_spec("rich") is None:
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - optional
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        SpinnerColumn(),
        BarColumn(bar_width=_BAR),
        TimeElapsedColumn(),
        TextColumn("{task.description}  {task.fields[doing]}", markup=False),
    )
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        console = Console(file=terminal, highlight=False)
        try:
            with Progress(
                *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
            ) as _bar:
                _bar.add_task("", total=None, doing="")
                yield
        finally:
            _bar = None


@contextmanager
def step(name: str, number: int = 1, of: int = 1) -> Iterator[None]:
    """Says that step `number` of `of` begins and, when it has ended, how many seconds it took."""
    title = f"{number}/{of} {name}"
    began = time.monotonic()
    if _bar is None:
        log("info", f"{title} …", step=name, number=number, steps=of)
    else:
        _bar.update(_bar.task_ids[0], description=title, total=of, completed=number - 1, doing="")
    yield
    seconds = round(time.monotonic() - began, 1)
    log("info", f"{title}: {seconds} s", step=name, number=number, steps=of, seconds=seconds)


def progress(message: str) -> None:
    """Logs what the step is doing; on a terminal the bar shows it until the next such message."""
    if _bar is None:
        log("info", message)
    else:
        (task,) = _bar.tasks
        room = max(_bar.console.width - _TAKEN - len(task.description), 0)
        _bar.update(task.id, doing=printable(message).rpartition(": ")[2][:room])


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
    if _bar is None:
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - stderr is for the terminal
    else:
        _bar.console.print(line, markup=False, soft_wrap=True)


def print_result(text: str, what: str = "The result") -> None:
    """Prints what a command found to stdout.

    Raises:
        JobError: it cannot be printed; the sentence begins with `what`.
    """
    try:
        print(text, flush=True)  # noqa: T201 - the result
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would fail again at the end
        raise JobError(f"{what} cannot be printed: {error}.") from error
