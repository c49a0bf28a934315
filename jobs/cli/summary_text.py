"""Puts the summary of a run into a few lines for a person: what matters first, one line a figure, no zeros."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.cli.logs import in_shell, printable
from schemas.incidents import Cause, IncidentOutcome
from schemas.outcomes import DELIVERED
from udfs.replay.incidents.advice import CauseIs, Certainty, how_sure
from udfs.report.messages import early_in_words

NEVER_ACKNOWLEDGED = "never acknowledged"
_COLUMN = 22
_MOST_NAMED = 6
_MOST_LABELS = 3
_LONGEST_LABEL = 60
_TIME = "%Y-%m-%d %H:%M:%S UTC"
_ENOUGH = 3
"""Lines of the worst incident that are enough to act on."""
_FIRST = (
    *("unread_frames", "outcomes", "accepted_not_read_messages", "unanswered_pings", "unfit_captures", "incidents"),
    *("findings", "verdicts", "messages", "captures"),
)
"""Figures that come first, in this order."""
_CALLED = {"accepted_not_read_messages": "not read yet"}
"""Names of figures in other words."""
_READ = {"ok": "read", "partial": "read in part"}
"""Words for what became of a capture."""
_TIMES = (("from", "first_captured_at"), ("to", "last_captured_at"))
_ROLES = {"duplicate": "refused", "final_ack": "FinalAck", "order_ack": "OrderAck"}
"""Names for roles of packets."""
_ARRIVED = _ROLES | {"accepted": "captured", "duplicate": "sent again"}
"""Names for roles of packets where only the rules say what the receiver did, and it confirms nothing."""
_IN_OTHERS = {
    "lost",
    "lost_by",
    "stuck",
    "unacknowledged",
    "confirmed",
    "certainty",
    "unconfirmed",
    "unjudged",
    "newest_captures",
    "new_captures",
    "accepted_not_read_since",
    "period",
    "senders",
    "queues",
    "transactional_messages",
    "acks",
    "severities",
    "findings_by_severity",
    "worst_incidents",
    "next_incidents",
    "causes_untold",
    "failed_connections",
    "errors_alone",
    "acknowledged_in_vain",
    "books",
    "seconds",
}
"""Figures that the headline or another line holds."""


def for_people(summary: Mapping[str, Any]) -> str:
    """Returns the lines: the headline, if there is one, what happened and what to do, then the figures that are not 0.

    The first five lines are enough to act on the worst that happened. The report comes last, because it is what to open
    next; the tables are named only where they are elsewhere.
    """
    keys = [key for key in summary if key not in (_IN_OTHERS if "headline" in summary else {"books", "seconds"})]
    report, tables = summary.get("report") or "", summary.get("tables")
    shown_apart = {"headline", "report", "no_data"} | (
        {"tables"} if tables and report.startswith(f"{tables}/") else set()
    )
    keys = [key for key in keys if key not in shown_apart]
    keys = sorted(keys, key=lambda key: _FIRST.index(key) if key in _FIRST else len(_FIRST))
    lines = _headline(summary) + _what_happened(summary)
    lines += _line_of_books(summary.get("books", {}))
    for key in keys:
        text = _LINES.get(key, _plain)(summary[key], summary)
        if text:
            first, *more = text.split("\n")
            lines.append(f"{printable(_CALLED.get(key, key.replace('_', ' '))):<{_COLUMN}}{first}")
            lines += [f"{'':<{_COLUMN}}{line}" for line in more]
    if "seconds" in summary:
        lines.append(f"{'took':<{_COLUMN}}{summary['seconds']} s")
    if report:
        lines.append(f"{'report':<{_COLUMN}}{printable(report)}")
    return "\n".join(lines)


def first_lines(summary: Mapping[str, Any]) -> list[str]:
    """Returns the lines to act on: the headline; of the worst incident which messages, where, why and what to do."""
    return [*_headline(summary), *_what_happened(summary)[:_ENOUGH]]


def _headline(summary: Mapping[str, Any]) -> list[str]:
    """Returns the lines of the headline, after what says that the newest captures show nothing.

    Where nothing was judged at all, the headline says why.
    """
    no_data = summary.get("no_data", "") if any(summary.get("verdicts", {}).values()) else ""
    return [printable(line) for line in (no_data, *summary.get("headline", "").splitlines()) if line]


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


def _not_read(messages: int | None, summary: Mapping[str, Any]) -> str:
    """Returns how many messages were accepted and not read yet, and since when; says so where nothing reports it."""
    if messages is None:
        return "not reported: no FinalAck says whether messages were read" if summary.get("outcomes") else ""
    return f"{messages:,} since {summary['accepted_not_read_since']}" if messages else "0"


def _incidents(outcomes: Mapping[str, int], summary: Mapping[str, Any]) -> str:
    """Returns incidents by outcome, and where those are that were not told."""
    lines = [_plain({name.value: outcomes.get(name, 0) for name in IncidentOutcome}, summary)]
    told = sum(len(summary.get(name, ())) for name in ("worst_incidents", "next_incidents"))
    needing = sum(count for name, count in outcomes.items() if name != IncidentOutcome.REPAIRED.value)
    if told and needing > told:
        report = _where_listed(summary)
        where = f"{report} and in the table incidents" if "tables" in summary else report
        causes = ", ".join(_named(cause, many) for cause, many in summary.get("causes_untold", {}).items())
        lines.append(f"{needing - told:,} more that were not repaired{f' ({causes})' * bool(causes)} are in {where}")
    return "\n".join(lines)


def _where_listed(summary: Mapping[str, Any]) -> str:
    return "the report" if summary.get("report") or "tables" in summary else "what --out FILE writes"


def _what_happened(summary: Mapping[str, Any]) -> list[str]:
    """Returns lines on each of the worst incidents: what, where, why, and what to do; and on connections that failed.

    A failed connection from or to a sender of an incident is told there.
    """
    lines, failed = [], list(summary.get("failed_connections", ()))
    captured_to = summary.get("period", {}).get("last")
    for number, incident in enumerate(summary.get("worst_incidents", ()), 1):
        its_own = [one for one in failed if any(_concerns(one, sender["address"]) for sender in incident["addresses"])]
        failed = [one for one in failed if one not in its_own]
        first, *more = _lines_of(incident, its_own, _where_listed(summary), captured_to)
        lines += [f"{number}. {first}", *(f"   {line}" for line in more)]
    told = len(summary.get("worst_incidents", ()))
    next_ones = enumerate(summary.get("next_incidents", ()), told + 1)
    lines += [f"{number}. {_in_one_line(one, captured_to)}" for number, one in next_ones]
    alone = (*failed, *summary.get("errors_alone", ()), *summary.get("acknowledged_in_vain", ()))
    return lines + [printable(one) for one in alone if one not in summary.get("headline", "")]


def _concerns(failed: str, machine: str) -> bool:
    """Returns whether a sentence on connections that failed is about a machine."""
    return failed.startswith(f"{machine} could not ") or any(
        f" {to} {machine}: " in failed for to in ("connect to", "session with")
    )


def harm_of(incident: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Returns how many messages of an incident are lost, stuck and so on, each figure with its word; none that is 0."""
    waiting = incident["pending"] - incident["stuck_messages"]
    figures = (
        (incident["lost_messages"], "lost"),
        (incident["stuck_messages"], "stuck"),
        (waiting, f"{'more ' * bool(incident['stuck_messages'])}pending or awaited"),
        (incident["unacknowledged"], incident.get("silence", NEVER_ACKNOWLEDGED)),
        (incident["unknown"], "unknown"),
    )
    return [(many, word) for many, word in figures if many]


