"""Puts outcomes and findings together as incidents: one row for one story.

An incident is what happened to one sequence of a scope. Two sequences are one incident when the earlier one was not
over: its troubles reach into the time of the later one, or its sender gave up its last messages and the later one is in
trouble from its first message on. Sequences whose numbers were used again are one incident as well, if no other trouble
lies between them: a cloned sender spoils one sequence after the other.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from schemas.explained import EXPLAINED
from schemas.incidents import INCIDENTS, Cause, IncidentOutcome
from schemas.outcomes import LOSS_UNKNOWN, LOST, Outcome
from schemas.replay import FindingKind, Severity
from schemas.table import arrow_schema
from udfs.replay.rows import Batches, read_rows, write_rows
from udfs.replay.words import all_counted, counted, tx_sequence

_PENDING = (Outcome.PENDING, Outcome.AWAITED)
_RANKED = (
    *(*LOST, *_PENDING, *LOSS_UNKNOWN, Outcome.DELIVERED_AFTER_REFUSAL),
    *(Outcome.DELIVERED_TWICE, Outcome.NOT_READ, Outcome.EXPIRED_UNSEEN),
)
"""The outcomes that are part of a story, the worst first."""
_BY_GRAVITY = list(reversed(Severity))
_CAUSES = list(Cause)
_SHOWN_BY: Mapping[Cause, tuple[Outcome | FindingKind, ...]] = {
    Cause.REFUSED_FOR_CAUSE: (Outcome.REFUSED_FOR_CAUSE, FindingKind.REFUSED_FOR_CAUSE),
    Cause.NUMBER_REUSED: (Outcome.DISPLACED, FindingKind.DUPLICATES_DIFFER),
    Cause.SEQUENCE_REGRESSED: (FindingKind.SEQUENCE_REGRESSED, FindingKind.ORDINAL_REGRESSED),
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
    Cause.TRANSACTION: (
        *(FindingKind.TORN_TRANSACTION, FindingKind.INTERLEAVED_TRANSACTION, FindingKind.TRANSACTION_PARTLY_DELIVERED),
    ),
    Cause.ACKNOWLEDGMENT: (FindingKind.UNACKNOWLEDGED, FindingKind.SLOW_ACKNOWLEDGMENT, FindingKind.REPEATED_ORDER_ACK),
    Cause.RESENT: (FindingKind.DUPLICATES, FindingKind.RESEND_SCHEDULE),
}
_CAUSE_OF = {shown: cause for cause, of in _SHOWN_BY.items() for shown in of}
_EXPLAINING = (FindingKind.TWO_ADDRESSES, FindingKind.ORDINAL_REGRESSED)
"""Kinds that are part of a story, but make none of a sequence to which nothing else happened."""
_SENTENCES: Mapping[Cause, str] = {
    Cause.REFUSED_FOR_CAUSE: "The receiver refused messages of {} for a cause that its FinalAck names",
    Cause.NUMBER_REUSED: "Numbers of {} were used again for different messages, so that the receiver accepted only one "
    "message of each number",
    Cause.SEQUENCE_REGRESSED: "The sender of {} went back to numbers or to a sequence that the receiver had passed, as "
    "after a restore from a backup",
    Cause.MESSAGE_MISSING: "A message of {} did not arrive in its turn, so the receiver refused those after it",
    Cause.CONTRADICTED: "The receiver's acknowledgments of {} contradict the replay",
    Cause.CAPTURE_INCOMPLETE: "The captures do not hold all of {}, or not in a sure order",
    Cause.DELIVERED_TWICE: "Messages of {} were accepted more than once",
    Cause.NOT_READ: "Messages of {} left their queue unread",
    Cause.EXPIRED: "The sender of {} skipped numbers, as it does when messages expire before they are sent",
    Cause.TRANSACTION: "Transactions of {} are torn or mixed with others",
    Cause.ACKNOWLEDGMENT: "Acknowledgments of {} were late, missing or repeated",
    Cause.RESENT: "Messages of {} were sent again although the receiver had them",
    Cause.OTHER: "Something unusual happened to {}",
}


class SequenceSpan(NamedTuple):
    """Holds what a row of SEQUENCES says of a sequence."""

    source_queue_manager: str
    first_captured_at: datetime | None
    last_captured_at: datetime | None
    last_accepted_number: int | None


class OutcomeCount(NamedTuple):
    """Holds the messages and numbers of a sequence that have one outcome."""

    outcome: str
    numbers: int
    stuck: int
    last_number: int
    began_at: datetime | None
    ended_at: datetime | None
    first_at: datetime | None
    """When the first of them was seen, as far as any was."""
    witness: list[str]
    """Of the first."""
    session_id: str
    destination_queue: str | None


class Event(NamedTuple):
    """Holds a row that the pass reads: what is known of a sequence, an outcome in it, or a finding about it."""

    scope_key: str | None
    tx_sequence_id: Decimal | None
    span: dict[str, Any] | None
    outcome: dict[str, Any] | None
    finding: dict[str, Any] | None
    """A row of FINDINGS."""


_NO_TIME = (False, datetime(1970, 1, 1, tzinfo=UTC))


def _time(time: datetime | None) -> tuple[bool, datetime]:
    """Returns a key that sorts times, and what has none before them."""
    return _NO_TIME if time is None else (True, time)


def _earlier(*times: datetime | None) -> datetime | None:
    return min((time for time in times if time is not None), default=None)


def _later(*times: datetime | None) -> datetime | None:
    return max((time for time in times if time is not None), default=None)


@dataclass(slots=True)
class Troubles:
    """Adds up what happened to a sequence or, later, in a whole story."""

    began_at: datetime | None = None
    ended_at: datetime | None = None
    cause: Cause = Cause.OTHER
    lost: int = 0
    pending: int = 0
    unknown: int = 0
    repaired: int = 0
    expired: int = 0
    stuck: int = 0
    findings: int = 0
    worst: tuple[Any, ...] = (len(_RANKED) + len(Severity) + 1, _NO_TIME, [])
    """Rank, time and witness of the worst that happened."""

    def add(self, other: "Troubles") -> None:
        """Adds what happened."""
        self.began_at = _earlier(self.began_at, other.began_at)
        self.ended_at = _later(self.ended_at, other.ended_at)
        self.cause = min(self.cause, other.cause, key=_CAUSES.index)
        for name in ("lost", "pending", "unknown", "repaired", "expired", "stuck", "findings"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.worst = min(self.worst, other.worst)


@dataclass(slots=True)
class SequenceTroubles:
    """Holds what happened to one sequence."""

    scope_key: str
    tx_sequence_id: int
    span: SequenceSpan
    troubles: Troubles = field(default_factory=Troubles)
    is_story: bool = False
    """Something happened that makes a story by itself."""
    is_reused: bool = False
    undelivered: int = 0
    """The highest number of a message that is lost or pending."""
    place: tuple[Any, ...] = ()
    """Session and queue of the first message concerned, behind its time and rank."""

    def _add(self, troubles: Troubles, session_id: str | None, queue: str | None) -> None:
        self.troubles.add(troubles)
        self.is_reused |= troubles.cause is Cause.NUMBER_REUSED
        place = (_time(troubles.began_at), troubles.worst[0], session_id or "", queue or "")
        self.place = min(self.place or place, place)

    def add_outcome(self, count: OutcomeCount) -> None:
        """Adds an outcome, unless it is nobody's trouble."""
        outcome = Outcome(count.outcome)
        if outcome not in _RANKED:
            return
        troubles = Troubles(
            began_at=count.began_at,
            ended_at=count.ended_at,
            cause=_CAUSE_OF[outcome],
            lost=count.numbers if outcome in LOST else 0,
            pending=count.numbers if outcome in _PENDING else 0,
            unknown=count.numbers if outcome in LOSS_UNKNOWN else 0,
            repaired=count.numbers if outcome is Outcome.DELIVERED_AFTER_REFUSAL else 0,
            expired=count.numbers if outcome is Outcome.EXPIRED_UNSEEN else 0,
            stuck=count.stuck,
            worst=(_RANKED.index(outcome), _time(count.first_at), count.witness),
        )
        self._add(troubles, count.session_id, count.destination_queue)
        self.is_story = True
        if troubles.lost or troubles.pending:
            self.undelivered = max(self.undelivered, count.last_number)

    def add_finding(self, finding: Mapping[str, Any]) -> None:
        """Adds a row of FINDINGS."""
        kind, at = FindingKind(finding["kind"]), finding["found_at"]
        rank = len(_RANKED) + _BY_GRAVITY.index(Severity(finding["severity"]))
        cause, worst = _CAUSE_OF.get(kind, Cause.OTHER), (rank, _time(at), finding["witness"])
        troubles = Troubles(began_at=at, ended_at=at, cause=cause, findings=1, worst=worst)
        self._add(troubles, finding["session_id"], finding["destination_queue"])
        self.is_story |= kind not in _EXPLAINING

    def goes_on_from(self, last: "SequenceTroubles", before: "SequenceTroubles | None") -> bool:
        """Returns whether it is part of the story of `last`, the last eventful one; `before` is directly before it."""
        if self.is_reused and last.is_reused:
            return True
        if before is None or not before.is_story:
            return False
        began, first = self.troubles.began_at, self.span.first_captured_at
        ended = before.troubles.ended_at
        reaches_in = ended is not None and first is not None and ended >= first
        is_given_up = before.undelivered > (before.span.last_accepted_number or 0)
        from_the_first = began is None or first is None or began <= first
        return reaches_in or (is_given_up and from_the_first)


