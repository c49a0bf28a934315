"""Chooses what the card of an incident shows: figures, machines, and the frames that prove it."""

from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]
Rows = list[Row]


def address(witness: str) -> str:
    """Returns the address that the stream of a witness comes from."""
    return witness.partition(">")[0].rpartition(":")[0].strip("[]")


def frames(incident: Row) -> Rows:
    """Returns the first and the last of an incident's witnesses in the order of time."""
    found = incident["witnesses"]
    return [found[place] for place in sorted({0, len(found) - 1})] if found else []


def machines(incident: Row) -> Rows:
    """Returns the addresses that an incident's sender used, the earliest first."""
    return sorted((_plain(sender) for sender in incident["senders"]), key=lambda one: one["first_ns"] or 0)


def _plain(struct: Any) -> Row:
    """Returns a struct that Spark collected as a dictionary."""
    return dict(struct) if isinstance(struct, Mapping) else struct.asDict()


def became(incident: Row) -> list[tuple[int, str]]:
    """Returns the figures of an incident that are not 0, each with its word, the worst first."""
    waiting = incident["pending"] - incident["stuck"]
    figures = (
        (incident["lost"], "lost"),
        (incident["stuck"], "stuck"),
        (waiting, "more pending" if incident["stuck"] else "pending"),
        (incident["unknown"], "unknown"),
        (incident["repaired"], "delivered after a refusal"),
        (incident["expired"], "expired unseen"),
    )
    return [(many, word) for many, word in figures if many]
