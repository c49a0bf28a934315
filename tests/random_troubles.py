"""Random histories in which everything happens that findings rest on, several things at once."""

import random
from collections.abc import Iterator
from typing import Any

from random_nights import night
from replay_tables import T0, Tables

US = 1_000
SECOND_US = 1_000_000
LIMITS = (*[None] * 6, 60, 1, None)
Row = dict[str, Any]


def troubled(rng: random.Random, messages: int) -> Tables:
    """Returns a night of `random_nights` whose messages have times, IDs, contents and transactions of all kinds.

    Its connections last, come from other addresses and lead to other receivers.
    """
    tables = night(rng, messages)
    last: dict[str, int] = {}
    ns, ids, marks = T0, dict[str, str](), dict[str, Iterator[Row]]()
    for row in tables.rows["messages"]:
        ns, sender = row["captured_ns"] or ns, row["source_queue_manager"]
        if rng.random() < 0.05:  # as another message
            row["message_id"] = ids.get(sender, row["message_id"])
        ids[sender] = row["message_id"]
        row.update({"captured_ns": ns, "captured_at": ns // US})
        row.update(as_sent(rng, row) | next(marks.setdefault(sender, in_transactions(rng))))
        last[row["stream_id"].rstrip("<>")] = ns
    for at, row in enumerate(tables.rows["acks"]):
        row["stream_offset"] = 16 * (row["captured_ns"] - T0) + at % 16  # two at one time are two packets
    for connection, ns in last.items():
        both = [row for row in tables.rows["streams"] if row["connection_id"] == connection]
        as_watched(rng, both, ns)
        move(rng, tables, both)
    tables.rows["captures"] = [{"capture_id": "c", "uri": "c.pcap", "last_captured_at": max(last.values()) // US}]
    return tables


def in_transactions(rng: random.Random) -> Iterator[Row]:
    """Yields the transaction of each message of a sender, which uses few IDs again and again; some marks are wrong."""
    while True:
        length, transaction = rng.choice((1, 1, 2, 3, 4)), rng.randrange(1, 6)
        for nth in range(length):
            is_wrong = rng.random() < 0.05
            yield {
                "tx_transaction_id": rng.randrange(1, 6) if rng.random() < 0.03 else transaction,
                "tx_first": nth == 0 or is_wrong,
                "tx_last": nth == length - 1 or is_wrong,
            }


def as_sent(rng: random.Random, row: Row) -> Row:
    """Returns what a message says of itself."""
    age_us = rng.choice([0, 0, 1, 59, 61, 62, 400]) * SECOND_US
    sent_at = (row["captured_at"] - age_us) // SECOND_US * SECOND_US
    said: Row = {
        "sent_at": rng.choice([sent_at] * 9 + [None]),
        "message_id_ordinal": int(row["message_id"].rpartition("\\")[2]),
        "time_to_reach_queue": rng.choice(LIMITS),
        "time_to_be_received": rng.choice(LIMITS),
    }
    return said


def as_watched(rng: random.Random, both: list[Row], last_ns: int) -> None:
    """Says how long a connection was seen, and what is missing of it."""
    ends_at = last_ns // US + rng.choice([0, 5, 20, 120, 300]) * SECOND_US
    by_initiator = rng.choice([*[False] * 8, True, None])
    for row in both:
        row |= {
            "connection_last_at": ends_at,
            "last_captured_at": ends_at,
            "acked_bytes": rng.choice([1000] * 9 + [None]),
        }
        row["ended_by_receiver"] = None if by_initiator is None else by_initiator is not row["from_initiator"]
        row["ended_at"] = None if by_initiator is None else ends_at + rng.choice([0, 1, 5, 10, 11]) * SECOND_US
        row["missing_bytes"] = rng.choice([0, 0, 0, 100])


def move(rng: random.Random, tables: Tables, both: list[Row]) -> None:
    """Lets a connection come from another address, or lead to another receiver."""
    if rng.random() < 0.6:
        other = rng.choice(["one", "two"])
        for row in both:
            of = "src_ip" if row["from_initiator"] else "dst_ip"
            row[of] += f".{other}"
    if rng.random() < 0.2:
        for row in tables.rows["handshakes"]:
            if row["stream_id"] == both[-1]["stream_id"]:
                row["server_guid"] = f"{row['server_guid']}.other"


def step_back(rng: random.Random, tables: Tables) -> None:
    """Lets the clock of the capture step back at some packet, so that the times of all later ones are lower."""
    packets = [row for name in ("messages", "acks") for row in tables.rows[name]]
    packets.sort(key=lambda row: row["captured_ns"])
    first, step_us = rng.randrange(len(packets)), rng.choice([1, 30, 100]) * SECOND_US
    for frame, row in enumerate(packets, 1):
        row |= {"capture_id": "c", "last_frame": frame}
        if frame > first:
            row |= {"captured_ns": row["captured_ns"] - step_us * US, "captured_at": row["captured_at"] - step_us}
    tables.rows["captures"][0]["clock_steps"] = [{"frame": first + 1, "step_ns": -step_us * US}]
