"""Puts the summary of a run into a few lines for a person: what matters first, one line a figure, no zeros."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobs.app.logs import in_shell, printable
from schemas.incidents import IncidentOutcome

_COLUMN = 22
_MOST_NAMED = 6
_FIRST = ("outcomes", "failed_connections", "incidents", "findings", "verdicts", "messages", "captures")
"""Figures that come first, in this order."""
_IN_OTHERS = {
    "lost",
    "lost_by",
    "stuck",
    "unacknowledged",
    "confirmed",
    "transactional_messages",
    "acks",
    "severities",
    "findings_by_severity",
    "worst_incidents",
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
            first, *more = text.split("\n")
            lines.append(f"{printable(key.replace('_', ' ')):<{_COLUMN}}{first}")
            lines += [f"{'':<{_COLUMN}}{line}" for line in more]
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
    """Returns a line for each severity, the gravest first; all kinds that are errors or warnings are named."""
    words = {"error": ("error", "errors"), "warning": ("warning", "warnings"), "info": ("note", "notes")}
    lines = []
    for severity, counts in summary.get("findings_by_severity", {}).items():
        many = sum(counts.values())
        named = [_named(kind, count) for kind, count in counts.items()]
        shown = _first(named) if severity == "info" else named
        lines.append(f"{many:,} {words[severity][many != 1]}: {', '.join(shown)}")
    return "\n".join(lines) or _plain(kinds, summary)


def _incidents(outcomes: Mapping[str, int], summary: Mapping[str, Any]) -> str:
    """Returns incidents by outcome, and for each of the worst what happened, where, since when, and what to do."""
    told = summary.get("worst_incidents", ())
    report = "the report" if summary.get("report") or "tables" in summary else "what --out FILE writes"
    lines = [_plain({name.value: outcomes.get(name, 0) for name in IncidentOutcome}, summary)]
    for number, incident in enumerate(told, 1):
        lines += [f"{number}. {_what(incident)}", *(f"   {line}" for line in _where(incident, report))]
    needing = sum(count for name, count in outcomes.items() if name != IncidentOutcome.REPAIRED.value)
    if told and needing > len(told):
        where = f"{report} and in the table incidents" if "tables" in summary else report
        lines.append(f"{needing - len(told):,} more that were not repaired are in {where}")
    return "\n".join(lines)


def _what(incident: Mapping[str, Any]) -> str:
    """Returns the figures of an incident that are not 0 and what happened."""
    named = ", ".join(f"{many:,} {word}" for many, word in harm_of(incident))
    return f"{named or incident['outcome']}: {printable(incident['explanation'])}"


def harm_of(incident: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Returns how many messages of an incident are lost, stuck and so on, each figure with its word; none that is 0."""
    waiting = incident["pending"] - incident["stuck"]
    figures = (
        (incident["lost"], "lost"),
        (incident["stuck"], "stuck"),
        (waiting, "more pending" if incident["stuck"] else "pending"),
        (incident["unacknowledged"], "never acknowledged"),
        (incident["unknown"], "unknown"),
    )
    return [(many, word) for many, word in figures if many]


def _where(incident: Mapping[str, Any], report: str) -> list[str]:
    """Returns since when and where an incident is, which machines sent, what to do, and what the `report` lists."""
    end = (
        f", its end not known: last seen {incident['ended_at']}"
        if incident["ongoing"] is None
        else f", not over: last seen {incident['ended_at']}"
        if incident["ongoing"]
        else f", over since {incident['ended_at']}"
    )
    lines = [
        f"Since {incident['began_at'] or 'no time known'}{end}. {_machines(incident)}",
        f"To {', '.join(incident['destination_queues']) or 'a queue that is not named'}",
    ]
    machines = [_machine(one) for one in incident["addresses"]]
    lines += [f"Sent from {'; '.join(machines)}"] if machines else []
    if accepted := incident.get("accepted_from"):
        each = ", ".join(f"{one['messages']:,} from {_called(one)}" for one in accepted)
        many = sum(one["messages"] for one in accepted)
        since = f"Accepted since numbers were used twice, {incident['accepted_since']}"
        lines.append(f"{since}: {many:,} {'message' if many == 1 else 'messages'} ({each}); {report} lists them")
    lines += [f"Why: {sentence}" for sentence in incident.get("findings", ())]
    lines += [f"Go to {', '.join(map(_called, incident['go_to']))}"] if incident["go_to"] else []
    lines += [f"What to do: {incident['advice']}"] if incident["advice"] else []
    lines += _proof(incident.get("proof", ()))
    return [printable(line) for line in lines]


def _proof(packets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns for each capture the frames that prove an incident, what each shows, and how Wireshark shows them."""
    frames: dict[str, dict[int, str]] = {}
    for packet in packets:
        frames.setdefault(packet["uri"], {})[packet["frame_number"]] = packet["role"].replace("_", " ")
    lines = []
    for uri, roles in frames.items():
        named = ", ".join(f"frame {number} ({role})" for number, role in roles.items())
        lines.append(f"Proof: {named} of {uri}")
        shown = f"frame.number in {{{', '.join(map(str, roles))}}}"
        command = f"wireshark -r {in_shell(uri)} -Y '{shown}'"
        lines.append(f"In Wireshark: {command}" if "://" not in uri else f"Display filter: {shown}")
    return lines


def _machines(incident: Mapping[str, Any]) -> str:
    """Returns from where to where messages went: names, or addresses, or GUIDs where neither is known."""
    if names := incident.get("session_names"):
        return f"{names} ({incident['session_id']})"
    senders, receivers = ", ".join(one["address"] for one in incident["addresses"]), ", ".join(incident["receivers"])
    return f"From {senders} to {receivers}" if senders and receivers else str(incident["session_id"])


def _called(machine: Mapping[str, Any]) -> str:
    """Returns an address or a GUID with its name."""
    return f"{machine['address']} ({machine['name']})" if machine.get("name") else str(machine["address"])


def _machine(sender: Mapping[str, Any]) -> str:
    """Returns an address with its name, and what was sent from it where that is known."""
    text = _called(sender)
    if sender.get("messages") is not None:
        messages = "message" if sender["messages"] == 1 else "messages"
        text += f": {sender['messages']:,} {messages} of this incident, {sender['accepted']:,} accepted, "
        text += f"{sender['lost']:,} lost; first seen {sender['first_seen_at']}"
    return f"{text}, came later: the suspected copy" if sender["suspected"] else text


def _outcomes(counts: Mapping[str, int], _: Mapping[str, Any]) -> str:
    return ", ".join(_named(outcome, many) for outcome, many in counts.items())


_LINES: dict[str, Callable[[Any, Mapping[str, Any]], str]] = {
    "outcomes": _outcomes,
    "messages": _messages,
    "findings": _findings,
    "incidents": _incidents,
}