@dataclass(slots=True)
class Story:
    """Holds the sequences of one incident."""

    sequences: list[SequenceTroubles]

    @property
    def incident_id(self) -> str:
        """Hash of the scope and of the first sequence."""
        first = self.sequences[0]
        return sha256(f"{first.scope_key} {first.tx_sequence_id}".encode()).hexdigest()[:16]


def explain_incidents(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Turns rows of Event into rows of EXPLAINED; the events of a scope come together, in the order of sequences."""
    return write_rows(explain_events(read_rows(batches, Event)), arrow_schema(EXPLAINED))


def explain_events(events: Iterable[Event]) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any] | None]]:
    """Yields findings with their `incident_id`, and incidents; one of the two is None."""
    for _, of_scope in groupby(events, attrgetter("scope_key")):
        story: Story | None = None
        before: SequenceTroubles | None = None
        for _, of_sequence in groupby(of_scope, attrgetter("tx_sequence_id")):
            sequence, findings = read_sequence(of_sequence)
            incident_id = None
            if sequence is not None and sequence.is_story:
                if story is not None and sequence.goes_on_from(story.sequences[-1], before):
                    story.sequences.append(sequence)
                else:
                    if story is not None:
                        yield None, incident_row(story)
                    story = Story([sequence])
                incident_id = story.incident_id
            before = sequence
            yield from ((finding | {"incident_id": incident_id}, None) for finding in findings)
        if story is not None:
            yield None, incident_row(story)


def read_sequence(events: Iterable[Event]) -> tuple[SequenceTroubles | None, list[dict[str, Any]]]:
    """Returns what happened to a sequence, and its findings; None where the events are of no sequence."""
    outcomes, findings, span = [], [], None
    for event in events:
        if event.span is not None:
            span = event
        if event.outcome is not None:
            outcomes.append(OutcomeCount(**event.outcome))
        if event.finding is not None:
            findings.append(event.finding)
    if span is None or span.span is None or span.scope_key is None or span.tx_sequence_id is None:
        return None, findings
    sequence = SequenceTroubles(span.scope_key, int(span.tx_sequence_id), SequenceSpan(**span.span))
    for outcome in outcomes:
        sequence.add_outcome(outcome)
    for finding in findings:
        sequence.add_finding(finding)
    troubles = sequence.troubles
    troubles.began_at = troubles.began_at or sequence.span.first_captured_at
    troubles.ended_at = troubles.ended_at or sequence.span.last_captured_at
    return sequence, findings


def incident_row(story: Story) -> dict[str, Any]:
    """Returns a row of INCIDENTS."""
    first, whole = story.sequences[0], Troubles()
    for sequence in story.sequences:
        whole.add(sequence.troubles)
    outcome = _outcome(whole)
    placed = min(story.sequences, key=lambda one: (_time(one.troubles.began_at), one.tx_sequence_id))
    *_, session_id, queue = placed.place
    row = {
        "incident_id": story.incident_id,
        "cause": whole.cause.value,
        "outcome": outcome.value,
        "severity": _SEVERITY_OF.get(outcome, Severity.WARNING).value,
        "session_id": session_id,
        "scope_key": first.scope_key,
        "source_queue_manager": first.span.source_queue_manager,
        "destination_queue": queue or None,
        "tx_sequence_id": first.tx_sequence_id,
        "tx_sequence": tx_sequence(first.tx_sequence_id),
        "sequences": len(story.sequences),
        "last_captured_at": _later(*(one.span.last_captured_at for one in story.sequences)),
        "explanation": _sentence(story, whole),
        "witness": [key for key in whole.worst[2] if key is not None],
    }
    return row | {name: getattr(whole, name) for name in INCIDENTS.names if name not in row}


_SEVERITY_OF = {IncidentOutcome.LOST: Severity.ERROR, IncidentOutcome.REPAIRED: Severity.INFO}


def _outcome(whole: Troubles) -> IncidentOutcome:
    if whole.lost:
        return IncidentOutcome.LOST
    if whole.pending:
        return IncidentOutcome.PENDING
    return IncidentOutcome.UNKNOWN if whole.unknown else IncidentOutcome.REPAIRED


def _sentence(story: Story, whole: Troubles) -> str:
    """Returns cause and outcome in one sentence."""
    name, more = f"sequence {tx_sequence(story.sequences[0].tx_sequence_id)}", len(story.sequences) - 1
    if more:
        name += f" and {counted(more, 'sequence after it', 'sequences after it')}"
    stuck = f" ({whole.stuck} resent and refused again)" if whole.stuck else ""
    said = all_counted(
        [
            (whole.lost, "message was lost", "messages were lost"),
            (whole.pending, f"message is pending{stuck}", f"messages are pending{stuck}"),
            (whole.unknown, "message has an unknown outcome", "messages have an unknown outcome"),
            (whole.repaired, "message was delivered after a refusal", "messages were delivered after a refusal"),
            (whole.expired, "number expired unseen", "numbers expired unseen"),
        ]
    )
    return f"{_SENTENCES[whole.cause].format(name)}: {', '.join(said) or 'no message was lost'}."
