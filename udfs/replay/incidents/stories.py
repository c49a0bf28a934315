"""Puts outcomes and findings together as incidents: one row for one story.

An incident is what happened to one sequence of a scope. Two sequences are one incident when the earlier one was not
over: its troubles reach into the time of the later one, or its sender gave up its last messages and the later one is in
trouble from its first message on. Sequences whose numbers were used again are one incident as well, if no other trouble
lies between them: a cloned sender spoils one sequence after the other.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from schemas.incidents import Cause, IncidentOutcome
from schemas.outcomes import DELIVERED, LOSS_UNKNOWN, LOST, NOT_KNOWN, Outcome
from schemas.replay import FindingKind, Severity
from udfs.frames.columns import SEQUENCE
from udfs.replay.incidents.advice import CAUSE_OF, PENDING, advise, machines_of, sentence_of
from udfs.replay.words import number_range, sequence_name, tx_sequence

Row = dict[str, Any]
_RANKED = (
    *(*LOST, *PENDING, Outcome.UNACKNOWLEDGED, *NOT_KNOWN, Outcome.DELIVERED_AFTER_REFUSAL),
    *(Outcome.DELIVERED_TWICE, Outcome.NOT_READ, Outcome.EXPIRED_UNSEEN),
)
"""The outcomes that are part of a story, the worst first."""
_BY_GRAVITY = [severity.value for severity in reversed(Severity)]
"""The gravest first."""
_COUNTED: Mapping[str, tuple[Outcome, ...]] = {
    "lost": LOST,
    "pending": PENDING,
    "unacknowledged": (Outcome.UNACKNOWLEDGED,),
    "unknown": NOT_KNOWN,
    "repaired": (Outcome.DELIVERED_AFTER_REFUSAL,),
    "expired": (Outcome.EXPIRED_UNSEEN,),
}
"""The columns of INCIDENTS that count messages, and numbers never seen, by their outcome."""
_UNTIL_DELIVERED = (*LOSS_UNKNOWN, Outcome.REFUSED_FOR_CAUSE)
"""Outcomes of which the end is known only where a later message was delivered: a cause goes on until it is mended."""
_HARM = ("lost", "pending")
_COLUMNS = {"lost": "lost_messages", "stuck": "stuck_messages"}
"""Columns of INCIDENTS that are not named like what they count."""
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
    receivers: list[str]
    """Addresses that its messages were sent to."""
    is_shared: bool = False
    """Whether messages of the sequence went to several queue managers at one address."""
    delivered_later: bool = False
    """Whether a message of a later sequence of its scope was delivered."""


class OutcomeCount(NamedTuple):
    """Holds the messages and numbers of a sequence that have one outcome; or a finding on it, by its kind."""

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
    classes: list[int]
    """Of the FinalAcks that name them."""
    resent: int
    """How many of them their sender still sends, without an acknowledgment."""
    undecided: int = 0
    """How many of them were lost, though clocks that nothing compares do not tell which."""


class Event(NamedTuple):
    """Holds what is known of a sequence, an outcome in it, an address that sent it, or a finding with keys."""

    scope_key: str | None
    tx_sequence_id: int | None
    of: SequenceSpan | OutcomeCount | SenderSpan | Row


class Trouble(NamedTuple):
    """Holds what an outcome or a finding adds to the story of its sequence."""

    shows: Outcome | FindingKind
    rank: int
    """The worst has the lowest."""
    of: OutcomeCount

    @property
    def cause(self) -> Cause:
        """Returns what it shows."""
        return Cause.NUMBER_REUSED if self.of.undecided else CAUSE_OF.get(self.shows, Cause.OTHER)

    @property
    def counts_as(self) -> str | None:
        """Returns which column of INCIDENTS counts its messages; None for a finding."""
        return next((name for name, of in _COUNTED.items() if self.of.numbers and self.shows in of), None)

    @property
    def undelivered(self) -> int:
        """Returns the highest number of a message that is lost or pending; 0 for none."""
        return self.of.last_number if self.counts_as in _HARM else 0


def _earliest(times: Iterable[datetime | None]) -> datetime | None:
    return min((time for time in times if time is not None), default=None)


def _latest(times: Iterable[datetime | None]) -> datetime | None:
    return max((time for time in times if time is not None), default=None)


def _in_order(time: datetime | None) -> tuple[bool, datetime]:
    """Returns a key that sorts times; what has none comes first."""
    return time is not None, time or datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class Sequence:
    """Holds a sequence, its troubles and findings, and the addresses that its messages came from."""

    span: SequenceSpan | None = None
    """None where the findings are of no sequence."""
    troubles: list[Trouble] = field(default_factory=list)
    senders: list[SenderSpan] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    reached: int = 0
    """The highest number that was delivered, as far as it is known."""

    def add(self, event: SequenceSpan | OutcomeCount | SenderSpan | Row) -> None:
        """Adds what is known; an outcome that is nobody's trouble is left out."""
        match event:
            case SequenceSpan():
                self.span = event
                self.reached = max(self.reached, event.last_accepted_number or 0)
            case SenderSpan():
                self.senders.append(event)
            case OutcomeCount():
                outcome = Outcome(event.outcome)
                self.reached = max(self.reached, event.last_number if outcome in DELIVERED else 0)
                if outcome in _RANKED:
                    self.troubles.append(Trouble(outcome, _RANKED.index(outcome), event))
            case finding:
                self.findings.append(finding)
                at, queue = finding["found_at"], finding["destination_queue"]
                place = finding["session_id"], queue, [] if queue is None else [queue]
                count = OutcomeCount(finding["kind"], 0, 0, 0, 0, at, at, at, finding["witness"], *place, [], 0)
                rank = len(_RANKED) + _BY_GRAVITY.index(finding["severity"])
                self.troubles.append(Trouble(FindingKind(finding["kind"]), rank, count))

    @property
    def has_story(self) -> bool:
        """Returns whether something happened that makes a story by itself."""
        return self.span is not None and any(one.shows not in _EXPLAINING for one in self.troubles)

    @property
    def known(self) -> SequenceSpan:
        """Returns the span of a sequence that has a story."""
        assert self.span is not None  # noqa: S101 - without one it has none
        return self.span

    @property
    def is_reused(self) -> bool:
        """Returns whether numbers were used again."""
        return any(one.cause is Cause.NUMBER_REUSED for one in self.troubles)

    @property
    def began_at(self) -> datetime | None:
        """Returns when its troubles began."""
        return _earliest(one.of.began_at for one in self.troubles) or self.known.first_captured_at

    @property
    def ended_at(self) -> datetime | None:
        """Returns when its troubles ended."""
        return _latest(one.of.ended_at for one in self.troubles) or self.known.last_captured_at

    @property
    def is_shown_to_end(self) -> bool:
        """Returns whether its receiver is seen to go on after all that it refused or that the captures do not tell."""
        doubtful = [one.of.last_number for one in self.troubles if one.shows in _UNTIL_DELIVERED]
        return self.known.delivered_later or not doubtful or max(doubtful) < self.reached

    @property
    def place(self) -> tuple[str, str | None]:
        """Returns session and queue of the first message concerned."""

        def order(one: Trouble) -> tuple[Any, ...]:
            return *_in_order(one.of.began_at), one.rank, one.of.session_id, one.of.destination_queue or ""

        first = min(self.troubles, key=order).of
        return first.session_id, first.destination_queue

    def goes_on_from(self, last: "Sequence", *, is_next: bool) -> bool:
        """Returns whether it is part of the story of `last`, the last that has one; `is_next`: it directly follows."""
        if self.is_reused and last.is_reused:
            return True
        if not is_next:
            return False
        began, ended, first = self.began_at, last.ended_at, self.known.first_captured_at
        reaches_in = ended is not None and first is not None and ended >= first
        from_the_first = began is None or first is None or began <= first
        gave_up = max(one.undelivered for one in last.troubles) > (last.known.last_accepted_number or 0)
        return reaches_in or (gave_up and from_the_first)


