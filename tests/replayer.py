"""A second replayer: plain Python, one message at a time, from contract.md, [MS-MQQB] 3.1.5.8.6 and DECISIONS.md.

It takes rows of the replay's input tables and returns fates. It shares only names of columns with the transforms.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

Row = dict[str, Any]
Rows = dict[str, list[Row]]
Key = tuple[str, int]
Pair = tuple[int, int]
Scope = tuple[str, ...]

NULL = "00000000-0000-0000-0000-000000000000"


class Fate(NamedTuple):
    """Columns of `verdicts` that the replay computes for a message."""

    replay_order: int
    incoming_tx_sequence_id: int | None
    incoming_tx_sequence_number: int | None
    accepted: bool | None
    verdict: str
    reason: str | None
    gap_size: int
    reject_count: int


class Unread(NamedTuple):
    """Stands among messages for bytes that are not read; false. `place` is that of a range on its stream."""

    place: Key | None = None

    def __bool__(self) -> bool:
        return False


class Peers(NamedTuple):
    """The queue managers that talk on a stream, by GUID of the handshake, or by address without one."""

    session: str
    sender: str
    receiver: str
    receiver_guid: str | None
    """Of the connection's handshake, else the one that handshakes elsewhere give to the address."""
    begun_ns: int
    mid_stream: bool
    far_guid: str | None = None
    """GUID of the receiver by the connection's own handshake."""


class Receiver:
    """The state of the final destination for one scope; `fixed` is the initial state, None if it is not known."""

    def __init__(self, fixed: Pair | None, *, literal: bool) -> None:
        self.state = fixed
        self.literal = literal
        self.said_to_be_sent = [fixed] if fixed else []
        self.had: set[Pair] = set()
        self.bytes_missing = False
        self.unread: set[Key | None] = set()
        """Places of the unread bytes since the state was set."""
        self.rejects = self.taken = 0

    def take(self, identity: int, number: int, previous: int) -> Fate:
        """Judges a message by the two conditions of 3.1.5.8.6 and the contract's table."""
        pair, before = (identity, number), self.state
        accepted: bool | None
        reason = None
        skipped, same = number - 1, False
        if before is None:
            accepted, reason = (True, None) if previous == 0 else (None, "no_prior_state")
        else:
            same = identity == before[0]
            if same:
                accepted = number > before[1] and previous <= before[1]
                skipped = number - before[1] - 1
            else:
                accepted = identity > before[0] and previous == 0
            if self.bytes_missing and pair > before and (not accepted or skipped > 0):
                accepted, reason = None, "capture_gap"
        if accepted:
            verdict = "gap_expired" if skipped > 0 else "in_order" if same else "new_sequence"
        elif accepted is None:
            verdict = "unknown"
        elif pair in self.had or any(pair <= sent for sent in self.said_to_be_sent):
            verdict = "duplicate"
        else:
            verdict = "out_of_order"
            reason = "late" if same and before and number <= before[1] else "predecessor_missing"
            if before and identity < before[0]:
                reason = "stale_sequence"
        if accepted is None:
            self.said_to_be_sent.append((identity, previous))
        if accepted is False:
            self.rejects += 1
        else:
            self.rejects = 0
            self.had.add(pair)
        if self.literal or accepted is not False:
            self.state, self.bytes_missing = pair, False
            self.unread.clear()
        self.taken += 1
        gap = skipped if verdict == "gap_expired" else 0
        identity_before, number_before = before or (None, None)
        return Fate(self.taken, identity_before, number_before, accepted, verdict, reason, gap, self.rejects)


def ends(tables: Rows) -> dict[str, Peers]:
    """Returns the peers of each stream."""
    side = {row["stream_id"]: row["from_initiator"] for row in tables["streams"]}
    connection = {row["stream_id"]: row["connection_id"] for row in tables["streams"]}
    clients: dict[str, str] = {}
    servers: dict[str, str] = {}
    # The response, on the acceptor's stream, is sure to name the server, so it comes last.
    for row in sorted(tables["handshakes"], key=lambda row: not side[row["stream_id"]]):
        for named, guid in ((clients, row["client_guid"]), (servers, row["server_guid"])):
            if guid not in (None, NULL):
                named[connection[row["stream_id"]]] = guid
    begun: dict[str, int] = {}
    for row in tables["streams"]:
        if row["first_captured_at"] is not None:
            begun[row["connection_id"]] = min(row["first_captured_at"], begun.get(row["connection_id"], 1 << 63))
    guids_at: dict[str, set[str]] = defaultdict(set)
    for row in tables["streams"]:
        own = (clients if row["from_initiator"] else servers).get(row["connection_id"])
        if own is not None:
            guids_at[row["src_ip"]].add(own)
    at_address = {address: min(guids) for address, guids in guids_at.items() if len(guids) == 1}
    found = {}
    for row in tables["streams"]:
        guids = [named.get(row["connection_id"]) for named in (clients, servers)]
        source, target = guids if row["from_initiator"] else guids[::-1]
        sender, receiver = source or row["src_ip"], target or row["dst_ip"]
        far_guid, target = target, target or at_address.get(row["dst_ip"])
        first = row["first_captured_at"]  # none where nothing of it was captured
        begun_ns = 1000 * (begun.get(row["connection_id"], 0) if first is None else first)
        session = f"{sender}->{receiver}"
        found[row["stream_id"]] = Peers(session, sender, receiver, target, begun_ns, row["mid_stream"], far_guid)
    return found


