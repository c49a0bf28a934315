"""A second computation of the findings on arrivals: plain Python, over one sequence of a scope after the other.

From outcomes.md's table of kinds and the comments of `verdicts`. It takes rows of `verdicts` and of `outcomes`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plain_finding import SECOND, Finding, Row, keys

from schemas.replay import FindingKind as K

LOST = {"displaced", "given_up", "passed_by", "never_seen", "refused_for_cause"}
LATEST_ORDER_ACK_MS = 10_500
Watched = Mapping[tuple[str, str], tuple[int, bool]]
"""By session and original sender: until when OrderAcks would be seen (ns), and whether no byte of them is missing."""


@dataclass
class Arrival:
    """A row of `verdicts` and its neighbours in the scope."""

    row: Row
    fate: str
    setter: Row | None
    """What set the state that it met."""
    highest: tuple[int, int] | None
    """The highest sequence and number accepted before."""
    latest_sent: tuple[int, int] | None
    """SentTime and ordinal of the message accepted before that was sent last."""
    previous: "Arrival | None"
    """The last arrival of the same message."""
    nth: int
    watched: tuple[int, bool]
    """Until when its OrderAck would be seen, and whether no byte of these is missing."""
    original: Row | None = None
    """The first arrival accepted under the number, before or after it."""

    def __getattr__(self, name: str) -> Any:
        return self.row[name]

    @property
    def slot(self) -> tuple[int, int]:
        """Its sequence and number."""
        return int(self.tx_sequence_id), self.tx_sequence_number

    @property
    def sent(self) -> tuple[int, int] | None:
        """When its sender sent it, and in which order."""
        return sent_as(self.row)

    @property
    def is_refused(self) -> bool:
        """Whether it was refused as out of order, as nothing contradicts."""
        return bool(self.verdict == "out_of_order" and self.evidence != "contradicted")

    @property
    def has_other_content(self) -> bool:
        """Whether the receiver accepted another message under its number."""
        return self.original is not None and self.original["content_hash"] != self.content_hash

    @property
    def interval_s(self) -> float | None:
        """Time since it came before on the same connection, if no OrderAck covered it in between."""
        before = self.previous
        if before is None or before.stream_id != self.stream_id:
            return None
        last_ns, ns = before.unstepped_ns, self.unstepped_ns
        if last_ns is None or ns is None:
            return None
        # Its OrderAck comes soon after it, so by the clock as it was then.
        if before.acknowledged_at is not None and before.acknowledged_at * 1_000 + last_ns - before.captured_ns < ns:
            return None
        return (ns - last_ns) / SECOND

    @property
    def unstepped_ns(self) -> int | None:
        """When it was captured, by a clock without the steps back that its capture's clock made."""
        return self.row.get("unstepped_ns", self.row["captured_ns"])

    @property
    def waited_ms(self) -> float | None:
        """How long an accepted arrival's acknowledgment would have been seen; None if it need not be seen."""
        until, is_whole = self.watched
        is_seen = is_whole and self.accepted and self.captured_ns is not None
        return (until - self.captured_ns) / 1e6 if is_seen else None

    @property
    def went_back(self) -> bool:
        """Returns whether a message came for the first time, below an accepted one, and was not just overtaken."""
        if not (self.is_refused and self.nth == 1 and self.highest is not None and self.highest > self.slot):
            return False
        sent_later = self.sent is not None and self.latest_sent is not None and self.sent >= self.latest_sent
        return self.reason == "stale_sequence" or sent_later

    def final_ack_is(self, bits: int) -> bool:
        """Returns whether these are the two highest bits of its FinalAck's class, and it came for the first time."""
        return (self.final_ack_class or 0) & 0xC000 == bits and self.nth == 1


def sent_as(row: Row) -> tuple[int, int] | None:
    """Returns SentTime in s, and the ordinal in the message ID."""
    if row["sent_at"] is None:
        return None
    return row["sent_at"] // 1_000_000, int(row["message_id"].rpartition("\\")[2])


KINDS: tuple[tuple[K, str, tuple[str, ...], Callable[[Arrival], bool]], ...] = (
    (K.DUPLICATES, "info", ("original", "row"), lambda a: a.verdict == "duplicate" and not a.has_other_content),
    (K.DUPLICATES_DIFFER, "error", ("original", "row"), lambda a: a.has_other_content and a.nth == 1),
    (K.RESEND_SCHEDULE, "info", ("previous", "row"), lambda a: a.interval_s is not None),
    (K.OUT_OF_ORDER, "by fate", ("setter", "row"), lambda a: a.is_refused and a.nth == 1),
    (
        *(K.STUCK_SEQUENCE, "warning", ("setter", "previous", "row")),
        lambda a: a.is_refused and a.reason == "predecessor_missing" and a.nth > 1 and a.fate == "pending",
    ),
    (K.SEQUENCE_REGRESSED, "error", ("setter", "row"), lambda a: a.went_back),
    (K.GAP_EXPIRED, "warning", ("setter", "row"), lambda a: a.verdict == "gap_expired"),
    (K.CAPTURE_GAP, "warning", ("setter", "row"), lambda a: a.reason == "capture_gap" and a.acknowledged_at is None),
    (
        *(K.MISSED_BY_CAPTURE, "info", ("setter", "row")),
        lambda a: a.reason == "capture_gap" and a.acknowledged_at is not None,
    ),
    (K.CLOCKS_DIFFER, "warning", ("setter", "row"), lambda a: a.reason == "clocks_differ" and not a.acknowledged_at),
    (K.CONTRADICTED, "error", ("row",), lambda a: a.evidence == "contradicted"),
    (K.REFUSED_FOR_CAUSE, "error", ("row",), lambda a: a.final_ack_is(0x8000)),
    (K.NOT_RECEIVED_BY_APPLICATION, "warning", ("row",), lambda a: a.final_ack_is(0xC000)),
    (
        *(K.UNACKNOWLEDGED, "warning", ("row",)),
        lambda a: (a.waited_ms or 0) > LATEST_ORDER_ACK_MS and not a.acknowledged_at and a.evidence != "contradicted",
    ),
    (
        *(K.SLOW_ACKNOWLEDGMENT, "warning", ("row",)),
        lambda a: a.waited_ms is not None and (a.ack_latency_ms or 0) > LATEST_ORDER_ACK_MS,
    ),
)
"""Of each kind the severity, the arrivals that prove it, and which arrivals it is about."""
BY_CAUSE = (K.REFUSED_FOR_CAUSE, K.NOT_RECEIVED_BY_APPLICATION)
"""Kinds of which there is a finding for each class of FinalAck and each queue."""


