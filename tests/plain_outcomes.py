"""A second computation of `outcomes`: plain Python, one message and one number at a time, from the rules.

It shares nothing with the transforms but the names of columns: rows of `verdicts` in, outcomes out.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any

from plain_unacknowledged import Answers, is_unacknowledged

LAST_NUMBER = 0xFFFFFFFF
Row = dict[str, Any]
Slot = tuple[int, int]
Message = tuple[str, int, int, str, int]
"""Scope, TxSequenceID, number, message ID, content hash."""
Run = tuple[str, int, str, int, int]
"""Scope, TxSequenceID, outcome, first and last number."""


def is_firm(row: Row) -> bool:
    """Whether the verdict is one, and rests neither on an assumed state, from 0 any accepts, nor on clocks alone."""
    from_zero = row["accepted"] and row["previous_tx_sequence_number"] == 0
    by_clocks = row.get("reason") == "clocks_differ"
    is_known = row["accepted"] is not None and not by_clocks and not row.get("cut_off")
    return is_known and (from_zero or not row["assumed"])


def assumed(rows: Iterable[Row]) -> Iterator[bool]:
    """Of each arrival of a scope in replay order: whether the state before it is assumed."""
    doubt: Row | None = None
    for row in rows:
        covered = doubt and doubt["covered_at"]
        yield bool(doubt) and not (covered and row["captured_at"] and covered < row["captured_at"])
        if row["accepted"] is None:
            doubt = row
        elif row["accepted"] and row["previous_tx_sequence_number"] == 0:
            doubt = None


class Scope:
    """What the arrivals of a scope say, in replay order."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: row["replay_order"])
        first = self.rows[0]
        self.opening = self.before(first)
        self.state = self.after(self.rows[-1])
        unknown = [row for row in self.rows if row["accepted"] is None]
        last = unknown[-1]["replay_order"] if unknown else 0
        from_zero = any(
            row["accepted"] and row["previous_tx_sequence_number"] == 0 and row["replay_order"] > last
            for row in self.rows
        )
        self.state_assumed = bool(unknown) and not from_zero and unknown[-1]["covered_at"] is None
        self.seen = {self.slot(row) for row in self.rows}

    @staticmethod
    def slot(row: Row) -> Slot:
        """The slot of an arrival."""
        return int(row["tx_sequence_id"]), row["tx_sequence_number"]

    @staticmethod
    def before(row: Row) -> Slot | None:
        """The state before it, None where it is not known."""
        if row["incoming_tx_sequence_number"] is None:
            return None
        return int(row["incoming_tx_sequence_id"]), row["incoming_tx_sequence_number"]

    @staticmethod
    def moves(row: Row) -> bool:
        """Whether it sets the state."""
        return row["accepted"] is not False

    def after(self, row: Row) -> Slot | None:
        """The state after it."""
        return self.slot(row) if self.moves(row) else self.before(row)

    def reached(self, slot: Slot) -> bool:
        """Whether the slot lies at or below the scope's last state."""
        assert self.state is not None
        return slot <= self.state

    def passing(self, slot: Slot) -> Row | None:
        """The first arrival after which the state had reached the slot."""
        return next((row for row in self.rows if self.moves(row) and self.slot(row) >= slot), None)

    def in_counted_gap(self, slot: Slot) -> bool:
        """Whether an arrival was accepted over the slot, from a state that was known."""
        for row in self.rows:
            identity, number = self.slot(row)
            before = self.before(row)
            if identity == slot[0] and row["verdict"] == "gap_expired" and before and not row["assumed"]:
                low = before[1] if before[0] == identity else 0
                if low < slot[1] < number:
                    return True
        return False

    def sent_in_turn(self, slot: Slot, *, only_duplicates: bool) -> bool:
        """Whether an OrderAck of a later number confirms this number: not if it was skipped, or sent out of turn."""
        of_sequence = [row for row in self.rows if self.slot(row)[0] == slot[0]]
        jumbled = any(row["previous_tx_sequence_number"] >= row["tx_sequence_number"] for row in of_sequence)
        return not (self.skipped(slot) or (only_duplicates and jumbled))

    def skipped(self, slot: Slot) -> bool:
        """Whether the sender says that it sent no such number."""
        for row in self.rows:
            identity, number = self.slot(row)
            previous = row["previous_tx_sequence_number"]
            if identity == slot[0] and previous and previous < slot[1] < number:
                return True
        return self.in_counted_gap(slot)

    def due(self, sequence: int) -> int | None:
        """The first number of a sequence that the scope had to see."""
        if self.opening and self.opening[0] == sequence:
            return self.opening[1] + 1
        rows = [row for row in self.rows if self.slot(row)[0] == sequence]
        first = rows[0]
        before = self.before(first)
        if before and before[0] >= sequence:
            return None
        if before is None or first["accepted"] is None or first["assumed"]:
            moved: list[int] = [row["tx_sequence_number"] for row in rows if self.moves(row)]
            return min(int(first["tx_sequence_number"]), *moved, LAST_NUMBER)
        return 1

    def numbers(self) -> Iterator[Run]:
        """The runs of numbers that no message had and that have an outcome; what lies next to each other may be one."""
        key = self.rows[0]["scope_key"]
        for sequence in {slot[0] for slot in self.seen}:
            said = [
                row["previous_tx_sequence_number"]
                for row in self.rows
                if self.slot(row)[0] == sequence and row["previous_tx_sequence_number"] < row["tx_sequence_number"]
            ]
            sent_to, due = max(said, default=0), self.due(sequence)
            for first, last in self._unseen(sequence, due or 0):
                slot = sequence, first
                if self.opening and slot <= self.opening:
                    continue
                if self.skipped(slot):
                    yield key, sequence, "expired_unseen", first, last
                elif due is not None and first >= due and (first <= sent_to or self.of_state(slot)):
                    yield key, sequence, self._sent(slot) if first <= sent_to else "unknown", first, last

    def of_state(self, slot: Slot) -> bool:
        """Whether the state reached the slot and is in its sequence."""
        assert self.state is not None
        return slot[0] == self.state[0] and self.reached(slot)

    def _unseen(self, sequence: int, due: int) -> Iterator[tuple[int, int]]:
        """The runs of numbers not seen below the highest one seen, cut wherever a rule may draw a line."""
        cuts = {due, (self.state or (0, 0))[1] + 1}
        for row in self.rows:
            cuts |= {row["previous_tx_sequence_number"] + 1, (row["incoming_tx_sequence_number"] or 0) + 1}
        below = 0
        for number in sorted(number for identity, number in self.seen if identity == sequence):
            edges = sorted({min(below + 1, number), number, *(cut for cut in cuts if below + 1 < cut < number)})
            yield from ((first, after - 1) for first, after in pairwise(edges))
            below = number

    def _sent(self, slot: Slot) -> str:
        if not self.reached(slot):
            return "unknown" if self.state_assumed else "awaited"
        by = self.passing(slot)
        return "unknown" if by is None or by["behind_gap"] or by["assumed"] or by["accepted"] is None else "never_seen"

    def outcome(self, rows: list[Row], in_slot: list[list[Row]], *, twice: bool, by_another: bool) -> str:
        """The outcome of the message with these arrivals, in whose slot there are messages with those."""
        slot = self.slot(rows[0])
        others = [row for message in in_slot for row in message if message is not rows]
        accepted = [row for row in rows if row["accepted"] and is_firm(row)]
        doubtful = any(not is_firm(row) for row in rows)
        elsewhere = not accepted and any(row["accepted"] and is_firm(row) for row in others)
        only_duplicates = all(row["verdict"] == "duplicate" for row in rows)
        refused = not accepted and not doubtful and not only_duplicates
        taken = [(row["replay_order"], row["message_id"]) for row in others if row["accepted"] and is_firm(row)]
        perhaps = (row for row in others if not is_firm(row))
        perhaps_taken = [
            row["message_id"] for row in perhaps if row["accepted"] is not False or row.get("reason") == "clocks_differ"
        ]
        of_other = not accepted and rows[0]["message_id"] in ([min(taken)[1]] if elsewhere else perhaps_taken)
        final = 0 if of_other else max((row["final_ack_class"] or 0 for row in rows), default=0)
        kind = final & 0xC000
        if any(row["evidence"] == "contradicted" or row.get("in_vain") for row in rows):
            return "contradicted"
        if final & 0x4000 and (refused or (elsewhere and not doubtful)):
            return "contradicted"
        if kind == 0x8000:
            return "refused_for_cause"
        if accepted and twice:
            return "delivered_twice"
        if kind == 0xC000:
            return "not_read"
        if accepted and any(row.get("never_acknowledged") for row in rows):
            return "unacknowledged"
        if accepted:
            firsts = [row["replay_order"] for row in rows if row["verdict"] == "out_of_order" and is_firm(row)]
            after = firsts and min(firsts) < min(row["replay_order"] for row in accepted)
            return "delivered_after_refusal" if after else "delivered"
        if refused and by_another:
            return "unknown"
        acked = len(in_slot) == 1 and self.sent_in_turn(slot, only_duplicates=only_duplicates)
        covered = any(row["covered_at"] for row in rows if not is_firm(row))
        if doubtful and (kind == 0x4000 or (covered and acked)):
            return "delivered_by_acknowledgment"
        if elsewhere:
            return "displaced"
        may_be = any(not is_firm(row) and row["accepted"] is not False for message in in_slot for row in message)
        is_confirmed = any(row["evidence"] == "confirmed" for row in rows)
        if only_duplicates and not may_be and (kind == 0x4000 or (is_confirmed and acked)):
            return "delivered_before_capture"
        if not refused or may_be:
            return "unknown"
        return self._refused(slot, rows)

    def _refused(self, slot: Slot, rows: list[Row]) -> str:
        if not self.reached(slot):
            return "unknown" if self.state_assumed else "pending"
        by = self.passing(slot)
        if by is not None:
            before = [row for row in rows if row["accepted"] is False and row["replay_order"] < by["replay_order"]]
            if before:
                last = max(before, key=lambda row: row["replay_order"])
                missed = by["missing_runs"] > last["missing_runs"]
            else:
                missed = by["behind_gap"] or by["assumed"] or by["accepted"] is None
            if missed:
                return "unknown"
        return "given_up" if self.in_counted_gap(slot) else "passed_by"


