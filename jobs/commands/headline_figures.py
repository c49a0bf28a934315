"""Collects the figures of the headline: how many messages had which fate, where, and how sure that is."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

from jobs.cli.names import Names
from jobs.cli.summary_text import NEVER_ACKNOWLEDGED
from schemas.incidents import Cause
from schemas.outcomes import DELIVERED, LOSS_UNKNOWN, LOST, Outcome
from udfs.replay.findings.final_acks import reason_of
from udfs.replay.incidents.advice import Certainty, in_short
from udfs.replay.words import counted, one_or_many
from udfs.report.incidents import HARM
from udfs.report.lacks import Lacks, incomplete
from udfs.report.messages import early_in_words
from udfs.report.summary import Shown

_WORDS = {
    Outcome.DISPLACED: "displaced (another message has the number)",
    Outcome.GIVEN_UP: "given up (refused, then skipped by the sender)",
    Outcome.PASSED_BY: "passed by (refused, and the receiver went on)",
    Outcome.NEVER_SEEN: "never seen (and the receiver went on)",
    Outcome.REFUSED_FOR_CAUSE: "did not reach their queue, as their sender was told",
}
_MISSED = "or read or refused: what their receivers said of it may be in the missing bytes"
"""Says of messages without the FinalAck that was asked for what else may be so where captures miss bytes."""
TO_CONFIRM = (*DELIVERED, *LOSS_UNKNOWN, Outcome.PENDING, Outcome.AWAITED)
"""Outcomes of messages that an acknowledgment could confirm."""
_ONE_WAY = (
    "The captures hold one direction only: what was refused follows from the rules, and {} tells what was acknowledged."
)
_CONTRADICTED = "contradicted by the receiver"
_CUT = "that cannot be read in whole"
_CUT_SHORT = "cut short: capture whole frames, tcpdump -s 0"
_UNHEARD = "sent again and again although its receiver acknowledged it"
_UNABLE = "that could not connect"
_NAMED_BY_NONE = "no packet names their receiver, which may only pass them on: capture connections from their beginning"
_WHOSE = "more lost, of which nothing compares the clocks, so whose is not known"
_LOOK = ": look whether they are still in the outgoing queues of their senders"
_MACHINES = 3
"""Machines that the headline names."""
_FEW = 2
"""Senders or receivers that it names; more are counted."""


Way = tuple[Sequence[str], Sequence[str]]
"""Addresses of senders, and of receivers."""


class Facts(NamedTuple):
    """Holds what the tables say that a headline is made of."""

    outcomes: Mapping[str, int]
    """Messages by outcome."""
    places: Mapping[str, Any]
    """Since when messages were lost, stuck or in doubt, and to which queues, as `messages.places` returns it."""
    machines: Mapping[str, str] = {}
    """The machines to blame, and their roles."""
    ways: Mapping[str, Way] = {}
    """From where to where what was sent: `ways_of_harm`."""
    unread: Sequence[str] = ()
    """A sentence on each capture with frames that were not read."""
    shown: Shown = Shown()
    """The period, senders and queues that the captures show, and what the captures lack."""
    confirmed: int = 0
    """Delivered messages that an acknowledgment confirms."""
    not_read: int | None = None
    """Messages that were accepted and not read yet, the first at `not_read_since_ns`; None where nothing reports it."""
    not_read_since_ns: int | None = None
    missing_bytes: int = 0
    unjudged: int = 0
    """Arrivals of transactional messages without a verdict that were not `passing_through`."""
    passing_through: int = 0
    errors: int = 0
    """Findings that are errors; so many of them are `apart`: of no incident."""
    apart: int = 0
    unfit: str = ""
    """A sentence on captures from which nothing could be judged: it is said in place of all doubts."""
    why: str = ""
    """In which situation no message was judged."""
    silences: Mapping[Cause, int] = {}
    """Messages by cause of silence: `causes_of_silence`."""
    failed: Sequence[str] = ()
    """Sentences on machines that could not connect; the first is told where no message was judged."""
    unheard: int = 0
    """Sequences of which no OrderAck seems to reach the sender."""


class Figure(NamedTuple):
    """Holds a number of messages, of bytes or of findings, in words and with the list that shows them."""

    number: int
    words: str
    rows: str
    """Where the report lists them: a name of `udfs.report.messages.LISTS`, or a part of the page."""
    outcome: str = ""
    """The only one of that list that it counts."""


class Figures(NamedTuple):
    """Holds the figures of the headline; those that are 0 are left out."""

    lost: int
    stuck: int
    unacknowledged: int
    split: list[Figure]
    doubts: list[Figure]
    waiting: list[Figure]
    """Messages that are pending or awaited, where none is lost, stuck or never acknowledged."""
    beside: list[Figure]
    harmed: list[Figure]
    """Messages that were delivered twice or not read, where nothing worse is to be told."""
    early: str
    """Says how many of the lost ones may have been delivered before the captures begin."""
    lost_where: str
    """Since when, from where to where and to which queue, in the words of `where`."""
    stuck_where: str
    unacknowledged_where: str
    waiting_where: str
    doubts_where: str
    silence: str
    """Says that messages were never acknowledged; or, where nothing could tell, only that they were sent again."""
    resent: str
    """Says whether their sender still sends them, or where to look for them."""
    one_way: str
    """Says that the captures hold only one direction, where messages are lost, stuck, never acknowledged or unknown."""
    incomplete: str
    """Says what else the captures lack there."""
    sure: str
    """Says which period, senders and queues the captures show, and how many messages are confirmed."""
    confirmed: int
    machines: str
    """Says where an operator has to go."""
    nothing_judged: str
    """Says why, where no message was judged."""
    undecided: int
    """Messages that were lost, though nothing tells which: no clock that is compared."""
    cause: str
    """Says why receivers acknowledged nothing."""
    unsure: int
    """Messages, beside the bad ones, that only the rules say were delivered, where these are most of the delivered."""

    @property
    def doubted(self) -> list[tuple[list[Figure], str]]:
        """Returns what is in doubt and what waits, and of messages where they are, in the words of `where`."""
        unknown = [one for one in self.doubts if one.rows == "unknown"]
        others = [one for one in self.doubts if one.rows != "unknown"]
        parts = [(unknown, self.doubts_where), (self.waiting, self.waiting_where), (others, "")]
        placed = [part for part in parts if part[0] and part[1]]
        elsewhere = [figure for some, at in parts if not at for figure in some]
        return [*placed, (elsewhere, "")] if elsewhere else placed


def certainties(outcomes: Mapping[str, int], confirmed: int, by_clocks: int) -> dict[str, int]:
    """Returns how sure it is what became of the messages: a number for each Certainty, by its name in small letters.

    `confirmed` are delivered messages that an acknowledgment confirms; of those whose outcome is unknown, `by_clocks`
    depend on clocks. Numbers that their sender skipped are no messages.
    """
    unknown = sum(outcomes.get(outcome, 0) for outcome in LOSS_UNKNOWN)
    sure = confirmed + sum(outcomes.get(outcome, 0) for outcome in (Outcome.REFUSED_FOR_CAUSE, Outcome.NOT_READ))
    messages = sum(outcomes.values()) - outcomes.get(Outcome.EXPIRED_UNSEEN, 0)
    each = (sure, messages - sure - unknown, by_clocks, unknown - by_clocks)
    return {certainty.name.lower(): many for certainty, many in zip(Certainty, each, strict=True)}


def second(ns: int) -> str:
    """Returns nanoseconds since 1970 as UTC, to the second."""
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def period(first_ns: int, last_ns: int) -> str:
    """Returns from when to when, in UTC to the second; the date once, if it is the same."""
    first, last = second(first_ns), second(last_ns)
    day, _, time = last.partition(" ")
    return f"{first.removesuffix(' UTC')} to {time if first.startswith(day) else last}"


def where(places: Mapping[str, Any], ways: Mapping[str, Way], what: str, names: Names) -> str:
    """Returns since when messages have a fate, `what`, from which machine to which, and to which queue the most.

    `places` are `messages.places`, `ways` those of `ways_of_harm`.
    """
    since, queue, most, queues = (places[f"{what}_{part}"] for part in ("since_ns", "queue", "in_queue", "queues"))
    if not places[what]:
        return ""
    name, queue = names.queue(queue), queue or "a queue that is not named"
    called = f"{name} ({queue})" if name else queue
    many = f"{most:,} of them " if queues > 1 else ""
    senders, receivers = ways.get(what, ((), ()))
    way = (
        f", from {_machines(senders, 'sender', names)} to {_machines(receivers, 'receiver', names)}"
        if senders and receivers
        else ""
    )
    return f"{f' since {second(since)}' if since is not None else ''}{way}, {many}to {called}"


def _machines(addresses: Sequence[str], role: str, names: Names) -> str:
    """Returns one machine with its name, or two; of more, how many there are."""
    few = len(addresses) <= _FEW
    return " and ".join(_called(one, names) for one in addresses) if few else counted(len(addresses), role)


def _called(machine: str, names: Names, role: str = "") -> str:
    known = ", ".join(filter(None, (names.queue_manager(machine), role)))
    return f"{machine} ({known})" if known else machine


def headline_figures(facts: Facts, names: Names) -> Figures:
    """Returns the figures of the headline, with the time and the queue of loss and of stuck messages."""
    outcomes, places, ways, shown, confirmed = facts.outcomes, facts.places, facts.ways, facts.shown, facts.confirmed
    stuck, undecided, unacknowledged = (places[name] for name in ("stuck", "undecided", "unacknowledged"))
    by_rules = sum(outcomes.get(outcome, 0) for outcome in DELIVERED) - confirmed
    not_known = _present(
        [
            Figure(outcomes.get(Outcome.UNKNOWN, 0), "unknown", "unknown", Outcome.UNKNOWN),
            Figure(outcomes.get(Outcome.CONTRADICTED, 0), _CONTRADICTED, "unknown", Outcome.CONTRADICTED),
        ]
    )
    lacks = shown.lacks._replace(missing_bytes=facts.missing_bytes)
    cut_by = f" ({counted(lacks.cut, 'segment')} {_CUT_SHORT})" if lacks.cut else ""
    missing = one_or_many(facts.missing_bytes, "missing byte", "missing bytes")
    gaps = Figure(facts.missing_bytes, f"{missing}{cut_by}", "limits")
    not_judged = Figure(facts.unjudged, f"arrivals of transactional messages not judged ({_NAMED_BY_NONE})", "limits")
    wrong = Figure(
        facts.errors, one_or_many(facts.errors, "finding that is an error", "findings that are errors"), "incidents"
    )
    cut = Figure(lacks.broken, f"{one_or_many(lacks.broken, 'capture', 'captures')} {_CUT}", "limits")
    files = Figure(lacks.missing_files, f"missing {one_or_many(lacks.missing_files, 'file', 'files')}", "limits")
    damaged = Figure(lacks.damaged, f"damaged {one_or_many(lacks.damaged, 'segment', 'segments')}", "limits")
    untimed = Figure(lacks.untimed, f"{one_or_many(lacks.untimed, 'capture', 'captures')} without times", "limits")
    clients = len({sentence.partition(" could not ")[0] for sentence in facts.failed})
    unable = Figure(clients, f"{one_or_many(clients, 'machine', 'machines')} {_UNABLE}", "findings")
    unsure = Figure(by_rules if by_rules > confirmed > 0 else 0, "that no acknowledgment confirms", "sessions")
    nothing_judged = "" if sum(outcomes.values()) or facts.unjudged else facts.unfit or _nothing(facts)
    in_doubt = [*not_known, gaps, cut, files, damaged, untimed, unsure, not_judged, unable, wrong]
    if nothing_judged:  # which says why, so that less is in doubt
        in_doubt = [] if facts.unfit else [gaps, not_judged, wrong]
    doubts, waiting, harmed = _present(in_doubt), _waiting(outcomes, stuck), _harmed(facts)
    split = _lost(outcomes, places["classes"])
    lost = sum(one.number for one in split)
    is_bad = bool(lost or stuck or unacknowledged)
    is_fine = not (is_bad or undecided or doubts or waiting) and confirmed > 0
    other_errors = one_or_many(facts.apart, "other finding that is an error", "other findings that are errors")
    others = Figure(facts.apart, other_errors, "findings")
    also = [Figure(undecided, _WHOSE, "unknown"), *not_known, not_judged, unable, others, *waiting] if is_bad else []
    beside = _beside(facts, where(places, ways, "expired_unseen", names))
    if not is_bad:  # then these are among the doubts
        lacks = Lacks(one_way=lacks.one_way, begun=lacks.begun, streams=lacks.streams)
    is_one_way = lacks.is_one_way and not nothing_judged and (is_bad or bool(not_known) or not confirmed)
    at = {what: where(places, ways, what, names) for what in HARM}
    return Figures(
        lost=lost,
        stuck=stuck,
        unacknowledged=unacknowledged,
        split=split,
        doubts=doubts,
        waiting=[] if is_bad else waiting,
        beside=_present([*also, *([] if is_fine else harmed), *beside]),
        harmed=harmed if is_fine else [],
        early=early_in_words(places["early"]),
        lost_where=at["lost"],
        stuck_where=at["stuck"],
        unacknowledged_where=at["unacknowledged"],
        waiting_where=at["pending"],
        doubts_where=at["unknown"],
        silence="sent again and again" if is_one_way else NEVER_ACKNOWLEDGED,
        resent=_LOOK if is_one_way else _resent(places["resent"], places["silent"], unacknowledged),
        one_way=_ONE_WAY.format("little" if confirmed else "nothing") if is_one_way else "",
        incomplete=incomplete(lacks) if (is_bad or not_known) and not is_one_way else "",
        sure=_sure(
            shown,
            sum(outcomes.get(outcome, 0) for outcome in TO_CONFIRM),
            confirmed,
            by_rules,
            places["by_clocks"],
        ),
        confirmed=confirmed,
        machines="" if is_one_way and not (lost or stuck) else _to_go(facts.machines, names),
        nothing_judged=nothing_judged,
        undecided=undecided,
        cause="" if is_one_way else _causes(facts.silences),
        unsure=unsure.number if is_bad else 0,
    )


def _lost(outcomes: Mapping[str, int], classes: Iterable[int]) -> list[Figure]:
    """Returns the messages that were lost, by outcome; `classes` of FinalAcks say why some were refused for cause."""
    words = dict(_WORDS)
    if reasons := "; ".join(dict.fromkeys(map(reason_of, classes))):
        words[Outcome.REFUSED_FOR_CAUSE] += f" ({reasons})"
    return _present(Figure(outcomes.get(outcome, 0), words[outcome], "lost", outcome) for outcome in LOST)


def _waiting(outcomes: Mapping[str, int], stuck: int) -> list[Figure]:
    words = f"pending ({stuck:,} of them stuck)" if stuck else "pending"
    pending = Figure(outcomes.get(Outcome.PENDING, 0), words, "pending", Outcome.PENDING)
    return _present([pending, Figure(outcomes.get(Outcome.AWAITED, 0), "awaited", "pending", Outcome.AWAITED)])


def _harmed(facts: Facts) -> list[Figure]:
    """Returns the messages that were delivered twice, each counted once, those not read, and sequences sent in vain."""
    deliveries, twice, unheard = facts.outcomes.get(Outcome.DELIVERED_TWICE, 0), facts.places["twice"], facts.unheard
    said = "each to two receivers" if deliveries == 2 * twice else f"{deliveries:,} deliveries"
    arrived_twice = Figure(twice, f"delivered twice{f' ({said})' if deliveries > twice else ''}", "incidents")
    not_read = Figure(facts.outcomes.get(Outcome.NOT_READ, 0), "not read", "not_read")
    in_vain = Figure(unheard, f"{one_or_many(unheard, 'sequence', 'sequences')} {_UNHEARD}", "findings")
    return _present([arrived_twice, not_read, in_vain])


def _beside(facts: Facts, expired_where: str) -> list[Figure]:
    """Returns what is told of messages that are neither lost nor in doubt."""
    outcomes, since_ns = facts.outcomes, facts.not_read_since_ns
    since = "" if since_ns is None else f" since {second(since_ns)}"
    since += f" ({_MISSED})" if facts.missing_bytes else ""
    skipped = f"expired unseen (skipped by their sender{expired_where})"
    return [
        Figure(outcomes.get(Outcome.EXPIRED_UNSEEN, 0), skipped, "expired_unseen"),
        Figure(facts.not_read or 0, f"accepted, not read yet{since}", "sessions"),
        Figure(outcomes.get(Outcome.DELIVERED_AFTER_REFUSAL, 0), "delivered after refusal", "delivered_after_refusal"),
    ]


def _to_go(machines: Mapping[str, str], names: Names) -> str:
    """Returns the machines, each with its name and its role; of more than a few the first, and how many there are."""
    called = [_called(one, names, role) for one, role in islice(machines.items(), _MACHINES)]
    more = len(machines) - 1
    if more < _MACHINES:
        return ", then to ".join(called)
    return f"{called[0]} first; the incidents name {counted(more, 'more machine')}"


def _causes(silences: Mapping[Cause, int]) -> str:
    """Returns why receivers acknowledged nothing; of several causes, how many messages each of those known has."""
    if len(silences) == 1:
        return in_short(*silences)
    in_order = sorted(silences.items(), key=lambda one: one[0] == Cause.NEVER_ANSWERED)
    told = {in_short(cause): messages for cause, messages in in_order}
    causes = "; ".join(f"{cause[0].lower()}{cause[1:]} ({messages:,})" for cause, messages in told.items() if cause)
    return f"{causes[:1].upper()}{causes[1:]}"


def _resent(resent: int, silent: int, unacknowledged: int) -> str:
    """Returns how many of the messages that were never acknowledged are still sent again when the captures end."""
    if not resent:
        due = "; the next resend was due before the captures end, and did not come"
        return due if silent and silent == unacknowledged else ""
    still = "" if resent == unacknowledged else f" {resent:,} of"
    return f"; the sender still sends{still} {one_or_many(unacknowledged, 'it', 'them')} again when the captures end"


def _sure(shown: Shown, accepted: int, confirmed: int, by_rules: int, by_clocks: int) -> str:
    """Returns what the captures show, and how many of the accepted messages their receiver confirms, in one line.

    Of the others, so many were delivered `by_rules` alone, and so many depend on clocks; the rest is told elsewhere.
    """
    said = []
    if shown.first_ns is not None and shown.last_ns is not None:
        broken = f" ({counted(shown.lacks.broken, 'capture')} {_CUT})" if shown.lacks.broken else ""
        said.append(f"{period(shown.first_ns, shown.last_ns)}{broken}")
    if shown.senders:
        said += [counted(shown.senders, "sender"), counted(shown.queues, "queue")]
    if accepted:
        said.append(f"{f'{confirmed:,}' if confirmed else 'none'} of {accepted:,} confirmed by the receiver")
    said += [f"{by_rules:,} inferred from the rules"] if by_rules else []
    said += [f"{by_clocks:,} {one_or_many(by_clocks, 'depends', 'depend')} on clocks"] if by_clocks else []
    line = ", ".join(said)
    return f"{line[0].upper()}{line[1:]}." if line else ""


def _nothing(facts: Facts) -> str:
    """Returns why no message was judged."""
    passing_through, unread, why, failed = facts.passing_through, facts.unread, facts.why, facts.failed[:1]
    found = "No transactional message was found"
    if passing_through:
        were = counted(passing_through, "transactional message was", "transactional messages were")
        found = f"{were} on the way to another queue manager"
    more = f" (and of {counted(len(unread) - 1, 'more capture')})" if len(unread) > 1 else ""
    first = f"{unread[0]}{more}. " if unread and not passing_through else ""
    next_step = f" {why}" if why and not (passing_through or unread) else ""
    end = (
        ": if there are any for there, they wait in outgoing queues"
        if failed and not why
        else ", so there is nothing to judge"
    )
    nothing = f"{first}{found}{end}.{next_step}"
    return " ".join([nothing, *failed] if why else [*failed, nothing])


def _present(figures: Iterable[Figure]) -> list[Figure]:
    return [one for one in figures if one.number]
