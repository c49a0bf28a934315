"""A second computation of the findings on arrivals: plain Python, one function a kind, over one sequence of a scope.

From outcomes.md's table of kinds and the comments of `verdicts`. It takes rows of `verdicts` and of `outcomes`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plain_words import SECOND, Finding, Row, cause_of, counted, keys, rounded, sequence_name, stood_at

from schemas.replay import FindingKind as K

LOST = {"displaced", "given_up", "passed_by", "never_seen", "refused_for_cause"}
LATEST_ORDER_ACK_MS = 10_500
RESENT_AFTER_S = (30, 300, 1_800, 21_600)
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
        if before is None or before.stream_id != self.stream_id or None in (self.captured_ns, before.captured_ns):
            return None
        if before.acknowledged_at is not None and before.acknowledged_at * 1_000 < self.captured_ns:
            return None
        return float((self.captured_ns - before.captured_ns) / SECOND)


def sent_as(row: Row) -> tuple[int, int] | None:
    """Returns SentTime in s, and the ordinal in the message ID."""
    if row["sent_at"] is None:
        return None
    return row["sent_at"] // 1_000_000, int(row["message_id"].rpartition("\\")[2])


@dataclass
class Sequence:
    """The arrivals of one sequence of a scope, in replay order."""

    arrivals: list[Arrival] = field(default_factory=list)
    watched: Watched = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name."""
        return f"sequence {sequence_name(int(self.arrivals[0].tx_sequence_id))}"

    def those(self, when: Callable[[Arrival], bool]) -> Iterator[tuple[Arrival, list[Arrival]]]:
        """Yields the arrivals of which this holds, the first one before them; nothing if there are none."""
        found = [arrival for arrival in self.arrivals if when(arrival)]
        if found:
            yield found[0], found

    def by_cause(self, when: Callable[[Arrival], bool]) -> Iterator[tuple[Arrival, list[Arrival]]]:
        """Yields them for each class of FinalAck and each queue."""
        causes: dict[Any, list[Arrival]] = defaultdict(list)
        for arrival in self.arrivals:
            if when(arrival):
                causes[arrival.final_ack_class, arrival.destination_queue].append(arrival)
        yield from ((found[0], found) for found in causes.values())

    def waited_ms(self, arrival: Arrival) -> float | None:
        """Returns how long an accepted arrival's acknowledgment would have been seen; None if it need not be seen."""
        until, is_whole = self.watched.get((arrival.session_id, arrival.source_queue_manager), (0, False))
        if not is_whole or not arrival.accepted or arrival.captured_ns is None:
            return None
        return float((until - arrival.captured_ns) / 1e6)


def told(kind: K, severity: str, found: list[Arrival], words: str, *witness: Row | Arrival | None) -> Finding:
    first = found[0].row
    rows = (one.row if isinstance(one, Arrival) else one for one in witness)
    return Finding(
        *(kind, severity, first["captured_at"], first["session_id"], len(found), words, keys(*rows)),
        scope_key=first["scope_key"],
        destination_queue=first["destination_queue"],
        tx_sequence_id=int(first["tx_sequence_id"]),
    )


def duplicates(of: Sequence) -> Iterator[Finding]:
    for first, found in of.those(lambda a: a.verdict == "duplicate" and not a.has_other_content):
        words = (
            f"{counted(len(found), 'repeat', 'repeats')} of {of.name} arrived after the receiver had the message, and "
            f"it refused {'it' if len(found) == 1 else 'them'}, as it should. The first repeats number "
            f"{first.tx_sequence_number}."
        )
        yield told(K.DUPLICATES, "info", found, words, first.original, first)


def duplicates_differ(of: Sequence) -> Iterator[Finding]:
    for first, found in of.those(lambda a: a.has_other_content and a.nth == 1):
        assert first.original
        same_id = first.original["message_id"] == first.message_id
        other = "the same message ID, other content" if same_id else "another message ID"
        words = (
            f"{counted(len(found), 'message', 'messages')} of {of.name} reused "
            f"{'a number' if len(found) == 1 else 'numbers'} under which the receiver accepted a different message "
            f"({other}). Two senders share one identity, or a sender was restored from a backup. The first is number "
            f"{first.tx_sequence_number}."
        )
        yield told(K.DUPLICATES_DIFFER, "error", found, words, first.original, first)