def _lines_of(incident: Mapping[str, Any], failed: Sequence[str], report: str, captured_to: str | None) -> list[str]:
    """Returns what is said of an incident: three lines to act on, then the rest.

    They say what became of which messages, by their labels, where and since when; why, by the gravest finding, and
    which connections `failed`; and what to do. The captures end at `captured_to`.
    """
    is_unanswered = not is_confirmed(incident)
    ended = incident["ended_at"]
    end = {
        None: "not known whether it goes on: last seen",
        True: "not over when the captures end: last seen",
        False: "over since",
    }
    which = f" ({_labels(incident['labels'])})" if incident.get("labels") else ""
    silent = _before_the_end(ended, captured_to) if incident["ongoing"] is not False else ""
    said = "not known to be over: last seen" if silent and incident["ongoing"] else end[incident["ongoing"]]
    over = f"{said} {ended or 'at no time known'}{f', {silent}' if silent else ''}"
    lines = [f"{_harm(incident)}{which}, {_machines(incident)}, {_where_and_since(incident)}, {over}"]
    found = [_without_advice(sentence, incident["advice"]) for sentence in incident.get("findings", ())]
    reason, *others = dict.fromkeys([*found[:1], incident["explanation"], *found[1:]])
    why, sure = "Why", ""
    if incident.get("certainty"):
        cause = CauseIs[incident["cause_certainty"].upper()]
        why = f"Why ({cause.value})"
        sure = how_sure(Certainty[incident["certainty"].upper()], cause, incident.get("captures_lack", ""))
    lines.append(f"{why}: {' Also: '.join([reason, *failed])}")
    places = ", and to ".join(_called_by_role(one, incident) for one in incident["go_to"])
    beside = early_in_words(incident.get("sent_before", 0)), missing_in_words(incident.get("missing"))
    todo = [f"Go to {places}." if places else "", incident["advice"], *beside]
    lines += [f"What to do: {' '.join(filter(None, todo))}"] if any(todo) else []
    lines += [f"Found: {sentence}" for sentence in others]
    lines += [f"How sure: {sure}"] if sure else []
    machines = [_machine(one, rules_alone=is_unanswered) for one in incident["addresses"]]
    lines += [f"Sent from {'; '.join(machines)}"] if machines else []
    if accepted := incident.get("accepted_from"):
        each = ", ".join(f"{one['messages']:,} from {_called(one)}" for one in accepted)
        many = sum(one["messages"] for one in accepted)
        since = f"Accepted since numbers were used twice, {incident['accepted_since']}"
        lines.append(f"{since}: {many:,} {'message' if many == 1 else 'messages'} ({each}); {report} lists them")
    lines += _proof(incident.get("proof", ()), roles_of(incident))
    return [printable(line) for line in lines]


