"""Conversations that were captured twice, and clocks that step back, in plain Python: slow and simple.

Every byte of a copy is put at its place in the stream that counts; what is there already is dropped.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from statistics import median
from typing import Any, NamedTuple

Row = dict[str, Any]
Rows = dict[str, list[Row]]
Key = tuple[str, int]


def in_order(tables: Rows, steps: Mapping[str, Sequence[Row]]) -> Rows:
    """The tables with the times that a clock without these steps, by capture, would have shown."""
    if not any(steps.values()):
        return tables

    def behind(row: Row) -> int:
        return sum(-int(step["step_ns"]) for step in steps[row["capture_id"]] if row["last_frame"] >= step["frame"])

    new = dict(tables)
    places: dict[str, list[tuple[int, int, int]]] = {}  # by stream: offset, how late the clock was, time
    for name in ("messages", "acks", "handshakes", "session_acks"):
        new[name] = [row | {"captured_ns": row["captured_ns"] + behind(row)} for row in tables.get(name, [])]
        for row in new[name] if name != "session_acks" else []:
            places.setdefault(row["stream_id"], []).append((row["stream_offset"], behind(row), row["captured_ns"]))
    new["streams"] = []
    for row in tables["streams"]:
        ways = [one["stream_id"] for one in tables["streams"] if one["connection_id"] == row["connection_id"]]
        other = [place for way in ways for place in places.get(way, [])]
        there = places.get(row["stream_id"]) or other or [(0, 0, 0)]
        late = {"first_captured_at": min(there)[1], "last_captured_at": max(there)[1]}
        times = sorted(time // 1000 for _, _, time in there)
        if len({behind_ns for _, behind_ns, _ in other}) < 2:
            changed = {name: row[name] and row[name] + ns // 1000 for name, ns in late.items()}
        else:
            changed = dict(zip(late, (times[0], times[-1]), strict=True))
        new["streams"].append(row | changed)
    return new


class Copy(NamedTuple):
    """The stream that counts, and by how much offsets in the copy are higher; None where nothing tells."""

    of: str
    ahead: int | None


def identity(name: str, row: Row) -> tuple[Any, ...] | None:
    """What a packet has in common with its copy; None for what tells nothing."""
    if name == "handshakes":
        return None  # the same on every connection of two queue managers
    numbers = row["tx_sequence_id"], row["tx_sequence_number"]
    if name == "acks":
        own = row.get("message_id"), row["ack_type"], row["source_queue_manager"]
        return (name, *own, *numbers, row.get("acknowledged_message_id"))
    return (name, row["message_id"], row.get("sent_at"), *numbers, row["previous_tx_sequence_number"])


class Connection:
    """A connection, its two streams and their packets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.streams: dict[bool, Row] = {}
        self.packets: dict[bool, list[tuple[int, tuple[Any, ...]]]] = {True: [], False: []}
        self.established: tuple[Any, ...] | None = None
        self.greetings: dict[bool, int] = {}
        """Where the EstablishConnection of each direction stands."""
        self.begun: list[int] = []
        """When these were captured."""
        self.times: dict[tuple[bool, int], int | None] = {}
        """When the packets that are compared were captured, by direction and offset."""
        self.captures: set[str] = set()
        self.shown: dict[bool, set[str]] = {True: set(), False: set()}
        """The captures that show packets that are compared, by direction."""

    @property
    def endpoints(self) -> str:
        """Addresses and ports of both sides."""
        return self.name.partition("#")[0]

    @property
    def addresses(self) -> tuple[str, str]:
        """Of the initiator and the acceptor."""
        ((forth, row), *_) = self.streams.items()
        return (row["src_ip"], row["dst_ip"]) if forth else (row["dst_ip"], row["src_ip"])

    @property
    def faults(self) -> tuple[int, int, int]:
        """What makes another connection the better one."""
        rows = self.streams.values()
        missing, recovered = (sum(row[name] for row in rows) for name in ("missing_bytes", "recovered_bytes"))
        return int(any(row["mid_stream"] for row in rows)), missing, -recovered

    def seq(self, way: bool) -> int | None:
        """The initial sequence number of a direction."""
        found: int | None = self.streams.get(way, {}).get("initial_seq")
        return found


