"""The headline, from counts by outcome."""

from dataclasses import replace
from typing import Any

import pytest

from jobs.cli.config import DEFAULTS
from jobs.cli.errors import UsageError
from jobs.cli.names import Names
from jobs.commands import page
from jobs.commands.headline import UNCONFIRMED, headline
from jobs.commands.headline_figures import Facts, Way, certainties, headline_figures
from jobs.engines.in_process import InProcess
from schemas.incidents import Cause
from schemas.outcomes import Outcome
from udfs.replay.incidents.advice import certainty_of, sentence_of
from udfs.report.incidents import HARM
from udfs.report.lacks import Lacks
from udfs.report.messages import PLACED
from udfs.report.summary import Shown

DISPLACED, PASSED_BY = "displaced (another message has the number)", "passed by (refused, and the receiver went on)"
NEVER_SEEN, EXPIRED = "never seen (and the receiver went on)", "expired unseen (skipped by their sender)"
NO_WAYS: dict[str, Way] = dict.fromkeys(HARM, ((), ()))
NOWHERE: dict[str, Any] = {
    f"{what}{part}": value
    for what in PLACED
    for part, value in {"": 0, "_since_ns": None, "_queue": None, "_in_queue": 0, "_queues": 0}.items()
} | dict.fromkeys(("resent", "silent", "twice", "undecided", "by_clocks", "early"), 0)
NOWHERE |= {"classes": []}


