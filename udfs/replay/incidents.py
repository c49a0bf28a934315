"""Puts outcomes and findings together as incidents: one row for one story.

An incident is what happened to one sequence of a scope. Two sequences are one incident when the earlier one was not
over: its troubles reach into the time of the later one, or its sender gave up its last messages and the later one is in
trouble from its first message on. Sequences whose numbers were used again are one incident as well, if no other trouble
lies between them: a cloned sender spoils one sequence after the other.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from schemas.incidents import Cause, IncidentOutcome
from schemas.outcomes import LOSS_UNKNOWN, LOST, Outcome
from schemas.replay import FindingKind, Severity
from udfs.replay.advice import advise
from udfs.replay.sentences import Harm, sentence_of
from udfs.replay.words import number_range, tx_sequence

Row = dict[str, Any]
_PENDING = (Outcome.PENDING, Outcome.AWAITED)
_RANKED = (
    *(*LOST, *_PENDING, *LOSS_UNKNOWN, Outcome.DELIVERED_AFTER_REFUSAL),
    *(Outcome.DELIVERED_TWICE, Outcome.NOT_READ, Outcome.EXPIRED_UNSEEN),
)
"""The outcomes that are part of a story, the worst first."""
_BY_GRAVITY = [severity.value for severity in reversed(Severity)]
"""The gravest first."""
_COUNTED_AS: Mapping[Outcome, str] = {
    **dict.fromkeys(LOST, "lost"),
    **dict.fromkeys(_PENDING, "pending"),
    **dict.fromkeys(LOSS_UNKNOWN, "unknown"),
    Outcome.DELIVERED_AFTER_REFUSAL: "repaired",
    Outcome.EXPIRED_UNSEEN: "expired",
}
_COUNTS = ("lost", "pending", "stuck", "unknown", "repaired", "expired", "findings")
_SHOWN_BY: Mapping[Cause, tuple[Outcome | FindingKind, ...]] = {
    Cause.REFUSED_FOR_CAUSE: (Outcome.REFUSED_FOR_CAUSE, FindingKind.REFUSED_FOR_CAUSE),
    Cause.NUMBER_REUSED: (Outcome.DISPLACED, FindingKind.DUPLICATES_DIFFER),
    Cause.SEQUENCE_REGRESSED: (FindingKind.SEQUENCE_REGRESSED,),
    Cause.MESSAGE_MISSING: (
        *(Outcome.GIVEN_UP, Outcome.PASSED_BY, Outcome.NEVER_SEEN, *_PENDING, Outcome.DELIVERED_AFTER_REFUSAL),
        *(FindingKind.OUT_OF_ORDER, FindingKind.STUCK_SEQUENCE),
    ),
    Cause.CONTRADICTED: (Outcome.CONTRADICTED, FindingKind.CONTRADICTED, FindingKind.STATE_FELL),
    Cause.CAPTURE_INCOMPLETE: (
        *(Outcome.UNKNOWN, FindingKind.CAPTURE_GAP, FindingKind.MISSED_BY_CAPTURE, FindingKind.CLOCKS_DIFFER),
    ),
    Cause.DELIVERED_TWICE: (Outcome.DELIVERED_TWICE,),
    Cause.NOT_READ: (Outcome.NOT_READ,),
    Cause.EXPIRED: (Outcome.EXPIRED_UNSEEN, FindingKind.GAP_EXPIRED, FindingKind.EXPIRED_ON_ARRIVAL),
    Cause.TRANSACTION: (FindingKind.TORN_TRANSACTION, FindingKind.TRANSACTION_PARTLY_DELIVERED),
    Cause.ACKNOWLEDGMENT: (FindingKind.UNACKNOWLEDGED, FindingKind.SLOW_ACKNOWLEDGMENT, FindingKind.REPEATED_ORDER_ACK),
    Cause.RESENT: (FindingKind.DUPLICATES, FindingKind.RESEND_SCHEDULE),
}
_CAUSE_OF = {shown: cause for cause, of in _SHOWN_BY.items() for shown in of}
_EXPLAINING = (FindingKind.TWO_ADDRESSES,)
"""Kinds that are part of a story, but make none of a sequence to which nothing else happened."""


class SenderSpan(NamedTuple):
    """Holds the messages of a sequence that came from one address, and when that was seen in all captures."""

    address: str
    first_seen_at: datetime | None
    last_seen_at: datetime | None
    messages: int
    accepted: int
    lost: int


class SequenceSpan(NamedTuple):
    """Holds what a row of SEQUENCES says of a sequence."""

    scope_key: str
    tx_sequence_id: int
    source_queue_manager: str
    first_captured_at: datetime | None
    last_captured_at: datetime | None
    last_accepted_number: int | None


class OutcomeCount(NamedTuple):
    """Holds the messages and numbers of a sequence that have one outcome."""

    outcome: str
    numbers: int
    stuck: int
    first_number: int
    last_number: int
    began_at: datetime | None
    ended_at: datetime | None
    first_at: datetime | None
    """When the first of them was seen, as far as any was."""
    witness: list[str]
    """Of the first."""
    session_id: str
    destination_queue: str | None
    queues: list[str]
    """Of all of them."""


class Event(NamedTuple):
    """Holds what is known of a sequence, an outcome in it, an address that sent it, or a finding: a row of FOUND."""

    scope_key: str | None
    tx_sequence_id: int | None
    of: SequenceSpan | OutcomeCount | SenderSpan | Row


class Trouble(NamedTuple):
    """Holds what an outcome or a finding adds to the story of its sequence."""

    rank: int
    """The worst has the lowest."""
    cause: Cause
    began_at: datetime | None
    ended_at: datetime | None
    at: datetime | None
    """The time of its witness."""
    witness: list[str]
    session_id: str
    destination_queue: str | None
    queues: list[str]
    makes_story: bool
    """Without one that does, a sequence has no story."""
    counts: Mapping[str, int]
    """Columns of INCIDENTS that it adds to."""
    undelivered: int = 0
    """The highest number of a message that is lost or pending."""
    first_undelivered: int = 0
    """The lowest."""


def trouble_of_outcome(count: OutcomeCount) -> Trouble | None:
    """Returns what an outcome adds; None where it is nobody's trouble."""
    outcome = Outcome(count.outcome)
    if outcome not in _RANKED:
        return None
    name = _COUNTED_AS.get(outcome)
    is_harm = name in {"lost", "pending"}
    return Trouble(
        rank=_RANKED.index(outcome),
        cause=_CAUSE_OF[outcome],
        began_at=count.began_at,
        ended_at=count.ended_at,
        at=count.first_at,
        witness=count.witness,
        session_id=count.session_id,
        destination_queue=count.destination_queue,
        queues=count.queues,
        makes_story=True,
        counts={"stuck": count.stuck} | ({} if name is None else {name: count.numbers}),
        undelivered=count.last_number if is_harm else 0,
        first_undelivered=count.first_number if is_harm else 0,
    )