def connections(tables: Rows) -> list[Connection]:
    found: dict[str, Connection] = {}
    place = {}
    for row in tables["streams"]:
        if row["from_initiator"] is not None:
            connection = found.setdefault(row["connection_id"], Connection(row["connection_id"]))
            connection.streams[row["from_initiator"]] = row
            place[row["stream_id"]] = connection, row["from_initiator"]
    for name in ("messages", "acks", "handshakes"):
        for row in tables[name]:
            if row["stream_id"] not in place:
                continue
            connection, way = place[row["stream_id"]]
            connection.captures |= {row["capture_id"]} - {None}
            if packet := identity(name, row):
                connection.times[way, row["stream_offset"]] = row["captured_ns"]
                connection.shown[way] |= {row["capture_id"]} - {None}
                connection.packets[way].append((row["stream_offset"], packet))
            elif row.get("time_stamp_ms") is not None:
                connection.established = row["client_guid"], row["time_stamp_ms"]
                connection.greetings[way] = row["stream_offset"]
                connection.begun.append(row["captured_ns"])
    return list(found.values())


class Difference(NamedTuple):
    """By how much offsets in a copy are higher, each way, and which share of the packets is the same."""

    ahead: dict[bool, int | None]
    share: float
    apart_s: int = 0
    """How many whole seconds lie between them, at least."""


def difference(copy: Connection, other: Connection) -> Difference | None:
    """What a copy differs in; None for no copy."""
    begun = [(copy.seq(way), other.seq(way)) for way in (True, False)] + [(copy.established, other.established)]
    if any(a != b for a, b in begun if a is not None and b is not None):
        return None
    ahead: dict[bool, int | None] = {True: 0, False: 0}
    if all(a is not None and b is not None for a, b in begun):
        return Difference(ahead, 2)
    if copy.addresses == other.addresses or all(a is not None for a, _ in begun) or _goes_on(copy, other):
        return None
    same = 0
    for way in (True, False):
        places = defaultdict(set)
        for offset, packet in other.packets[way]:
            places[packet].add(offset)
        counts: dict[int, set[int]] = defaultdict(set)
        for offset, packet in copy.packets[way]:
            for there in places[packet]:
                counts[offset - there].add(offset)
        best = max(counts, key=lambda step: (len(counts[step]), -abs(step), step), default=None)
        same += 0 if best is None else len(counts[best])
        ahead[way] = best
    most = max(sum(map(len, one.packets.values())) for one in (copy, other))
    return Difference(ahead, same / most, apart_s(copy, other, ahead)) if 2 * same > most else None


def apart_s(copy: Connection, other: Connection, ahead: dict[bool, int | None]) -> int:
    """How many whole seconds lie between the same packets, at least."""
    same = (one for way, step in ahead.items() if step is not None for one in common(copy, other, way).get(step, []))
    return min((abs(late_s) for _, _, late_s in same if late_s is not None), default=0)


def common(copy: Connection, other: Connection, way: bool) -> dict[int, list[tuple[int, bool, int | None]]]:
    """The packets that are the same, by how much offsets are higher in the copy.

    That is their offset in it, whether they acknowledge, and how many whole seconds later they are there.
    """
    counts: dict[int, dict[int, tuple[int, bool, int | None]]] = defaultdict(dict)
    places = defaultdict(list)
    for there, packet in other.packets[way]:
        places[packet].append(there)
    for offset, packet in copy.packets[way]:
        for there in places[packet]:
            ns = copy.times[way, offset], other.times[way, there]
            late_s = None if None in ns else (ns[0] - ns[1]) // 10**9  # type: ignore[operator]
            counts[offset - there][offset] = offset, packet[0] == "acks", late_s
    return {step: list(found.values()) for step, found in counts.items()}


class Renumbered(NamedTuple):
    """A pair of connections that a firewall may have renumbered, how much later one is, and whether that is sure."""

    pair: tuple[str, str]
    ahead: dict[bool, int | None]
    late_s: int | None
    is_sure: bool


