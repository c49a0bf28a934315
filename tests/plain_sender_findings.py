"""A second computation of the findings on senders, acknowledgments and transactions: plain Python, one function a kind.

From outcomes.md's table of kinds and the comments of the tables, whose rows it takes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from plain_evidence import addressees
from plain_finding import SECOND, Finding, Row, Rows, first_of, key, keys, micros
from plain_message_findings import Watched

from schemas.replay import FindingKind as K

UNLIMITED = 0xFFFFFFFF
LIMITS = ("time_to_reach_queue", "time_to_be_received")
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
    ends = {row["stream_id"]: row for row in tables["stream_ends"]}
    found: dict[Pair, list[Row]] = defaultdict(list)
    senders = senders_of_sessions(tables)
    for row in tables["acks"]:
        if row["ack_type"] == "order_ack" and row["captured_ns"] is not None and row["stream_id"] in ends:
            end = ends[row["stream_id"]]
            for pair in addressees(row, end["sender"], end["receiver"], senders):
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


def repeated_order_acks(tables: Rows) -> Iterator[Finding]:
    last_sequence: dict[str, int] = defaultdict(int)
    for row in tables["sequences"]:
        last_sequence[row["scope_key"]] = max(last_sequence[row["scope_key"]], int(row["tx_sequence_id"]))
    arrivals: dict[tuple[str, str, int, str], list[Row]] = defaultdict(list)
    for row in tables["verdicts"]:
        if int(row["tx_sequence_id"]) == last_sequence[row["scope_key"]]:
            place = row["scope_key"], row["session_id"], int(row["tx_sequence_id"]), row["source_queue_manager"]
            arrivals[place].append(row)
    acks = order_acks(tables)
    for (scope, session, identity, source), rows in arrivals.items():
        of_sequence = [
            a for a in acks.get((session.rpartition("->")[2], source), []) if a["tx_sequence_id"] == identity
        ]
        highest = max((a["tx_sequence_number"] for a in of_sequence), default=0)
        same = sorted(
            (a for a in of_sequence if a["tx_sequence_number"] == highest), key=lambda a: (a["captured_ns"], key(a))
        )
        if len(same) < 3 or same[-1]["captured_ns"] - same[0]["captured_ns"] < 60 * SECOND:
            continue
        began, ended = same[0]["captured_ns"], same[-1]["captured_ns"]
        refused = [
            row
            for row in rows
            if row["verdict"] == "out_of_order" and row["tx_sequence_number"] > highest
            if row["captured_ns"] is not None and began <= row["captured_ns"] <= ended
        ]
        yield Finding(
            *(K.REPEATED_ORDER_ACK, "warning" if refused else "info", micros(began), session),
            *(len(same), keys(same[0], same[-1]), scope),
            destination_queue=min(row["destination_queue"] for row in rows),
            tx_sequence_id=identity,
        )


def expired_on_arrival(tables: Rows) -> Iterator[Finding]:
    """Finds messages that outlived a limit by their sender's clock, less the least age of its messages."""
    ends = {row["stream_id"]: row for row in tables["stream_ends"]}
    accepted = {row["message_id"] for row in tables["verdicts"] if row["accepted"]}
    ages: dict[str, list[tuple[int, Row]]] = defaultdict(list)
    for row in tables["messages"]:
        if row["captured_ns"] is not None and row["sent_at"] is not None:
            age = row["captured_ns"] // SECOND - row["sent_at"] // 1_000_000
            ages[row["source_queue_manager"]].append((age, row))
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for aged in ages.values():
        least = min(age for age, _ in aged)
        for age, row in aged:
            outlived = [name for name in LIMITS if row[name] not in (None, UNLIMITED) and age - least > row[name]]
            if outlived and row["message_id"] not in accepted and row["stream_id"] in ends:
                groups[ends[row["stream_id"]]["session_id"], row["destination_queue"]].append(row)
    for (session, queue), late in groups.items():
        first = first_of(late)
        yield Finding(
            *(K.EXPIRED_ON_ARRIVAL, "warning", first["captured_at"], session, len(late), keys(first)),
            destination_queue=queue,
        )