@pytest.mark.parametrize(
    ("counts", "figures", "said"),
    [
        (
            {Outcome.DISPLACED: 84, Outcome.PASSED_BY: 1, Outcome.UNKNOWN: 5, Outcome.DELIVERED: 1000},
            {},
            (
                f"85 messages were lost: 84 {DISPLACED}, 1 {PASSED_BY}.\nNone of 1,005 confirmed by the receiver, "
                "1,000 inferred from the rules. Also: 5 unknown."
            ),
        ),
        ({Outcome.NEVER_SEEN: 1}, {}, f"1 message was lost: 1 {NEVER_SEEN}."),
        # Before the captures, the receiver may have taken what it refuses now.
        (
            {Outcome.PASSED_BY: 26},
            {"early": 23},
            (
                f"26 messages were lost: 26 {PASSED_BY}. 23 of them were sent before the captures begin, and may have "
                "been taken then: before sending again, look into the queue, and whether the application has them "
                "already."
            ),
        ),
        # The receiver says that it has them, and its sender does not hear it.
        (
            {Outcome.DELIVERED: 11},
            {"confirmed": 11, "unheard": 1},
            (
                "Nothing was lost, but: 1 sequence sent again and again although its receiver acknowledged it.\n11 of "
                "11 confirmed by the receiver."
            ),
        ),
        (
            {Outcome.DELIVERED: 1},
            {"confirmed": 1, "missing_bytes": 1448, "cut": 3},
            (
                "No loss was seen, but: 1,448 missing bytes (3 segments cut short: capture whole frames, tcpdump -s "
                "0).\n1 of 1 confirmed by the receiver."
            ),
        ),
        (
            {Outcome.DELIVERED: 10, Outcome.DELIVERED_TWICE: 1},
            {"confirmed": 11, "twice": 1},
            "Nothing was lost, but: 1 delivered twice.\n11 of 11 confirmed by the receiver.",
        ),
        # One that two receivers accepted is one message.
        (
            {Outcome.DELIVERED: 10, Outcome.DELIVERED_TWICE: 4, Outcome.NOT_READ: 3},
            {"confirmed": 14, "twice": 2},
            (
                "Nothing was lost, but: 2 delivered twice (each to two receivers), 3 not read.\n14 of 14 confirmed by "
                "the receiver."
            ),
        ),
        (
            {Outcome.DELIVERED: 48},
            {"confirmed": 40, "first_ns": 1_772_526_266_713_599_000, "last_ns": 1_772_526_386_000_000_000},
            (
                "Nothing was lost.\n2026-03-03 08:24:26 to 08:26:26 UTC, 40 of 48 confirmed by the receiver, 8 "
                "inferred from the rules."
            ),
        ),
        (
            {Outcome.DELIVERED: 48},
            {"confirmed": 40, "senders": 3, "queues": 2}
            | {"first_ns": 1_772_526_266_713_599_000, "last_ns": 1_772_586_266_713_599_000},
            (
                "Nothing was lost.\n2026-03-03 08:24:26 to 2026-03-04 01:04:26 UTC, 3 senders, 2 queues, 40 of 48 "
                "confirmed by the receiver, 8 inferred from the rules."
            ),
        ),
        # A message that was never acknowledged is one that the receiver did not confirm.
        (
            {Outcome.DELIVERED: 40, Outcome.UNACKNOWLEDGED: 8},
            {"confirmed": 40, "unacknowledged": 8},
            "8 messages were never acknowledged, to Q.\n40 of 48 confirmed by the receiver.",
        ),
        (
            {Outcome.DELIVERED: 9},
            {"confirmed": 9, "not_read": 4, "not_read_since_ns": 1_772_526_266_713_599_000},
            (
                "Nothing was lost.\n9 of 9 confirmed by the receiver. Also: 4 accepted, not read yet since 2026-03-03 "
                "08:24:26 UTC."
            ),
        ),
        # A FinalAck that the captures missed says that a message was read, or why it was refused.
        (
            {Outcome.DELIVERED: 9},
            {"confirmed": 9, "not_read": 4, "missing_bytes": 264},
            (
                "No loss was seen, but: 264 missing bytes.\n9 of 9 confirmed by the receiver. Also: 4 accepted, not "
                "read yet (or read or refused: what their receivers said of it may be in the missing bytes)."
            ),
        ),
        (
            {Outcome.DELIVERED: 9, Outcome.EXPIRED_UNSEEN: 2},
            {"confirmed": 9, "expired_unseen": 2},
            (
                "Nothing was lost.\n9 of 9 confirmed by the receiver. Also: 2 expired unseen (skipped by their sender, "
                "to Q)."
            ),
        ),
        (
            {Outcome.DELIVERED: 48},
            {},
            (
                f"No loss was seen, and no refusal. {UNCONFIRMED}\n"
                "None of 48 confirmed by the receiver, 48 inferred from the rules."
            ),
        ),
        # Why a receiver refused messages is said at once.
        (
            {Outcome.REFUSED_FOR_CAUSE: 2},
            {"classes": [0x8004]},
            (
                "2 messages were lost: 2 did not reach their queue, as their sender was told (the sender has no access "
                "to the queue)."
            ),
        ),
        # Of two clocks that nothing compares, either may be right.
        (
            {Outcome.DELIVERED: 3, Outcome.UNKNOWN: 2},
            {"confirmed": 3, "by_clocks": 2},
            "No loss was seen, but: 2 unknown.\n3 of 5 confirmed by the receiver, 2 depend on clocks.",
        ),
        # Where most of what was delivered rests on the rules alone, and where a capture or a connection broke off,
        # not all is well.
        (
            {Outcome.DELIVERED: 10},
            {"confirmed": 4, "broken": 1, "failed": ["A could not connect to B.", "A could not connect to C."]},
            (
                "No loss was seen, but: 1 capture that cannot be read in whole, 6 that no acknowledgment confirms, 1 "
                "machine that could not connect.\n4 of 10 confirmed by the receiver, 6 inferred from the rules."
            ),
        ),
        # A doubt is named in place of "nothing was lost".
        (
            {Outcome.DELIVERED: 10},
            {"confirmed": 10, "missing_files": 1},
            "No loss was seen, but: 1 missing file.\n10 of 10 confirmed by the receiver.",
        ),
        (
            {Outcome.DELIVERED: 10},
            {"confirmed": 10, "damaged": 2},
            "No loss was seen, but: 2 damaged segments.\n10 of 10 confirmed by the receiver.",
        ),
        ({Outcome.UNKNOWN: 2}, {}, "No loss was seen, but: 2 unknown.\nNone of 2 confirmed by the receiver."),
        (
            {Outcome.UNKNOWN: 16},
            {"undecided": 8},
            (
                "8 messages were lost; which machine's is not known: nothing compares the clocks of these captures. In "
                "doubt: 16 unknown.\nNone of 16 confirmed by the receiver."
            ),
        ),
        (
            {Outcome.UNKNOWN: 2, Outcome.PASSED_BY: 1},
            {"undecided": 1},
            (
                f"1 message was lost: 1 {PASSED_BY}.\nNone of 2 confirmed by the receiver. Also: 1 more lost, of which "
                "nothing compares the clocks, so whose is not known, 2 unknown."
            ),
        ),
        (
            {Outcome.CONTRADICTED: 3},
            {},
            "No loss was seen, but: 3 contradicted by the receiver.\nNone of 3 confirmed by the receiver.",
        ),
        ({}, {}, "No transactional message was found, so there is nothing to judge."),
        (
            {},
            {"passing_through": 1},
            "1 transactional message was on the way to another queue manager, so there is nothing to judge.",
        ),
        (
            {Outcome.NEVER_SEEN: 1},
            {"missing_bytes": 9_000, "broken": 1, "missing_files": 2, "damaged": 3},
            (
                f"1 message was lost: 1 {NEVER_SEEN}. The captures lack 9,000 bytes, 2 files of their series, what "
                "cannot be read of 1 capture and what was sent in 3 damaged segments, which may hold deliveries and "
                "acknowledgments of these messages, and other losses. What is in a damaged segment may look like "
                "another message: some may not be lost."
            ),
        ),
        (
            {Outcome.UNACKNOWLEDGED: 7},
            {"unacknowledged": 7, "one_way": 2, "streams": 5, "silent": 7}
            | {"silences": {Cause.CANNOT_CONNECT: 4, Cause.NEVER_ANSWERED: 3}},
            (
                "7 messages were never acknowledged, to Q; the next resend was due before the captures end, and did "
                "not come. The receiver could not connect back to the sender (4); the captures do not show why (3). "
                "The captures "
                "lack the way back of 2 of 5 streams, which may hold deliveries and acknowledgments of these messages, "
                "and other losses.\n"
                "None of 7 confirmed by the receiver."
            ),
        ),
        # Where nothing of any way back was captured, that comes first.
        (
            {Outcome.UNACKNOWLEDGED: 7},
            {"unacknowledged": 7, "one_way": 5, "streams": 5},
            (
                "The captures hold one direction only: what was refused follows from the rules, and nothing tells what "
                "was acknowledged. 7 messages were sent again and again, to Q: look whether they are still in the "
                "outgoing queues of their senders.\nNone of 7 confirmed by the receiver."
            ),
        ),
        (
            {Outcome.UNACKNOWLEDGED: 7, Outcome.DELIVERED: 2},
            {"unacknowledged": 7, "confirmed": 2, "one_way": 5, "streams": 5},
            (
                "The captures hold one direction only: what was refused follows from the rules, and little tells what "
                "was acknowledged. 7 messages were sent again and again, to Q: look whether they are still in the "
                "outgoing queues of their senders.\n2 of 9 confirmed by the receiver."
            ),
        ),
        (
            {Outcome.UNKNOWN: 2},
            {"begun": 4, "streams": 5},
            (
                "No loss was seen, but: 2 unknown. The captures lack the beginning of 4 of 5 streams, which may hold "
                "deliveries and acknowledgments of these messages, and other losses.\n"
                "None of 2 confirmed by the receiver."
            ),
        ),
        (
            {},
            {"missing_bytes": 1448, "why": "The captures hold 9 acknowledgments."},
            (
                "No transactional message was found, so there is nothing to judge. The captures hold 9 "
                "acknowledgments. In doubt: 1,448 missing bytes."
            ),
        ),
        (
            {},
            {"missing_bytes": 1448, "unfit": "All frames are cut short."},
            "All frames are cut short.",
        ),
        (
            {Outcome.UNKNOWN: 2},
            {"missing_bytes": 1448, "unfit": ""},
            "No loss was seen, but: 2 unknown, 1,448 missing bytes.\nNone of 2 confirmed by the receiver.",
        ),
        (
            {},
            {"unjudged": 4},
            (
                "No loss was seen, but: 4 arrivals of transactional messages not judged (no packet names their "
                "receiver, which may only pass them on: capture connections from their beginning)."
            ),
        ),
        # What the receiver waits for is no loss, and not all is well.
        (
            {Outcome.DELIVERED: 10, Outcome.PENDING: 9, Outcome.AWAITED: 1},
            {"confirmed": 10},
            (
                "Nothing was lost so far, but: 9 pending, 1 awaited. The receiver refuses the pending ones until what "
                "comes before them arrives.\n10 of 20 confirmed by the receiver."
            ),
        ),
        (
            {Outcome.UNKNOWN: 2, Outcome.PENDING: 9},
            {},
            "No loss was seen, but: 2 unknown, 9 pending.\nNone of 11 confirmed by the receiver.",
        ),
        (
            {},
            {"failed": ["A could not connect to B.", "C could not connect to D."]},
            (
                "A could not connect to B. No transactional message was found: if there are any for there, they wait "
                "in outgoing queues."
            ),
        ),
        (
            {},
            {"errors": 1},
            "No transactional message was found, so there is nothing to judge. In doubt: 1 finding that is an error.",
        ),
        (
            {Outcome.PENDING: 5, Outcome.AWAITED: 2, Outcome.EXPIRED_UNSEEN: 1, Outcome.NOT_READ: 3}
            | {Outcome.DELIVERED_AFTER_REFUSAL: 4},
            {"stuck": 1},
            (
                "1 message is stuck, to Q, and still at the end of the captures.\n"
                "None of 11 confirmed by the receiver, 4 inferred from the rules. "
                f"Also: 5 pending (1 of them stuck), 2 awaited, 3 not read, 1 {EXPIRED}, 4 delivered after refusal."
            ),
        ),
        (
            {Outcome.DISPLACED: 21, Outcome.PENDING: 124},
            {"stuck": 104, "errors": 9},
            (
                f"21 messages were lost: 21 {DISPLACED}.\n104 messages are stuck, to Q, and still at the end of the "
                "captures.\nNone of 124 confirmed by the receiver. Also: 124 pending (104 of them stuck)."
            ),
        ),
    ],
)
def test_loss_comes_first_then_stuck_messages_or_doubts_then_all_else(
    counts: dict[str, int], figures: dict[str, Any], said: str
) -> None:
    places = NOWHERE | {
        f"{what}{part}": value
        for what in ("stuck", "unacknowledged", "expired_unseen")
        for part, value in {"": figures.get(what, 0), "_queue": "Q", "_in_queue": 1, "_queues": 1}.items()
    }
    places |= {"undecided": figures.get("undecided", 0), "classes": figures.get("classes", [])}
    places |= {name: figures.get(name, 0) for name in ("by_clocks", "resent", "silent", "twice", "early")}
    shown = Shown(**{name: figures[name] for name in Shown._fields if name in figures})
    shown = shown._replace(lacks=Lacks(**{name: figures[name] for name in Lacks._fields if name in figures}))
    others = {name: value for name, value in figures.items() if name in Facts._fields}
    facts = Facts(counts, places, ways=NO_WAYS, shown=shown, **others)
    assert headline(headline_figures(facts, Names())) == said


