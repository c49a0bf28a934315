"""The card of an incident, and the lists that can be saved, from rows."""

from typing import Any

from jobs.report_page.cards import addresses_of, became, frames, machines
from jobs.report_page.choice import Machines, severity
from jobs.report_page.saved import SAVED, SAVED_FOR_EACH_LISTED, saved

INCIDENT: dict[str, Any] = dict.fromkeys(("lost", "pending", "stuck", "unknown", "repaired", "expired"), 0)


def sender(address: str, first_ns: int | None, *, suspected: bool) -> dict[str, Any]:
    return {"address": address, "first_ns": first_ns, "messages": 4, "suspected": suspected}


def test_machines_come_in_the_order_of_time_and_the_later_one_is_marked() -> None:
    senders = [sender("10.0.0.9", 20, suspected=True), sender("10.0.0.1", 10, suspected=False)]
    found = machines({"senders": senders, "witnesses": []})
    assert [(one["address"], one["suspected"]) for one in found] == [("10.0.0.1", False), ("10.0.0.9", True)]


def test_the_frames_are_the_first_and_the_last_witness() -> None:
    assert [len(frames({"witnesses": [{}] * many})) for many in range(4)] == [0, 1, 2, 2]
    assert frames({"witnesses": [{"at": 1}, {"at": 2}, {"at": 3}]}) == [{"at": 1}, {"at": 3}]


def test_stuck_messages_are_not_counted_twice() -> None:
    assert became(INCIDENT | {"lost": 1, "pending": 5, "stuck": 3}) == [(1, "lost"), (3, "stuck"), (2, "more pending")]
    assert became(INCIDENT | {"pending": 5}) == [(5, "pending")]
    assert became(INCIDENT) == []


def test_a_saved_list_holds_more_than_is_shown_and_every_column() -> None:
    row = dict.fromkeys(SAVED.values(), "m") | {"list": "lost", "outcome": "pending", "stuck": True, "numbers": 1}
    row |= {"first_ns": 1_772_526_266_713_599_000, "last_ns": None, "witness": ["10.0.0.1:5>10.0.0.2:1801#0@7"]}
    lists = saved([row] * 700 + [row | {"list": "expired_unseen"}], 5, {})
    assert {name: len(rows) for name, rows in lists.items()} == {"lost": 5 * SAVED_FOR_EACH_LISTED}
    first = dict(zip(SAVED, lists["lost"][0], strict=True))
    assert first["outcome"] == "pending, stuck"
    assert (first["first_seen"], first["last_seen"]) == ("2026-03-03 08:24:26", None)
    assert first["first_address"] == "10.0.0.1"


OWN, OTHER, BY_ROUTER = (
    "10.0.0.3:5>10.0.0.1:1801#0@70",
    "10.0.0.123:5>10.0.0.1:1801#0@9",
    "10.0.1.1:5>10.0.0.1:1801#0@9",
)
MESSAGE: dict[str, Any] = {
    "outcome": "displaced",
    "lost": True,
    "stuck": False,
    "message_id": "w\\7",
    "first_ns": 2_000_000_000,
    "source_queue_manager": "w",
    "session_id": "w->h",
    "witness": [OTHER, OWN],
}


def witness_row(key: str, ns: int, message_id: str = "w\\7") -> dict[str, Any]:
    stream, _, offset = key.rpartition("@")
    return {"stream_id": stream, "stream_offset": int(offset), "captured_ns": ns, "message_id": message_id}


def test_a_displaced_message_came_from_its_own_address_not_from_that_of_the_accepted_one() -> None:
    """Both may have one message ID; the accepted one is the first in time."""
    seen = {OTHER: witness_row(OTHER, 1_000_000_000), OWN: witness_row(OWN, 2_000_000_999)}
    assert addresses_of(MESSAGE, seen) == ["10.0.0.3"]
    assert addresses_of(MESSAGE, {}) == ["10.0.0.123", "10.0.0.3"]  # nothing tells which
    assert addresses_of(MESSAGE | {"witness": [OWN]}, {}) == ["10.0.0.3"]
    assert addresses_of(MESSAGE | {"message_id": None}, seen) == []


def test_a_message_belongs_to_all_machines_that_had_it() -> None:
    incident = {"source_queue_manager": "w", "senders": [sender("10.0.0.3", 1, suspected=False)]}
    rows: dict[str, Any] = {
        "witnesses": [witness_row(OWN, 2_000_000_000)],
        "others": [],
        "incidents": [incident],
        "sessions": [{"session_id": "w->h", "sender": "w", "receiver": "h"}],
        "coverage": [{"session_id": "w->h", "src_ip": "10.0.0.123", "dst_ip": "10.0.0.1"}],
    }
    known = Machines(rows)
    assert known.of(MESSAGE) == ["10.0.0.1", "10.0.0.3", "h", "w"]
    assert known.own(MESSAGE) == "10.0.0.3"
    never_seen = MESSAGE | {"message_id": None, "witness": []}
    assert known.of(never_seen) == ["10.0.0.1", "10.0.0.123", "10.0.0.3", "h", "w"]
    routed = MESSAGE | {"session_id": "r->h", "witness": [BY_ROUTER]}
    assert known.of(routed) == ["10.0.0.1", "10.0.0.123", "10.0.0.3", "10.0.1.1", "h", "r", "w"]
    assert (known.own(never_seen), known.own(routed)) == ("", "")


def test_the_severity_of_a_message_is_that_of_an_incident() -> None:
    said = [("displaced", True, False), ("pending", False, True), ("pending", False, False), ("unknown", None, False)]
    given = [severity(MESSAGE | {"outcome": one, "lost": lost, "stuck": stuck}) for one, lost, stuck in said]
    assert given == ["error", "error", "warning", "warning"]
    assert severity(MESSAGE | {"outcome": "expired_unseen", "lost": False}) == "info"
