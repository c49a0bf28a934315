"""Incidents: one cause is one story, whatever the number of findings and sequences that tell of it."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from jobs.engine.in_process import InProcess
from jobs.replaying.explaining import put_together
from schemas.explained import FOUND, keyed
from schemas.outcomes import OUTCOMES, Outcome
from schemas.replay import FINDINGS, SEQUENCES, VERDICTS, FindingKind, Severity

Row = dict[str, Any]
BEGAN = datetime(2026, 3, 2, 18, tzinfo=UTC)
FIRST = 1_772_474_400 << 32 | 1  # 2026-03-02T18:00:00Z#1


class Story:
    """The rows of one scope; times are seconds after BEGAN, sequences are 0, 1 and so on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: dict[str, list[Row]] = {table.name: [] for table in (SEQUENCES, OUTCOMES, FINDINGS)}

    def _common(self, sequence: int) -> Row:
        return {
            "scope_key": f"queue {self.name} q",
            "tx_sequence_id": FIRST + sequence,
            "source_queue_manager": self.name,
            "session_id": f"{self.name}->b",
            "destination_queue": "q",
        }

    def sequence(self, sequence: int, first: float, last: float, accepted: int | None) -> None:
        """A sequence whose messages came from `first` to `last`, the highest accepted one being `accepted`."""
        times = {"first_captured_at": _at(first), "last_captured_at": _at(last)}
        row = self._common(sequence) | {"tx_sequence": "", "last_accepted_number": accepted} | times
        self.rows["sequences"].append(row)

    def outcome(self, sequence: int, outcome: Outcome, *numbers: int, at: float | None = None, **more: Any) -> None:
        """What became of messages with these numbers, seen once, or never where `at` is None."""
        seen = {} if at is None else {"first_seen_at": _at(at), "last_seen_at": _at(at)}
        for number in numbers:
            row: Row = {"tx_sequence_number": number, "numbers": 1, "outcome": outcome.value, "stuck": False}
            witness = {"witness": [f"{self.name}@{number}"]}
            self.rows["outcomes"].append(self._common(sequence) | row | witness | seen | more)

    def finding(self, sequence: int | None, kind: FindingKind, severity: Severity, at: float) -> None:
        """A finding about a sequence, or about none."""
        row = {"kind": kind.value, "severity": severity.value, "found_at": _at(at), "witness": [f"{self.name}@{kind}"]}
        own = self._common(sequence or 0)
        self.rows["findings"].append(own | row | ({"tx_sequence_id": None} if sequence is None else {}))


def _at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def straggler(s: Story) -> None:
    """Refused, then accepted: one cause with three findings."""
    s.sequence(0, 0, 100, 9)
    s.outcome(0, Outcome.DELIVERED_AFTER_REFUSAL, 4, 5, at=10, accepted_at=_at(40))
    for kind in (FindingKind.OUT_OF_ORDER, FindingKind.RESEND_SCHEDULE, FindingKind.DUPLICATES):
        s.finding(0, kind, Severity.INFO, 10)


def given_up(s: Story) -> None:
    """A message that never came holds up two, which the sender skips."""
    s.sequence(0, 0, 100, 9)
    s.outcome(0, Outcome.EXPIRED_UNSEEN, 4)
    s.outcome(0, Outcome.GIVEN_UP, 5, 6, at=10)
    s.outcome(0, Outcome.DELIVERED_AFTER_REFUSAL, 7, at=12, accepted_at=_at(50))
    s.finding(0, FindingKind.OUT_OF_ORDER, Severity.ERROR, 10)
    s.finding(0, FindingKind.GAP_EXPIRED, Severity.WARNING, 20)


def stuck(s: Story) -> None:
    """Resent and refused to the end; another sequence before it was fine."""
    s.sequence(0, 0, 50, 3)
    s.sequence(1, 60, 200, 3)
    s.outcome(1, Outcome.AWAITED, 4)
    s.outcome(1, Outcome.PENDING, 5, 6, at=70, stuck=True)
    s.finding(1, FindingKind.STUCK_SEQUENCE, Severity.WARNING, 100)


def replaced(s: Story) -> None:
    """A sequence ends with lost messages, and the next one is in trouble from its first message on."""
    s.sequence(0, 0, 50, 3)
    s.outcome(0, Outcome.PASSED_BY, 5, at=20)
    s.finding(0, FindingKind.OUT_OF_ORDER, Severity.ERROR, 20)
    s.sequence(1, 60, 200, 9)
    s.outcome(1, Outcome.DELIVERED_AFTER_REFUSAL, 2, at=60, accepted_at=_at(80))
    s.finding(1, FindingKind.OUT_OF_ORDER, Severity.INFO, 60)


def alternating(s: Story) -> None:
    """Two machines with one identity: the later sequence begins while the earlier one still sends."""
    s.sequence(0, 0, 90, 3)
    s.outcome(0, Outcome.PASSED_BY, 4, at=80)
    s.finding(0, FindingKind.SEQUENCE_REGRESSED, Severity.ERROR, 80)
    s.sequence(1, 60, 200, 9)
    s.outcome(1, Outcome.DISPLACED, 2, at=100)
    s.finding(1, FindingKind.DUPLICATES_DIFFER, Severity.ERROR, 100)


