"""A second computation of how long the OrderAcks of a session could be seen: plain Python, over rows of the tables."""

from collections import defaultdict

from plain_finding import Row, Rows
from plain_message_findings import Watched
from replayer import addressees

Pair = tuple[str, str]
"""A receiver and an original sender."""


def counting_ends(tables: Rows) -> dict[str, Row]:
    """Returns the ends of each stream that is no copy of another."""
    return {row["stream_id"]: row for row in tables["stream_ends"] if row.get("copy_of") is None}


def senders_of_sessions(tables: Rows) -> dict[str, set[str]]:
    """Returns the original senders of each session whose messages were judged."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in tables["verdicts"]:
        found[row["session_id"]].add(row["source_queue_manager"])
    return found


def order_acks(tables: Rows) -> dict[Pair, list[Row]]:
    """Returns the OrderAcks of each receiver to each original sender."""
    return {
        pair: chosen
        for pair, rows in acknowledged_pairs(tables).items()
        if (chosen := [row for row in rows if row["ack_type"] == "order_ack"])
    }


def acknowledged_pairs(tables: Rows) -> dict[Pair, list[Row]]:
    """Returns the OrderAcks and FinalAcks of each receiver to each original sender."""
    ends = {row["stream_id"]: row for row in tables["stream_ends"]}
    found: dict[Pair, list[Row]] = defaultdict(list)
    senders = senders_of_sessions(tables)
    addresses: dict[str, set[str]] = defaultdict(set)
    for end in ends.values():
        if end["receiver_by_address"] is not None:
            addresses[end["receiver_by_address"]].add(end["receiver"])
    for row in tables["acks"]:
        if row["captured_ns"] is not None and row["stream_id"] in ends:
            end = ends[row["stream_id"]]
            names = end["sender"], end["receiver"], end["receiver_guid"]
            for pair in addressees(row, *names, senders, addresses):
                found[pair].append(row)
    return found


def watched(tables: Rows) -> Watched:
    """Returns how long, and whether without a gap, the OrderAcks of each session's senders would have been seen.

    Where no OrderAck of a receiver to a sender was captured, they may take another path.
    """
    answered = order_acks(tables)
    unread = {row["stream_id"] for row in tables["stream_gaps"]}
    unread |= {row["stream_id"] for row in tables["unreadable"] if row["stage"] in ("framing", "decode")}
    until: dict[str, int] = defaultdict(int)
    lacking: dict[str, bool] = defaultdict(bool)
    for row in counting_ends(tables).values():
        until[row["session_id"]] = max(until[row["session_id"]], row["last_ns"] or 0)
        lacking[row["session_id"]] |= row["stream_id"] in unread
    found = {}
    for session, sources in senders_of_sessions(tables).items():
        sender, _, receiver = session.partition("->")
        back = f"{receiver}->{sender}"
        for source in sources:
            if (receiver, source) in answered and back in until and session in until:
                found[session, source] = max(until[session], until[back]), not lacking[back]
    return found
