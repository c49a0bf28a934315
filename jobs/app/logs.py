"""What a command tells while it works, on stderr: for a person, or as one JSON object a line."""

import json
import sys
import time
from datetime import UTC, datetime
from typing import Any

_format = "text"


def log_as(log_format: str) -> None:
    """Write lines for a person ("text") from now on, or JSON objects ("json")."""
    global _format  # noqa: PLW0603 - a process has one stderr
    _format = log_format


def printable(text: str) -> str:
    """The text with all that could move a terminal's cursor or forge a line written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def progress(message: str) -> None:
    """Tell what is going on."""
    log("info", message)


def log(level: str, message: str, **fields: Any) -> None:
    """Tell what happened; a person sees the message only, with the time unless it is an error."""
    if _format == "json":
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, "level": level, "message": message} | fields)
    else:
        line = printable(message if level == "error" else f"{time.strftime('%H:%M:%S')} {message}")
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - this is the terminal's