def ordinal_regressed(tables: Rows) -> Iterator[Finding]:
    """Finds senders whose MessageID falls from one second of SentTime to the next one with messages."""
    ends = {row["stream_id"]: row for row in tables["stream_ends"]}
    seconds: dict[str, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in tables["messages"]:
        if row["sent_at"] is not None:
            seconds[row["source_queue_manager"]][row["sent_at"] // 1_000_000].append(row)
    for source, of_second in seconds.items():
        falls = []
        for before, after in pairwise(sorted(of_second)):
            high = max(row["message_id_ordinal"] for row in of_second[before])
            low = min(row["message_id_ordinal"] for row in of_second[after])
            if 0 < high - low < 1 << 31:
                falls.append(
                    first_of(row for row in of_second[second] if row["message_id_ordinal"] == ordinal)
                    for second, ordinal in ((before, high), (after, low))
                )
        if not falls:
            continue
        above, below = falls[0]
        session, scope = ends[below["stream_id"]]["session_id"], None
        if below["tx_sequence_id"] is not None:
            scope = _scope_of(tables, source, int(below["tx_sequence_id"]), session, below["destination_queue"])
        yield Finding(
            *(K.ORDINAL_REGRESSED, "warning", below["captured_at"], session, len(falls), keys(above, below)),
            *(scope, below["destination_queue"], int(below["tx_sequence_id"]) if scope else None),
        )


def _scope_of(tables: Rows, source: str, identity: int, session: str, queue: str) -> str | None:
    """Returns the scope that a message of a sequence belongs to."""
    scopes = [
        row["scope_key"]
        for row in tables["sequences"]
        if row["source_queue_manager"] == source and int(row["tx_sequence_id"]) == identity
    ]
    return max(scopes, key=lambda scope: (session in scope or queue in scope, scope), default=None)


def two_addresses(tables: Rows) -> Iterator[Finding]:
    """Finds queue managers with several addresses; what these send may show that they are two machines."""
    ends = counting_ends(tables)
    places: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in sorted(ends.values(), key=lambda row: (row["first_ns"] or 0, row["stream_id"])):
        if row["sender_guid"] is not None:
            places[row["sender_guid"]].setdefault(row["address"], row)
    sent: dict[str, list[Row]] = defaultdict(list)
    for row in tables["verdicts"]:
        if row["stream_id"] in ends:
            sent[ends[row["stream_id"]]["sender_guid"]].append(row)
    for guid, at in places.items():
        if len(at) < 2:
            continue
        found = sorted(at.values(), key=lambda row: (row["first_ns"] or 0, row["address"]))
        conflict = min(_conflicts(sent[guid], ends), default=None)
        witness, scope, identity = conflict or (keys(*(f"{row['stream_id']}@0" for row in found[:2])), None, None)
        yield Finding(
            *(K.TWO_ADDRESSES, "error" if conflict else "info", micros(found[1]["first_ns"]), found[1]["session_id"]),
            *(len(found), witness),
            scope_key=scope,
            tx_sequence_id=identity,
        )


def _conflicts(rows: list[Row], ends: Mapping[str, Row]) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """Yields pairs of messages that cannot be of one machine, with the scope and sequence that suffers.

    From two addresses come different messages under one number; or one is refused as of an old sequence, although the
    other address's is accepted.
    """
    slots: dict[tuple[str, int, int], list[tuple[str, int, str]]] = defaultdict(list)
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for row in rows:
        address, identity = ends[row["stream_id"]]["address"], int(row["tx_sequence_id"])
        slot = row["scope_key"], identity, row["tx_sequence_number"]
        slots[slot].append((address, row["content_hash"], key(row)))
        if row["accepted"]:
            of = row["scope_key"], address
            newest[of] = max(newest.get(of, (identity, key(row))), (identity, key(row)))
    for (scope, identity, _), sent in slots.items():
        for one in sorted(sent):
            others = [other for other in sent if other[0] > one[0] and other[1] != one[1]]
            if others:
                yield (one[2], max(others)[2]), scope, identity
                break
    for row in rows:
        if row["reason"] == "stale_sequence":
            for (scope, address), (identity, accepted) in newest.items():
                is_other = scope == row["scope_key"] and address != ends[row["stream_id"]]["address"]
                if is_other and identity > int(row["tx_sequence_id"]):
                    yield (accepted, key(row)), scope, int(row["tx_sequence_id"])


def broken_transactions(tables: Rows) -> Iterator[Finding]:
    """Finds transactions that are torn, interleaved, or delivered in part, by sequence."""
    groups: dict[tuple[K, str, str, int], list[Row]] = defaultdict(list)
    for row in tables["transactions"]:
        partly = "error" if row["lost"] else "warning"
        for kind, is_so, severity in (
            (K.TORN_TRANSACTION, row["torn_by_sender"], "error"),
            (K.INTERLEAVED_TRANSACTION, row["interleaved"], "error"),
            (K.TRANSACTION_PARTLY_DELIVERED, row["partly_delivered"], partly),
        ):
            if is_so:
                groups[kind, severity, row["scope_key"], int(row["tx_sequence_id"])].append(row)
    for (kind, severity, scope, identity), rows in groups.items():
        first: Any = min(
            rows, key=lambda row: (row["first_captured_at"] or 0, row["tx_transaction_id"], row["instance"])
        )
        yield Finding(
            *(kind, severity, first["first_captured_at"], first["session_id"], len(rows)),
            *(tuple(first["witness"]), scope, first["destination_queue"], identity),
        )


KINDS = (repeated_order_acks, expired_on_arrival, ordinal_regressed, two_addresses, broken_transactions)