_WHERE_SHARED = {Cause.SEQUENCE_REGRESSED, Cause.MESSAGE_MISSING, Cause.DELIVERED_TWICE}
"""Causes that also seem to be there where several receivers share a sequence: each knows only what it accepted."""
_MISSING = (*PENDING, Outcome.NEVER_SEEN)
"""Outcomes of messages that may still be found; without one, what was lost came too late."""
Story = list[Sequence]
"""The sequences of an incident."""


def explain_events(events: Iterable[Event]) -> tuple[list[Row], list[Row], list[Row]]:
    """Returns findings with their `incident_id`, none graver than its incident, incidents, and their sequences.

    The events of a scope come together, in the order of sequences.
    """
    findings: list[Row] = []
    incidents: list[Row] = []
    concerned: list[Row] = []
    for _, of_scope in groupby(events, attrgetter("scope_key")):
        sequences: list[Sequence] = []
        stories: list[Story] = []
        for _, of_sequence in groupby(of_scope, attrgetter("tx_sequence_id")):
            sequences.append(sequence := Sequence())
            for event in of_sequence:
                sequence.add(event.of)
            if not sequence.has_story:
                findings += [finding | {"incident_id": None} for finding in sequence.findings]
            elif stories and sequence.goes_on_from(last := stories[-1][-1], is_next=last is sequences[-2]):
                stories[-1].append(sequence)
            else:
                stories.append([sequence])
        latest = _latest(one.span.first_captured_at for one in sequences if one.span)
        reused = [story for story in stories if _is_reused(story)]
        for story in stories:
            incident = incident_row(story)
            # Of the stories in which numbers were used again, only the last can go on for that.
            if reused and story is reused[-1] and _goes_on(story, latest):
                incident["ongoing"] = True
            incidents.append(incident)
            concerned += [
                {name: getattr(one.known, name) for name in SEQUENCE} | {"incident_id": incident["incident_id"]}
                for one in story
            ]
            for finding in (one for sequence in story for one in sequence.findings):
                severity = max(finding["severity"], incident["severity"], key=_BY_GRAVITY.index)
                findings.append(finding | {"incident_id": incident["incident_id"], "severity": severity})
    return findings, incidents, concerned