def resend_schedule(of: Sequence) -> Iterator[Finding]:
    for first, again in of.those(lambda a: a.interval_s is not None):
        found = [a for a in again if (a.slot, a.content_hash) == (first.slot, first.content_hash)]
        intervals = [a.interval_s for a in found if a.nth <= 13 and a.interval_s is not None]
        on_time = all(any(abs(s - due) <= due / 10 for due in RESENT_AFTER_S) for s in intervals)
        is_default = (
            "the default intervals of [MS-MQQB] 3.1.3.1"
            if on_time
            else "not the default intervals of [MS-MQQB] 3.1.3.1 (30, 300, 1800 and 21600 s); registry settings set "
            "them"
        )
        words = (
            f"No OrderAck came in time for {of.name}, so the sender sent number {first.tx_sequence_number} again on "
            f"the same connection, after {', '.join(rounded(s, 1) for s in intervals)} s: {is_default}."
        )
        yield told(K.RESEND_SCHEDULE, "info", found, words, first.previous, first)


def out_of_order(of: Sequence) -> Iterator[Finding]:
    for first, found in of.those(lambda a: a.is_refused and a.previous is None):
        fates = [a.fate for a in found]
        severity = "error" if "lost" in fates else "info" if set(fates) == {"delivered"} else "warning"
        parts = (
            (fates.count("delivered"), "was accepted later", "were accepted later"),
            (fates.count("lost"), "was never accepted and is lost", "were never accepted and are lost"),
            (fates.count("pending"), "is still to be accepted", "are still to be accepted"),
            (fates.count("unknown"), "has an unknown outcome", "have an unknown outcome"),
        )
        said = [
            counted(n, one, many) if n < len(found) else f"it {one}" if n == 1 else f"all {many}"
            for n, one, many in parts
            if n
        ]
        words = (
            f"{counted(len(found), 'message', 'messages')} of {of.name} arrived out of order and "
            f"{'was' if len(found) == 1 else 'were'} refused; {', '.join(said)}. {expected(first)}"
        )
        yield told(K.OUT_OF_ORDER, severity, found, words, first.setter, first)


def expected(first: Arrival, stood: str = "the receiver stood at") -> str:
    """Says which predecessor a message needs, and which one the receiver had."""
    return (
        f"The first is number {first.tx_sequence_number}, which needs number {first.previous_tx_sequence_number}; "
        f"{stood}: {stood_at(first.row)}."
    )


def stuck_sequence(of: Sequence) -> Iterator[Finding]:
    for first, found in of.those(
        lambda a: a.is_refused and a.reason == "predecessor_missing" and a.previous is not None and a.fate == "pending"
    ):
        words = (
            f"The sender resends and the receiver refuses: {counted(len(found), 'resend', 'resends')} of {of.name} "
            f"{'was' if len(found) == 1 else 'were'} refused again, and the receiver still waits for a message before "
            f"{'it' if len(found) == 1 else 'them'}. {expected(first)}"
        )
        yield told(K.STUCK_SEQUENCE, "warning", found, words, first.setter, first.previous, first)


def sequence_regressed(of: Sequence) -> Iterator[Finding]:
    def was_sent_later(a: Arrival) -> bool:
        return a.sent is not None and a.latest_sent is not None and a.sent >= a.latest_sent

    def went_back(a: Arrival) -> bool:
        is_new_below = a.is_refused and a.previous is None and a.highest is not None and a.highest > a.slot
        return is_new_below and (a.reason == "stale_sequence" or was_sent_later(a))

    for first, found in of.those(went_back):
        why = (
            "the sender was restored from a backup, or another machine uses its identity"
            if was_sent_later(first)
            else "a new sequence began before these were acknowledged, so the sender was restored from a backup, or "
            "another machine uses its identity"
        )
        words = (
            f"{counted(len(found), 'new message', 'new messages')} of {of.name} {'lies' if len(found) == 1 else 'lie'} "
            f"below what the receiver had accepted: {why}. The first is number {first.tx_sequence_number}; the "
            f"receiver stood at: {stood_at(first.row)}."
        )
        yield told(K.SEQUENCE_REGRESSED, "error", found, words, first.setter, first)


def gap_expired(of: Sequence) -> Iterator[Finding]:
    for first, found in of.those(lambda a: a.verdict == "gap_expired"):
        last, size = first.tx_sequence_number - 1, first.gap_size
        expired = f"number {last}" if size == 1 else f"numbers {last - size + 1} to {last}"
        words = (
            f"{counted(len(found), 'message', 'messages')} of {of.name} {'was' if len(found) == 1 else 'were'} "
            "accepted although the sender skipped numbers, which it does when messages expire. Before the first, "
            f"number {last + 1}, {expired} expired."
        )
        before = [a for a in of.arrivals if a.verdict == "out_of_order" and a.replay_order < first.replay_order]
        near = [a for a in before if last - min(size, 20) < a.tx_sequence_number <= last]
        tried = sorted({(a.tx_sequence_number, a.message_id, *keys(a.row)) for a in near})
        if tried:
            words += f" The receiver had refused: {', '.join(f'number {n} ({name})' for n, name, _ in tried)}."
        finding = told(K.GAP_EXPIRED, "warning", found, words, first.setter, first)
        yield finding._replace(witness=(*finding.witness, *(at for _, _, at in tried)))