def renumbered(near: Iterable[tuple[Connection, Connection]]) -> dict[tuple[str, str], Difference]:
    """The pairs of connections that a firewall renumbered, of all that have a packet in common."""
    alike = [pair for pair in near if _may_pass(*pair)]
    pairs = [(a, b) for a, b in alike if a.name < b.name and a.established and a.established == b.established]
    pairs = [(a, b) for a, b in pairs if None in _begun(a, b) or any(x != y for x, y in _begun(a, b))]
    candidates = [one for a, b in pairs if (one := _as_renumbered(a, b, in_part=False))]
    vague: dict[str, list[tuple[float, int, str, Renumbered]]] = defaultdict(list)
    for a, b in alike:
        knows = a.established and None not in (a.seq(True), a.seq(False))
        if (a.established and b.established) or knows or _goes_on(a, b):
            continue
        share = _share(a, b)
        one = _as_renumbered(a, b, in_part=True)
        if share > 0.5:
            apart = apart_s(a, b, {way: _likeliest(a, b, way) for way in (True, False)})
            vague[a.name].append((share, -apart, b.name, one))  # type: ignore[arg-type]
    candidates += [one for pairs_of in vague.values() if (one := max(pairs_of, key=lambda of: of[:3])[3])]
    trusted = {one.late_s for one in candidates if one.is_sure and one.late_s is not None}
    known = {0, -1} | trusted | {-1 - one for one in trusted}
    return {
        one.pair: Difference(one.ahead, 2)
        for one in candidates
        if one.late_s is not None and any(abs(one.late_s - at) <= 1 for at in known)
    }


def _may_pass(a: Connection, b: Connection) -> bool:
    return a.addresses != b.addresses or a.endpoints == b.endpoints


def _goes_on(a: Connection, b: Connection) -> bool:
    """Whether one machine accepted one of the two connections and opened the other, as a router does."""
    return a.addresses[1] == b.addresses[0] or b.addresses[1] == a.addresses[0]


def forwarded(tables: Rows, a: Connection, b: Connection, ahead: Mapping[bool, int | None]) -> bool:
    """Whether a connection lacks packets that it would have if it was a copy of the other one."""
    held = denied = 0
    for way, step in ahead.items():
        for own, other, sign in ((a, b, 1), (b, a, -1)):
            stream, made = other.streams.get(way), _made(tables, other.shown[way])
            if step is None or stream is None or made is None or stream["missing_bytes"]:
                continue
            unread = unread_ranges(tables)[stream["stream_id"]]
            counted = sorted(own.packets[way])
            for offset, packet in own.packets[way]:
                at, ns = offset - sign * step, own.times[way, offset]
                following = min((later - sign * step for later, _ in counted if later > offset), default=1 << 62)
                if any(part.start < following and part.stop > at for part in unread):
                    continue
                was_captured = None not in (ns, *made) and made[0] <= ns <= made[1]
                within = 0 <= at < stream["recovered_bytes"]
                if within or was_captured or (at < 0 and not stream["mid_stream"]):
                    is_there = (at, packet) in other.packets[way]
                    held, denied = held + is_there, denied + (not is_there)
    return denied > held / 10


def _made(tables: Rows, shown: set[str]) -> tuple[Any, Any] | None:
    """From when to when these captures were made, in ns; None if nothing is known of any."""
    known = [row for row in tables.get("captures", []) if row["capture_id"] in shown]
    first = [row["first_captured_at"] * 1000 for row in known if row.get("first_captured_at") is not None]
    last = [row["last_captured_at"] * 1000 for row in known if row.get("last_captured_at") is not None]
    return (min(first, default=None), max(last, default=None)) if known else None


def _begun(a: Connection, b: Connection) -> list[Any]:
    seqs = [(a.seq(way), b.seq(way)) for way in (True, False)]
    return [None if None in pair else pair for pair in seqs]


def _likeliest(a: Connection, b: Connection, way: bool) -> int | None:
    steps = common(a, b, way)
    return max(steps, key=lambda step: (len(steps[step]), -abs(step), step), default=None)


def _share(a: Connection, b: Connection) -> float:
    same = sum(max(map(len, common(a, b, way).values()), default=0) for way in (True, False))
    return same / max(1, *(sum(map(len, one.packets.values())) for one in (a, b)))


def _as_renumbered(a: Connection, b: Connection, *, in_part: bool) -> Renumbered | None:
    ahead: dict[bool, int | None] = {}
    for way in (True, False):
        ahead[way] = _likeliest(a, b, way)
        if not in_part and way in a.greetings and way in b.greetings:
            ahead[way] = a.greetings[way] - b.greetings[way]
        elif not in_part and None not in _begun(a, b):
            ahead[way] = 0
    same = [one for way, step in ahead.items() if step is not None for one in common(a, b, way).get(step, [])]
    few = min(sum(map(len, one.packets.values())) for one in (a, b))
    if not same and not few:
        first, second = (min(one.begun) if one.begun else None for one in (a, b))
        late = None if first is None or second is None else (first - second) // 10**9
        return Renumbered((a.name, b.name), ahead, late, False)
    seconds = [late for _, _, late in same if late is not None]
    if 2 * len(same) <= few or not seconds:
        return None
    late_s = max(sorted(set(seconds)), key=lambda one: (seconds.count(one), one))
    together = sum(abs(one - late_s) <= 1 for one in seconds)
    if 2 * together <= len(same):
        return None
    return Renumbered((a.name, b.name), ahead, late_s, any(is_ack for _, is_ack, _ in same))


