"""Scenes of each outcome, and random nights that have all of them."""

import random
from typing import NamedTuple

from replay_tables import T0, Tables
from scene import guid
from test_agreement import night

GAP, OTHER = "bytes are missing", "another receiver"
FIRST = (1, 0)


class Ack(NamedTuple):
    """An OrderAck that names a number."""

    number: int
    sequence: int = 1


class Final(NamedTuple):
    """A FinalAck of a class for the message with a number."""

    number: int
    message_class: int
    message: str = ""


class Sent(NamedTuple):
    """A message; `message` tells apart those that share a number; a `clone` has the same message ID."""

    number: int
    previous: int
    sequence: int = 1
    message: str = ""


Event = Sent | Ack | Final | tuple[int, int] | str
"""One event on a connection, a second after the one before; a pair is a message by number and previous number.

What follows OTHER is on a connection with another receiver.
"""

SCENES: dict[str, tuple[list[Event], dict[int | str, str]]] = {
    "in order": ([FIRST, (2, 1), (3, 2)], {}),
    "resent after delivery": ([FIRST, (2, 1), (2, 1)], {}),
    "refused, then accepted": ([FIRST, (3, 2), (2, 1), (3, 2)], {3: "delivered_after_refusal"}),
    "accepted, then resent": ([FIRST, (2, 1), (3, 2), (3, 2)], {}),
    "pending": ([FIRST, (3, 2)], {2: "awaited", 3: "pending"}),
    "stuck": ([FIRST, (3, 2), (3, 2)], {2: "awaited", 3: "pending"}),
    "given up": ([FIRST, (3, 2), (4, 1)], {2: "expired_unseen", 3: "given_up"}),
    "given up, or in the missing bytes": (
        [FIRST, (3, 2), GAP, (4, 1)], {2: "expired_unseen", 3: "unknown", 4: "unknown"},
    ),
    "passed by": ([FIRST, (3, 2), Sent(1, 0, 2, "new")], {2: "never_seen", 3: "passed_by"}),
    "passed by, or in the missing bytes": ([FIRST, (3, 2), GAP, Sent(1, 0, 2, "new")], {2: "unknown", 3: "unknown"}),
    "expired unseen": ([FIRST, (4, 1)], {2: "expired_unseen", 3: "expired_unseen"}),
    "expired or delivered earlier": ([(4, 0), (5, 4)], {}),
    "skipped above the state": (
        [FIRST, (5, 2)], {2: "awaited", 3: "expired_unseen", 4: "expired_unseen", 5: "pending"},
    ),
    "displaced": ([FIRST, (2, 1), Sent(2, 1, 1, "other")], {"2 other": "displaced"}),
    "displaced by its clone": ([FIRST, (2, 1), Sent(2, 1, 1, "clone"), Final(2, 0x4000)], {"2 clone": "displaced"}),
    "displaced before": ([FIRST, Sent(3, 2, 1, "other"), (2, 1), (3, 2)], {"3 other": "displaced"}),
    "delivered twice": ([FIRST, (2, 1), Sent(1, 0, 2, "2")], {"2": "delivered_twice", "1 of 2": "delivered_twice"}),
    "refused for cause": ([FIRST, (2, 1), Final(2, 0x8004)], {2: "refused_for_cause"}),
    "not read": ([FIRST, (2, 1), Final(2, 0xC002)], {2: "not_read"}),
    "read": ([FIRST, (2, 1), Final(2, 0x4000)], {}),
    "another message's FinalAck": ([FIRST, (2, 1), Final(2, 0x8004, "other")], {}),
    "refused, yet acknowledged": ([FIRST, (3, 2), Ack(3)], {2: "awaited", 3: "contradicted"}),
    "no state yet": ([(5, 4)], {5: "unknown"}),
    "no state yet, acknowledged": ([(5, 4), Ack(5)], {5: "delivered_by_acknowledgment"}),
    "no state yet, received": ([(5, 4), Final(5, 0x4000)], {5: "delivered_by_acknowledgment"}),
    "assumed": ([(7, 6), (8, 7), (9, 8)], {7: "unknown", 8: "unknown", 9: "unknown"}),
    "assumed, then acknowledged": ([(7, 6), Ack(7), (8, 7)], {7: "delivered_by_acknowledgment"}),
    "assumed, acknowledged below": ([(7, 6), Ack(6), (8, 7)], {7: "unknown", 8: "unknown"}),
    "assumed, then set": ([(7, 6), Sent(1, 0, 2), Sent(2, 1, 2)], {7: "unknown"}),
    "assumed above": ([(7, 6), (9, 8)], {7: "unknown", 8: "unknown", 9: "unknown"}),
    "delivered before the capture": (
        [(7, 6), Ack(7), (5, 4)], {7: "delivered_by_acknowledgment", 5: "delivered_before_capture"},
    ),
    "across missing bytes": ([FIRST, GAP, (4, 3)], {2: "unknown", 3: "unknown", 4: "unknown"}),
    "captured, not arrived": ([FIRST, (2, 1)], {2: "unknown"}),
    "captured, then resent": ([FIRST, (2, 1), (2, 1)], {}),
    "captured, then acknowledged": ([FIRST, (2, 1), Ack(2)], {}),
    "across missing bytes, in order": ([FIRST, GAP, (2, 1)], {}),
    "late": ([(2, 0), (1, 0), (3, 2)], {1: "passed_by"}),
    "late for one of two receivers": ([(2, 0), (1, 0), OTHER, (3, 2)], {1: "unknown"}),
    "too early for both": ([FIRST, (3, 2), OTHER, Sent(1, 0, 2, "new")], {2: "never_seen", 3: "passed_by"}),
    "displaced at one of two receivers": ([FIRST, (2, 1), OTHER, Sent(2, 1, 1, "other")], {"2 other": "unknown"}),
}  # fmt: skip