def test_each_message_is_on_one_rung_of_certainty() -> None:
    counts: dict[str, int] = {
        Outcome.DELIVERED: 48,
        Outcome.NOT_READ: 2,
        Outcome.REFUSED_FOR_CAUSE: 1,
        Outcome.PASSED_BY: 3,
        Outcome.PENDING: 4,
        Outcome.AWAITED: 1,
        Outcome.UNKNOWN: 7,
        Outcome.UNACKNOWLEDGED: 5,
        Outcome.EXPIRED_UNSEEN: 9,
    }
    found = certainties(counts, confirmed=40, by_clocks=6)
    assert found == {"confirmed": 43, "inferred": 16, "clocks": 6, "unknown": 6}
    assert sum(found.values()) == sum(counts.values()) - 9


@pytest.mark.parametrize(
    ("cause", "outcome", "undecided", "certainty"),
    [
        ("refused_for_cause", "lost", 0, "confirmed by an acknowledgment"),
        ("message_missing", "lost", 0, "inferred from the rules"),
        ("never_answered", "unacknowledged", 0, "unknown"),
        ("capture_incomplete", "unknown", 0, "unknown"),
        ("number_reused", "unknown", 1, "depends on clocks"),
    ],
)
def test_an_incident_says_how_sure_it_is(cause: str, outcome: str, undecided: int, certainty: str) -> None:
    assert certainty_of({"cause": cause, "outcome": outcome, "undecided": undecided}) == certainty


