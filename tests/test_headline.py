"""The headline, from counts by outcome."""

from dataclasses import replace

import pytest

from jobs.app.config import DEFAULTS
from jobs.app.errors import UsageError
from jobs.app.names import Names
from jobs.engine.in_process import InProcess
from jobs.steps import page
from jobs.steps.headline import headline, headline_figures
from schemas.outcomes import Outcome

NOWHERE = {
    f"{what}{part}": value
    for what in ("lost", "stuck", "unacknowledged")
    for part, value in {"": 0, "_since_ns": None, "_queue": None, "_queues": 0}.items()
} | {"resent": 0}


@pytest.mark.parametrize(
    ("counts", "figures", "said"),
    [
        (
            {Outcome.DISPLACED: 84, Outcome.PASSED_BY: 1, Outcome.UNKNOWN: 5, Outcome.DELIVERED: 1000},
            {},
            (
                "85 messages were lost: 84 displaced, 1 passed by. No acknowledgment confirms any of the 1000 accepted "
                "messages. Also: 5 unknown."
            ),
        ),
        ({Outcome.NEVER_SEEN: 1}, {}, "1 message was lost: 1 never seen."),
        (
            {Outcome.DELIVERED: 10, Outcome.DELIVERED_TWICE: 1},
            {"confirmed": 11},
            "Nothing was lost. An acknowledgment confirms all 11 accepted messages.",
        ),
        (
            {Outcome.DELIVERED: 48},
            {"confirmed": 40},
            "Nothing was lost. Of 48 accepted messages, an acknowledgment confirms 40; 8 not confirmed.",
        ),
        (
            {Outcome.DELIVERED: 48},
            {},
            "No loss was seen, and no refusal. No acknowledgment confirms any of the 48 accepted messages.",
        ),
        # A doubt is named in place of "nothing was lost".
        ({Outcome.UNKNOWN: 2}, {}, "No loss was seen, but: 2 unknown."),
        ({Outcome.CONTRADICTED: 3}, {}, "No loss was seen, but: 3 contradicted by the receiver."),
        ({}, {}, "No transactional message was found, so there is nothing to judge."),
        (
            {},
            {"passing_through": 1},
            "1 transactional message was on the way to another queue manager, so there is nothing to judge.",
        ),
        ({Outcome.NEVER_SEEN: 1}, {"missing_bytes": 9}, "1 message was lost: 1 never seen. Also: 9 missing bytes."),
        ({}, {"missing_bytes": 1448}, "No loss was seen, but: 1,448 missing bytes."),
        ({}, {"unjudged": 4}, "No loss was seen, but: 4 transactional messages not judged."),
        ({}, {"errors": 1}, "No loss was seen, but: 1 finding that is an error."),
        (
            {Outcome.PENDING: 5, Outcome.AWAITED: 2, Outcome.EXPIRED_UNSEEN: 1, Outcome.NOT_READ: 3}
            | {Outcome.DELIVERED_AFTER_REFUSAL: 4},
            {"stuck": 1},
            (
                "1 message is stuck, to Q, and still at the end of the captures. No acknowledgment confirms any of the "
                "4 accepted messages. Also: 7 pending (1 of them stuck), 1 expired unseen, 3 not read, 4 delivered "
                "after refusal."
            ),
        ),
        (
            {Outcome.DISPLACED: 21, Outcome.PENDING: 124},
            {"stuck": 104, "errors": 9},
            (
                "21 messages were lost: 21 displaced. 104 messages are stuck, to Q, and still at the end of the "
                "captures. Also: 124 pending (104 of them stuck)."
            ),
        ),
    ],
)
def test_loss_comes_first_then_stuck_messages_or_doubts_then_all_else(
    counts: dict[str, int], figures: dict[str, int], said: str
) -> None:
    stuck = figures.get("stuck", 0)
    places = NOWHERE | {"stuck": stuck, "stuck_queue": "Q", "stuck_queues": 1}
    doubts = {
        name: figures.get(name, 0) for name in ("missing_bytes", "unjudged", "passing_through", "errors", "confirmed")
    }
    assert headline(headline_figures(counts, places, [], Names(), (), **doubts)) == said


def test_loss_and_stuck_messages_have_a_time_a_queue_and_machines_to_blame() -> None:
    places = NOWHERE | {"lost": 21, "lost_since_ns": 1_772_526_266_713_599_000, "lost_queue": "Q", "lost_queues": 2}
    places |= {"stuck": 2, "stuck_queues": 1}
    machines = ["10.20.0.123", "10.20.0.2", "10.20.0.4", "10.20.0.5"]
    names = Names({"10.20.0.2": "South"}, {"q": "Orders"})
    figures = headline_figures(
        {Outcome.DISPLACED: 21, Outcome.PENDING: 3},
        places,
        machines,
        names,
        confirmed=0,
        missing_bytes=0,
        unjudged=0,
        passing_through=0,
        errors=0,
    )
    assert headline(figures) == (
        "21 messages were lost since 2026-03-03 08:24:26 UTC, most of them to Orders (Q): 21 displaced. "
        "2 messages are stuck, to a queue that is not named, and still at the end of the captures. "
        "Go to 10.20.0.123, 10.20.0.2 (South), 10.20.0.4 and 1 more machine. "
        "Also: 3 pending (2 of them stuck)."
    )


def test_a_report_of_a_session_that_is_not_there_is_wrong_use() -> None:
    with pytest.raises(UsageError, match=r"^The tables hold no session b->a\.$"):
        page.values(InProcess(), replace(DEFAULTS, session=("b->a",)), "", Names())
