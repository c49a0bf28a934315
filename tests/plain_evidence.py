"""A second computation of what acknowledgments say of verdicts: plain Python, one message at a time.

From DECISIONS 10, 19 and 20 and the comments of `verdicts`. It takes rows of `messages` with their
fates and rows of `acks`, and shares only names of columns with the transforms. Times are ns since 1970.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import plain_outcomes
from replayer import Key, Peers, addressees, addresses_of

Row = dict[str, Any]
Conversation = tuple[str, str, int]
"""A receiver, an original sender, and a TxSequenceID."""
MS = 1_000_000
LATEST_ORDER_ACK = 10_500 * MS


class Ack(NamedTuple):
    """An OrderAck, or a FinalAck, which has a class and names a message."""

    ns: int
    number: int
    message_class: int | None = None
    message_id: str | None = None


class Said(NamedTuple):
    """What acknowledgments say of one arrival."""

    acknowledged_ns: int | None
    covered_ns: int | None
    evidence: str
    final_ack_class: int | None
    assumed: bool


def addressed(
    acks: Iterable[Row], at: Mapping[str, Peers], senders: Mapping[str, set[str]]
) -> dict[Conversation, list[Ack]]:
    """Returns the acknowledgments of each conversation in order of time; `senders` are those of each session."""
    found: dict[Conversation, list[Ack]] = defaultdict(list)
    addresses = addresses_of(at.values())
    for row in acks:
        if row["captured_ns"] is None:
            continue
        end = at[row["stream_id"]]
        ack = Ack(row["captured_ns"], row["tx_sequence_number"])
        if row["ack_type"] == "final_ack":
            ack = ack._replace(message_class=row["message_class"], message_id=row["acknowledged_message_id"])
        for receiver, source in addressees(row, end.sender, end.receiver, end.far_guid, senders, addresses):
            found[receiver, source, row["tx_sequence_id"]].append(ack)
    return {name: sorted(of, key=lambda ack: ack[:2]) for name, of in found.items()}


class Exchange:
    """The arrivals of one conversation and their acknowledgments, both in order of time."""

    def __init__(self, arrivals: list[Row], acks: list[Ack], *, literal: bool) -> None:
        self.literal = literal
        self.order_acks = [ack for ack in acks if ack.message_class is None]
        self.final_acks = [ack for ack in acks if ack.message_class is not None]
        self.moving = [row for row in arrivals if row["accepted"] is not False]

    def covering(self, number: int) -> int | None:
        """Returns when an OrderAck first named the number or a higher one."""
        return next((ack.ns for ack in self.order_acks if ack.number >= number), None)

    def following(self, ns: int) -> Ack | None:
        """Returns the first OrderAck from that time on."""
        return next((ack for ack in self.order_acks if ack.ns >= ns), None)

    def final(self, row: Row) -> Ack | None:
        """Returns the last FinalAck for a message."""
        named = row["tx_sequence_number"], row["message_id"]
        own = [ack for ack in self.final_acks if (ack.number, ack.message_id) == named]
        return max(own, default=None)

    def reached(self, number: int) -> int | None:
        """Returns when an arrival first moved the receiver's state to the number or beyond."""
        times = [row["captured_ns"] for row in self.moving if row["tx_sequence_number"] >= number]
        return min((ns for ns in times if ns is not None), default=None)

    def said(self, row: Row) -> Said:
        """Returns what the acknowledgments say of an arrival; whether its state is assumed is found out later."""
        ns, number, final = row["captured_ns"], row["tx_sequence_number"], self.final(row)
        by_order = self.covering(number)
        by_final = final.ns if final and (final.message_class or 0) & 0x4000 else None
        covered = min((one for one in (by_order, by_final) if one is not None), default=None)
        following = None if ns is None else self.following(ns)
        acknowledged = self._first_from(ns, covered, following)
        later = following if following and following.number >= number else None
        return Said(
            acknowledged,
            self._first_from(ns, by_order, later),
            self._evidence(row, covered, acknowledged, following, final),
            final and final.message_class,
            assumed=False,
        )

    @staticmethod
    def _first_from(ns: int | None, covered: int | None, following: Ack | None) -> int | None:
        """Returns when a number was covered, if after its arrival; else the OrderAck that answers the resend."""
        if ns is None or covered is None or covered >= ns:
            return None if ns is None else covered
        return following.ns if following else None

    def _evidence(
        self, row: Row, covered: int | None, acknowledged: int | None, following: Ack | None, final: Ack | None
    ) -> str:
        number = row["tx_sequence_number"]
        if row["accepted"]:
            overdue = None if row["captured_ns"] is None else self.following(row["captured_ns"] + LATEST_ORDER_ACK)
            is_missing = final is None and (covered is None or (overdue is not None and covered >= overdue.ns))
            if overdue and overdue.number < number and is_missing and not self.literal:
                return "contradicted"
            return "none" if acknowledged is None else "confirmed"
        if row["verdict"] == "duplicate":
            return "none" if covered is None else "confirmed"
        if row["verdict"] == "out_of_order":
            reached = self.reached(number)
            if covered is not None and (reached is None or covered < reached) and not self.literal:
                return "contradicted"
            if following and following.number < number:
                return "confirmed"
        return "none"


def evidence(
    rows: list[Row], acks: Iterable[Row], at: Mapping[str, Peers], *, literal: bool = False
) -> dict[Key, Said]:
    """Returns what the acknowledgments say of each arrival, by its key.

    The rows are those of `messages` with the columns of a `replayer.Fate`, and with `scope`, what the state belongs to.
    """
    senders: dict[str, set[str]] = defaultdict(set)
    arrivals: dict[Conversation, list[Row]] = defaultdict(list)
    scopes: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        end, source = at[row["stream_id"]], row["source_queue_manager"]
        senders[end.session].add(source)
        arrivals[end.receiver, source, row["tx_sequence_id"]].append(row)
        scopes[row["scope"]].append(row)
    told = addressed(acks, at, senders)
    found: dict[Key, Said] = {}
    guids = {address: guid for guid, known in addresses_of(at.values()).items() for address in known}
    names: dict[tuple[str, str], set[str]] = defaultdict(set)
    moved: dict[Conversation, list[Row]] = defaultdict(list)
    for (receiver, source, sequence), own in arrivals.items():
        names[guids.get(receiver, receiver), source].add(receiver)
        moved[guids.get(receiver, receiver), source, sequence] += own
    for (receiver, source, sequence), own in arrivals.items():
        one = guids.get(receiver, receiver)
        by_any_name = {ack for name in names[one, source] for ack in told.get((name, source, sequence), [])}
        acks_in_time = sorted(by_any_name, key=lambda ack: ack[:2])
        exchange = Exchange(moved[one, source, sequence], acks_in_time, literal=literal)
        found |= {(row["stream_id"], row["stream_offset"]): exchange.said(row) for row in own}
    for own in scopes.values():
        keys = [(row["stream_id"], row["stream_offset"]) for row in sorted(own, key=lambda row: row["replay_order"])]
        in_turn = sorted(own, key=lambda row: row["replay_order"])
        timed = [
            row | {"captured_at": row["captured_ns"], "covered_at": found[key].covered_ns}
            for row, key in zip(in_turn, keys, strict=True)
        ]
        for key, assumed in zip(keys, plain_outcomes.assumed(timed), strict=True):
            found[key] = found[key]._replace(assumed=assumed)
    return found
