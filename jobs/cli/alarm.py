"""Says which words of --fail-on a run matches: what it found, and what it could not see."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jobs.cli.config import ANYTHING
from schemas.outcomes import NOT_KNOWN, Outcome
from schemas.replay import FindingKind, Severity

_FIGURES = ("lost", "stuck", "unacknowledged", "unconfirmed")
"""Words that are figures of a summary."""
_OUTCOMES = (Outcome.DELIVERED_TWICE, Outcome.NOT_READ)
"""Words that are outcomes."""


def matched(fail_on: Iterable[str], summary: Mapping[str, Any]) -> list[str]:
    """Returns the words of `fail_on` that hold; in place of `anything` what it stands for, each word once."""
    found = found_words(summary)
    words = (
        each for word in fail_on for each in (_anything(summary) if word == ANYTHING else [word] * (word in found))
    )
    return list(dict.fromkeys(words))


def found_words(summary: Mapping[str, Any]) -> set[str]:
    """Returns all words but `anything` that hold for the summary of a run."""
    found = {name for name, many in summary.get("verdicts", {}).items() if many}
    for kind in ("findings", "severities"):
        found |= {name for name, many in summary.get(kind, {}).items() if many}
    found |= {Outcome.UNKNOWN.value} if summary.get("outcomes", {}).get(Outcome.UNKNOWN) else set()
    return found | {*_not_fine(summary), *_blind(summary)}


def _anything(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a person has to see: what is not fine, who cannot connect or hear, errors, and what nobody could see.

    A verdict `unknown` alone is none: there is one wherever captures begin, and an acknowledgment may still tell that
    its message was delivered.
    """
    yield from _not_fine(summary)
    if summary.get("unjudged") or any(map(summary.get("outcomes", {}).get, NOT_KNOWN)):
        yield "unknown"
    if summary.get("failed_connections"):
        yield FindingKind.CANNOT_CONNECT.value
    if summary.get("findings", {}).get(FindingKind.REPEATED_ORDER_ACK):
        yield FindingKind.REPEATED_ORDER_ACK.value
    if summary.get("severities", {}).get(Severity.ERROR):
        yield str(Severity.ERROR)
    yield from _blind(summary)


def _not_fine(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yields what happened to messages that should not have."""
    yield from (name for name in _FIGURES if summary.get(name))
    yield from (name.value for name in _OUTCOMES if summary.get("outcomes", {}).get(name))


def _blind(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yields why a run saw less than there was, as far as it read or judged captures."""
    if summary.get("new_captures") == 0:
        yield "no_new_captures"
    newest = summary.get("newest_captures")
    if newest is None:
        return
    if not newest["messages"] or not any(summary.get("verdicts", {}).values()):
        yield "no_messages"
    if newest["missing_bytes"] or newest["cut_segments"] or newest["missing_files"]:
        yield "missing_bytes"
    if newest["not_whole"] or newest["damaged_segments"] or newest["without_times"]:
        yield "unreadable"
