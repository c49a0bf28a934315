"""Says of a listed message which machines had it, how grave its outcome is, and what a saved list holds of it."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime

from schemas.outcomes import LOSS_UNKNOWN, Outcome
from schemas.replay import Severity
from udfs.report.messages import ACCEPTED
from udfs.report.rows import Row, Rows

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
    "first_address": "address",
}
"""Columns of a list that is saved as CSV, and those of the rows that they come from."""
_SAVED_LISTS = ("lost", "pending", "unacknowledged", "unknown", "not_read", "delivered_after_refusal", ACCEPTED)
_WAITING = (Outcome.PENDING, Outcome.AWAITED, *LOSS_UNKNOWN)


def severity(message: Row) -> Severity:
    """Returns how soon to look at a message, as of incidents."""
    if message["lost"] or message["stuck"]:
        return Severity.ERROR
    return Severity.WARNING if message["outcome"] in _WAITING else Severity.INFO


def is_direct(message: Row) -> bool:
    """Returns whether a message came from its original sender, not from a router."""
    return str(message["session_id"]).startswith(f"{message['source_queue_manager']}->")


class Machines:
    """Knows the addresses of queue managers, as far as the sessions and incidents of the page tell."""

    def __init__(self, rows: Mapping[str, Rows]) -> None:
        """Collects them."""
        self._addresses: dict[str, set[str]] = defaultdict(set)
        for session in rows["sessions"]:
            for side, end in (("sender", "src_ip"), ("receiver", "dst_ip")):
                self._addresses[session[side]] |= set(filter(None, session[end].split(", ")))
        for incident in (*rows["incidents"], *rows["earlier"]):
            self._addresses[incident["source_queue_manager"]] |= {one["address"] for one in incident["senders"]}

    def of(self, message: Row) -> list[str]:
        """Returns GUIDs and addresses of the machines that sent, passed on and received a message, sorted.

        A message that was never seen, or came by a router, belongs to every address of its sender.
        """
        source = message["source_queue_manager"]
        sender, _, receiver = str(message["session_id"]).partition("->")
        found = {source, sender, receiver, message["address"], *self._addresses[receiver]}
        if not (message["message_id"] and is_direct(message)):
            found |= self._addresses[source]
        return sorted(filter(None, found))


def saved(rows: Mapping[str, Rows]) -> Row:
    """Returns what lists can be saved with, `lists`: rows of `columns`, in the order of each list.

    Behind its columns, each row has its severity and the place of its machines in `machines`.
    """
    known = Machines(rows)
    texts: dict[str, int] = {}
    lists = defaultdict(list)
    for row in rows["saved_messages"]:
        if row["list"] in _SAVED_LISTS:
            told = row | {
                "outcome": f"{row['outcome']}, stuck" if row["stuck"] else row["outcome"],
                **{name: _utc(row[name]) for name in ("first_ns", "last_ns")},
            }
            machines = texts.setdefault(" ".join(known.of(row)), len(texts))
            lists[row["list"]].append([*(told[name] for name in SAVED.values()), severity(row).value, machines])
    return {"columns": list(SAVED), "lists": dict(lists), "machines": list(texts)}


def _utc(ns: int | None) -> str | None:
    return None if ns is None else datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")
