"""Applies the rules on messages: a pass that chooses what is shown of each sequence, and one that says it.

Between the two, Spark looks up the messages shown: arrivals hold numbers only, and there may be ten million of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa

from schemas.explained import FOUND
from schemas.replay import FindingKind, Severity, Verdict
from udfs.replay.findings import messages as kinds
from udfs.replay.findings.finding import Arrival, Found, Message, MessageRule, Role, Told, finding_row
from udfs.replay.rows import Batches, read_rows, row_of, write_rows

RULES = (
    *(kinds.duplicates, kinds.duplicates_differ, kinds.resend_schedule),
    *(kinds.out_of_order, kinds.stuck_sequence, kinds.sequence_regressed, kinds.gap_expired),
    *(kinds.capture_gap, kinds.missed_by_capture, kinds.clocks_differ),
    *(kinds.contradicted, kinds.state_fell, kinds.refused_for_cause, kinds.not_received_by_application),
    *(kinds.unacknowledged, kinds.slow_acknowledgment),
)
_RULE_OF = {rule.kind.value: rule for rule in RULES}
_SEVERITIES = list(Severity)
_ATTEMPTS_SHOWN = 20
_INTERVALS_SHOWN = 12
NUMBERED_SEQUENCE = ("scope_no", "sequence")
FINDING = (*NUMBERED_SEQUENCE, "kind", "cause")
"""The columns that tell the findings on messages apart."""


class Chosen(NamedTuple):
    """Holds a message that a finding shows in a `role`, beside the figures of the finding."""

    scope_no: int
    sequence: int
    kind: str
    cause: int | None
    severity: str
    messages: int
    delivered: int
    lost: int
    pending: int
    first_is_sent_later: bool
    intervals: list[float]
    role: str
    replay_order: int


CHOSEN = row_of(Chosen)


@dataclass(slots=True)
class _Tally:
    """Counts the arrivals of a sequence that one rule concerns."""

    rule: MessageRule
    first: Arrival
    severity: Severity = Severity.INFO
    messages: int = 0
    delivered: int = 0
    lost: int = 0
    pending: int = 0
    intervals: list[float] = field(default_factory=list)

    def add(self, arrival: Arrival) -> None:
        """Counts an arrival, unless the rule is of one message and this is another one."""
        if self.rule.of_one_message:
            first = self.first
            if (arrival.number, arrival.content_hash) != (first.number, first.content_hash):
                return
            if arrival.interval_s is not None and arrival.arrivals <= _INTERVALS_SHOWN + 1:
                self.intervals.append(arrival.interval_s)
        self.severity = max(self.severity, self.rule.severity(arrival), key=_SEVERITIES.index)
        self.messages += 1
        self.delivered += arrival.fate == "delivered"
        self.lost += arrival.fate == "lost"
        self.pending += arrival.fate == "pending"


def choose_messages(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Turns rows of Arrival into rows of CHOSEN; the arrivals of a sequence come together, in the order of arrival."""
    sequences = groupby(read_rows(batches, Arrival), attrgetter(*NUMBERED_SEQUENCE))
    chosen = (row for _, arrivals in sequences for row in choose_of_sequence(arrivals))
    return write_rows(chosen, CHOSEN)


def choose_of_sequence(arrivals: Iterable[Arrival]) -> Iterator[Chosen]:
    """Applies the rules to the arrivals of one sequence; yields the messages that its findings show."""
    tallies: dict[tuple[FindingKind, int | None], _Tally] = {}
    attempts: list[int] = []
    for arrival in arrivals:
        for rule in RULES:
            if rule.when(arrival):
                of = rule.kind, arrival.cause if rule.by_cause else None
                if of not in tallies:
                    tallies[of] = _Tally(rule, arrival)
                tallies[of].add(arrival)
        if _was_given_up(arrival):
            attempts.append(arrival.replay_order)
    for (kind, cause), tally in tallies.items():
        shown = [(role, _order_of(role, tally.first)) for role in tally.rule.witness]
        if kind is FindingKind.GAP_EXPIRED:
            shown += [(Role.ATTEMPT, order) for order in attempts]
        for role, order in shown:
            if order is not None:
                yield _chosen(cause, tally, role, order)


def _was_given_up(arrival: Arrival) -> bool:
    """Returns whether its number is one of the last before the sequence's first gap, and it came before that."""
    if arrival.verdict != Verdict.OUT_OF_ORDER or arrival.gap_order is None:
        return False
    assert arrival.gap_number is not None  # noqa: S101 - the gap has all three
    assert arrival.gap_size is not None  # noqa: S101
    shown_from = arrival.gap_number - min(arrival.gap_size, _ATTEMPTS_SHOWN)
    return arrival.replay_order < arrival.gap_order and shown_from <= arrival.number < arrival.gap_number


def _order_of(role: Role, first: Arrival) -> int | None:
    order: int | None = first.replay_order if role == Role.FIRST else getattr(first, role)
    return order


def _chosen(cause: int | None, tally: _Tally, role: Role, order: int) -> Chosen:
    first = tally.first
    return Chosen(
        scope_no=first.scope_no,
        sequence=first.sequence,
        kind=tally.rule.kind.value,
        cause=cause,
        severity=tally.severity.value,
        messages=tally.messages,
        delivered=tally.delivered,
        lost=tally.lost,
        pending=tally.pending,
        first_is_sent_later=first.is_sent_after_all_accepted,
        intervals=tally.intervals,
        role=role.value,
        replay_order=order,
    )


def tell_messages(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Turns rows of CHOSEN, each with the columns of Message, into rows of FINDINGS; those of a finding together."""
    rows = (
        row for batch in batches for row in zip(read_rows([batch], Chosen), read_rows([batch], Message), strict=True)
    )
    findings = groupby(rows, lambda row: attrgetter(*FINDING)(row[0]))
    return write_rows((tell_finding(shown) for _, shown in findings), FOUND)


def tell_finding(shown: Iterable[tuple[Chosen, Message]]) -> tuple[object, ...]:
    """Returns the row of FINDINGS that shows these messages."""
    messages: dict[str, list[Message]] = defaultdict(list)
    for chosen, message in shown:
        messages[chosen.role].append(message)
    rule, (first,) = _RULE_OF[chosen.kind], messages[Role.FIRST]
    found = Found(
        first=first,
        original=next(iter(messages[Role.ORIGINAL]), None),
        attempts=sorted(messages[Role.ATTEMPT], key=attrgetter("number", "message_id", "key")),
        **{name: getattr(chosen, name) for name in _FIGURES},
    )
    proof = [message.key for role in rule.witness for message in messages[role]]
    witness = [*proof, *(attempt.key for attempt in found.attempts)]
    told = Told(rule.kind, Severity(chosen.severity), rule.sentence(found), witness)
    return finding_row(told, found.first, messages=chosen.messages)


_FIGURES = ("messages", "delivered", "lost", "pending", "first_is_sent_later", "intervals")
"""What CHOSEN says of a finding and a sentence may name."""