def _is_reused(story: Story) -> bool:
    return any(sequence.is_reused for sequence in story)


def _goes_on(story: Story, latest: datetime | None) -> bool:
    """Returns whether numbers are still used twice, where the `latest` sequence of the scope began then.

    By several machines: until all but one are silent, and that one has begun a sequence since. By one: until it has
    begun a sequence after the last trouble.
    """
    seen = sorted({one.address: _in_order(one.last_seen_at) for of in story for one in of.senders}.values())
    silent_since = seen[-2] if len(seen) > 1 else _in_order(_latest(one.ended_at for one in story))
    return _in_order(latest) <= silent_since


def _severity(outcome: IncidentOutcome, stuck: int) -> Severity:
    """Returns how soon to look: at once where messages are lost, never acknowledged, or still refused at the end."""
    if outcome in (IncidentOutcome.LOST, IncidentOutcome.UNACKNOWLEDGED) or stuck:
        return Severity.ERROR
    return Severity.INFO if outcome is IncidentOutcome.REPAIRED else Severity.WARNING


def _undecided(story: Story) -> int:
    """Returns how many messages were lost of which clocks that nothing compares do not tell whose they are."""
    return sum(one.of.undecided for sequence in story for one in sequence.troubles)


def senders_of(story: Story) -> list[Row]:
    """Returns the addresses that the sender used, the first one first.

    One is suspected where numbers were used twice, and it was seen later, while another still sent: probably the copy.
    None is, where nothing compares the clocks by which it came later.
    """
    may_be_suspected = _is_reused(story) and not _undecided(story)
    spans: dict[str, list[SenderSpan]] = defaultdict(list)
    for sequence in story:
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
                "suspected": may_be_suspected and began is not None and max(others_until, default=began) > began,
            }
        )
    return rows