def scope_of(kind: str, end: Peers, message: Row) -> Scope:
    """Returns the scope of a message."""
    source = message["source_queue_manager"]
    receiver = end.receiver_guid or end.receiver
    return (kind, source, receiver, message["destination_queue"]) if kind == "queue" else (kind, end.session, source)


def chosen(messages: Iterable[Row], at: dict[str, Peers]) -> dict[tuple[str, str], str]:
    """Returns `session` or `queue` for each session and original sender, whichever finds more predecessors."""
    seen: set[tuple[Scope, int, int]] = set()
    asked: list[tuple[tuple[str, str], str, tuple[Scope, int, int]]] = []
    for message in messages:
        end, identity = at[message["stream_id"]], message["tx_sequence_id"]
        who = end.session, message["source_queue_manager"]
        for kind in ("session", "queue"):
            scope = scope_of(kind, end, message)
            seen.add((scope, identity, message["tx_sequence_number"]))
            if message["previous_tx_sequence_number"]:
                asked.append((who, kind, (scope, identity, message["previous_tx_sequence_number"])))
    found: dict[tuple[str, str], int] = defaultdict(int)
    for who, kind, predecessor in asked:
        if predecessor in seen:
            found[who] += 1 if kind == "session" else -1
    return {who: "session" if more > 0 else "queue" for who, more in found.items()}


def merged(streams: dict[str, list[Row | Unread]], at: dict[str, Peers], opened: int) -> Iterator[Row | Unread]:
    """Yields messages in replay order, and unread bytes before them.

    Of the next messages of all streams, the earliest comes first; a stream without messages counts when it begins. On
    a stream captured from mid-stream, bytes are unread before its first message if others arrived before it.
    """
    arrived = False
    left = {stream: list(reversed(items)) for stream, items in streams.items()}

    def due(stream: str) -> tuple[int, int, str]:
        following = next((item for item in reversed(left[stream]) if not isinstance(item, Unread)), None)
        ns = following["captured_ns"] if following else None
        return (at[stream].begun_ns if ns is None else ns, at[stream].begun_ns, stream)

    arrived = False
    while left:
        stream = min(left, key=due)
        items = left[stream]
        if not any(streams[stream]):
            if due(stream)[0] >= opened:
                yield from items
            del left[stream]
            continue
        if arrived and at[stream].mid_stream and len(items) == len(streams[stream]):
            yield Unread()
        while not items[-1]:
            yield items.pop()
        arrived = True
        yield items.pop()
        if not any(items):
            yield from items
            del left[stream]


def addresses_of(at: Iterable[Peers]) -> dict[str, set[str]]:
    """Returns by GUID the addresses by which streams without a handshake know a receiver."""
    found: dict[str, set[str]] = defaultdict(set)
    for end in at:
        if end.far_guid is None and end.receiver_guid is not None:
            found[end.receiver_guid].add(end.receiver)
    return found


def addressees(
    row: Row,
    sender: str,
    receiver: str,
    far_guid: str | None,
    senders: Mapping[str, set[str]],
    addresses: Mapping[str, set[str]],
) -> Iterator[tuple[str, str]]:
    """Yields whom an acknowledgment from `sender` to `receiver` concerns: a receiver and an original sender.

    One that names no sender is for all whose messages went the other way. The acknowledging queue manager is known by
    its GUID, by the name that its stream has for it, and by its `addresses_of`. An OrderAck that goes to another
    machine than the one that it names is for nobody, unless messages of that one came from there.
    """
    named = row["source_guid"] if row["ack_type"] == "final_ack" else row["queue_manager_address"]
    there = senders.get(f"{receiver}->{sender}", set())
    sources = there if named in (None, NULL) else {named}
    if row["ack_type"] == "order_ack" and far_guid is not None:
        sources = {one for one in sources if one == far_guid or one in there}
    names = {sender, row["source_queue_manager"]}
    yield from product(names.union(*(addresses.get(name, ()) for name in names)), sources)


def order_acks(
    acks: list[Row], at: dict[str, Peers], senders: dict[str, set[str]]
) -> dict[tuple[str, str], list[tuple[int, int, int]]]:
    """Returns time, sequence and number of each OrderAck by receiver and source; `senders` are those of a session."""
    found: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    addresses = addresses_of(at.values())
    for row in acks:
        if row["ack_type"] == "order_ack" and row["captured_ns"] is not None:
            end = at[row["stream_id"]]
            for pair in addressees(row, end.sender, end.receiver, end.far_guid, senders, addresses):
                found[pair].append((row["captured_ns"], row["tx_sequence_id"], row["tx_sequence_number"]))
    return found


