"""A second computation of incidents: plain Python, one sequence after the other.

From outcomes.md ("Incidents"), DECISIONS 90 and 101 and the comments of `incidents`. It takes rows of
`outcomes`, `sequences` and `findings`.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from plain_finding import Finding, Row

from schemas.replay import FindingKind as K

LOST = ("displaced", "given_up", "passed_by", "never_seen", "refused_for_cause")
PENDING = ("pending", "awaited")
UNKNOWN = ("contradicted", "unknown")
WORST_FIRST = (
    *(
        *LOST,
        *PENDING,
        "unacknowledged",
        *UNKNOWN,
        "delivered_after_refusal",
        "delivered_twice",
        "not_read",
        "expired_unseen",
    ),
    *("error", "warning", "info"),
)
"""Outcomes and severities of findings."""
CAUSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("refused_for_cause", ("refused_for_cause", K.REFUSED_FOR_CAUSE)),
    ("number_reused", ("displaced", K.DUPLICATES_DIFFER)),
    ("several_receivers", ()),
    ("sequence_regressed", (K.SEQUENCE_REGRESSED,)),
    (
        "message_missing",
        (
            *("given_up", "passed_by", "never_seen", "pending", "awaited", "delivered_after_refusal"),
            *(K.OUT_OF_ORDER, K.STUCK_SEQUENCE),
        ),
    ),
    ("cannot_connect", (K.CANNOT_CONNECT,)),
    ("acknowledged_elsewhere", (K.ACKNOWLEDGED_ELSEWHERE,)),
    ("closed_by_receiver", (K.CLOSED_BY_RECEIVER,)),
    ("receiver_replaced", (K.RECEIVER_REPLACED,)),
    ("acknowledgment_fell", (K.ACKNOWLEDGMENT_FELL,)),
    ("never_answered", (K.NEVER_ANSWERED,)),
    ("contradicted", ("contradicted", K.CONTRADICTED)),
    ("capture_incomplete", ("unknown", K.CAPTURE_GAP, K.MISSED_BY_CAPTURE, K.CLOCKS_DIFFER)),
    ("delivered_twice", ("delivered_twice",)),
    ("not_read", ("not_read",)),
    ("expired", ("expired_unseen", K.GAP_EXPIRED, K.EXPIRED_ON_ARRIVAL)),
    ("transaction", (K.TORN_TRANSACTION, K.TRANSACTION_PARTLY_DELIVERED)),
    ("acknowledgment", (K.UNACKNOWLEDGED, K.SLOW_ACKNOWLEDGMENT, K.REPEATED_ORDER_ACK)),
    ("resent", (K.DUPLICATES, K.RESEND_SCHEDULE)),
    ("other", ()),
)
"""A cause, and the outcomes and kinds of findings that show it; what explains the most comes first."""
EXPLAINING = (K.TWO_ADDRESSES,)
"""Kinds that are part of a story, but make none."""


class Event(NamedTuple):
    """An outcome or a finding that is part of a story."""

    shows: str
    began_at: int | None
    ended_at: int | None
    rank: int
    cause: int
    place: tuple[str | None, str | None]
    witness: list[str]
    row: Row | None
    """Of an outcome."""


def place_in_causes(shows: str) -> int:
    """Returns the place of the cause that an outcome or a kind of finding shows."""
    return next((at for at, (_, shown) in enumerate(CAUSES) if shows in shown), len(CAUSES) - 1)


class Trouble:
    """What happened to one sequence of a scope."""

    def __init__(self, sequence: Row, events: list[Event]) -> None:
        self.sequence, self.events = sequence, events
        began = [event.began_at for event in events if event.began_at is not None]
        ended = [event.ended_at for event in events if event.ended_at is not None]
        self.began_at = min(began, default=sequence["first_captured_at"])
        self.ended_at = max(ended, default=sequence["last_captured_at"])
        self.reused = any(CAUSES[event.cause][0] == "number_reused" for event in events)

    @property
    def given_up(self) -> bool:
        """Whether its last messages were neither accepted nor will be."""
        undelivered = [
            event.row["tx_sequence_number"] + (event.row.get("numbers") or 1) - 1
            for event in self.events
            if event.row and event.shows in LOST + PENDING
        ]
        return max(undelivered, default=0) > (self.sequence["last_accepted_number"] or 0)

    def goes_on_in(self, later: "Trouble") -> bool:
        """Whether it was not over when the next sequence began: it reaches into that, or is why it began badly."""
        reaches = self.ended_at >= later.sequence["first_captured_at"]
        began_badly = later.began_at <= later.sequence["first_captured_at"]
        return bool(reaches or (self.given_up and began_badly))


def stories(outcomes: Iterable[Row], sequences: Iterable[Row], findings: Iterable[Finding]) -> Iterator[list[Trouble]]:
    """Yields the sequences with something to tell, those of one story together."""
    events: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for row in outcomes:
        if row["outcome"] in WORST_FIRST:
            still_waits = row["accepted_at"] is None or row["outcome"] == "unacknowledged"
            ended_at = row["last_seen_at"] if still_waits else row["accepted_at"]
            ranks = WORST_FIRST.index(row["outcome"]), place_in_causes(row["outcome"])
            place = row["session_id"], row["destination_queue"]
            event = Event(row["outcome"], row["first_seen_at"], ended_at, *ranks, place, list(row["witness"]), row)
            events[row["scope_key"], int(row["tx_sequence_id"])].append(event)
    for one in findings:
        if one.scope_key is not None and one.tx_sequence_id is not None:
            ranks = WORST_FIRST.index(one.severity), place_in_causes(one.kind)
            place = one.session_id, one.destination_queue
            event = Event(one.kind, one.found_at, one.found_at, *ranks, place, list(one.witness), None)
            events[one.scope_key, one.tx_sequence_id].append(event)
    scopes: dict[str, list[Row]] = defaultdict(list)
    for row in sequences:
        scopes[row["scope_key"]].append(row)
    for rows in scopes.values():
        story: list[Trouble] = []
        before: Trouble | None = None  # of the sequence right before this one
        for row in sorted(rows, key=lambda row: int(row["tx_sequence_id"])):
            own = events[row["scope_key"], int(row["tx_sequence_id"])]
            if all(event.shows in EXPLAINING for event in own):
                before = None
                continue
            trouble = Trouble(row, own)
            is_again = bool(story) and story[-1].reused and trouble.reused
            if story and not is_again and not (before and before.goes_on_in(trouble)):
                yield story
                story = []
            story.append(trouble)
            before = trouble
        if story:
            yield story


def incident(story: list[Trouble], shared: set[tuple[str, int]]) -> Row:
    """Returns the row of INCIDENTS; `places` are the session and queue of what came first.

    Numbers never seen have no time and come before all. Of several the documents do not say which one counts.
    """
    events = [event for trouble in story for event in trouble.events]
    rows = [trouble.sequence for trouble in story]
    first = rows[0]

    def sum_of(outcomes: tuple[str, ...], *, stuck: bool = False) -> int:
        rows = [event.row for event in events if event.row and event.shows in outcomes]
        return sum(row.get("numbers") or 1 for row in rows if row["stuck"] or not stuck)

    figures = {
        "lost": sum_of(LOST),
        "pending": sum_of(PENDING),
        "unacknowledged": sum_of(("unacknowledged",)),
        "unknown": sum_of(UNKNOWN),
        "repaired": sum_of(("delivered_after_refusal",)),
        "expired": sum_of(("expired_unseen",)),
    }
    outcome = next((name for name in ("lost", "pending", "unacknowledged", "unknown") if figures[name]), "repaired")
    stuck = sum_of(PENDING, stuck=True)
    # Where the worst is that messages were never acknowledged, or are unknown, whatever was missing has come.
    came = "message_missing" if outcome in ("unacknowledged", "unknown") else None
    causes = {CAUSES[event.cause][0] for event in events} - {came}
    by_sender = causes & {"sequence_regressed", "message_missing", "delivered_twice"}
    if by_sender and any((row["source_queue_manager"], int(row["tx_sequence_id"])) in shared for row in rows):
        # Several receivers had it: the sender is not to blame.
        causes = causes - by_sender | ({"receiver_replaced"} & causes or {"several_receivers"})
    cause = next(name for name, _ in CAUSES if name in causes)
    worst = min(
        events, key=lambda event: (event.rank, _nulls_first(event.began_at, event.ended_at), sorted(event.witness))
    )
    placed = min(story, key=lambda trouble: (trouble.began_at, int(trouble.sequence["tx_sequence_id"])))
    times = [(_nulls_first(event.began_at), event.rank) for event in placed.events]
    places = {event.place for event, time in zip(placed.events, times, strict=True) if time == min(times)}
    of_outcome = {"lost": LOST, "pending": PENDING, "unknown": UNKNOWN, "repaired": ("delivered_after_refusal",)}
    of_outcome["unacknowledged"] = ("unacknowledged",)
    concerned = [event.began_at for event in events if event.row and event.shows in of_outcome[outcome]]
    began = min((at for at in concerned if at is not None), default=min(trouble.began_at for trouble in story))
    identity = f"{first['scope_key']} {int(first['tx_sequence_id'])}"
    figures["lost_messages"] = figures.pop("lost")
    return figures | {
        "incident_id": hashlib.sha256(identity.encode()).hexdigest()[:16],
        "cause": cause,
        "outcome": outcome,
        "severity": "error"
        if stuck
        else {"lost": "error", "unacknowledged": "error", "repaired": "info"}.get(outcome, "warning"),
        "scope_key": first["scope_key"],
        "source_queue_manager": first["source_queue_manager"],
        "places": places,
        "tx_sequence_id": int(first["tx_sequence_id"]),
        "sequences": len(story),
        "began_at": began,
        "ended_at": max(trouble.ended_at for trouble in story),
        "last_captured_at": max(trouble.sequence["last_captured_at"] for trouble in story),
        "stuck_messages": stuck,
        "findings": sum(event.row is None for event in events),
        "witness": worst.witness,
    }


def _nulls_first(*times: int | None) -> tuple[bool, int]:
    """Returns the first of some times that there is, to sort by; none at all comes before all."""
    known = next((time for time in times if time is not None), None)
    return known is not None, known or 0


def shared_sequences(verdicts: Iterable[Row]) -> set[tuple[str, int]]:
    """Returns the sequences, by their sender, of which one address had several receivers that GUIDs tell apart."""
    receivers: dict[tuple[str, int, str], set[str]] = defaultdict(set)
    for row in verdicts:
        address = row["stream_id"].split(">")[1].rpartition(":")[0].strip("[]")
        receiver = row["session_id"].split("->")[1]
        if address and receiver != address:
            receivers[row["source_queue_manager"], int(row["tx_sequence_id"]), address].add(receiver)
    return {of[:2] for of, several in receivers.items() if len(several) > 1}


def incidents(
    outcomes: Iterable[Row], sequences: Iterable[Row], findings: Iterable[Finding], verdicts: Iterable[Row]
) -> Iterator[Any]:
    """Yields the rows of INCIDENTS, each with the sequences that it is about."""
    shared = shared_sequences(verdicts)
    for story in stories(outcomes, sequences, findings):
        concerned = [one.sequence for one in story]
        yield incident(story, shared), [(row["scope_key"], int(row["tx_sequence_id"])) for row in concerned]