def capture_gap(of: Sequence) -> Iterator[Finding]:
    for first, found in of.those(lambda a: a.reason == "capture_gap" and a.acknowledged_at is None):
        words = (
            f"{counted(len(found), 'message', 'messages')} of {of.name} cannot be judged: bytes are missing from the "
            f"captures before {'it' if len(found) == 1 else 'them'}, and the numbers skipped may have been in these "
            f"bytes. {expected(first, 'before the missing bytes the receiver stood at')}"
        )
        yield told(K.CAPTURE_GAP, "warning", found, words, first.setter, first)


def clocks_differ(of: Sequence) -> Iterator[Finding]:
    for first, found in of.those(lambda a: a.reason == "clocks_differ" and a.acknowledged_at is None):
        words = (
            f"{counted(len(found), 'message', 'messages')} of {of.name} cannot be judged: the clocks of two captures "
            f"differ by more than the time between {'it' if len(found) == 1 else 'them'} and a message on another "
            f"connection, so either may have come first. {expected(first)}"
        )
        yield told(K.CLOCKS_DIFFER, "warning", found, words, first.setter, first)


def missed_by_capture(of: Sequence) -> Iterator[Finding]:
    for first, found in of.those(lambda a: a.reason == "capture_gap" and a.acknowledged_at is not None):
        words = (
            f"Bytes are missing from the captures before {counted(len(found), 'message', 'messages')} of {of.name}, "
            f"but the receiver acknowledged {'it' if len(found) == 1 else 'them'}: it had what the captures miss. The "
            f"first is number {first.tx_sequence_number}; before the missing bytes the receiver stood at: "
            f"{stood_at(first.row)}."
        )
        yield told(K.MISSED_BY_CAPTURE, "info", found, words, first.setter, first)


def contradicted(of: Sequence) -> Iterator[Finding]:
    for first, found in of.those(lambda a: a.evidence == "contradicted"):
        many = f"{counted(len(found), 'message', 'messages')} of {of.name} {'is' if len(found) == 1 else 'are'}"
        words = (
            f"The receiver's OrderAcks contradict the replay: {many} in order, but an OrderAck at least "
            f"{LATEST_ORDER_ACK_MS} ms later names a lower number. The first is number {first.tx_sequence_number}."
            if first.accepted
            else f"The receiver's acknowledgments contradict the replay: {many} out of order, but the receiver "
            f"acknowledged {'it' if len(found) == 1 else 'them'}. It breaks the rule, or it had messages that no "
            f"capture holds. {expected(first)}"
        )
        yield told(K.CONTRADICTED, "error", found, words, first)


def state_fell(of: Sequence) -> Iterator[Finding]:
    def fell(a: Arrival) -> bool:
        in_sequence = a.next_ack_agrees_with == "literal" and a.incoming_tx_sequence_id == a.tx_sequence_id
        return bool(in_sequence and a.tx_sequence_number < a.incoming_tx_sequence_number)

    for first, found in of.those(fell):
        words = (
            f"The receiver's state fell: it answered {counted(len(found), 'repeat', 'repeats')} of {of.name} with an "
            "OrderAck for the repeated, lower number. It follows the letter of [MS-MQQB] 3.1.5.8.6 and may accept "
            f"messages twice. The first is number {first.tx_sequence_number}; the receiver stood at: "
            f"{stood_at(first.row)}."
        )
        yield told(K.STATE_FELL, "error", found, words, first.setter, first)


def refused_for_cause(of: Sequence) -> Iterator[Finding]:
    for first, found in of.by_cause(lambda a: (a.final_ack_class or 0) & 0xC000 == 0x8000 and a.previous is None):
        name, why, advice = cause_of(first.final_ack_class)
        words = (
            f"The receiver refused {counted(len(found), 'message', 'messages')} of {of.name}, as "
            f"{'a FinalAck says' if len(found) == 1 else 'FinalAcks say'}: {why} ({name}). The first is number "
            f"{first.tx_sequence_number}. {advice}"
        )
        yield told(K.REFUSED_FOR_CAUSE, "error", found, words, first)