def by_several(accepted: list[Row]) -> set[str]:
    """The scopes of a message that was accepted more than once.

    A receiver that nothing names may be one that another connection to the same address names: they are not two.
    """
    ends = [(row["session_id"].split("->")[1], row["stream_id"].split(">")[-1]) for row in accepted]
    named = {place.rpartition(":")[0].strip("[]") for receiver, place in ends if receiver not in place}
    kinds: dict[bool, list[str]] = {False: [], True: []}
    for row, (receiver, _) in zip(accepted, ends, strict=True):
        kinds[receiver in named].append(row["scope_key"])
    return {one for keys in kinds.values() if len(keys) > 1 for one in keys}


def joined(runs: Iterable[Run]) -> set[Run]:
    """The runs of numbers with those next to each other made one."""
    found: list[Run] = []
    for run in sorted(runs):
        if found and found[-1][:3] == run[:3] and found[-1][4] + 1 == run[3]:
            found[-1] = (*run[:3], found[-1][3], run[4])
        else:
            found.append(run)
    return set(found)


def scopes_of(verdicts: list[Row]) -> dict[str, list[Row]]:
    scopes: dict[str, list[Row]] = defaultdict(list)
    for row in verdicts:
        scopes[row["scope_key"]].append(row)
    return scopes


def outcomes(
    verdicts: list[Row],
    not_arrived: Collection[tuple[str, int]] = (),
    said: Answers | None = None,
    still_open: Collection[str] = (),
) -> tuple[dict[Message, str], set[Run]]:
    """The outcome of every message, `delivered` ones included, and the runs of numbers that have one.

    `not_arrived` are the keys of packets that were captured, but that TCP never acknowledged, `said` is what else the
    tables say of answers, and `still_open` are streams of connections that did not end.
    """
    by: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    perhaps_by: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    for row in verdicts:
        message = row["source_queue_manager"], row["message_id"], row["content_hash"]
        if row["accepted"] and is_firm(row):
            by[message].append(row)
        if row["accepted"] is not False:
            perhaps_by[message].add(row["scope_key"])
    found: dict[Message, str] = {}
    runs: list[Run] = []
    for key, rows in scopes_of(verdicts).items():
        scope = Scope(rows)
        slots: dict[Slot, dict[tuple[str, int], list[Row]]] = defaultdict(lambda: defaultdict(list))
        for row in scope.rows:
            slots[scope.slot(row)][row["message_id"], row["content_hash"]].append(row)
        for slot, messages in slots.items():
            for arrivals in messages.values():
                alone, first = len(arrivals) == 1, arrivals[0]
                cut = (first["stream_id"], first["stream_offset"]) in not_arrived
                cut = cut and first["stream_id"] not in still_open
                first["cut_off"] = alone and cut and first["covered_at"] is None
                for arrival in arrivals:
                    arrival["in_vain"] = (
                        said is not None and (arrival["stream_id"], arrival["stream_offset"]) in said.in_vain
                    )
                first["never_acknowledged"] = said and is_unacknowledged(arrivals, said, not_arrived, is_firm)
            for name, arrivals in messages.items():
                message = arrivals[0]["source_queue_manager"], *name
                where = {"twice": key in by_several(by[message]), "by_another": bool(perhaps_by[message] - {key})}
                found[key, *slot, *name] = scope.outcome(arrivals, list(messages.values()), **where)
        runs += scope.numbers()
    return found, joined(runs)
