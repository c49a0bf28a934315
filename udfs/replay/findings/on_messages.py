"""Applies the rules on messages: a pass that chooses what is shown of each sequence, and one that says it.

Between the two, Spark looks up the messages shown: arrivals hold numbers only, and there may be ten million of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from schemas.explained import FOUND
from schemas.replay import FindingKind, Severity, Verdict
from schemas.table import LONG, STRING, row
from udfs.replay.findings.finding import Arrival, Found, Message, Role, Rule, Told, finding_row
from udfs.replay.findings.messages import RULES
from udfs.replay.rows import Batches, read_rows, row_of, write_rows

_RULE_OF = {rule.kind.value: rule for rule in RULES}
_SEVERITIES = list(Severity)
_ATTEMPTS_SHOWN = 20
_INTERVALS_SHOWN = 12
NUMBERED_SEQUENCE = ("scope_no", "sequence")
FINDING = (*NUMBERED_SEQUENCE, "kind", "cause")
"""The columns that tell the findings on messages apart."""
_FIGURES = [one for one in row_of(Found, shown=STRING) if one.name != "shown"]
CHOSEN = row(scope_no=LONG, sequence=LONG, **{one.name: one.type for one in _FIGURES}, role=STRING, replay_order=LONG)
"""A message that a finding shows in a `role`, beside the figures of the finding."""


def choose_messages(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Turns rows of Arrival into rows of CHOSEN; the arrivals of a sequence come together, in the order of arrival."""
    sequences = groupby(read_rows(batches, Arrival), attrgetter(*NUMBERED_SEQUENCE))
    chosen = ((*sequence, *row) for sequence, arrivals in sequences for row in _choose(arrivals))
    return write_rows(chosen, CHOSEN)


def _choose(arrivals: Iterable[Arrival]) -> Iterator[tuple[Any, ...]]:
    """Applies the rules to the arrivals of one sequence; yields the messages that its findings show."""
    found: dict[tuple[FindingKind, int | None], tuple[Rule, Arrival, Found]] = {}
    attempts: list[int] = []
    for arrival in arrivals:
        for rule in RULES:
            if rule.when(arrival):
                cause = arrival.cause if rule.by_cause else None
                if (rule.kind, cause) not in found:
                    new = Found(rule.kind.value, cause, arrival.is_sent_after_all_accepted)
                    found[rule.kind, cause] = rule, arrival, new
                _count(*found[rule.kind, cause], arrival)
        if _was_given_up(arrival):
            attempts.append(arrival.replay_order)
    for rule, first, one in found.values():
        for role in rule.witness:
            for order in attempts if role is Role.ATTEMPT else [_order_of(role, first)]:
                if order is not None:
                    yield *(getattr(one, figure.name) for figure in _FIGURES), role.value, order


def _count(rule: Rule, first: Arrival, found: Found, arrival: Arrival) -> None:
    """Counts an arrival, unless the rule is of one message and this is another one."""
    if rule.of_one_message:
        if (arrival.number, arrival.content_hash) != (first.number, first.content_hash):
            return
        if arrival.interval_s is not None and arrival.arrivals <= _INTERVALS_SHOWN + 1:
            found.intervals.append(arrival.interval_s)
    severity = rule.severity if isinstance(rule.severity, Severity) else rule.severity(arrival)
    found.severity = max(Severity(found.severity), severity, key=_SEVERITIES.index).value
    found.messages += 1
    found.delivered += arrival.fate == "delivered"
    found.lost += arrival.fate == "lost"
    found.pending += arrival.fate == "pending"


def _was_given_up(arrival: Arrival) -> bool:
    """Returns whether its number is one of the last before the sequence's first gap, and it came before that."""
    if arrival.verdict != Verdict.OUT_OF_ORDER or arrival.gap_order is None:
        return False
    gap_number, gap_size = arrival.gap_number or 0, arrival.gap_size or 0
    is_near = gap_number - min(gap_size, _ATTEMPTS_SHOWN) <= arrival.number < gap_number
    return is_near and arrival.replay_order < arrival.gap_order


def _order_of(role: Role, first: Arrival) -> int | None:
    order: int | None = first.replay_order if role is Role.FIRST else getattr(first, role)
    return order


def tell_messages(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Turns rows of CHOSEN, each with the columns of Message, into rows of FINDINGS; those of a finding together."""
    rows = (pair for batch in batches for pair in zip(batch.to_pylist(), read_rows([batch], Message), strict=True))
    findings = groupby(rows, lambda pair: itemgetter(*FINDING)(pair[0]))
    return write_rows((_tell(list(shown)) for _, shown in findings), FOUND)


def _tell(shown: list[tuple[dict[str, Any], Message]]) -> tuple[object, ...]:
    """Returns the row of FINDINGS that shows these messages."""
    messages: dict[str, list[Message]] = defaultdict(list)
    for chosen, message in sorted(shown, key=lambda pair: attrgetter("number", "message_id", "key")(pair[1])):
        messages[chosen["role"]].append(message)
    found = Found(**{figure.name: shown[0][0][figure.name] for figure in _FIGURES}, shown=messages)
    rule = _RULE_OF[found.kind]
    witness = [message.key for role in rule.witness for message in messages.get(role, ())]
    told = Told(rule.kind, Severity(found.severity), rule.says(found), witness)
    return finding_row(told, found.first._asdict() | {"messages": found.messages})
