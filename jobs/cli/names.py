"""Reads what people call queue managers and queues: the file of --names-file, in TOML or CSV.

TOML has the tables `queue_managers` (GUID or address = "name") and `queues` (format name = "name"). CSV has the columns
`original` and `name`. Names stand beside the originals and never replace them.
"""

import csv
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from uuid import UUID

from jobs.cli.errors import UsageError
from jobs.cli.text_files import read_text

QUEUE_MANAGERS, QUEUES = "queue_managers", "queues"
_SHORTEST = 8  # characters of a GUID that are shown


@dataclass(frozen=True, slots=True)
class Names:
    """Holds names by original: a GUID or address of a queue manager, or the format name of a queue."""

    queue_managers: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Returns whether anything is named."""
        return bool(self.queue_managers or self.queues)

    def queue_manager(self, original: str | None) -> str:
        """Returns the name of a GUID or an address; an empty text for none."""
        return self.queue_managers.get(_machine_key(original or "") or "", "")

    def queue(self, original: str | None) -> str:
        """Returns the name of a queue; an empty text for none."""
        return self.queues.get((original or "").casefold(), "")

    def session(self, session_id: str | None) -> str:
        """Returns "NYC-01 → HQ" of a session_id; an unnamed end is short, and an empty text says that both are."""
        ends = (session_id or "").split("->")
        named = [self.queue_manager(end) for end in ends]
        return " → ".join(name or end[:_SHORTEST] for name, end in zip(named, ends, strict=True)) if any(named) else ""

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yields (what, original, name) of each name; `what` is queue_manager or queue."""
        yield from (("queue_manager", original, name) for original, name in sorted(self.queue_managers.items()))
        yield from (("queue", original, name) for original, name in sorted(self.queues.items()))

    @classmethod
    def read(cls, uri: str) -> "Names":
        """Returns the names of a file; none without a file.

        Raises:
            UsageError: the file cannot be read, or does not have this form.
        """
        if not uri:
            return cls()
        try:
            read = _of_csv if uri.lower().endswith(".csv") else _of_toml
            return cls._of(read(read_text(uri)))
        except (OSError, ValueError, RecursionError, csv.Error) as error:  # also of a decoder
            raise UsageError(f"The names file {uri} cannot be read: {error}.") from error

    @classmethod
    def _of(cls, pairs: Iterable[tuple[bool, str, str]]) -> "Names":
        managers: dict[str, str] = {}
        queues: dict[str, str] = {}
        for is_queue, original, name in pairs:
            key = original.casefold() if is_queue else _machine_key(original)
            if key is None:
                raise ValueError(f"{original!r} is neither a GUID nor an address")
            if name:  # an empty one counts as none
                (queues if is_queue else managers)[key] = name
        return cls(managers, queues)


def _machine_key(original: str) -> str | None:
    """Returns a GUID or an address as the tables have it; None for anything else."""
    text = original.strip()
    for read in (UUID, ip_address):
        with suppress(ValueError):
            return str(read(text))
    return None


def _of_toml(text: str) -> Iterator[tuple[bool, str, str]]:
    tree = tomllib.loads(text)
    if unknown := sorted(tree.keys() - {QUEUE_MANAGERS, QUEUES}):
        raise ValueError(f"it has {', '.join(unknown)}, not only {QUEUE_MANAGERS} and {QUEUES}")
    for table, entries in tree.items():
        if not isinstance(entries, dict):
            raise ValueError(f"{table} is no table")  # noqa: TRY004 - of the file, not of an argument
        for original, name in entries.items():
            if not isinstance(name, str):
                raise ValueError(f"the name of {original!r} is no text")  # noqa: TRY004 - of the file
            yield table == QUEUES, original, name


def _of_csv(text: str) -> Iterator[tuple[bool, str, str]]:
    rows = csv.DictReader(text.splitlines())
    if not {"original", "name"} <= set(rows.fieldnames or ()):
        raise ValueError("its first line does not name the columns original and name")
    for row in rows:
        original, name = (row["original"] or "").strip(), (row["name"] or "").strip()
        if original:
            yield _machine_key(original) is None, original, name
