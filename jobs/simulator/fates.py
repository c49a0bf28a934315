"""Records what arrived at a receiver, and says what became of every message and number.

The words are those of the table `outcomes`. This is the simulation's own knowledge: it knows every arrival and the
receiver's true state, and nothing of captures.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jobs.simulator.answers import Answers, Arrival

INCIDENT = {
    "lost": ("displaced", "given_up", "passed_by", "never_seen"),
    "pending": ("pending", "awaited"),
    "repaired": ("delivered_after_refusal",),
    "expired": ("expired_unseen",),
}
"""The outcomes that each figure of an incident adds up."""
DOUBTFUL = ("contradicted", "unacknowledged", "unknown")
_DELIVERED = ("delivered_after_refusal", "delivered_twice")  # and `delivered`, which has no row
_Slot = tuple[int, int]
_Message = tuple[int, int, int, int]
"""TxSequenceID, number, MessageID and content."""


@dataclass
class Fates:
    """Collects the arrivals of one scope, in order; about 200 bytes each."""

    answers: Answers
    arrivals: list[Arrival] = field(default_factory=list)
    unread: set[_Message] = field(default_factory=set)
    """Accepted messages that left their queue unread."""
    asking: set[_Message] = field(default_factory=set)
    """Messages that ask for a FinalAck."""
    taken_back: set[_Slot] = field(default_factory=set)
    """Numbers that were acknowledged, until the receiver acknowledged less."""
    is_assumed: bool = False
    """The receiver has no state, and no message says that it needs none: nobody knows what it takes."""
    begins_captured: bool = True
    """The receiver had no state before the first arrival."""

    @property
    def is_exact(self) -> bool:
        """Returns whether a reader of the whole capture knows the state before every arrival, as `outcomes` does."""
        begins = self.begins_captured and bool(self.arrivals) and self.arrivals[0].previous == 0
        return begins or self.is_assumed

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
        became = self._unknown() if self.is_assumed else self._became
        rows = [
            {"id": str(sequence_id), "no": number, "mid": ordinal, "outcome": outcome}
            for (sequence_id, number, ordinal, _), outcome in became
        ]
        return sorted(rows, key=lambda row: (int(row["id"]), row["no"], row["mid"] or -1))

    def senders(self) -> dict[str, dict[str, list[int]]]:
        """Returns by address and TxSequenceID how many messages it sent, and how many were accepted and lost.

        Nothing where all came from one address. A message that came from several counts for each.
        """
        sent: dict[str, dict[_Message, bool]] = defaultdict(dict)
        for one in self.arrivals:
            of_address = sent[one.address]
            of_address[one.message] = of_address.get(one.message, False) or one.accepted
        if len(sent) == 1:
            return {}
        lost = {key for key, outcome in self._became if outcome in INCIDENT["lost"]}
        figures: dict[str, dict[str, list[int]]] = {}
        for address, messages in sent.items():
            of_sequences = figures[address] = defaultdict(lambda: [0, 0, 0])
            for key, accepted in messages.items():
                counts = of_sequences[str(key[0])]
                for at, holds in enumerate((True, accepted, key in lost)):
                    counts[at] += holds
        return figures

    def incidents(self) -> list[dict[str, Any]]:
        """Returns a row (id, lost, pending, repaired, expired, ongoing) for each sequence to which something happened.

        One is `ongoing` while messages of it wait, and the last one whose numbers were used twice while that goes on.
        None says that nobody knows: nothing is delivered after a message of which nobody knows whether it is.
        """
        found: dict[str, Counter[str]] = defaultdict(Counter)
        doubtful: dict[_Slot, str] = {}
        for row in self.outcomes():
            found[row["id"]][row["outcome"]] += 1
            if row["outcome"] in DOUBTFUL:
                doubtful[int(row["id"]), row["no"]] = row["id"]
        sure = {one[:2] for one in self._came} - doubtful.keys()
        in_doubt = {name for slot, name in doubtful.items() if slot > max(sure, default=(0, 0))}
        reused = [sequence_id for sequence_id, counts in found.items() if counts["displaced"]]
        last = reused[-1] if reused and self.is_still_used_twice() else None
        resent = {str(key[0]) for key, is_still_sent in self._never_acknowledged.items() if is_still_sent}
        rows = []
        for sequence_id, counts in found.items():
            figures = {name: sum(counts[outcome] for outcome in words) for name, words in INCIDENT.items()}
            is_resent = counts["unacknowledged"] > 0 and sequence_id in resent
            ongoing = figures["pending"] > 0 or is_resent or sequence_id == last
            is_unknown = sequence_id in in_doubt and not ongoing
            rows.append({"id": sequence_id, **figures, "ongoing": None if is_unknown else ongoing})
        return rows

    def not_read_yet(self) -> list[dict[str, Any]]:
        """Returns a row (id, messages, since_ns) for each sequence that asks for FinalAcks: how many did not come.

        Those are of messages that are delivered, and stay in their queue. Nothing where no acknowledgment was captured:
        FinalAcks may take the same way.
        """
        if not self.answers.shows_some:
            return []
        others = {key for key, outcome in ([] if self.is_assumed else self._became) if outcome not in _DELIVERED}
        found: dict[int, list[int]] = {message[0]: [] for message in self.asking}
        for message in self.asking & self._came.keys() - self.answers.final_acked - others:
            found[message[0]].append(next(one.time_ns for one in self._came[message] if one.accepted))
        return [
            {"id": str(sequence_id), "messages": len(times), "since_ns": min(times, default=None)}
            for sequence_id, times in sorted(found.items())
        ]

    def is_still_used_twice(self) -> bool:
        """Returns whether numbers are still used twice when the simulation ends, if they ever were.

        By two machines: until one has fallen silent and the other has begun a sequence since. By one that was set back:
        until it is beyond what it had sent before, so that a message is accepted again.
        """
        last = {one.address: place for place, one in enumerate(self.arrivals)}
        if len(last) > 1:
            *_, silent_since, _ = sorted(last.values())
            began: dict[int, int] = {}
            for place, one in enumerate(self.arrivals):
                began.setdefault(one.sequence_id, place)
            return max(began.values()) <= silent_since
        displaced = {key for key, outcome in self._became if outcome == "displaced"}
        places = [place for place, one in enumerate(self.arrivals) if one.message in displaced]
        return bool(places) and not any(one.accepted for one in self.arrivals[places[-1] + 1 :])

    def _unknown(self) -> list[tuple[tuple[int, int, int | None, int], str]]:
        return [(key, "unknown") for key in {one.message for one in self.arrivals}]

    @cached_property
    def _came(self) -> dict[_Message, list[Arrival]]:
        """The arrivals of each message that was accepted, when the simulation has ended."""
        accepted = {one.message for one in self.arrivals if one.accepted}
        came: dict[_Message, list[Arrival]] = {message: [] for message in accepted}
        for one in self.arrivals:
            if one.message in accepted:
                came[one.message].append(one)
        return came

    @cached_property
    def _never_acknowledged(self) -> dict[_Message, bool]:
        return self.answers.never_acknowledged(self._came)

    @cached_property
    def _became(self) -> list[tuple[tuple[int, int, int | None, int], str]]:
        """Returns the outcome of each message that was not plainly delivered, and of each number that never arrived."""
        accepted_by: dict[_Slot, set[int]] = defaultdict(set)
        refusals: Counter[_Message] = Counter()
        acceptances: Counter[_Message] = Counter()
        after_refusal: set[_Message] = set()
        gap: set[_Slot] = set()
        skipped: set[_Slot] = set()
        sent_up_to: dict[int, int] = {}
        first_seen: dict[int, int] = {}
        state: _Slot | None = None
        for one in self.arrivals:
            sequence_id, number, previous, ordinal, _, accepted, *_ = one
            key = one.message
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
        rows: list[tuple[tuple[int, int, int | None, int], str]] = []
        for key in acceptances.keys() | refusals.keys():
            slot = key[:2]
            if acceptances[key]:
                holds = (
                    ("contradicted", slot in self.taken_back),
                    ("delivered_twice", acceptances[key] > 1),
                    ("not_read", key in self.unread),
                    ("unknown", self.answers.may_not_have_come(self._came[key])),
                    ("unacknowledged", key in self._never_acknowledged),
                    ("delivered_after_refusal", key in after_refusal),
                )
                outcome = next((name for name, is_so in holds if is_so), "delivered")
            elif accepted_by.get(slot):
                outcome = "displaced"
            elif slot in gap:
                outcome = "given_up"
            else:
                outcome = "passed_by" if slot <= final else "pending"
            if outcome != "delivered":
                rows.append((key, outcome))
        arrived = {key[:2] for key in acceptances.keys() | refusals.keys()}
        begun = self.arrivals[0].sequence_id if self.arrivals else 0
        for sequence_id, first in first_seen.items():
            lowest, last = first if sequence_id == begun else 1, sent_up_to[sequence_id]
            for number in range(lowest, last + 1):
                slot = sequence_id, number
                if slot not in arrived and slot not in skipped and slot not in gap:
                    outcome = "never_seen" if slot <= final else "awaited"
                    rows.append(((*slot, None, 0), outcome))
        return rows + [((*slot, None, 0), "expired_unseen") for slot in (gap | skipped) - arrived]