def copies(tables: Rows) -> dict[str, Copy]:
    found = connections(tables)
    known: dict[tuple[Any, ...], list[Connection]] = defaultdict(list)
    for connection in found:
        for packet in {packet for way in connection.packets.values() for _, packet in way}:
            known[packet].append(connection)
        if connection.established:
            known[connection.established].append(connection)
    near = {(a.name, b.name): (a, b) for sharing in known.values() for a, b in permutations(sharing, 2)}
    pairs = {names: step for names, (a, b) in near.items() if (step := difference(a, b)) is not None}
    likest = {
        copy: max((step.share, -step.apart_s, other) for (x, other), step in pairs.items() if x == copy)
        for copy, _ in pairs
    }
    pairs = {
        names: step
        for names, step in pairs.items()
        if step.share == 2
        or (
            (step.share, -step.apart_s, names[1]) == likest[names[0]]
            and not forwarded(tables, *near[names], step.ahead)
        )
    }
    pairs |= {
        (b, a): Difference({way: None if n is None else -n for way, n in step.ahead.items()}, step.share)
        for (a, b), step in pairs.items()
    }
    for (a, b), step in renumbered(near.values()).items():
        if forwarded(tables, *near[a, b], step.ahead):
            continue
        for pair, sign in (((a, b), 1), ((b, a), -1)):
            ahead = {way: None if n is None else sign * n for way, n in step.ahead.items()}
            told = pairs[pair].ahead if pair in pairs else {}
            pairs[pair] = Difference(ahead | {way: n for way, n in told.items() if n is not None}, 2)
    named = {connection.name: connection for connection in found}
    tap = taps([(named[a], named[b]) for a, b in pairs])
    sides: dict[tuple[Any, ...], list[Connection]] = defaultdict(list)
    for name in {name for names in pairs for name in names}:
        sides[named[name].addresses, tap.get(name)].append(named[name])

    def rank(name: str) -> tuple[Any, ...]:
        own = named[name]
        of_side = sides[own.addresses, tap.get(name)]
        every = [sum(fault) for fault in zip(*(one.faults for one in of_side), strict=True)]
        return every, own.addresses, tap.get(name, ""), own.faults, name

    result = {}
    for name in {copy for copy, _ in pairs}:
        best = min((other for copy, other in pairs if copy == name), key=rank)
        if rank(best) < rank(name):
            for way, row in named[name].streams.items():
                if way in named[best].streams:
                    result[row["stream_id"]] = Copy(named[best].streams[way]["stream_id"], pairs[name, best].ahead[way])
    return result


def taps(pairs: list[tuple[Connection, Connection]]) -> dict[str, str]:
    """Where each connection was captured that is a copy of one between the same endpoints."""
    alike = [one for a, b in pairs if a.endpoints == b.endpoints for one in (a, b) if one.captures]
    groups: list[set[str]] = []
    for one in alike:
        touching = [group for group in groups if group & one.captures]
        groups = [group for group in groups if group not in touching] + [set.union(one.captures, *touching)]
    return {one.name: min(group) for one in alike for group in groups if group & one.captures}


def once(tables: Rows) -> tuple[Rows, dict[Key, Key]]:
    """The tables with every conversation once, and the own key of each message that only a copy has."""
    of = copies(tables)
    if not of:
        return tables, {}
    new: Rows = {name: [row for row in rows if row.get("stream_id") not in of] for name, rows in tables.items()}
    new["handshakes"] += [
        row | {"stream_id": of[row["stream_id"]].of} for row in tables["handshakes"] if row["stream_id"] in of
    ]
    own: dict[Key, Key] = {}
    ahead: dict[str, list[int]] = defaultdict(list)
    unread = unread_ranges(tables)
    size = {row["stream_id"]: row["recovered_bytes"] + row["missing_bytes"] for row in tables["streams"]}
    there = {(name, row["stream_id"], row["stream_offset"]): row for name in ("messages", "acks") for row in new[name]}
    moved = []
    for name in ("messages", "acks"):
        for row in sorted(tables[name], key=lambda row: (row["stream_id"], row["stream_offset"])):
            copy = of.get(row["stream_id"])
            if copy is None or copy.ahead is None:
                continue
            key = copy.of, row["stream_offset"] - copy.ahead
            counting = there.get((name, *key))
            if counting is None:
                if not 0 <= key[1] < size[copy.of] or any(key[1] in part for part in unread[copy.of]):
                    moved.append((name, key, row))
            else:
                ahead[row["stream_id"]].append(row["captured_ns"] - counting["captured_ns"])
    for name, key, row in moved:
        if (name, *key) in there:
            continue
        late = int(median(ahead[row["stream_id"]])) if row["stream_id"] in ahead else 0
        placed = row | {"stream_id": key[0], "stream_offset": key[1], "captured_ns": row["captured_ns"] - late}
        there[name, *key] = placed
        new[name].append(placed)
        if name == "messages":
            own[key] = row["stream_id"], row["stream_offset"]
    _unread(tables, new, of)
    return new, own


