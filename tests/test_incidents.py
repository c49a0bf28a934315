"""Until when numbers are used twice, by which sequences a scope has, and what the sentence of an incident says.

tests/test_all_findings.py holds incidents to the second computation, tests/test_simulated_nights.py to the truth.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from replay_tables import T0, Tables, replay

from udfs.replay.incidents.stories import Event, OutcomeCount, SenderSpan, SequenceSpan, explain_events

BEGAN = datetime(2026, 3, 2, 18, tzinfo=UTC)
FIRST = 1_772_474_400 << 32 | 1


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def begun(number: int, first: float, last: float) -> Event:
    """A sequence of the scope, whose messages came in these seconds."""
    return event(number, SequenceSpan("queue s q", FIRST + number, "s", at(first), at(last), 9, []))


def event(number: int, of: SequenceSpan | OutcomeCount | SenderSpan | dict[str, Any]) -> Event:
    return Event("queue s q", FIRST + number, of)


@pytest.mark.parametrize(
    ("silent_since", "later", "ongoing"),
    [
        pytest.param(60, 50, True, id="both sent after the last sequence began"),
        pytest.param(60, 90, False, id="one is silent, and the other began a sequence"),
        pytest.param(None, 90, False, id="one machine began a sequence after the last trouble"),
        pytest.param(None, 30, True, id="one machine began no sequence since"),
    ],
)
def test_numbers_are_used_twice_until_a_sequence_begins_without_the_other_machine(
    silent_since: float | None, later: float, *, ongoing: bool
) -> None:
    """A later sequence without any trouble does not end it: a copy fails on the old one, while the other goes on."""
    displaced = OutcomeCount("displaced", 1, 0, 3, 3, at(40), at(40), at(40), [], "s->b", "q", ["q"], [], 0)
    seen = [95] if silent_since is None else [100, silent_since]
    senders = [SenderSpan(f"10.0.0.{i}", at(0), at(last), 2, 1, 1) for i, last in enumerate(seen)]
    of_first = [event(0, displaced), *(event(0, of) for of in senders)]
    _, (incident,), _ = explain_events([begun(0, 0, 95), *of_first, begun(1, later, 100)])
    assert incident["ongoing"] is ongoing


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        (
            [("awaited", 1, 41, 41), ("pending", 9, 42, 50)],
            ": 10 messages are pending or awaited because number 41 did not arrive.",
        ),
        ([("awaited", 3, 41, 43), ("pending", 7, 44, 50)], " because numbers 41 to 43 did not arrive."),
        ([("awaited", 2, 41, 45), ("pending", 8, 42, 50)], " because number 41 and 1 more did not arrive."),
        # Number 40 arrived, too early: the receiver waits for that first.
        ([("pending", 9, 40, 50), ("awaited", 2, 41, 42)], ": 11 messages are pending or awaited."),
        (
            [("displaced", 4, 3, 9), ("passed_by", 2, 10, 11)],
            (
                " only one message of each number; besides, messages did not arrive in their turn: 6 messages were "
                "lost (4 displaced, 2 passed by)."
            ),
        ),
        ([("displaced", 4, 3, 9)], " only one message of each number: 4 messages were lost."),
        ([("given_up", 4, 3, 9), ("passed_by", 2, 10, 11)], "refused it or those after it: 6 messages were lost."),
    ],
)
def test_the_sentence_says_what_is_missing_and_all_causes_of_loss(
    outcomes: list[tuple[str, int, int, int]], said: str
) -> None:
    events = [begun(0, 0, 90)]
    for outcome, numbers, low, high in outcomes:
        count = OutcomeCount(outcome, numbers, 0, low, high, at(1), at(2), at(1), [], "s->b", "q", ["q"], [], 0)
        events.append(event(0, count))
    _, (incident,), _ = explain_events(events)
    assert incident["explanation"].endswith(said)


@pytest.mark.parametrize(
    ("outcomes", "cause"),
    [
        (["delivered_after_refusal", "unacknowledged"], "never_answered"),
        (["pending", "unacknowledged"], "message_missing"),
        (["passed_by", "unacknowledged"], "message_missing"),
        (["displaced", "unacknowledged"], "number_reused"),
    ],
)
def test_what_came_out_of_turn_and_was_accepted_in_the_end_is_not_why_a_receiver_never_acknowledged(
    outcomes: list[str], cause: str
) -> None:
    found = {"found_at": at(1), "session_id": "s->b", "destination_queue": "q", "witness": [], "severity": "warning"}
    shown: list[Any] = [found | {"kind": kind} for kind in ("out_of_order", "never_answered")]
    for number, outcome in enumerate(outcomes, 3):
        shown.append(OutcomeCount(outcome, 1, 0, number, number, at(1), at(2), at(1), [], "s->b", "q", ["q"], [], 0))
    _, (incident,), _ = explain_events([begun(0, 0, 90), *(event(0, one) for one in shown)])
    assert incident["cause"] == cause


@pytest.mark.parametrize(("covered", "accepted"), [(False, 0), (True, 2)])
def test_what_rests_on_an_assumed_state_is_accepted_only_if_an_acknowledgment_says_so(
    covered: bool, accepted: int
) -> None:
    tables, stream = Tables(), "10.0.0.1:5>10.0.0.9:1801#0"
    tables.stream(stream, "10.0.0.1", "10.0.0.9", connection_id="A")
    tables.stream("A<", "10.0.0.9", "10.0.0.1")
    for at, number in enumerate((7, 8, 9, 11)):  # the receiver may stand at 5, and refuse all of them
        tables.message((stream, 10 * at), T0 + at, (1, number, number - 1), message_id=rf"source\{number}")
    if covered:
        tables.ack("A<", T0 + 10, (1, 9))
    (incident,) = replay(tables.sources()).incidents.to_dicts()
    assert [(one["messages"], one["accepted"]) for one in incident["senders"]] == [(4, accepted)]
