"""Says to which machines a message belongs, and how grave its outcome is, so that the lists can be filtered."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from jobs.report_page.cards import addresses_of, by_key, machines
from jobs.report_page.saved import in_saved_lists
from schemas.outcomes import LOSS_UNKNOWN, Outcome
from schemas.replay import Severity

Row = dict[str, Any]
Rows = list[Row]
_WAITING = (Outcome.PENDING, Outcome.AWAITED, *LOSS_UNKNOWN)


def severity(message: Row) -> Severity:
    """Returns how soon to look at a message, as of incidents."""
    if message["lost"] or message["stuck"]:
        return Severity.ERROR
    return Severity.WARNING if message["outcome"] in _WAITING else Severity.INFO


def is_direct(message: Row) -> bool:
    """Tells whether a message came from its original sender, not from a router."""
    return str(message["session_id"]).startswith(f"{message['source_queue_manager']}->")


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
                self._addresses[session[side]] |= {ends[end]} if ends.get(end) else set()
        for incident in rows["incidents"]:
            self._addresses[incident["source_queue_manager"]] |= {one["address"] for one in machines(incident)}

    def own(self, message: Row) -> str:
        """Returns the address that a message first came from; an empty text for a router's, or where that is open."""
        found = addresses_of(message, self._seen) if is_direct(message) else []
        return found[0] if len(found) == 1 else ""

    def of(self, message: Row) -> list[str]:
        """Returns GUIDs and addresses of the machines that sent, passed on and received a message, sorted.

        A message that was never seen, or came by a router, belongs to every address of its sender.
        """
        source, session = message["source_queue_manager"], str(message["session_id"])
        sender, _, receiver = session.partition("->")
        found = {source, sender, receiver} | self._addresses[receiver]
        found.update(addresses_of(message, self._seen))
        if not (message["message_id"] and is_direct(message)):
            found |= self._addresses[source]
        return sorted(filter(None, found))


def belonging(rows: Mapping[str, Rows], limit: int) -> Row:
    """Returns for each message that a list can be saved with its severity and the place of its `machines`."""
    known = Machines(rows)
    texts: dict[str, int] = {}
    lists: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in in_saved_lists(rows["saved_messages"], limit):
        text = " ".join(known.of(row))
        lists[row["list"]].append((severity(row).value, texts.setdefault(text, len(texts))))
    return {"belongs": dict(lists), "machines": list(texts)}
