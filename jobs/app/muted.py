"""Reads which findings people know of: the TOML file of --muted-file.

Each `[[muted]]` names a `kind`, the last day of it (`until`) and the reason (`why`); a `queue` (format name) narrows it
down. Muted findings are counted, but not listed, and they do not fail a run.
"""

import tomllib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import NamedTuple

from jobs.app.errors import UsageError
from jobs.app.text_files import read_text
from schemas.replay import FindingKind


class Muted(NamedTuple):
    """Says which findings are known, until when, and why."""

    kind: str
    queue: str
    """Format name; an empty text for findings of every queue and of none."""
    until: date
    why: str


def read_muted(uri: str, today: date | None = None) -> Sequence[Muted]:
    """Returns what is muted today, of a file; nothing without a file.

    Raises:
        UsageError: the file cannot be read, or does not have this form.
    """
    if not uri:
        return []
    try:
        tree = tomllib.loads(read_text(uri))
        if unknown := sorted(tree.keys() - {"muted"}):
            raise ValueError(f"it has {', '.join(unknown)}, not only [[muted]]")  # noqa: TRY301 - said with the file
        entries = tree.get("muted", [])
        if not isinstance(entries, list):
            raise ValueError("muted is no list of tables")  # noqa: TRY004, TRY301 - said with the file
        found = [_entry(one) for one in entries]
    except (OSError, ValueError, RecursionError) as error:  # also of a decoder
        raise UsageError(f"The file of muted findings {uri} cannot be read: {error}.") from error
    return [one for one in found if one.until >= (today or datetime.now(UTC).date())]


def _entry(given: object) -> Muted:
    """Returns one entry; raises ValueError for a key that is missing, unknown or of another type."""
    if not isinstance(given, dict):
        raise ValueError("muted is no list of tables")  # noqa: TRY004 - the file is wrong, not an argument
    if unknown := sorted(given.keys() - set(Muted._fields)):
        raise ValueError(f"an entry has {', '.join(unknown)}, not only {', '.join(Muted._fields)}")
    kind, queue, until, why = (given.get(name, "" if name == "queue" else None) for name in Muted._fields)
    if kind not in list(map(str, FindingKind)):
        raise ValueError(f"{kind!r} is no kind of findings")
    if not isinstance(until, date) or isinstance(until, datetime):
        raise ValueError(f"of {kind}, until is no day such as 2026-12-31")  # noqa: TRY004 - the file is wrong
    if not isinstance(why, str) or not why.strip() or not isinstance(queue, str):
        raise ValueError(f"of {kind}, why is missing, or queue or why is no text")
    return Muted(kind, queue, until, why)
