"""A second computation of `transactions`: plain Python, one message at a time, from the rules.

It shares nothing with the derivation but the names of columns: rows of `verdicts` and what became of messages in,
transactions out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plain_message_findings import message_of

Row = dict[str, Any]
Place = tuple[str, int]
Sequence = tuple[str, int]
Transactions = dict[tuple[str, int, int], Row]
"""By sender, ID and instance."""


def first_arrivals(verdicts: Iterable[Row], fates: Mapping[tuple[Any, ...], str]) -> list[Row]:
    """The first arrival of each message of a transaction, with what became of it."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in sorted(verdicts, key=lambda row: row["replay_order"]):
        if row["tx_transaction_id"] is None:
            continue
        key = *message_of(row), row["tx_transaction_id"]
        own = {
            "place": (row["stream_id"], row["stream_offset"]),
            "ordinal": int(row["message_id"].rpartition("\\")[2]),
            "fate": fates.get(message_of(row), "delivered"),
            "times_accepted": 0,
        }
        found.setdefault(key, row | own)["times_accepted"] += bool(row["accepted"])
    return list(found.values())


def places(messages: Iterable[Row]) -> dict[Sequence, dict[int, Place]]:
    """Of each sequence, the place of a message with each number; the highest of several."""
    found: dict[Sequence, dict[int, Place]] = defaultdict(dict)
    for row in messages:
        numbers, number = found[row["scope_key"], row["tx_sequence_id"]], row["tx_sequence_number"]
        numbers[number] = max(numbers.get(number, row["place"]), row["place"])
    return found


def parts(messages: list[Row]) -> Iterator[list[Row]]:
    """What begins at FM, and at whatever follows LM, of the messages of one ID in a sequence.

    If two of them have one number, each connection's are taken by themselves: no transaction has a number twice.
    """
    connections = defaultdict(list)
    are_apart = max(Counter(row["tx_sequence_number"] for row in messages).values()) > 1
    for row in messages:
        connections[row["stream_id"] if are_apart else ""].append(row)
    for _, rows in sorted(connections.items()):
        part: list[Row] = []
        for row in sorted(rows, key=lambda row: (row["tx_sequence_number"], row["ordinal"], row["content_hash"])):
            last = part[-1] if part else None
            if last and (row["tx_first"] or last["tx_last"] or last["tx_sequence_number"] == row["tx_sequence_number"]):
                yield part
                part = []
            part.append(row)
        yield part


def uses(messages: Iterable[Row]) -> Iterator[list[Row]]:
    """The messages of each use of an ID, from all sequences of its sender."""
    names = ("tx_sequence_id", "tx_sequence_number", "scope_key", "content_hash")
    slot = ("scope_key", "tx_sequence_id", "tx_sequence_number")

    def in_order(row: Row) -> tuple[Any, ...]:
        return row["anchor"], *(row[name] for name in names)

    def is_same_slot(one: Row, other: Row) -> bool:
        return all(one[name] == other[name] for name in slot)

    use: list[Row] = []
    last: Row = {"tx_last": None, **dict.fromkeys(slot)}
    for row in sorted(messages, key=lambda row: (row["anchor"], row["whole"], row["part"], *in_order(row))):
        ended = last["tx_last"]
        starts = ended is not None and (row["tx_first"] or ended or last["whole"] != row["whole"])
        if starts or is_same_slot(last, row):
            yield sorted(use, key=in_order)
            use = []
        use.append(row)
        last = row
    yield sorted(use, key=in_order)


def described(use: list[Row]) -> Row:
    """What a row of `transactions` says of a use."""
    first, last, fates = use[0], use[-1], Counter(row["fate"] for row in use)
    has_first, has_last = any(row["tx_first"] for row in use), any(row["tx_last"] for row in use)
    no_first = not has_first and first["before"] is not None
    no_last = not has_last and last["behind"] is not None
    shown = [first["place"], last["place"] if last["place"] != first["place"] else None]
    shown += [first["before"] if no_first else None, last["behind"] if no_last else None]
    source, times = first["source_queue_manager"], [row["captured_at"] for row in use if row["captured_at"]]
    same = ("session_id", "scope_key", "destination_queue", "tx_sequence_id")
    return {name: first[name] for name in same} | {
        "messages": len(use),
        "accepted_messages": sum(row["times_accepted"] > 0 for row in use),
        "lost_messages": fates["lost"],
        "pending": fates["pending"],
        "partly_delivered": 0 < fates["delivered"] < fates["delivered"] + fates["lost"] + fates["pending"],
        "message_key": str(first["content_hash"]),
        "torn": not (has_first and has_last),
        "torn_by_sender": True if no_first or no_last else False if has_first and has_last else None,
        "first_message_id": f"{source}\\{first['ordinal']}",
        "witness_keys": [f"{stream}@{offset}" for stream, offset in filter(None, shown)],
        "first_captured_at": min(times, default=None),
        "last_captured_at": max(times, default=None),
    }


def transactions(verdicts: Iterable[Row], fates: Mapping[tuple[Any, ...], str]) -> Transactions:
    messages = first_arrivals(verdicts, fates)
    there = places(messages)
    of_id: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
    for row in messages:
        of_id[row["scope_key"], row["tx_sequence_id"], row["tx_transaction_id"]].append(row)
    of_sender: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for (scope_key, sequence, transaction), rows in of_id.items():
        numbers = there[scope_key, sequence]
        for nth, part in enumerate(parts(rows)):
            whole = any(row["tx_first"] for row in part) and any(row["tx_last"] for row in part)
            for row in part:
                number, lowest = row["tx_sequence_number"], min(one["ordinal"] for one in part)
                row["part"] = (scope_key, sequence, nth) if whole else ()
                row |= {"whole": whole, "anchor": lowest if whole else row["ordinal"]}
                row |= {"before": numbers.get(number - 1), "behind": numbers.get(number + 1)}
                of_sender[row["source_queue_manager"], transaction].append(row)
    return {
        (*key, instance): described(use)
        for key, rows in of_sender.items()
        for instance, use in enumerate(uses(rows), 1)
    }
