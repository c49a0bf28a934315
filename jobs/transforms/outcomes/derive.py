"""Derives the outcomes of a warehouse from its verdicts, in named stages."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from jobs.transforms.outcomes.messages import message_outcomes
from jobs.transforms.outcomes.numbers import first_due, number_outcomes
from jobs.transforms.outcomes.rows import all_outcomes, count_outcomes, count_slots, plain_arrivals
from jobs.transforms.outcomes.slots import accepted_twice, scope_states, spans, unusual_arrivals, unusual_slots
from schemas.replay import Reading


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of all messages, and what they add up to."""

    outcomes: DataFrame
    """Rows of OUTCOMES, and those of `delivered` messages that came more than once or with something unusual."""
    counts: DataFrame
    """`rows.count_outcomes`."""
    slots: DataFrame
    """`rows.count_slots`."""


def derive_outcomes(verdicts: DataFrame, *, reading: Reading, settle: Callable[[DataFrame], DataFrame]) -> Outcomes:
    """Returns the outcomes of the messages in VERDICTS.

    `settle` returns the same rows, computed once: as one plan, each stage would be computed wherever it is read.
    """
    twice = settle(accepted_twice(verdicts))
    slots = settle(unusual_slots(verdicts, twice))
    arrivals = settle(unusual_arrivals(verdicts, slots, reading=reading))
    states = settle(scope_states(verdicts, reading=reading))
    seen = settle(spans(arrivals, states))
    due = settle(first_due(arrivals, states))
    outcomes = settle(all_outcomes(message_outcomes(arrivals, seen, states, twice), number_outcomes(seen, states, due)))
    plain = settle(plain_arrivals(verdicts, arrivals))
    return Outcomes(
        outcomes,
        settle(count_outcomes(plain, outcomes)),
        settle(count_slots(plain, arrivals, states, due, reading=reading)),
    )