CUT = [(f"{name}>", 20) for name in SCENES if name.startswith("captured, ")]
"""Keys of messages that TCP never acknowledged."""


def staged(tables: Tables) -> None:
    """Put every scene on a connection of its own."""
    for name, (events, _) in SCENES.items():
        forth, back = f"{name}>", f"{name}<"
        tables.stream(forth, f"ip-{name}", "ip-receiver")
        tables.stream(back, "ip-receiver", f"ip-{name}")
        receivers = (str(guid(name)), str(guid(OTHER))) if OTHER in events else (f"to {name}",)
        for at, receiver in zip((name, f"{name}, {OTHER}"), receivers, strict=False):
            tables.handshake(at, f"from {name}", receiver)
        for i, event in enumerate(events, 1):
            ns = T0 + i * 1_000_000_000
            source = f"from {name}"
            if event == OTHER:
                forth = f"{name}, {OTHER}>"
                tables.stream(forth, f"ip-{name}", "ip-receiver")
                tables.stream(f"{name}, {OTHER}<", "ip-receiver", f"ip-{name}")
            elif isinstance(event, str):
                tables.rows["stream_gaps"].append({"stream_id": forth, "stream_offset": i * 10, "length": 1})
            elif isinstance(event, Ack):
                tables.ack(back, ns, (event.sequence, event.number), source_queue_manager=f"to {name}")
            elif isinstance(event, Final):
                tables.ack(
                    back, ns, (1, event.number), ack_type="final_ack", source_guid=source,
                    source_queue_manager=f"to {name}", message_class=event.message_class,
                    acknowledged_message_id=f"{source}\\{event.message or event.number}",
                )  # fmt: skip
            else:
                sent = event if isinstance(event, Sent) else Sent(*event)
                known_as = "" if sent.message == "clone" else sent.message
                message = f"{sent.number} other" if known_as == "other" else known_as or str(sent.number)
                tables.message(
                    (forth, i * 10), ns, (sent.sequence, sent.number, sent.previous), source_queue_manager=source,
                    message_id=f"{source}\\{message}", label="clone" if sent.message == "clone" else "",
                )  # fmt: skip


def eventful(rng: random.Random, messages: int) -> Tables:
    """A night of `test_agreement` in which messages change their identity at times, and some have FinalAcks."""
    tables = night(rng, messages)
    streams = {row["stream_id"]: row for row in tables.rows["streams"]}
    for row in tables.rows["messages"]:
        source, number = row["source_queue_manager"], row["tx_sequence_number"]
        identity = row["tx_sequence_id"] * 31 + number
        other = rng.choice([1, 2]) if rng.random() < 0.1 else 0
        row["message_id"] = f"{source}\\{(identity + other) % (1 << 32)}"
        row["label"] = rng.choice(["a", "a", "a", "b"]) if rng.random() < 0.1 else "a"
        row["body_encrypted"] = number % 3 == 0
        if rng.random() < 0.06 and row["captured_ns"] is not None:
            back = f"{streams[row['stream_id']]['connection_id']}<"
            tables.ack(
                back, row["captured_ns"] + rng.choice([0, 5_000, 10**10]), (row["tx_sequence_id"], number),
                ack_type="final_ack", source_guid=source, source_queue_manager=f"r{row['stream_id'].split('-')[0]}",
                message_class=rng.choice([0x4000, 0x8000, 0x8002, 0xC000, 0xC002]),
                acknowledged_message_id=row["message_id"],
            )  # fmt: skip
    return tables
