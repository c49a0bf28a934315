"""Chooses the values of messages that a list of the report can be saved with, as CSV."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from jobs.report_page.cards import addresses_of

Row = dict[str, Any]
Rows = list[Row]
SAVED_FOR_EACH_LISTED = 100
"""Messages that a list can be saved with, for each that the page may show of it."""
SAVED = {
    "outcome": "outcome",
    "number": "tx_sequence_number",
    "numbers": "numbers",
    "message_id": "message_id",
    "label": "label",
    "destination_queue": "destination_queue",
    "source_queue_manager": "source_queue_manager",
    "tx_sequence": "tx_sequence",
    "arrivals": "arrivals",
    "first_seen": "first_ns",
    "last_seen": "last_ns",
    "first_address": "witness",
}
"""Columns of a saved list, and those of the rows that they come from."""
_SAVED_LISTS = ("lost", "pending", "unknown", "not_read")


def take_turns(listed: Rows, limit: int) -> Rows:
    """Returns at most `limit` rows of each list: from `messages.listed_messages`, one of each outcome in turn."""
    chosen: dict[str, Rows] = defaultdict(list)
    for row in listed:
        chosen[row["list"]].append(row)
    return [row for rows in chosen.values() for row in rows[:limit]]


def in_saved_lists(messages: Rows, limit: int) -> Iterator[Row]:
    """Yields the messages that lists can be saved with, where a list shows `limit` of them."""
    yield from (row for row in take_turns(messages, limit * SAVED_FOR_EACH_LISTED) if row["list"] in _SAVED_LISTS)


def saved(messages: Rows, limit: int, seen: Mapping[str, Row]) -> dict[str, list[list[Any]]]:
    """Returns the values that each list can be saved with, in the order of the list.

    `seen` are rows of witnesses by their keys. Where these leave open which address a message came from, it has none.
    """
    lists: dict[str, list[list[Any]]] = {name: [] for name in _SAVED_LISTS}
    for row in in_saved_lists(messages, limit):
        stuck = {"outcome": f"{row['outcome']}, stuck" if row["stuck"] else row["outcome"]}
        addresses = addresses_of(row, seen)
        first = {"witness": addresses[0] if len(addresses) == 1 else None}
        told = row | stuck | first | {"first_ns": _utc(row["first_ns"]), "last_ns": _utc(row["last_ns"])}
        lists[row["list"]].append([told[name] for name in SAVED.values()])
    return {name: values for name, values in lists.items() if values}


def _utc(ns: int | None) -> str | None:
    return None if ns is None else datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")
