"""Chooses what the card of an incident shows: figures, machines, and the frames that prove it."""

from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]
Rows = list[Row]


def address(witness: str) -> str:
    """Returns the address that the stream of a witness comes from."""
    return witness.partition(">")[0].rpartition(":")[0].strip("[]")


def addresses_of(message: Row, seen: Mapping[str, Row]) -> list[str]:
    """Returns the address that a message first came from; several, where its witness leaves that open.

    Its witness also has what took its number or went beyond it, maybe from another address. `seen` are rows of
    witnesses by their keys: the one captured when the message was first seen is its own.
    """
    if not message["witness"] or not message["message_id"]:
        return []
    first = [key for key in message["witness"] if _is_first(seen.get(key), message)]
    return sorted({address(key) for key in first or message["witness"]})


def _is_first(witness: Row | None, message: Row) -> bool:
    """Tells whether a row of a witness is the first arrival of a message: times are kept in microseconds."""
    if witness is None or None in (message["first_ns"], witness["captured_ns"]):
        return False
    return bool(
        witness["message_id"] == message["message_id"] and witness["captured_ns"] // 1000 == message["first_ns"] // 1000
    )


def by_key(rows: Mapping[str, Rows]) -> dict[str, Row]:
    """Returns the rows of witnesses by their keys."""
    return {f"{row['stream_id']}@{row['stream_offset']}": row for row in rows["witnesses"] + rows["others"]}


def frames(incident: Row) -> Rows:
    """Returns the first and the last of an incident's witnesses in the order of time."""
    found = incident["witnesses"]
    return [found[place] for place in sorted({0, len(found) - 1})] if found else []


def machines(incident: Row) -> Rows:
    """Returns the addresses that an incident's sender used, the earliest first."""
    return sorted(incident["senders"], key=lambda one: one["first_ns"] or 0)


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