def legs_of_sources(messages: list[Row], at: dict[str, Peers]) -> dict[str, list[Row]]:
    """Returns the messages of each source that may be passing through a router."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in messages:
        names_another = row["queue_manager_address"] not in (None, NULL)
        if row["transactional"] and names_another and at[row["stream_id"]].receiver_guid is None:
            found[row["source_queue_manager"]].append(row)
    return found


def verdicts(
    tables: Rows,
    *,
    reading: str,
    scope: str,
    disputed: Callable[[list[Row]], set[Key]] = lambda _: set(),
    unknown_by: Counter[Key | None] | None = None,
) -> dict[Key, Fate]:
    """Returns the fate of each transactional message at its final destination.

    `disputed` names those messages of a scope whose order the clocks of captures leave in doubt. `unknown_by` gets how
    many verdicts are unknown because of the unread bytes at each place.
    """
    at = ends(tables)
    messages = [
        row
        for row in tables["messages"]
        if row["transactional"] and row["queue_manager_address"] in (None, NULL, at[row["stream_id"]].receiver_guid)
    ]
    perhaps = legs_of_sources(tables["messages"], at)
    choice = chosen(messages, at) if scope == "auto" else {}
    missing = [(row["stream_id"], row["stream_offset"]) for row in tables["stream_gaps"]]
    missing += [
        (row["stream_id"], row["stream_offset"])
        for row in tables["quarantine"]
        if row["stage"] in ("framing", "decode")
    ]
    of_session: dict[str, list[Key]] = defaultdict(list)
    for stream, offset in missing:
        of_session[at[stream].session].append((stream, offset))
    in_scope: dict[Scope, list[Row]] = defaultdict(list)
    senders: dict[str, set[str]] = defaultdict(set)
    for message in messages:
        end, source = at[message["stream_id"]], message["source_queue_manager"]
        kind = choice.get((end.session, source), "queue") if scope == "auto" else scope
        in_scope[scope_of(kind, end, message)].append(message)
        senders[end.session].add(source)
    acks = order_acks(tables["acks"], at, senders)
    found: dict[Key, Fate] = {}
    for key, rows in in_scope.items():
        places: dict[str, list[tuple[int, Row | Unread]]] = defaultdict(list)
        for row in rows:
            places[row["stream_id"]].append((row["stream_offset"], row))
        in_doubt = disputed(rows)
        for stream, offset in in_doubt:
            places[stream].append((offset - 1, Unread()))
        sessions = {at[stream].session for stream in places}
        for session in sessions:
            for stream, offset in of_session[session]:
                places[stream].append((offset, Unread((stream, offset))))
        named = {
            (row["queue_manager_address"], row["destination_queue"] if key[0] == "queue" else None) for row in rows
        }
        for row in perhaps[rows[0]["source_queue_manager"]]:
            name = row["queue_manager_address"], row["destination_queue"] if key[0] == "queue" else None
            if name in named:
                leg = f"leg {row['stream_id']}@{row['stream_offset']}"
                at[leg] = at[row["stream_id"]]._replace(begun_ns=row["captured_ns"] or 0, mid_stream=False)
                places[leg].append((0, Unread()))
        streams = {
            stream: [item for _, item in sorted(items, key=lambda item: item[0])] for stream, items in places.items()
        }
        first = next(row for row in merged(streams, at, 0) if not isinstance(row, Unread))
        earlier = [
            ack
            for receiver in {
                at[stream].receiver
                for stream, items in streams.items()
                if any(not isinstance(item, Unread) for item in items)
            }
            for ack in acks[receiver, rows[0]["source_queue_manager"]]
            if first["captured_ns"] is not None
            and ack[0] < first["captured_ns"]
            and (key[0] != "queue" or ack[1] == first["tx_sequence_id"])
        ]
        told = [((identity, number), ns) for ns, identity, number in sorted(earlier)[-1:]]
        fixed, opened = max(told, default=(None, 0))
        receiver_state = Receiver(fixed, literal=reading == "literal")
        for one in merged(streams, at, opened):
            if isinstance(one, Unread):
                receiver_state.bytes_missing = True
                receiver_state.unread.add(one.place)
                continue
            row, unread = one, [*receiver_state.unread]
            row_key = row["stream_id"], row["stream_offset"]
            fate = receiver_state.take(
                row["tx_sequence_id"], row["tx_sequence_number"], row["previous_tx_sequence_number"]
            )
            if unknown_by is not None and fate.reason == "capture_gap":
                unknown_by.update(unread)
            by_clocks = fate.reason == "capture_gap" and row_key in in_doubt
            found[row_key] = fate._replace(reason="clocks_differ") if by_clocks else fate
    return found