def cloned(s: Story) -> None:
    """Two machines with one identity use three sequences; the one in between happens to go well."""
    for sequence, lost in enumerate((2, 0, 1)):
        s.sequence(sequence, sequence * 100, sequence * 100 + 50, 9)
        s.outcome(sequence, Outcome.DISPLACED, *range(1, lost + 1), at=sequence * 100 + 10)
    s.finding(2, FindingKind.DUPLICATES_DIFFER, Severity.ERROR, 210)


def cloned_later(s: Story) -> None:
    """Numbers used again long after another trouble, which was over: two causes."""
    s.sequence(0, 0, 50, 9)
    s.outcome(0, Outcome.DELIVERED_AFTER_REFUSAL, 4, at=10, accepted_at=_at(40))
    s.sequence(1, 100, 150, 9)
    s.outcome(1, Outcome.DISPLACED, 3, at=110)


def cloned_around(s: Story) -> None:
    """Numbers used again, another trouble, numbers used again: of the two like stories only the last goes on."""
    s.sequence(0, 0, 50, 9)
    s.outcome(0, Outcome.DISPLACED, 3, at=10)
    s.sequence(1, 100, 150, 9)
    s.outcome(1, Outcome.DELIVERED_AFTER_REFUSAL, 4, at=110, accepted_at=_at(140))
    s.sequence(2, 200, 250, 9)
    s.outcome(2, Outcome.DISPLACED, 3, at=210)


def hours_apart(s: Story) -> None:
    """Two sequences in a row, each with a trouble of its own: the first was over before the second began."""
    s.sequence(0, 0, 50, 9)
    s.outcome(0, Outcome.GIVEN_UP, 5, at=20)
    s.sequence(1, 7_200, 9_000, 9)
    s.outcome(1, Outcome.DELIVERED_AFTER_REFUSAL, 7, at=8_000, accepted_at=_at(8_020))


def late_trouble(s: Story) -> None:
    """The first sequence ends with lost messages; the second begins well and has trouble of its own later."""
    s.sequence(0, 0, 50, 3)
    s.outcome(0, Outcome.PASSED_BY, 5, at=20)
    s.sequence(1, 60, 9_000, 90)
    s.outcome(1, Outcome.DELIVERED_AFTER_REFUSAL, 70, at=8_000, accepted_at=_at(8_020))


def began_late(s: Story) -> None:
    """The captures begin in the middle: one unknown message, one finding of no sequence."""
    s.sequence(0, 0, 50, 3)
    s.outcome(0, Outcome.UNKNOWN, 1, at=0)
    s.finding(None, FindingKind.TWO_ADDRESSES, Severity.INFO, 3)


def all_is_well(s: Story) -> None:
    """Outcomes that are nobody's trouble."""
    s.sequence(0, 0, 50, 3)
    s.outcome(0, Outcome.DELIVERED_BEFORE_CAPTURE, 1, at=0)
    s.outcome(0, Outcome.DELIVERED_BY_ACKNOWLEDGMENT, 2, at=1)


def only_slow(s: Story) -> None:
    """A finding and nothing else."""
    s.sequence(0, 0, 50, 3)
    s.finding(0, FindingKind.SLOW_ACKNOWLEDGMENT, Severity.WARNING, 5)


def restored(s: Story) -> None:
    """A sender that was restored: two more findings explain why messages were lost."""
    s.sequence(0, 0, 50, 3)
    s.outcome(0, Outcome.PASSED_BY, 2, at=10)
    s.finding(0, FindingKind.TWO_ADDRESSES, Severity.ERROR, 5)
    s.finding(0, FindingKind.ORDINAL_REGRESSED, Severity.WARNING, 10)


def only_explained(s: Story) -> None:
    """Findings that explain, and nothing that they could explain."""
    s.sequence(0, 0, 50, 3)
    s.finding(0, FindingKind.ORDINAL_REGRESSED, Severity.WARNING, 5)


