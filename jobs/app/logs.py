"""Writes progress and errors to stderr: lines for a person, or one JSON object a line."""

import json
import sys
import time
from datetime import UTC, datetime
from typing import Any

_format = "text"


def log_as(log_format: str) -> None:
    """Sets the form of all later lines: "text" for a person, or "json" for one object a line."""
    global _format  # noqa: PLW0603 - a process has one stderr
    _format = log_format


def printable(text: str) -> str:
    """Returns the text with control characters escaped, so that it cannot move a cursor or forge a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def progress(message: str) -> None:
    """Logs what the command is doing."""
    log("info", message)


def log(level: str, message: str, **fields: Any) -> None:
    """Writes one line: for a person the message, with the time unless it is an error."""
    if _format == "json":
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, "level": level, "message": message} | fields)
    else:
        line = printable(message if level == "error" else f"{time.strftime('%H:%M:%S')} {message}")
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - stderr is for the terminal
