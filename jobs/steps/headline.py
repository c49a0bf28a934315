"""Puts into one sentence what became of the messages."""

from collections.abc import Mapping

from schemas.outcomes import LOST, Outcome

_WORDS = {
    Outcome.DISPLACED: "displaced",
    Outcome.GIVEN_UP: "given up",
    Outcome.PASSED_BY: "passed by",
    Outcome.NEVER_SEEN: "never seen",
    Outcome.REFUSED_FOR_CAUSE: "refused for cause",
}


def lost_messages(outcomes: Mapping[str, int]) -> int:
    """Returns how many messages are lost, of counts by outcome."""
    return sum(outcomes.get(outcome, 0) for outcome in LOST)


def headline(
    outcomes: Mapping[str, int], *, stuck: int = 0, missing_bytes: int = 0, unjudged: int = 0, errors: int = 0
) -> str:
    """Returns the headline: what was lost, what is not known, and what else an operator is told first.

    `outcomes` counts messages by outcome; `unjudged` are transactional messages without a verdict that were not just
    passing through; `errors` are findings of that severity. "Nothing was lost" is said only where all of these, and the
    messages that are contradicted or unknown, are 0.
    """
    lost = lost_messages(outcomes)
    doubts = _list(
        (outcomes.get(Outcome.UNKNOWN, 0), "unknown"),
        (outcomes.get(Outcome.CONTRADICTED, 0), "contradicted by the receiver"),
        (missing_bytes, "missing bytes" if missing_bytes > 1 else "missing byte"),
        (unjudged, "transactional messages not judged"),
        (errors, "findings that are errors" if errors > 1 else "finding that is an error"),
    )
    beside = _list(
        (outcomes.get(Outcome.PENDING, 0) + outcomes.get(Outcome.AWAITED, 0), f"pending ({stuck:,} of them stuck)"),
        (outcomes.get(Outcome.EXPIRED_UNSEEN, 0), "expired unseen"),
        (outcomes.get(Outcome.NOT_READ, 0), "not read"),
        (outcomes.get(Outcome.DELIVERED_AFTER_REFUSAL, 0), "delivered after refusal"),
    )
    if lost:
        split = _list(*((outcomes.get(outcome, 0), _WORDS[outcome]) for outcome in LOST))
        first = f"{lost:,} {'messages were' if lost > 1 else 'message was'} lost: {split}."
    elif doubts:
        first = f"No loss was seen, but: {doubts}."
    else:
        first = "Nothing was lost."
    return f"{first} Also: {beside}." if beside else first


def _list(*figures: tuple[int, str]) -> str:
    return ", ".join(f"{number:,} {words}" for number, words in figures if number)