def skews(tables: Rows) -> dict[frozenset[str], int]:
    """By how much the clocks of two captures differ: the median over the packets of copies that both have."""
    of = copies(tables)
    ahead: dict[tuple[str, str], list[int]] = defaultdict(list)
    for name in ("messages", "acks"):
        there = {(row["stream_id"], row["stream_offset"]): row for row in tables[name]}
        for (stream, offset), row in there.items():
            copy = of.get(stream)
            if copy is None or copy.ahead is None or (copy.of, offset - copy.ahead) not in there:
                continue
            other = there[copy.of, offset - copy.ahead]
            later = row["captured_ns"] - other["captured_ns"]
            one, two = row["capture_id"], other["capture_id"]
            if one != two:
                ahead[min(one, two), max(one, two)].append(later if one < two else -later)
    return {frozenset(pair): abs(int(median(steps))) for pair, steps in ahead.items()}


def disputed(rows: list[Row], skew: Mapping[frozenset[str], int], shown_by: Mapping[str, set[str]]) -> set[Key]:
    """The messages of a scope that may have come before or after another one, as clocks of captures differ.

    `shown_by` are the captures that show the transactional messages of a stream.
    """
    found = set()
    for row in rows:
        for other in rows:
            for pair, ns in skew.items():
                sides = [shown_by[one["stream_id"]] & pair for one in (row, other)]
                if all(len(side) == 1 for side in sides) and sides[0] != sides[1]:
                    times = row["captured_ns"], other["captured_ns"]
                    if None not in times and abs(times[0] - times[1]) < ns:
                        found.add((row["stream_id"], row["stream_offset"]))
    return found


def unread_ranges(tables: Rows) -> dict[str, list[range]]:
    """What became no row, by stream."""
    unread: dict[str, list[range]] = defaultdict(list)
    for row in tables["stream_gaps"] + [row for row in tables["quarantine"] if row["stage"] in ("framing", "decode")]:
        unread[row["stream_id"]].append(range(row["stream_offset"], row["stream_offset"] + row["length"]))
    return unread


def _unread(tables: Rows, new: Rows, of: dict[str, Copy]) -> None:
    """Leaves only what no copy has, byte by byte."""
    unread = unread_ranges(tables)
    size = {row["stream_id"]: row["recovered_bytes"] + row["missing_bytes"] for row in tables["streams"]}
    begun = {row["stream_id"]: not row["mid_stream"] for row in tables["streams"]}
    has: dict[str, set[int]] = defaultdict(set)
    for stream, copy in of.items():
        if copy.ahead is not None:
            held = set(range(size[stream])).difference(*unread[stream])
            has[copy.of] |= {offset - copy.ahead for offset in held}
            for row in new["streams"]:
                if row["stream_id"] == copy.of and begun[stream]:
                    new["streams"][new["streams"].index(row)] = row | {"mid_stream": False}
    for name in ("stream_gaps", "quarantine"):
        rows, new[name] = new[name], []
        for row in rows:
            if row["stream_id"] not in has or row.get("stage", "framing") not in ("framing", "decode"):
                new[name].append(row)
                continue
            bytes_there = range(row["stream_offset"], row["stream_offset"] + row["length"])
            lacking = [offset for offset in bytes_there if offset not in has[row["stream_id"]]]
            starts = [offset for offset in lacking if offset - 1 not in set(lacking)]
            ends = [offset + 1 for offset in lacking if offset + 1 not in set(lacking)]
            new[name] += [
                row | {"stream_offset": start, "length": end - start} for start, end in zip(starts, ends, strict=True)
            ]
