"""The card of an incident, and the lists that can be saved, from rows."""

from collections import defaultdict
from typing import Any

import pytest

from jobs.report_page.messages import SAVED, Machines, saved, severity
from udfs.replay.advice import machines_of


def sender(address: str, first_ns: int | None, *, suspected: bool) -> dict[str, Any]:
    return {"address": address, "first_ns": first_ns, "messages": 4, "suspected": suspected}


def test_a_saved_list_holds_every_column_of_its_messages() -> None:
    row = dict.fromkeys(SAVED.values(), "m") | {"list": "lost", "outcome": "pending", "stuck": True, "numbers": 1}
    row |= {"lost": True, "session_id": "w->h"}
    row |= {"first_ns": 1_772_526_266_713_599_000, "last_ns": None, "witness": ["10.0.0.1:5>10.0.0.2:1801#0@7"]}
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    lists = saved(rows | {"saved_messages": [row, row, row | {"list": "expired_unseen"}]})["lists"]
    assert {name: len(rows) for name, rows in lists.items()} == {"lost": 2}
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


@pytest.mark.parametrize(
    ("message", "seen", "addresses"),
    [
        ({}, [(OTHER, 1_000_000_000), (OWN, 2_000_000_999)], ["10.0.0.3"]),
        ({}, [], ["10.0.0.123", "10.0.0.3"]),  # nothing tells which
        ({"witness": [OWN]}, [], ["10.0.0.3"]),
        ({"message_id": None}, [(OWN, 2_000_000_000)], []),
    ],
)
def test_a_displaced_message_came_from_its_own_address_not_from_that_of_the_accepted_one(
    message: dict[str, Any], seen: list[tuple[str, int]], addresses: list[str]
) -> None:
    """Both may have one message ID; the accepted one is the first in time."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    known = Machines(rows | {"witnesses": [witness_row(*one) for one in seen]})
    assert known.sent_from(MESSAGE | message) == addresses


def test_a_message_belongs_to_all_machines_that_had_it() -> None:
    incident = {"source_queue_manager": "w", "senders": [sender("10.0.0.3", 1, suspected=False)]}
    rows: dict[str, Any] = {
        "witnesses": [witness_row(OWN, 2_000_000_000)],
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


@pytest.mark.parametrize(
    ("cause", "outcome", "suspected", "machines"),
    [
        ("number_reused", "lost", {"10.0.0.3": False, "10.0.0.9": True}, ["10.0.0.9"]),
        ("number_reused", "lost", {"10.0.0.3": False}, ["10.0.0.3"]),
        ("message_missing", "pending", {"10.0.0.2": False}, ["10.0.0.2"]),
        ("message_missing", "pending", {}, ["s"]),
        ("refused_for_cause", "lost", {"10.0.0.2": False}, ["r"]),
        ("capture_incomplete", "unknown", {"10.0.0.2": False}, ["r"]),
        ("acknowledgment", "repaired", {"10.0.0.2": False}, []),
    ],
)
def test_an_operator_goes_to_the_copy_or_else_to_the_sender_or_the_receiver(
    cause: str, outcome: str, suspected: dict[str, bool], machines: list[str]
) -> None:
    senders = [sender(address, 1, suspected=is_copy) for address, is_copy in suspected.items()]
    ends = {"session_id": "router->r", "source_queue_manager": "s"}
    assert machines_of({"cause": cause, "outcome": outcome, "senders": senders, **ends}) == machines


def test_the_severity_of_a_message_is_that_of_an_incident() -> None:
    said = [("displaced", True, False), ("pending", False, True), ("pending", False, False), ("unknown", None, False)]
    given = [severity(MESSAGE | {"outcome": one, "lost": lost, "stuck": stuck}) for one, lost, stuck in said]
    assert given == ["error", "error", "warning", "warning"]
    assert severity(MESSAGE | {"outcome": "expired_unseen", "lost": False}) == "info"