def trouble_of_finding(finding: Row) -> Trouble:
    """Returns what a row of FINDINGS adds."""
    kind, at = FindingKind(finding["kind"]), finding["found_at"]
    return Trouble(
        rank=len(_RANKED) + _BY_GRAVITY.index(finding["severity"]),
        cause=_CAUSE_OF.get(kind, Cause.OTHER),
        began_at=at,
        ended_at=at,
        at=at,
        witness=finding["witness"],
        session_id=finding["session_id"],
        destination_queue=finding["destination_queue"],
        queues=[name for name in (finding["destination_queue"],) if name is not None],
        makes_story=kind not in _EXPLAINING,
        counts={"findings": 1},
    )


def _earliest(times: Iterable[datetime | None]) -> datetime | None:
    return min((time for time in times if time is not None), default=None)


def _latest(times: Iterable[datetime | None]) -> datetime | None:
    return max((time for time in times if time is not None), default=None)


def _in_order(time: datetime | None) -> tuple[bool, datetime]:
    """Returns a key that sorts times; what has none comes first."""
    return time is not None, time or datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class Sequence:
    """Holds a sequence, its troubles, and the addresses that its messages came from."""

    span: SequenceSpan
    troubles: list[Trouble]
    senders: list[SenderSpan]

    @property
    def has_story(self) -> bool:
        """Returns whether something happened that makes a story by itself."""
        return any(one.makes_story for one in self.troubles)

    @property
    def is_reused(self) -> bool:
        """Returns whether numbers were used again."""
        return any(one.cause is Cause.NUMBER_REUSED for one in self.troubles)

    @property
    def began_at(self) -> datetime | None:
        """Returns when its troubles began."""
        return _earliest(one.began_at for one in self.troubles) or self.span.first_captured_at

    @property
    def ended_at(self) -> datetime | None:
        """Returns when its troubles ended."""
        return _latest(one.ended_at for one in self.troubles) or self.span.last_captured_at

    @property
    def is_given_up(self) -> bool:
        """Returns whether its last messages were never accepted."""
        return max(one.undelivered for one in self.troubles) > (self.span.last_accepted_number or 0)

    @property
    def place(self) -> tuple[str, str | None]:
        """Returns session and queue of the first message concerned."""

        def order(one: Trouble) -> tuple[Any, ...]:
            return *_in_order(one.began_at), one.rank, one.session_id, one.destination_queue or ""

        first = min(self.troubles, key=order)
        return first.session_id, first.destination_queue

    def goes_on_from(self, last: "Sequence", before: "Sequence | None") -> bool:
        """Returns whether it is part of the story of `last`, the last that has one; `before` is directly before it."""
        if self.is_reused and last.is_reused:
            return True
        if before is not last:
            return False
        began, ended, first = self.began_at, last.ended_at, self.span.first_captured_at
        reaches_in = ended is not None and first is not None and ended >= first
        from_the_first = began is None or first is None or began <= first
        return reaches_in or (last.is_given_up and from_the_first)


