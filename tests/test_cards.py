"""The card of an incident, and the lists that can be saved, from rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.report_page.messages import SAVED, Machines, saved, severity
from udfs.replay.incidents.advice import machines_of

MESSAGE: dict[str, Any] = dict.fromkeys(SAVED.values(), "m") | {
    "list": "lost",
    "outcome": "displaced",
    "lost": True,
    "stuck": False,
    "message_id": "w\\7",
    "source_queue_manager": "w",
    "session_id": "w->h",
    "address": "10.0.0.3",
    "first_ns": 1_772_526_266_713_599_000,
    "last_ns": None,
}


def sender(address: str, *, suspected: bool = False, came_s: int = 0) -> dict[str, Any]:
    first_seen_at = datetime(2026, 3, 2, 8, tzinfo=UTC) + timedelta(seconds=came_s)
    return {"address": address, "suspected": suspected, "first_seen_at": first_seen_at}


def test_a_saved_list_holds_every_column_of_its_messages() -> None:
    stuck = MESSAGE | {"outcome": "pending", "stuck": True}
    rows: dict[str, Any] = {"sessions": [], "incidents": [], "earlier": []}
    found = saved(rows | {"saved_messages": [stuck, MESSAGE, MESSAGE | {"list": "expired_unseen"}]})
    assert {name: len(rows) for name, rows in found["lists"].items()} == {"lost": 2}
    *values, severity_of_first, machines = found["lists"]["lost"][0]
    first = dict(zip(SAVED, values, strict=True))
    assert (first["outcome"], first["first_address"]) == ("pending, stuck", "10.0.0.3")
    assert (first["first_seen"], first["last_seen"]) == ("2026-03-03 08:24:26", None)
    assert (severity_of_first, found["machines"][machines]) == ("error", "10.0.0.3 h w")


@pytest.mark.parametrize(
    ("message", "machines"),
    [
        ({}, ["10.0.0.1", "10.0.0.3", "h", "w"]),
        ({"message_id": None, "address": None}, ["10.0.0.1", "10.0.0.123", "10.0.0.9", "h", "w"]),  # never seen
        (
            {"session_id": "r->h", "address": "10.0.1.1"},
            ["10.0.0.1", "10.0.0.123", "10.0.0.9", "10.0.1.1", "h", "r", "w"],
        ),
    ],
)
def test_a_message_belongs_to_all_machines_that_had_it(message: dict[str, Any], machines: list[str]) -> None:
    rows: dict[str, Any] = {
        "incidents": [],
        "earlier": [{"source_queue_manager": "w", "senders": [sender("10.0.0.9")]}],
        "sessions": [{"sender": "w", "receiver": "h", "src_ip": "10.0.0.123", "dst_ip": "10.0.0.1"}],
    }
    assert Machines(rows).of(MESSAGE | message) == machines


@pytest.mark.parametrize(
    ("cause", "outcome", "senders", "machines"),
    [
        ("number_reused", "lost", [sender("10.0.0.3"), sender("10.0.0.9", suspected=True, came_s=61)], ["10.0.0.9"]),
        # It came so soon after the other one that either may be the copy.
        (
            "number_reused",
            "lost",
            [sender("10.0.0.3"), sender("10.0.0.9", suspected=True, came_s=59)],
            ["10.0.0.3", "10.0.0.9"],
        ),
        ("message_missing", "pending", [sender("10.0.0.2")], ["10.0.0.2"]),
        ("message_missing", "pending", [], ["s"]),
        ("refused_for_cause", "lost", [sender("10.0.0.2")], ["r"]),
        ("acknowledgment", "repaired", [sender("10.0.0.2")], []),
    ],
)
def test_an_operator_goes_to_the_copy_or_else_to_the_sender_or_the_receiver(
    cause: str, outcome: str, senders: list[dict[str, Any]], machines: list[str]
) -> None:
    ends = {"session_id": "router->r", "source_queue_manager": "s", "receivers": []}
    assert machines_of({"cause": cause, "outcome": outcome, "senders": senders, **ends}) == machines


@pytest.mark.parametrize(
    ("outcome", "lost", "stuck", "grave"),
    [
        ("displaced", True, False, "error"),
        ("pending", False, True, "error"),
        ("pending", False, False, "warning"),
        ("unknown", None, False, "warning"),
        ("expired_unseen", False, False, "info"),
    ],
)
def test_the_severity_of_a_message_is_that_of_an_incident(
    outcome: str, lost: bool | None, stuck: bool, grave: str
) -> None:
    assert severity({"outcome": outcome, "lost": lost, "stuck": stuck}) == grave
