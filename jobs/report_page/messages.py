"""Says of a listed message which machines had it, how grave its outcome is, and what a saved list holds of it."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime

from schemas.outcomes import LOSS_UNKNOWN, Outcome
from schemas.replay import Severity
from udfs.derive.report.messages import ACCEPTED
from udfs.derive.report.rows import Row, Rows

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
"""Columns of a list that is saved as CSV, and those of the rows that they come from."""
_SAVED_LISTS = ("lost", "pending", "unknown", "not_read", ACCEPTED)
_WAITING = (Outcome.PENDING, Outcome.AWAITED, *LOSS_UNKNOWN)


def severity(message: Row) -> Severity:
    """Returns how soon to look at a message, as of incidents."""
    if message["lost"] or message["stuck"]:
        return Severity.ERROR
    return Severity.WARNING if message["outcome"] in _WAITING else Severity.INFO


def by_key(rows: Mapping[str, Rows]) -> dict[str, Row]:
    """Returns the rows of witnesses by their keys."""
    return {f"{row['stream_id']}@{row['stream_offset']}": row for row in rows["witnesses"]}


def address(witness: str) -> str:
    """Returns the address that the stream of a witness comes from."""
    return witness.partition(">")[0].rpartition(":")[0].strip("[]")


class Machines:
    """Knows the addresses of queue managers, as far as the sessions and incidents of the page tell."""

    def __init__(self, rows: Mapping[str, Rows]) -> None:
        """Collects them."""
        self._seen = by_key(rows)
        self._addresses: dict[str, set[str]] = defaultdict(set)
        covered = {row["session_id"]: row for row in rows["coverage"]}
        for session in rows["sessions"]:
            ends = covered.get(session["session_id"], {})
            for side, end in (("sender", "src_ip"), ("receiver", "dst_ip")):
                self._addresses[session[side]] |= set(ends[end].split(", ")) if ends.get(end) else set()
        for incident in rows["incidents"]:
            self._addresses[incident["source_queue_manager"]] |= {one["address"] for one in incident["senders"]}

    def sent_from(self, message: Row) -> list[str]:
        """Returns the address that a message first came from; several, where its witness leaves that open.

        Its witness also has what took its number or went beyond it, maybe from another address. The row of the witness
        that was captured when the message was first seen is its own.
        """
        if not message["witness"] or not message["message_id"]:
            return []
        first = [key for key in message["witness"] if _is_first(self._seen.get(key), message)]
        return sorted({address(key) for key in first or message["witness"]})

    def own(self, message: Row) -> str:
        """Returns the address that a message first came from; an empty text for a router's, or where that is open."""
        found = self.sent_from(message) if _is_direct(message) else []
        return found[0] if len(found) == 1 else ""

    def of(self, message: Row) -> list[str]:
        """Returns GUIDs and addresses of the machines that sent, passed on and received a message, sorted.

        A message that was never seen, or came by a router, belongs to every address of its sender.
        """
        source, session = message["source_queue_manager"], str(message["session_id"])
        sender, _, receiver = session.partition("->")
        found = {source, sender, receiver, *self._addresses[receiver], *self.sent_from(message)}
        if not (message["message_id"] and _is_direct(message)):
            found |= self._addresses[source]
        return sorted(filter(None, found))


def _is_direct(message: Row) -> bool:
    """Returns whether a message came from its original sender, not from a router."""
    return str(message["session_id"]).startswith(f"{message['source_queue_manager']}->")


def _is_first(witness: Row | None, message: Row) -> bool:
    """Returns whether a row of a witness is the first arrival of a message: times are kept in microseconds."""
    if witness is None or None in (message["first_ns"], witness["captured_ns"]):
        return False
    return bool(
        witness["message_id"] == message["message_id"] and witness["captured_ns"] // 1000 == message["first_ns"] // 1000
    )


def saved(rows: Mapping[str, Rows]) -> Row:
    """Returns what lists can be saved with, `lists`: rows of `columns`, in the order of each list.

    `belongs` has for each row its severity and the place of its machines in `machines`. A message has no address where
    its witness leaves that open.
    """
    known = Machines(rows)
    texts: dict[str, int] = {}
    lists, belongs = defaultdict(list), defaultdict(list)
    for row in rows["saved_messages"]:
        if row["list"] in _SAVED_LISTS:
            addresses = known.sent_from(row)
            told = row | {
                "outcome": f"{row['outcome']}, stuck" if row["stuck"] else row["outcome"],
                "witness": addresses[0] if len(addresses) == 1 else None,
                **{name: _utc(row[name]) for name in ("first_ns", "last_ns")},
            }
            lists[row["list"]].append([told[name] for name in SAVED.values()])
            machines = texts.setdefault(" ".join(known.of(row)), len(texts))
            belongs[row["list"]].append((severity(row).value, machines))
    return {"columns": list(SAVED), "lists": dict(lists), "belongs": dict(belongs), "machines": list(texts)}


def _utc(ns: int | None) -> str | None:
    return None if ns is None else datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")