def explain_events(events: Iterable[Event]) -> tuple[list[Row], list[Row]]:
    """Returns findings with their `incident_id`, none graver than its incident, and incidents.

    The events of a scope come together, in the order of sequences.
    """
    findings: list[Row] = []
    incidents: list[Row] = []
    for _, of_scope in groupby(events, attrgetter("scope_key")):
        stories: list[Story] = []
        before: Sequence | None = None
        latest: datetime | None = None  # when the scope's latest sequence began
        for _, of_sequence in groupby(of_scope, attrgetter("tx_sequence_id")):
            sequence, found = read_sequence(of_sequence)
            if sequence is None or not sequence.has_story:
                findings += [finding | {"incident_id": None} for finding in found]
            else:
                if not stories or not sequence.goes_on_from(stories[-1].sequences[-1], before):
                    stories.append(Story([], []))
                stories[-1].sequences.append(sequence)
                stories[-1].findings.extend(found)
            before = sequence
            latest = latest if sequence is None else _latest((latest, sequence.span.first_captured_at))
        reused = [story for story in stories if story.is_reused]
        for story in stories:
            incident = incident_row(story)
            # Of the stories in which numbers were used again, only the last can go on for that.
            incident["ongoing"] |= story.is_reused and story is reused[-1] and story.goes_on(latest)
            incidents.append(incident)
            for finding in story.findings:
                severity = max(finding["severity"], incident["severity"], key=_BY_GRAVITY.index)
                findings.append(finding | {"incident_id": incident["incident_id"], "severity": severity})
    return findings, incidents


def read_sequence(events: Iterable[Event]) -> tuple[Sequence | None, list[Row]]:
    """Returns a sequence with its troubles, and its findings; None where the findings are of no sequence."""
    sequence: Sequence | None = None
    troubles: list[Trouble] = []
    findings: list[Row] = []
    senders: list[SenderSpan] = []
    for event in events:
        match event.of:
            case SequenceSpan():
                sequence = Sequence(event.of, troubles, senders)
            case SenderSpan():
                senders.append(event.of)
            case OutcomeCount():
                if trouble := trouble_of_outcome(event.of):
                    troubles.append(trouble)
            case finding:
                findings.append(finding)
                troubles.append(trouble_of_finding(finding))
    return sequence, findings


@dataclass(frozen=True, slots=True)
class Story:
    """Holds the sequences of an incident, and the findings about them."""

    sequences: list[Sequence]
    findings: list[Row]

    @property
    def is_reused(self) -> bool:
        """Returns whether numbers were used again."""
        return any(sequence.is_reused for sequence in self.sequences)

    def goes_on(self, latest: datetime | None) -> bool:
        """Returns whether numbers are still used twice, where the `latest` sequence of the scope began then.

        By several machines: until all but one are silent, and that one has begun a sequence since. By one: until it has
        begun a sequence after the last trouble.
        """
        seen = sorted(
            {one.address: _in_order(one.last_seen_at) for of in self.sequences for one in of.senders}.values()
        )
        silent_since = seen[-2] if len(seen) > 1 else _in_order(_latest(one.ended_at for one in self.sequences))
        return _in_order(latest) <= silent_since