def test_an_incident_that_clocks_decide_says_so() -> None:
    counts = dict.fromkeys(("lost", "pending", "unacknowledged", "repaired", "expired", "stuck"), 0) | {"unknown": 2}
    said = sentence_of(1, 0, Cause.NUMBER_REUSED, counts, {}, "", undecided=1)
    assert "nothing compares the clocks of these captures" in said


def test_loss_and_stuck_messages_have_a_time_a_queue_and_machines_to_blame() -> None:
    places = NOWHERE | {"lost": 21, "lost_since_ns": 1_772_526_266_713_599_000, "lost_queue": "Q"}
    places |= {"lost_in_queue": 13, "lost_queues": 2}
    places |= {"stuck": 2, "stuck_queues": 1}
    machines = {"10.20.0.123": "", "10.20.0.2": "sender", "10.20.0.4": "sender", "10.20.0.5": "sender"}
    ways = NO_WAYS | {
        "lost": (["10.20.0.2"], ["10.0.0.1"]),
        "stuck": (["10.20.0.2", "10.20.0.4", "10.20.0.5"], ["10.0.0.1"]),
    }
    names = Names({"10.20.0.2": "South"}, {"q": "Orders"})
    facts = Facts({Outcome.DISPLACED: 21, Outcome.PENDING: 3}, places, machines, ways)
    assert headline(headline_figures(facts, names)) == (
        "21 messages were lost since 2026-03-03 08:24:26 UTC, from 10.20.0.2 (South) to 10.0.0.1, 13 of them to "
        f"Orders (Q): 21 {DISPLACED}.\n2 messages are stuck, from 3 senders to 10.0.0.1, to a queue "
        "that is not named, and still at the end of the captures. "
        "Go to 10.20.0.123 first; the incidents name 3 more machines.\n"
        "None of 3 confirmed by the receiver. Also: 3 pending (2 of them stuck)."
    )