def _in_one_line(incident: Mapping[str, Any], captured_to: str | None) -> str:
    """Returns an incident in one line: how many messages, from where to where, since when, why, and where to go."""
    cause, places = incident["cause"].replace("_", " "), ", and to ".join(map(_called, incident["go_to"]))
    go_to = f" Go to {places}." if places else ""
    silent = _before_the_end(incident["ended_at"], captured_to)
    still = f"not known to be over: last seen {silent}" if silent else "still so when the captures end"
    goes_on = f", {still}" if incident["ongoing"] else ""
    lack = f" The captures lack {incident['captures_lack']} between the two." if incident.get("captures_lack") else ""
    what = f"{_harm(incident)}, {_machines(incident)}, {_where_and_since(incident)}{goes_on}"
    return printable(f"{what}: {cause}.{lack}{go_to}")


def _harm(incident: Mapping[str, Any]) -> str:
    return ", ".join(f"{many:,} {word}" for many, word in harm_of(incident)) or str(incident["outcome"])


def _where_and_since(incident: Mapping[str, Any]) -> str:
    queues = ", ".join(incident["destination_queues"]) or "a queue that is not named"
    return f"to {queues}, since {incident['began_at'] or 'no time known'}"


def _before_the_end(seen: str | None, captured_to: str | None) -> str:
    """Returns how long before the end of the captures something was last seen, if that is a minute or more."""
    if seen is None or captured_to is None:
        return ""
    last, end = (datetime.strptime(one, _TIME).replace(tzinfo=UTC) for one in (seen, captured_to))
    minutes = (end - last) // timedelta(minutes=1)
    return f"{minutes:,} min before the captures end" if minutes > 0 else ""