def _severity(outcome: IncidentOutcome, stuck: int) -> Severity:
    """Returns how soon to look: at once where messages are lost, or still refused at the end of the captures."""
    if outcome is IncidentOutcome.LOST or stuck:
        return Severity.ERROR
    return Severity.INFO if outcome is IncidentOutcome.REPAIRED else Severity.WARNING


def senders_of(story: Story) -> list[Row]:
    """Returns the addresses that the sender used, the first one first.

    One is suspected where numbers were used twice, and it was seen later, while another still sent: probably the copy.
    """
    spans: dict[str, list[SenderSpan]] = defaultdict(list)
    for sequence in story.sequences:
        for one in sequence.senders:
            spans[one.address].append(one)
    rows: list[Row] = []
    for address, parts in sorted(spans.items(), key=lambda item: (_in_order(item[1][0].first_seen_at), item[0])):
        began = parts[0].first_seen_at
        others_until = [row["last_seen_at"] for row in rows if row["last_seen_at"] is not None]
        rows.append(
            {
                "address": address,
                "first_seen_at": began,
                "last_seen_at": parts[0].last_seen_at,
                **{name: sum(getattr(one, name) for one in parts) for name in ("messages", "accepted", "lost")},
                "suspected": story.is_reused and began is not None and max(others_until, default=began) > began,
            }
        )
    return rows


def incident_row(told: Story) -> Row:
    """Returns a row of INCIDENTS; its ID is a hash of the scope and of the first sequence."""
    story, first = told.sequences, told.sequences[0].span
    troubles = [one for sequence in story for one in sequence.troubles]
    counts = dict.fromkeys(_COUNTS, 0)
    for trouble in troubles:
        for name, count in trouble.counts.items():
            counts[name] += count
    cause = min((one.cause for one in troubles), key=list(Cause).index)
    outcome = next((one for one in IncidentOutcome if counts.get(one.value)), IncidentOutcome.REPAIRED)
    worst = min(troubles, key=lambda one: (one.rank, _in_order(one.at), sorted(one.witness)))
    senders = senders_of(told)
    concerned = _earliest(one.began_at for one in troubles if one.counts.get(outcome.value))
    undelivered = [one for one in troubles if not one.counts.keys().isdisjoint(("lost", "pending"))]
    harm = [Harm(one.cause, _RANKED[one.rank], one.counts.get("lost", 0)) for one in undelivered]
    session_id, queue = min(story, key=lambda one: (_in_order(one.began_at), one.span.tx_sequence_id)).place
    return counts | {
        "incident_id": sha256(f"{first.scope_key} {first.tx_sequence_id}".encode()).hexdigest()[:16],
        "cause": cause.value,
        "outcome": outcome.value,
        "severity": _severity(outcome, counts["stuck"]).value,
        "session_id": session_id,
        "scope_key": first.scope_key,
        "source_queue_manager": first.source_queue_manager,
        "destination_queue": queue,
        "destination_queues": sorted({name for one in troubles for name in one.queues}),
        "tx_sequence_id": first.tx_sequence_id,
        "tx_sequence": tx_sequence(first.tx_sequence_id),
        "sequences": len(story),
        "began_at": concerned or _earliest(one.began_at for one in story),
        "ended_at": _latest(one.ended_at for one in story),
        "last_captured_at": _latest(one.span.last_captured_at for one in story),
        "ongoing": counts["pending"] > 0,
        "senders": senders,
        "advice": advise(cause, outcome, senders),
        "explanation": sentence_of(first.tx_sequence_id, len(story) - 1, cause, counts, harm, _missing(story)),
        "witness": [key for key in worst.witness if key is not None],
    }


def _missing(story: list[Sequence]) -> str:
    """Returns the numbers that the receiver waits for first, where they never arrived; else an empty text."""
    for sequence in story:
        if pending := [one for one in sequence.troubles if "pending" in one.counts]:
            first = min(pending, key=attrgetter("first_undelivered"))
            low, high, many = first.first_undelivered, first.undelivered, first.counts["pending"]
            numbers = number_range(low, high) if high - low < many else f"number {low} and {many - 1} more"
            where = f" of sequence {tx_sequence(sequence.span.tx_sequence_id)}" if len(story) > 1 else ""
            return f"{numbers}{where}" if _RANKED[first.rank] is Outcome.AWAITED else ""
    return ""