EXPECTED: dict[Callable[[Story], None], list[tuple[Any, ...]]] = {
    # cause, outcome, severity, sequences, findings, lost, pending, stuck, unknown, repaired, expired; from, to in s
    straggler: [("message_missing", "repaired", "info", 1, 3, 0, 0, 0, 0, 2, 0, 10, 40)],
    given_up: [("message_missing", "lost", "error", 1, 2, 2, 0, 0, 0, 1, 1, 10, 50)],
    stuck: [("message_missing", "pending", "error", 1, 1, 0, 3, 2, 0, 0, 0, 70, 100)],
    replaced: [("message_missing", "lost", "error", 2, 2, 1, 0, 0, 0, 1, 0, 20, 80)],
    alternating: [("number_reused", "lost", "error", 2, 2, 2, 0, 0, 0, 0, 0, 80, 100)],
    cloned: [("number_reused", "lost", "error", 2, 1, 3, 0, 0, 0, 0, 0, 10, 210)],
    cloned_later: [
        ("message_missing", "repaired", "info", 1, 0, 0, 0, 0, 0, 1, 0, 10, 40),
        ("number_reused", "lost", "error", 1, 0, 1, 0, 0, 0, 0, 0, 110, 110),
    ],
    cloned_around: [
        ("number_reused", "lost", "error", 1, 0, 1, 0, 0, 0, 0, 0, 10, 10),
        ("message_missing", "repaired", "info", 1, 0, 0, 0, 0, 0, 1, 0, 110, 140),
        ("number_reused", "lost", "error", 1, 0, 1, 0, 0, 0, 0, 0, 210, 210),
    ],
    hours_apart: [
        ("message_missing", "lost", "error", 1, 0, 1, 0, 0, 0, 0, 0, 20, 20),
        ("message_missing", "repaired", "info", 1, 0, 0, 0, 0, 0, 1, 0, 8_000, 8_020),
    ],
    late_trouble: [
        ("message_missing", "lost", "error", 1, 0, 1, 0, 0, 0, 0, 0, 20, 20),
        ("message_missing", "repaired", "info", 1, 0, 0, 0, 0, 0, 1, 0, 8_000, 8_020),
    ],
    began_late: [("capture_incomplete", "unknown", "warning", 1, 0, 0, 0, 0, 1, 0, 0, 0, 0)],
    all_is_well: [],
    restored: [("sequence_regressed", "lost", "error", 1, 2, 1, 0, 0, 0, 0, 0, 10, 10)],
    only_explained: [],
    only_slow: [("acknowledgment", "repaired", "info", 1, 1, 0, 0, 0, 0, 0, 0, 5, 5)],
}
FIGURES = ("sequences", "findings", "lost", "pending", "stuck", "unknown", "repaired", "expired")


def explained(*stories: Story, verdicts: Iterable[Row] = ()) -> dict[str, list[Row]]:
    """The incidents and findings of these scopes together."""
    findings, outcomes, sequences = (
        pa.Table.from_pylist([row for story in stories for row in story.rows[name]], schema)
        for name, schema in (("findings", FOUND), ("outcomes", keyed(OUTCOMES)), ("sequences", SEQUENCES.arrow))
    )
    judged = pa.Table.from_pylist(list(verdicts), VERDICTS.arrow)
    found = put_together(InProcess(), judged, outcomes, findings, sequences)
    return {"findings": found.findings.to_pylist(), "incidents": found.incidents.to_pylist()}


@pytest.fixture(scope="module")
def derived() -> dict[str, list[Row]]:
    """The incidents and findings of all scenes together."""
    stories = [Story(play.__name__) for play in EXPECTED]
    for story, play in zip(stories, EXPECTED, strict=True):
        play(story)
    return explained(*stories)


def told_of(derived: dict[str, list[Row]], play: Callable[[Story], None], name: str = "incidents") -> list[Row]:
    """The rows of a scene, in the order of their sequences."""
    rows = [row for row in derived[name] if row["scope_key"] == f"queue {play.__name__} q"]
    return sorted(rows, key=lambda row: row["tx_sequence_id"] or 0)


@pytest.mark.parametrize("play", EXPECTED, ids=lambda play: play.__name__)
def test_one_cause_is_one_story(derived: dict[str, list[Row]], play: Callable[[Story], None]) -> None:
    given = [
        (
            *(row["cause"], row["outcome"], row["severity"], *(row[name] for name in FIGURES)),
            *((row[name] - BEGAN).seconds for name in ("began_at", "ended_at")),
        )
        for row in told_of(derived, play)
    ]
    assert given == EXPECTED[play]


def test_an_incident_goes_on_until_something_shows_that_it_is_over(derived: dict[str, list[Row]]) -> None:
    ongoing = {play.__name__ for play in EXPECTED if any(row["ongoing"] for row in told_of(derived, play))}
    assert ongoing == {"stuck", "alternating", "cloned", "cloned_later", "cloned_around"}
    assert [row["ongoing"] for row in told_of(derived, cloned_around)] == [False, False, True]


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
    s = Story("s")
    s.sequence(0, 0, 95, 9)
    s.outcome(0, Outcome.DISPLACED, 3, 4, at=40)
    s.sequence(1, later, 100, 9)
    seen = {"10.0.0.1": (0, 100)} | ({} if silent_since is None else {"10.0.0.2": (0, silent_since)})
    arrivals = [
        s.rows["outcomes"][0] | {"stream_id": f"{address}:5>10.0.0.9:1801#0", "captured_at": _at(at)}
        for address, times in seen.items()
        for at in times
    ]
    assert [row["ongoing"] for row in explained(s, verdicts=arrivals)["incidents"]] == [ongoing]


def test_incidents_have_names_of_their_own(derived: dict[str, list[Row]]) -> None:
    names = [row["incident_id"] for row in derived["incidents"]]
    assert len(set(names)) == len(names) == sum(map(len, EXPECTED.values()))
