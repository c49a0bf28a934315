"""A second computation of which accepted messages their receiver never acknowledged: plain Python, from the rules.

It shares nothing with the transforms but the names of columns.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

from plain_finding import Row, Rows
from plain_watched import counting_ends, order_acks, watched

LATEST_NS = 10_500 * 1_000_000
WAITS_S = (30, 30, 30, 300, 300, 300, 1_800, 1_800, 1_800, 21_600)
Key = tuple[str, int]


class Answers(NamedTuple):
    """What the tables say beside the verdicts."""

    overdue: set[Key]
    """Arrivals that the receiver should have acknowledged, as it does others."""
    in_vain: set[Key]
    """Arrivals between two numbers of OrderAcks that fell."""
    until_ns: dict[str, int]
    """When the sender of each stream was heard last, on any stream."""
    heard_ns: dict[str, int]
    """When any segment of its receiver was captured last, on any stream."""
    acked: dict[str, int]
    """The last sequence of each scope of which a message was acknowledged."""
    longest_us: dict[tuple[str, int], int]
    """The longest time between two arrivals of one message, by scope and sequence."""


def key_of(row: Row) -> Key:
    return row["stream_id"], row["stream_offset"]


def answers(tables: Rows) -> Answers:
    verdicts = tables["verdicts"]
    seen = watched(tables)
    answered = order_acks(tables)
    overdue = set()
    for row in verdicts:
        last_ns, whole = seen.get((row["session_id"], row["source_queue_manager"]), (0, False))
        due = row["captured_ns"] is not None and last_ns - row["captured_ns"] > LATEST_NS
        acks = answered.get((row["session_id"].rpartition("->")[2], row["source_queue_manager"]), [])
        due = due and any(ack["captured_ns"] < row["captured_ns"] + LATEST_NS for ack in acks)
        if row["accepted"] and row["acknowledged_at"] is None and whole and due and row["evidence"] != "contradicted":
            overdue.add(key_of(row))
    until, heard = defaultdict[str, int](int), defaultdict[str, int](int)
    for row in tables["stream_ends"]:
        until[row["sender"]] = max(until[row["sender"]], row["last_ns"] or 0)
        for machine, ns in ((row["sender"], row["last_ns"]), (row["receiver"], row["receiver_last_ns"])):
            heard[machine] = max(heard[machine], ns or 0)
    ends = {row["stream_id"]: row for row in tables["stream_ends"]}
    times: dict[tuple[str, int, tuple[object, ...]], list[int]] = defaultdict(list)
    for row in verdicts:
        if row["captured_at"] is not None:
            message = row["tx_sequence_number"], row["message_id"], row["content_hash"], row["source_queue_manager"]
            times[row["scope_key"], int(row["tx_sequence_id"]), message].append(us(row["captured_at"]))
    longest: dict[tuple[str, int], int] = defaultdict(int)
    for (scope, sequence, _), all_of in times.items():
        in_order = sorted(all_of)
        for before, after in pairwise(in_order):
            longest[scope, sequence] = max(longest[scope, sequence], after - before)
    acked: dict[str, int] = defaultdict(int)
    for row in verdicts:
        if row["accepted"] and row["acknowledged_at"] is not None:
            acked[row["scope_key"]] = max(acked[row["scope_key"]], int(row["tx_sequence_id"]))
    return Answers(
        overdue,
        set(in_vain(tables)),
        {stream: until[end["sender"]] for stream, end in ends.items()},
        {stream: heard[end["receiver"]] for stream, end in ends.items()},
        acked,
        longest,
    )


def us(time: object) -> int:
    """Returns a timestamp in microseconds since 1970."""
    return time if isinstance(time, int) else round(time.timestamp() * 1_000_000)  # type: ignore[attr-defined]


def in_vain(tables: Rows) -> Iterable[Key]:
    for (receiver, source), acks in order_acks(tables).items():
        by_sequence: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for ack in acks:
            if ack["tx_sequence_number"] is not None:
                by_sequence[int(ack["tx_sequence_id"])].append((ack["captured_ns"], ack["tx_sequence_number"]))
        for sequence, named in by_sequence.items():
            fell = None
            for ns, number in sorted(named):
                high = max((other for at, other in named if at <= ns - LATEST_NS), default=0)
                if number < high:
                    fell = ns, high
            if fell is None:
                continue
            low = max(number for ns, number in named if ns >= fell[0])
            for row in tables["verdicts"]:
                if (
                    row["source_queue_manager"] == source
                    and row["session_id"].rpartition("->")[2] == receiver
                    and int(row["tx_sequence_id"]) == sequence
                    and low < row["tx_sequence_number"] <= fell[1]
                    and row["accepted"] is not False
                    and row["captured_ns"] is not None
                    and row["captured_ns"] < fell[0]
                ):
                    yield key_of(row)


def is_unacknowledged(rows: list[Row], said: Answers, cut: Iterable[Key], is_firm: Callable[[Row], bool]) -> bool:
    """Whether a message with these arrivals, of which one was accepted, was never acknowledged."""
    if not any(row["accepted"] and is_firm(row) for row in rows):
        return False
    if any(row["acknowledged_at"] is not None or row["final_ack_class"] is not None for row in rows):
        return False
    cut = set(cut)
    late = [
        row["captured_ns"] is not None and said.heard_ns.get(row["stream_id"], 0) - row["captured_ns"] > LATEST_NS
        for row in rows
    ]
    if all(late) and all(key_of(row) in cut for row in rows):
        return True
    first = min(rows, key=lambda row: int(row["replay_order"]))
    if int(first["tx_sequence_id"]) < said.acked.get(first["scope_key"], 0):
        return False
    if any(key_of(row) in said.overdue for row in rows):
        return True
    accepted = min(row["replay_order"] for row in rows if row["accepted"] and is_firm(row))
    since = [row for row in rows if row["replay_order"] >= accepted]
    times = sorted(us(row["captured_at"]) for row in since if row["captured_at"] is not None)
    if len(times) < 2 or times[-1] - times[0] < LATEST_NS // 1000:
        return False
    wait_us = WAITS_S[min(len(rows) - 1, 9)] * 1_000_000
    wait_us = max(wait_us, said.longest_us[rows[0]["scope_key"], int(rows[0]["tx_sequence_id"])])
    until = max(said.until_ns.get(row["stream_id"], 0) for row in rows)
    return until // 1000 <= times[-1] + wait_us + LATEST_NS // 1000


def closed_by_receiver(tables: Rows) -> set[tuple[str, int]]:
    """Scope and sequence of messages never acknowledged, where the receiver ended the last three connections early.

    That is right after messages, and before it sent a SessionAck; who sends the first FIN or RST ends a connection. An
    open one says nothing yet, until a SessionAck comes or one of the two is seen long after its last packet.
    """
    heard_ns = defaultdict[str, int](int)
    for end in tables["stream_ends"]:
        heard_ns[end["sender"]] = max(heard_ns[end["sender"]], end["last_ns"] or 0)
        heard_ns[end["receiver"]] = max(heard_ns[end["receiver"]], end["receiver_last_ns"] or 0)
    connections = {row["stream_id"]: row["connection_id"] for row in tables["stream_ends"]}
    answered = {connections.get(row["stream_id"]) for row in tables["session_acks"]}
    streams = {row["stream_id"]: row for row in tables["streams"]}
    ended: dict[str, list[bool]] = defaultdict(list)
    for end in sorted(counting_ends(tables).values(), key=lambda row: (row["first_ns"] is not None, row["first_ns"])):
        row = streams[end["stream_id"]]
        timed = row["ended_at"] is not None and row["last_captured_at"] is not None
        soon = timed and (us(row["ended_at"]) - us(row["last_captured_at"])) * 1000 < LATEST_NS
        taken = row["acked_bytes"] is not None and end["connection_id"] not in answered
        if row["ended_at"] is None and row["last_captured_at"] is not None and end["connection_id"] not in answered:
            until_ns = max(heard_ns[end["sender"]], heard_ns[end["receiver"]])
            if until_ns and until_ns - us(row["last_captured_at"]) * 1000 < LATEST_NS:
                continue
        ended[end["session_id"]].append(bool(soon and taken and row["ended_by_receiver"]))
    doubted: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in tables["outcomes"]:
        if row["arrivals"] and row["outcome"] in ("unacknowledged", "contradicted", "unknown"):
            doubted[row["scope_key"], int(row["tx_sequence_id"])].append(row)
    found = set()
    for sequence, rows in doubted.items():
        first = min(
            rows, key=lambda row: (row["first_seen_at"] is not None, row["first_seen_at"], row["tx_sequence_number"])
        )
        last = ended[first["session_id"]][-3:]
        if len(last) == 3 and all(last) and any(row["outcome"] == "unacknowledged" for row in rows):
            found.add(sequence)
    return found
