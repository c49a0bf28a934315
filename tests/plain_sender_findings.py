"""A second computation of the findings on senders, acknowledgments and transactions: plain Python, one function a kind.

From outcomes.md's table of kinds and the comments of the tables, whose rows it takes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from plain_evidence import addressees
from plain_message_findings import Watched
from plain_words import SECOND, Finding, Row, Rows, cause_of, counted, first_of, key, keys, micros, rounded

from schemas.replay import FindingKind as K

UNLIMITED = 0xFFFFFFFF
LIMITS = {"time_to_reach_queue": "TimeToReachQueue", "time_to_be_received": "TimeToBeReceived"}
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
        why = (
            f"in this time it refused {counted(len(refused), 'higher number', 'higher numbers')}"
            if refused
            else "the OrderAcks do not reach the sender, or the sender ignores them"
        )
        words = (
            f"The receiver sent the OrderAck for number {highest} of sequence {rows[0]['tx_sequence']} {len(same)} "
            f"times in {rounded((ended - began) / SECOND)} s, and none for a higher number: {why}."
        )
        yield Finding(
            *(K.REPEATED_ORDER_ACK, "warning" if refused else "info", micros(began), session),
            *(len(same), words, keys(same[0], same[-1])),
            *(scope, min(row["destination_queue"] for row in rows), identity),
        )


def returned(tables: Rows) -> Iterator[Finding]:
    """Finds negative acknowledgments in administration messages, by class, session and queue."""
    ends = {row["stream_id"]: row for row in tables["stream_ends"]}
    named: dict[str, list[Row]] = defaultdict(list)
    for row in tables["messages"]:
        if row["stream_id"] in ends:
            named[row["message_id"]].append(row)
    groups: dict[tuple[int, str, str | None], list[tuple[Row, Row | None]]] = defaultdict(list)
    for row in tables["messages"]:
        if row["message_class"] & 0x8000 and row["stream_id"] in ends:
            about = first_of(named[row["correlation_id"]]) if row["correlation_id"] in named else None
            session = ends[(about or row)["stream_id"]]["session_id"]
            queue: str | None = about["destination_queue"] if about else None
            groups[row["message_class"], session, queue].append((row, about))
    for (message_class, session, queue), pairs in groups.items():
        first = first_of(row for row, _ in pairs)
        about = next(of for row, of in pairs if row is first)
        ids = {row["correlation_id"] for row, _ in pairs} - {None}
        transactional = {row["correlation_id"] for row, of in pairs if of and of["transactional"]}
        name, why, advice = cause_of(message_class)
        queued = message_class & 0x4000
        what = (
            counted(len(ids), "message left its queue unread", "messages left their queue unread")
            if queued
            else counted(len(ids), "message did not reach its queue", "messages did not reach their queue")
        )
        says = "an acknowledgment says" if len(ids) == 1 else "acknowledgments say"
        words = (
            f"{what}, as {says}: {why} ({name}).{f' Transactional: {len(transactional)}.' if transactional else ''} "
            f"The first is message {first['correlation_id'] or 'unknown'}{delay(first, about)}. {advice}"
        )
        yield Finding(
            *(K.NOT_RECEIVED_BY_APPLICATION, "warning" if queued else "error", first["captured_at"], session),
            *(len(ids), words, keys(about, first)),
            destination_queue=queue,
        )


def delay(ack: Row, about: Row | None) -> str:
    """Says which time ran out, and when the acknowledgment came."""
    names = {0x8002: "time_to_reach_queue", 0xC002: "time_to_be_received", 0xC003: "time_to_be_received"}
    limit = about[names[ack["message_class"]]] if about and ack["message_class"] in names else UNLIMITED
    if limit in (None, UNLIMITED) or about is None or None in (ack["captured_ns"], about["captured_ns"]):
        return ""
    after = rounded((ack["captured_ns"] - about["captured_ns"]) / SECOND, 1)
    return f", which had {limit} s: the acknowledgment came {after} s after it"


def expired_on_arrival(tables: Rows) -> Iterator[Finding]:
    """Finds messages that outlived a limit by their sender's clock, less the least age of its messages."""
    ends = {row["stream_id"]: row for row in tables["stream_ends"]}
    accepted = {row["message_id"] for row in tables["verdicts"] if row["accepted"]}
    ages: dict[str, list[tuple[int, Row]]] = defaultdict(list)
    for row in tables["messages"]:
        if row["captured_ns"] is not None and row["sent_at"] is not None:
            age = row["captured_ns"] // SECOND - row["sent_at"] // 1_000_000
            ages[row["source_queue_manager"]].append((age, row))
    groups: dict[tuple[str, str], list[tuple[int, str, Row]]] = defaultdict(list)
    for aged in ages.values():
        least = min(age for age, _ in aged)
        for age, row in aged:
            outlived = [name for name in LIMITS if row[name] not in (None, UNLIMITED) and age - least > row[name]]
            if outlived and row["message_id"] not in accepted and row["stream_id"] in ends:
                place = ends[row["stream_id"]]["session_id"], row["destination_queue"]
                groups[place].append((age - least, f"{LIMITS[outlived[0]]} ({row[outlived[0]]} s)", row))
    for (session, queue), late in groups.items():
        age, limit, first = min(late, key=lambda one: (one[2]["captured_ns"], key(one[2])))
        words = (
            f"{counted(len(late), 'message arrived after it had', 'messages arrived after they had')} expired, so the "
            f"receiver drops {'it' if len(late) == 1 else 'them'}. The first was at least {age} s old, and its {limit} "
            "had run out."
        )
        yield Finding(
            *(K.EXPIRED_ON_ARRIVAL, "warning", first["captured_at"], session, len(late), words, keys(first)),
            destination_queue=queue,
        )


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
        why = (
            ", and what they send conflicts: two machines use one identity."
            if conflict
            else ": it has several networks, or it moved."
        )
        words = f"Queue manager {guid} has {len(found)} addresses ({', '.join(row['address'] for row in found)}){why}"
        witness, scope, identity = conflict or (keys(*(f"{row['stream_id']}@0" for row in found[:2])), None, None)
        yield Finding(
            *(K.TWO_ADDRESSES, "error" if conflict else "info", micros(found[1]["first_ns"]), found[1]["session_id"]),
            *(len(found), words, witness),
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
    """Finds transactions that are torn or delivered in part, by sequence."""
    groups: dict[tuple[K, str, str, int], list[Row]] = defaultdict(list)
    for row in tables["transactions"]:
        partly = "error" if row["lost"] else "warning"
        for kind, is_so, severity in (
            (K.TORN_TRANSACTION, row["torn_by_sender"], "error"),
            (K.TRANSACTION_PARTLY_DELIVERED, row["partly_delivered"], partly),
        ):
            if is_so:
                groups[kind, severity, row["scope_key"], int(row["tx_sequence_id"])].append(row)
    for (kind, severity, scope, identity), rows in groups.items():
        first: Any = min(
            rows, key=lambda row: (row["first_captured_at"] or 0, row["tx_transaction_id"], row["instance"])
        )
        one = len(rows) == 1
        head = (
            f"{counted(len(rows), 'transaction that begins', 'transactions that begin')} in sequence "
            f"{first['tx_sequence']} {'is' if one else 'are'}"
        )
        size = counted(first["messages"], "message", "messages")
        first_one = f"The first has the ID {first['tx_transaction_id']} and {size}"
        fates = [counted(first[name], f"is {name}", f"are {name}") for name in ("lost", "pending") if first[name]]
        words = {
            K.TORN_TRANSACTION: f"{head} torn: the number next to {'it' if one else 'them'} was seen, and no message "
            f"is marked as the first or as the last. {first_one}.",
            K.TRANSACTION_PARTLY_DELIVERED: f"{head} delivered only in part. {first_one}, of which "
            f"{' and '.join(fates)}.",
        }[kind]
        yield Finding(
            *(kind, severity, first["first_captured_at"], first["session_id"], len(rows), words),
            *(tuple(first["witness"]), scope, first["destination_queue"], identity),
        )


KINDS = (repeated_order_acks, returned, expired_on_arrival, two_addresses, broken_transactions)