def left_unread(of: Sequence) -> Iterator[Finding]:
    for first, found in of.by_cause(lambda a: (a.final_ack_class or 0) & 0xC000 == 0xC000 and a.previous is None):
        name, why, advice = cause_of(first.final_ack_class)
        words = (
            f"{counted(len(found), 'message', 'messages')} of {of.name} reached the queue and left it unread, as "
            f"{'a FinalAck says' if len(found) == 1 else 'FinalAcks say'}: {why} ({name}). The first is number "
            f"{first.tx_sequence_number}. {advice}"
        )
        yield told(K.NOT_RECEIVED_BY_APPLICATION, "warning", found, words, first)


def unacknowledged(of: Sequence) -> Iterator[Finding]:
    def is_not(a: Arrival) -> bool:
        waited = of.waited_ms(a)
        is_due = waited is not None and waited > LATEST_ORDER_ACK_MS
        return is_due and a.acknowledged_at is None and a.evidence != "contradicted"

    for first, found in of.those(is_not):
        words = (
            f"{counted(len(found), 'message', 'messages')} of {of.name} {'was' if len(found) == 1 else 'were'} "
            f"accepted, but the captures hold no OrderAck for {'it' if len(found) == 1 else 'them'}, although they "
            f"show the session for more than the {LATEST_ORDER_ACK_MS} ms that the timers allow. The first is number "
            f"{first.tx_sequence_number}."
        )
        yield told(K.UNACKNOWLEDGED, "warning", found, words, first)


def slow_acknowledgment(of: Sequence) -> Iterator[Finding]:
    for first, found in of.those(
        lambda a: of.waited_ms(a) is not None and (a.ack_latency_ms or 0) > LATEST_ORDER_ACK_MS
    ):
        words = (
            f"{counted(len(found), 'message', 'messages')} of {of.name} {'was' if len(found) == 1 else 'were'} "
            f"acknowledged after more than the {LATEST_ORDER_ACK_MS} ms that the timers allow. The first is number "
            f"{first.tx_sequence_number}: after {rounded(first.ack_latency_ms)} ms."
        )
        yield told(K.SLOW_ACKNOWLEDGMENT, "warning", found, words, first)


KINDS = (
    *(duplicates, duplicates_differ, resend_schedule, out_of_order, stuck_sequence, sequence_regressed, gap_expired),
    *(capture_gap, clocks_differ, missed_by_capture, contradicted, state_fell, refused_for_cause, left_unread),
    *(unacknowledged, slow_acknowledgment),
)


def fates(outcomes: list[Row]) -> dict[tuple[Any, ...], str]:
    """Returns what became of each message that was not simply delivered."""
    found = {}
    for row in outcomes:
        outcome = row["outcome"]
        fate = "lost" if outcome in LOST else "pending" if outcome == "pending" else "delivered"
        found[message_of(row)] = "unknown" if outcome in ("unknown", "contradicted") else fate
    return found


def message_of(row: Row) -> tuple[Any, ...]:
    names = ("scope_key", "tx_sequence_id", "tx_sequence_number", "source_queue_manager", "message_id", "content_hash")
    return tuple(row[name] for name in names)


def arrivals_of(rows: list[Row], fate_of: Mapping[tuple[Any, ...], str]) -> Iterator[Arrival]:
    """Yields the arrivals of a scope in replay order, each with its neighbours."""
    setter: Row | None = None
    highest: tuple[int, int] | None = None
    latest_sent: tuple[int, int] | None = None
    last: dict[tuple[Any, ...], Arrival] = {}
    for row in sorted(rows, key=lambda row: int(row["replay_order"])):
        message = message_of(row)
        before = last.get(message)
        fate, nth = fate_of.get(message, "delivered"), before.nth + 1 if before else 1
        arrival = last[message] = Arrival(row, fate, setter, highest, latest_sent, before, nth)
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
        sequences: dict[int, Sequence] = defaultdict(lambda: Sequence(watched=watched))
        accepted: dict[tuple[int, int], Row] = {}
        arrivals = list(arrivals_of(rows, fate_of))
        for arrival in arrivals:
            sequences[arrival.slot[0]].arrivals.append(arrival)
            if arrival.accepted:
                accepted.setdefault(arrival.slot, arrival.row)
        for arrival in arrivals:
            arrival.original = accepted.get(arrival.slot)
        for sequence in sequences.values():
            for kind in KINDS:
                yield from kind(sequence)
