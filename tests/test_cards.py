"""The card of an incident, and the lists that can be saved, from rows."""

from typing import Any

from jobs.report_page.cards import became, frames, machines
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