@pytest.mark.parametrize(
    ("what", "counts", "said"),
    [
        ("pending", {Outcome.PENDING: 3}, "No loss was seen so far, but: 3 pending since 2026-03-03 08:24:26 UTC, "),
        ("unknown", {Outcome.UNKNOWN: 2}, "No loss was seen, but: 2 unknown since 2026-03-03 08:24:26 UTC, "),
    ],
)
def test_pending_and_unknown_messages_have_a_time_a_way_and_machines_to_look_at(
    what: str, counts: dict[str, int], said: str
) -> None:
    there = {"": 3, "_since_ns": 1_772_526_266_713_599_000, "_queue": "Q", "_in_queue": 3, "_queues": 1}
    places = NOWHERE | {f"{what}{part}": value for part, value in there.items()}
    ways = NO_WAYS | {what: (["10.20.0.2"], ["10.0.0.1"])}
    facts = Facts(counts, places, {"10.20.0.2": "sender"}, ways)
    first = headline(headline_figures(facts, Names())).partition("\n")[0]
    assert first.startswith(f"{said}from 10.20.0.2 to 10.0.0.1, to Q.")
    assert first.endswith("Go to 10.20.0.2 (sender).")


def test_a_report_of_a_session_that_is_not_there_is_wrong_use() -> None:
    with pytest.raises(UsageError, match=r"^The tables hold no session b->a\.$"):
        page.values(InProcess(), replace(DEFAULTS, session=("b->a",)), "", Names())
