"""Records what arrived at a receiver, and says what became of every message and number.

The words are those of the table `outcomes`. This is the simulation's own knowledge: it knows every arrival and the
receiver's true state, and nothing of captures.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

INCIDENT = {
    "lost": ("displaced", "given_up", "passed_by", "never_seen"),
    "pending": ("pending", "awaited"),
    "repaired": ("delivered_after_refusal",),
    "expired": ("expired_unseen",),
}
"""The outcomes that each figure of an incident adds up."""
_Slot = tuple[int, int]
_Message = tuple[int, int, int, int]
"""TxSequenceID, number, MessageID, and the content: a cloned sender sends others under the same MessageID."""


class Arrival(NamedTuple):
    """A message at its receiver, which accepted it or not."""

    sequence_id: int
    number: int
    previous: int
    ordinal: int
    content: int
    accepted: bool


@dataclass(slots=True)
class Fates:
    """Collects the arrivals of one scope, in order; about 150 bytes each."""

    arrivals: list[Arrival] = field(default_factory=list)
    unread: set[_Message] = field(default_factory=set)
    """Accepted messages that left their queue unread."""
    begins_captured: bool = True
    """The receiver had no state before the first arrival."""

    @property
    def is_exact(self) -> bool:
        """Returns whether a reader of the whole capture knows the state before every arrival, as `outcomes` does."""
        return self.begins_captured and bool(self.arrivals) and self.arrivals[0].previous == 0

    def arrived(self, arrival: Arrival) -> None:
        """Adds an arrival."""
        self.arrivals.append(arrival)

    def delivered(self) -> set[tuple[str, int, int]]:
        """Returns TxSequenceID, number and MessageID of each message that the receiver accepted."""
        return {(str(one.sequence_id), one.number, one.ordinal) for one in self.arrivals if one.accepted}

    def outcomes(self) -> list[dict[str, Any]]:
        """Returns a row (id, no, mid, outcome) for each message that was not plainly delivered, and for each number.

        `mid` is None for a number that never arrived. Right only where `is_exact`.
        """
        accepted_by: dict[_Slot, set[int]] = defaultdict(set)
        refusals: Counter[_Message] = Counter()
        acceptances: Counter[_Message] = Counter()
        after_refusal: set[_Message] = set()
        gap: set[_Slot] = set()
        skipped: set[_Slot] = set()
        sent_up_to: dict[int, int] = {}
        first_seen: dict[int, int] = {}
        state: _Slot | None = None
        for sequence_id, number, previous, ordinal, content, accepted in self.arrivals:
            key = sequence_id, number, ordinal, content
            if state is None or state[0] <= sequence_id:  # else it came too late to say what is missing
                first_seen.setdefault(sequence_id, number)
            sent_up_to[sequence_id] = max(sent_up_to.get(sequence_id, 0), previous)
            if previous:
                skipped |= {(sequence_id, between) for between in range(previous + 1, number)}
            if not accepted:
                refusals[key] += 1
                continue
            if refusals[key]:
                after_refusal.add(key)
            if state is not None:
                begin = state[1] if state[0] == sequence_id else 0
                gap |= {(sequence_id, between) for between in range(begin + 1, number)}
            acceptances[key] += 1
            accepted_by[sequence_id, number].add(ordinal)
            state = sequence_id, number
        final = state or (0, 0)
        rows = []
        for key in acceptances.keys() | refusals.keys():
            slot = key[:2]
            if acceptances[key]:
                twice, unread = acceptances[key] > 1, key in self.unread
                outcome = (
                    "delivered_twice"
                    if twice
                    else "not_read"
                    if unread
                    else "delivered_after_refusal"
                    if key in after_refusal
                    else "delivered"
                )
            elif accepted_by.get(slot):
                outcome = "displaced"
            elif slot in gap:
                outcome = "given_up"
            else:
                outcome = "passed_by" if slot <= final else "pending"
            if outcome != "delivered":
                rows.append({"id": str(key[0]), "no": key[1], "mid": key[2], "outcome": outcome})
        arrived = {key[:2] for key in acceptances.keys() | refusals.keys()}
        begun = self.arrivals[0].sequence_id if self.arrivals else 0
        for sequence_id, first in first_seen.items():
            lowest, last = first if sequence_id == begun else 1, sent_up_to[sequence_id]
            for number in range(lowest, last + 1):
                slot = sequence_id, number
                if slot not in arrived and slot not in skipped and slot not in gap:
                    outcome = "never_seen" if slot <= final else "awaited"
                    rows.append({"id": str(sequence_id), "no": number, "mid": None, "outcome": outcome})
        unseen = (gap | skipped) - arrived
        rows += [{"id": str(slot[0]), "no": slot[1], "mid": None, "outcome": "expired_unseen"} for slot in unseen]
        return sorted(rows, key=lambda row: (int(row["id"]), row["no"], row["mid"] or -1))


def incidents(outcomes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row (id, lost, pending, repaired, expired) for each sequence of a scope to which something happened."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in outcomes:
        found[row["id"]][row["outcome"]] += 1
    return [
        {"id": sequence_id} | {name: sum(counts[outcome] for outcome in words) for name, words in INCIDENT.items()}
        for sequence_id, counts in found.items()
    ]
