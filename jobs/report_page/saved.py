"""Chooses the values of messages that a list of the report can be saved with, as CSV."""

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from jobs.report_page.cards import address

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


def saved(messages: Rows, limit: int) -> dict[str, list[list[Any]]]:
    """Returns the values that each list can be saved with, in the order of the list."""
    rows = take_turns(messages, limit * SAVED_FOR_EACH_LISTED)
    lists: dict[str, list[list[Any]]] = {name: [] for name in _SAVED_LISTS}
    for row in rows:
        if row["list"] in lists:
            stuck = {"outcome": f"{row['outcome']}, stuck" if row["stuck"] else row["outcome"]}
            first = {"first_ns": _utc(row["first_ns"]), "last_ns": _utc(row["last_ns"])} | {
                "witness": address(row["witness"][0]) if row["witness"] else None
            }
            told = row | stuck | first
            lists[row["list"]].append([told[name] for name in SAVED.values()])
    return {name: values for name, values in lists.items() if values}


def _utc(ns: int | None) -> str | None:
    return None if ns is None else datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")