def findings_of(arrivals: list[Arrival]) -> Iterator[Finding]:
    """Yields the findings on a sequence."""
    for kind, usual_severity, shown, is_concerned in KINDS:
        groups: dict[Any, list[Arrival]] = defaultdict(list)
        for one in filter(is_concerned, arrivals):
            groups[(one.final_ack_class, one.destination_queue) if kind in BY_CAUSE else None].append(one)
        for concerned in groups.values():
            found, first, severity = concerned, concerned[0], usual_severity
            fates = {one.fate for one in found}
            if kind is K.OUT_OF_ORDER:
                severity = "error" if "lost" in fates else "info" if fates == {"delivered"} else "warning"
            if kind is K.RESEND_SCHEDULE:
                found = [a for a in found if (a.slot, a.content_hash) == (first.slot, first.content_hash)]
            witness = (getattr(first, name) for name in shown)
            proof = keys(*(one.row if isinstance(one, Arrival) else one for one in witness))
            if kind is K.GAP_EXPIRED:
                proof += refused_before(first, arrivals)
            yield Finding(
                *(kind, severity, first.captured_at, first.session_id, len(found), proof),
                *(first.scope_key, first.destination_queue, int(first.tx_sequence_id)),
            )


def refused_before(first: Arrival, arrivals: Iterable[Arrival]) -> tuple[str, ...]:
    """Returns the arrivals that were refused under one of the last twenty numbers that expired before the first gap."""
    last = first.tx_sequence_number - 1
    before = [a for a in arrivals if a.verdict == "out_of_order" and a.replay_order < first.replay_order]
    near = [a for a in before if last - min(first.gap_size, 20) < a.tx_sequence_number <= last]
    return tuple(at for *_, at in sorted((a.tx_sequence_number, a.message_id, *keys(a.row)) for a in near))


def fates(outcomes: list[Row]) -> dict[tuple[Any, ...], str]:
    """Returns what became of each message that was not simply delivered."""
    found = {}
    for row in outcomes:
        outcome = row["outcome"]
        fate = "lost" if outcome in LOST else "pending" if outcome == "pending" else "delivered"
        found[message_of(row)] = "unknown" if outcome in ("unknown", "contradicted", "unacknowledged") else fate
    return found


def message_of(row: Row) -> tuple[Any, ...]:
    names = ("scope_key", "tx_sequence_id", "tx_sequence_number", "source_queue_manager", "message_id", "content_hash")
    return tuple(row[name] for name in names)


def arrivals_of(rows: list[Row], fate_of: Mapping[tuple[Any, ...], str], watched: Watched) -> Iterator[Arrival]:
    """Yields the arrivals of a scope in replay order, each with its neighbours."""
    setter: Row | None = None
    highest: tuple[int, int] | None = None
    latest_sent: tuple[int, int] | None = None
    last: dict[tuple[Any, ...], Arrival] = {}
    for row in sorted(rows, key=lambda row: int(row["replay_order"])):
        message = message_of(row)
        before = last.get(message)
        fate, nth = fate_of.get(message, "delivered"), before.nth + 1 if before else 1
        seen = watched.get((row["session_id"], row["source_queue_manager"]), (0, False))
        arrival = last[message] = Arrival(row, fate, setter, highest, latest_sent, before, nth, seen)
        yield arrival
        if row["accepted"] is not False:
            setter = row
        if row["accepted"]:
            highest = arrival.slot if highest is None else max(highest, arrival.slot)
            latest_sent = max(filter(None, (latest_sent, arrival.sent)), default=None)


def message_findings(verdicts: list[Row], outcomes: list[Row], watched: Watched) -> Iterator[Finding]:
    scopes: dict[str, list[Row]] = defaultdict(list)
    for row in verdicts:
        scopes[row["scope_key"]].append(row)
    fate_of = fates(outcomes)
    for rows in scopes.values():
        sequences: dict[int, list[Arrival]] = defaultdict(list)
        accepted: dict[tuple[int, int], Row] = {}
        arrivals = list(arrivals_of(rows, fate_of, watched))
        for arrival in arrivals:
            sequences[arrival.slot[0]].append(arrival)
            if arrival.accepted:
                accepted.setdefault(arrival.slot, arrival.row)
        for arrival in arrivals:
            arrival.original = accepted.get(arrival.slot)
        for sequence in sequences.values():
            yield from findings_of(sequence)