def incident_row(story: Story) -> Row:
    """Returns a row of INCIDENTS; its ID is a hash of the scope and of the first sequence."""
    first, troubles = story[0].known, [one for sequence in story for one in sequence.troubles]
    counts = {name: sum(one.of.numbers for one in troubles if one.counts_as == name) for name in _COUNTED}
    counts["stuck"] = sum(one.of.stuck for one in troubles)
    outcome = next((one for one in IncidentOutcome if counts[one.value]), IncidentOutcome.REPAIRED)
    cause = _cause_of(troubles, outcome, is_shared=any(one.known.is_shared for one in story))
    worst = min(troubles, key=lambda one: (one.rank, _in_order(one.of.first_at), sorted(one.of.witness)))
    senders = senders_of(story)
    concerned = _earliest(one.of.began_at for one in troubles if one.counts_as == outcome.value)
    waits = counts["pending"] > 0 or any(one.of.resent for one in troubles)
    harm = Counter[Outcome]()
    for one in troubles:
        if one.counts_as in _HARM:
            harm[Outcome(one.shows)] += one.of.numbers
    session_id, queue = min(story, key=lambda one: (_in_order(one.began_at), one.known.tx_sequence_id)).place
    classes = sorted({one for trouble in troubles for one in trouble.of.classes})
    undecided = _undecided(story)
    row: Row = {
        "incident_id": sha256(f"{first.scope_key} {first.tx_sequence_id}".encode()).hexdigest()[:16],
        "cause": cause.value,
        "outcome": outcome.value,
        "severity": _severity(outcome, counts["stuck"] + undecided).value,
        "session_id": session_id,
        "scope_key": first.scope_key,
        "source_queue_manager": first.source_queue_manager,
        "destination_queue": queue,
        "destination_queues": sorted({name for one in troubles for name in one.of.queues}),
        "tx_sequence_id": first.tx_sequence_id,
        "tx_sequence": tx_sequence(first.tx_sequence_id),
        "sequences": len(story),
        "began_at": concerned or _earliest(one.began_at for one in story),
        "ended_at": _latest(one.ended_at for one in story),
        "last_captured_at": _latest(one.known.last_captured_at for one in story),
        "findings": sum(len(one.findings) for one in story),
        "ongoing": waits or (False if all(one.is_shown_to_end for one in story) else None),
        "senders": senders,
        "receivers": sorted({address for one in story for address in one.known.receivers}),
        "advice": advise(cause, outcome, senders, classes, is_missing=any(one.shows in _MISSING for one in troubles)),
        **{_COLUMNS.get(name, name): many for name, many in counts.items()},
        "undecided": undecided,
        "explanation": sentence_of(
            first.tx_sequence_id, len(story) - 1, cause, counts, harm, _missing(story), undecided
        ),
        "witness": [key for key in worst.of.witness if key is not None],
    }
    return row | {"go_to": machines_of(row, classes)}


def _cause_of(troubles: Iterable[Trouble], outcome: IncidentOutcome, *, is_shared: bool) -> Cause:
    """Returns the cause that explains the most.

    Messages that came out of turn explain nothing where the worst is that some were never acknowledged, or that the
    captures do not tell what became of them: what was missing has come. And where several receivers `shared` them, it
    is not the sender that went back or left some out.
    """
    causes = {one.cause for one in troubles}
    if is_shared and causes & _WHERE_SHARED:
        causes -= _WHERE_SHARED
        causes |= set() if Cause.RECEIVER_REPLACED in causes else {Cause.SEVERAL_RECEIVERS}
    if outcome in (IncidentOutcome.UNACKNOWLEDGED, IncidentOutcome.UNKNOWN):
        causes.discard(Cause.MESSAGE_MISSING)
    return min(causes, key=list(Cause).index)


def _missing(story: Story) -> str:
    """Returns the numbers that the receiver waits for first, where they never arrived; else an empty text."""
    for sequence in story:
        if pending := [one for one in sequence.troubles if one.shows in PENDING]:
            first = min(pending, key=lambda one: one.of.first_number)
            low, high, many = first.of.first_number, first.of.last_number, first.of.numbers
            numbers = number_range(low, high) if high - low < many else f"number {low} and {many - 1} more"
            where = f" of {sequence_name(sequence.known.tx_sequence_id)}" if len(story) > 1 else ""
            return f"{numbers}{where}" if first.shows is Outcome.AWAITED else ""
    return ""