def is_confirmed(incident: Mapping[str, Any]) -> bool:
    """Returns whether more than the rules alone says what the receiver did with the messages of an incident."""
    return not (incident["unacknowledged"] or incident["unknown"] or incident["cause"] == Cause.REFUSED_FOR_CAUSE.value)


def roles_of(incident: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns names for roles of the packets that prove an incident; others are called as they are."""
    return _ROLES if is_confirmed(incident) else _ARRIVED


def _labels(labels: Sequence[str]) -> str:
    """Returns the first labels of messages, in quotes and not too long, and whether there are others."""
    named = [
        f'"{one}"' if len(one) <= _LONGEST_LABEL else f'"{one[:_LONGEST_LABEL]}…"' for one in labels[:_MOST_LABELS]
    ]
    return f"{', '.join(named)}{' and others' if len(labels) > _MOST_LABELS else ''}"


def _without_advice(text: str, advice: str) -> str:
    """Returns a finding without those of its sentences that the advice on its incident has as well."""
    return " ".join(one for one in re.split(r"(?<=\.) (?=[A-Z])", text) if one not in advice)


def _proof(packets: Sequence[Mapping[str, Any]], called: Mapping[str, str]) -> list[str]:
    """Returns for each capture the frames that prove an incident, what each shows, and how Wireshark shows them.

    Some roles are `called` something else.
    """
    frames: dict[str, dict[int, str]] = {}
    lines = []
    for packet in packets:
        role = called.get(packet["role"], packet["role"].replace("_", " "))
        if packet["frame_number"] is None:
            lines.append(f"Proof: {connection_in_words(packet['stream_id'])}")
        else:
            said = f"{_labels([packet['label']])}, {role}" if packet.get("label") else role
            frames.setdefault(packet["uri"], {}).setdefault(packet["frame_number"], said)
    for uri, of_uri in frames.items():
        lines.append(f"Proof: {'; '.join(f'frame {number}: {said}' for number, said in of_uri.items())} ({uri})")
        shown = f"frame.number in {{{', '.join(map(str, of_uri))}}}"
        command = f"wireshark -r {in_shell(uri)} -Y '{shown}'"
        lines.append(f"In Wireshark: {command}" if "://" not in uri else f"Display filter: {shown}")
    return lines


def connection_in_words(stream_id: str) -> str:
    """Returns a connection of which no packet is in the tables, and the filter that shows its frames in Wireshark."""
    ends = re.fullmatch(r"(.+):(\d+)>(.+):(\d+)#\d+", stream_id)
    if ends is None:
        return f"stream {stream_id}"
    client, port, server, server_port = ends.groups()
    ip = "ipv6" if ":" in client else "ip"
    hosts = (f"{ip}.addr == {one.strip('[]')}" for one in (client, server))
    ports = (f"tcp.port == {one}" for one in (port, server_port))
    return f"the connection from {client}:{port} to {server}:{server_port}; filter: {' && '.join((*hosts, *ports))}"


def missing_in_words(missing: Mapping[str, Any] | None) -> str:
    """Returns which message a receiver waits for, by its number and by what was sent before and after it."""
    if not missing:
        return ""
    low, many = missing["number"], missing["numbers"]
    number = f"number {low}" if many == 1 else f"numbers {low} to {low + many - 1}"
    after, before = (_labels([label]) if (label := missing[side]) else "" for side in ("after", "before"))
    sides = f"between {after} and {before}" if after and before else f"after {after}" if after else f"before {before}"
    subject = "The missing message is" if many == 1 else "The missing messages are"
    return f"{subject} {number}{f', numbered {sides}' if after or before else ''}."


def _machines(incident: Mapping[str, Any]) -> str:
    """Returns from where to where messages went: names, or addresses, or GUIDs where neither is known."""
    if names := incident.get("session_names"):
        return f"{names} ({incident['session_id']})"
    senders, receivers = ", ".join(one["address"] for one in incident["addresses"]), ", ".join(incident["receivers"])
    return f"from {senders} to {receivers}" if senders and receivers else str(incident["session_id"])


def _called(machine: Mapping[str, Any]) -> str:
    """Returns an address or a GUID with its name."""
    return f"{machine['address']} ({machine['name']})" if machine.get("name") else str(machine["address"])


def _called_by_role(machine: Mapping[str, Any], incident: Mapping[str, Any]) -> str:
    """Returns an address with its name and, where it sent or received messages of an incident alone, its role."""
    senders = [one["address"] for one in incident["addresses"]]
    roles = [
        role for role, own in (("sender", senders), ("receiver", incident["receivers"])) if own == [machine["address"]]
    ]
    return ", the ".join([_called(machine), *roles])


def _machine(sender: Mapping[str, Any], *, rules_alone: bool) -> str:
    """Returns an address with its name, and what was sent from it where that is known.

    With `rules_alone`, how many were accepted is left out: only the rules say so, and the receiver confirms nothing.
    """
    text = _called(sender)
    if sender.get("messages") is not None:
        messages = "message" if sender["messages"] == 1 else "messages"
        accepted = "" if rules_alone else f"{sender['accepted']:,} accepted, "
        text += f": {sender['messages']:,} {messages} of this incident, {accepted}"
        text += f"{sender['lost']:,} lost; first seen {sender['first_seen_at']}"
    return f"{text}, came later" if sender["suspected"] else text


def _captures(statuses: Mapping[str, int], summary: Mapping[str, Any]) -> str:
    """Returns how many captures were read, and of the newest how many hold nothing; the rest is said elsewhere."""
    read = _plain({_READ.get(status, status): many for status, many in statuses.items()}, summary)
    newest = summary.get("newest_captures", {})
    empty = newest.get("without_messages") if newest.get("messages") else 0
    return f"{read}; {empty:,} of the newest without a packet of MSMQ" if empty else read


def _outcomes(counts: Mapping[str, int], summary: Mapping[str, Any]) -> str:
    """Returns messages by outcome; how many of the delivered are confirmed, where not all are."""
    named, confirmed = ", ".join(_named(outcome, many) for outcome, many in counts.items()), summary.get("confirmed", 0)
    delivered = sum(many for outcome, many in counts.items() if outcome in DELIVERED)
    if 2 * confirmed < delivered:
        by_rules = re.sub(r"\bdelivered(?=,|$)", "accepted by the rules", named)
        return f"{by_rules}; {f'{confirmed:,}' if confirmed else 'none'} of them confirmed by the receiver"
    if confirmed < delivered:
        sure = f"{confirmed:,} confirmed by the receiver, {delivered - confirmed:,} not confirmed"
        return f"{named}; of {delivered:,} delivered {sure}"
    return named


def _unfit(unfit: Mapping[str, Any], _: Mapping[str, Any]) -> str:
    """Returns a line for each of the last captures with something amiss: from when to when it is, and what."""
    lines = [
        "".join((one["uri"], *(f", {word} {one[at]}" for word, at in _TIMES if one[at]), ": ", "; ".join(one["amiss"])))
        for one in unfit["last"][:_MOST_NAMED]
    ]
    more = unfit["many"] - len(lines)
    return "\n".join([*map(printable, lines), *([f"and {more:,} more: see the table captures"] if more else [])])


def _unread(captures: Sequence[str], _: Mapping[str, Any]) -> str:
    """Returns a line for each capture of which frames were not read."""
    return "\n".join(_first([printable(one) for one in captures]))


def _orders(orders: Mapping[str, Any], _: Mapping[str, Any]) -> str:
    """Returns where the lists for the back office are, and how many messages they have."""
    lists = f"{orders['send_again']:,} messages to send again, {orders['check_accepted']:,} to check"
    return f"{lists}: {printable(orders['folder'])}"


_LINES: dict[str, Callable[[Any, Mapping[str, Any]], str]] = {
    "unread_frames": _unread,
    "outcomes": _outcomes,
    "accepted_not_read_messages": _not_read,
    "messages": _messages,
    "findings": _findings,
    "incidents": _incidents,
    "unfit_captures": _unfit,
    "orders": _orders,
    "captures": _captures,
}
