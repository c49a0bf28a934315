"""Puts the summary of a run into a few lines for a person: what matters first, one line a figure, no zeros."""

from collections.abc import Callable, Mapping
from typing import Any

from jobs.app.logs import printable
from schemas.incidents import IncidentOutcome

_COLUMN = 22
_MOST_NAMED = 6
_FIRST = ("outcomes", "incidents", "findings", "verdicts", "messages", "captures")
"""Figures that come first, in this order."""
_IN_OTHERS = {
    "muted",
    "lost",
    "lost_by",
    "stuck",
    "transactional_messages",
    "acks",
    "severities",
    "decoded_alone",
    "books",
    "seconds",
}
"""Figures that the headline or another line holds."""


def for_people(summary: Mapping[str, Any]) -> str:
    """Returns the lines: the headline, if there is one, then a line for each figure that is not 0.

    The report comes last, because it is what to open next; the tables are named only where they are elsewhere.
    """
    keys = [key for key in summary if key not in (_IN_OTHERS if "headline" in summary else {"books", "seconds"})]
    report, tables = summary.get("report") or "", summary.get("tables")
    shown_apart = {"headline", "report"} | ({"tables"} if tables and report.startswith(f"{tables}/") else set())
    keys = [key for key in keys if key not in shown_apart]
    keys = sorted(keys, key=lambda key: _FIRST.index(key) if key in _FIRST else len(_FIRST))
    lines = [printable(summary["headline"])] if "headline" in summary else []
    lines += _line_of_books(summary.get("books", {}))
    for key in keys:
        text = _LINES.get(key, _plain)(summary[key], summary)
        if text:
            lines.append(f"{printable(key.replace('_', ' ')):<{_COLUMN}}{text}")
    if "seconds" in summary:
        lines.append(f"{'took':<{_COLUMN}}{summary['seconds']} s")
    if report:
        lines.append(f"{'report':<{_COLUMN}}{printable(report)}")
    return "\n".join(lines)


def _line_of_books(books: Mapping[str, int]) -> list[str]:
    """Returns a line only where a book does not balance: that is a failure of the run."""
    wrong, right = books.get("unbalanced", 0), books.get("balanced", 0)
    return [f"{'books':<{_COLUMN}}{wrong:,} of {wrong + right:,} do not balance"] if wrong else []


def _plain(value: Any, _: Mapping[str, Any]) -> str:
    """Returns a figure, or the figures of a mapping, the largest first; an empty text for nothing."""
    if isinstance(value, Mapping):
        return ", ".join(_first([_named(str(name), one) for name, one in value.items() if one]))
    if isinstance(value, list):
        return ", ".join(_first([printable(str(one)) for one in value]))
    return _number(value) if value else ""


def _named(name: str, value: Any) -> str:
    name = printable(name.replace("_", " "))
    return f"{_number(value)} {name}" if isinstance(value, int) else f"{name}: {_number(value)}"


def _first(named: list[str]) -> list[str]:
    more = len(named) - _MOST_NAMED
    return [*named[:_MOST_NAMED], f"and {more} more"] if more > 0 else named


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))


def _messages(messages: int, summary: Mapping[str, Any]) -> str:
    transactional, acks = summary.get("transactional_messages", 0), sum(summary.get("acks", {}).values())
    found = [f"{messages:,}", *([f"{transactional:,} of them transactional"] if transactional else [])]
    return "; ".join([", ".join(found), *([f"{acks:,} acknowledgments"] if acks else [])])


def _findings(kinds: Mapping[str, int], summary: Mapping[str, Any]) -> str:
    counts = summary.get("severities", {})
    named = (("error", "error", "errors"), ("warning", "warning", "warnings"), ("info", "note", "notes"))
    severities = [
        f"{counts[name]:,} {one if counts[name] == 1 else many}" for name, one, many in named if counts.get(name)
    ]
    muted = sum(count for name, count in summary.get("muted", {}).items() if name in kinds)
    found = f"{', '.join(severities)}: {_plain(kinds, summary)}" if severities else _plain(kinds, summary)
    return f"{found}; {muted:,} muted" if muted else found


def _incidents(outcomes: Mapping[str, int], summary: Mapping[str, Any]) -> str:
    """Returns incidents by outcome, and who lost most messages to which queue, by their names where they have some."""

    def called(row: Mapping[str, Any], name: str, original: str) -> str:
        text = printable(row[original] or "not named")
        return f"{printable(row[name])} ({text})" if row.get(name) else text

    lost = [
        f"{row['lost']:,} lost from {called(row, 'sender_name', 'source_queue_manager')} "
        f"to {called(row, 'queue_name', 'destination_queue')}"
        for row in summary.get("lost_by", ())[:1]
    ]
    worst_first = {name.value: outcomes.get(name, 0) for name in IncidentOutcome}
    return "; ".join([_plain(worst_first, summary), *lost])


_LINES: dict[str, Callable[[Any, Mapping[str, Any]], str]] = {
    "messages": _messages,
    "findings": _findings,
    "incidents": _incidents,
}
