"""A second computation of the findings on captures, connections and addresses: plain Python, one function a kind.

From outcomes.md, DECISIONS 100 and the comments of the tables, whose rows it takes.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from plain_evidence import addressees
from plain_finding import NULL, SECOND, Finding, Row, Rows, first_of, key, keys, micros
from plain_sender_findings import counting_ends

from schemas.replay import FindingKind as K

PATIENCE = 21_000_000
"""µs after which a sender gives up a SYN."""


def captured_twice(tables: Rows) -> Iterator[Finding]:
    sessions: dict[str, list[Row]] = defaultdict(list)
    for row in tables["stream_ends"]:
        if row["copy_of"] is not None:
            sessions[row["session_id"]].append(row)
    for session, copies in sessions.items():
        first = min(copies, key=lambda row: (row["first_ns"] or 0, row["stream_id"]))
        count = len({row["connection_id"] for row in copies})
        witness = f"{first['copy_of']}@0", f"{first['stream_id']}@0"
        yield Finding(K.CAPTURED_TWICE, "info", micros(first["first_ns"]), session, count, witness)


def clock_stepped(tables: Rows) -> Iterator[Finding]:
    for capture in tables["captures"]:
        steps = capture["clock_steps"]
        if not steps:
            continue
        frame = steps[0]["frame"]
        inside = [row for row in tables["every_message"] if row["capture_id"] == capture["capture_id"]]
        before = [row for row in inside if row["last_frame"] < frame]
        after = [row for row in inside if row["last_frame"] >= frame]
        witness = keys(
            max(before, key=lambda row: (row["last_frame"], row["stream_offset"]), default=None),
            min(after, key=lambda row: (row["last_frame"], row["stream_offset"]), default=None),
        )
        at = capture["first_captured_at"]
        yield Finding(K.CLOCK_STEPPED, "warning", at, None, len(steps), witness)


class Try(NamedTuple):
    """An attempt of one address to connect to another; `failure` is null where it worked."""

    client: str
    server: str
    first_at: int
    last_at: int
    key: str | None
    failure: str | None


def tries(tables: Rows) -> Iterator[Try]:
    """Yields the attempts that streams and pings show."""
    connection = {row["stream_id"]: row["connection_id"] for row in tables["streams"]}
    answered = {row["connection_id"] for row in tables["streams"] if not row["from_initiator"]}
    refused = {connection[row["stream_id"]] for row in tables["handshakes"] if row["connection_refused"]}
    begun = {row["stream_id"] for row in tables["streams"] if not row["mid_stream"]}
    other_version = {
        connection[row["stream_id"]]
        for row in tables["quarantine"]
        if row["reason"] == "bad_version" and row["stream_offset"] == 0 and row["stream_id"] in begun
    }
    for row in tables["streams"]:
        if not row["from_initiator"]:
            continue
        of, failure = row["connection_id"], row["attempt"]
        is_closed = row["closed"] and not row["mid_stream"] and row["acked_bytes"] is not None
        if of in refused:
            failure = "refused_session"
        elif of in other_version:
            failure = "other_version"
        elif failure is None and of not in answered and is_closed:
            failure = "closed"
        times = row["first_captured_at"], row["last_captured_at"]
        yield Try(row["src_ip"], row["dst_ip"], *times, f"{row['stream_id']}@0", failure)
    asked: dict[tuple[str, str, Any], list[Row]] = defaultdict(list)
    answers: dict[tuple[str, str, Any], list[Row]] = defaultdict(list)
    for row in tables["pings"]:
        if row["is_response"]:
            answers[row["dst_ip"], row["src_ip"], row["cookie"]].append(row)
        else:
            asked[row["src_ip"], row["dst_ip"], row["cookie"]].append(row)
    for ping, requests in asked.items():
        is_refused = all(row["refused"] for row in answers[ping])
        if is_refused:
            times = min(row["captured_at"] for row in requests), max(row["captured_at"] for row in requests)
            yield Try(*ping[:2], *times, None, "refused_by_pong" if answers[ping] else "no_pong")


def cannot_connect(tables: Rows) -> Iterator[Finding]:
    """Finds who could not connect to whom, but for what may still have been answered after the captures ended."""
    ended = max((row["last_captured_at"] for row in tables["captures"] if row["last_captured_at"]), default=0)
    pairs: dict[tuple[str, str], list[Try]] = defaultdict(list)
    for one in tries(tables):
        pairs[one.client, one.server].append(one)
    for (client, server), all_tries in pairs.items():
        worked = max((one.last_at for one in all_tries if one.failure is None), default=None)
        failed = []
        for one in all_tries:
            is_late = one.failure in ("no_answer", "silent", "no_pong") and one.last_at > ended - PATIENCE
            is_moot = one.failure == "no_pong" and worked is not None and one.last_at <= worked
            if one.failure is not None and not is_late and not is_moot:
                failed.append(one)
        if not failed:
            continue
        lately = [one for one in failed if worked is None or one.last_at > worked]
        first = min(failed, key=lambda one: (one.first_at, one.key or ""))
        yield Finding(
            *(K.CANNOT_CONNECT, "warning" if lately else "info", first.first_at, f"{client}->{server}"),
            *(len(failed), keys(first.key)),
        )


class Way(NamedTuple):
    """A direction that packets took, and what is known of the answers to them."""

    stream: Row
    back: Row
    patience: int
    """ns after which a SessionAck is overdue: three quarters of AckTimeout."""
    until: int
    """When the connection was last seen."""


def ways(tables: Rows) -> list[Way]:
    """Returns the streams that count, of which the other direction was captured."""
    ends, streams = counting_ends(tables), {row["stream_id"]: row for row in tables["streams"]}
    timeouts: dict[str, int] = defaultdict(int)
    for row in tables["handshakes"]:
        timeouts[row["stream_id"]] = max(timeouts[row["stream_id"]], row["ack_timeout_ms"] or 0)
    found = []
    for stream, end in ends.items():
        for back, other in ends.items():
            if back != stream and other["connection_id"] == end["connection_id"]:
                timeout = max(timeouts[stream], timeouts[back]) or 120_000
                seen = end["last_ns"], other["last_ns"], (streams[stream]["connection_last_at"] or 0) * 1_000
                found.append(Way(end, other, timeout * 750_000, max(time or 0 for time in seen)))
    return found


def window_stalled(tables: Rows) -> Iterator[Finding]:
    """Finds sessions whose receiver stopped taking packets."""
    streams = {row["stream_id"]: row for row in tables["streams"]}
    packets: dict[str, list[Row]] = defaultdict(list)
    headers: dict[str, list[Row]] = defaultdict(list)
    for name in ("messages", "acks", "session_acks"):
        for row in tables[f"timed_{name}"]:
            if name != "session_acks":
                packets[row["stream_id"]].append(row)
            if row["window_size"] is not None:
                headers[row["stream_id"]].append(row)
    all_ways = ways(tables)
    answering = {way.back["address"] for way in all_ways if headers[way.back["stream_id"]]}
    closed: dict[str, list[tuple[int, str, bool, str]]] = defaultdict(list)
    for way in all_ways:
        stream, back = way.stream["stream_id"], way.back["stream_id"]
        found: list[tuple[int, str, bool]] = []
        if way.back["missing_bytes"] == 0 and way.back["address"] in answering:
            found += unanswered(way, packets[stream], headers[back])
        found += paused(f"{stream}@0", headers[back])
        shut = streams[stream]["window_shut_ms"]
        if shut is not None and shut >= 10_000:
            since, length = streams[stream]["window_shut_at"] * 1_000, shut * 1_000_000
            found.append((since, f"{stream}@0", since + length + SECOND >= way.until))
        closed[way.stream["session_id"]] += [(*one, way.stream["connection_id"]) for one in found]
    for session, stalls in closed.items():
        if stalls:
            (since, at, *_), is_last = min(stalls), any(last for _, _, last, _ in stalls)
            yield Finding(
                *(K.WINDOW_STALLED, "warning" if is_last else "info", micros(since), session),
                *(len({connection for *_, connection in stalls}), (at,)),
            )


def unanswered(way: Way, packets: list[Row], headers: list[Row]) -> Iterator[tuple[int, str, bool]]:
    """Yields where the last packet of a step of 15 s waited too long for a header from the other side."""
    last: dict[int, Row] = {}
    for row in packets:
        if row["captured_ns"] is not None:
            step = row["captured_ns"] // (15 * SECOND)
            place = row["captured_ns"], row["stream_offset"]
            if step not in last or place > (last[step]["captured_ns"], last[step]["stream_offset"]):
                last[step] = row
    times = sorted(row["captured_ns"] for row in headers if row["captured_ns"] is not None)
    for row in last.values():
        sent = row["captured_ns"]
        answer = next((time for time in times if time >= sent), None)
        waited = (way.until if answer is None else answer) - sent
        if waited > way.patience:
            yield sent, key(row), answer is None


def paused(at: str, headers: list[Row]) -> Iterator[tuple[int, str, bool]]:
    """Yields where the other side announced a window of one packet or none for 30 s, [MS-MQQB] 3.1.3.2."""
    in_time = sorted(
        (row for row in headers if row["captured_ns"] is not None),
        key=lambda row: (row["captured_ns"], row["stream_offset"]),
    )
    for i, row in enumerate(in_time):
        opened = next((later["captured_ns"] for later in in_time[i:] if later["window_size"] > 1), None)
        length = (in_time[-1]["captured_ns"] if opened is None else opened) - row["captured_ns"]
        if row["window_size"] <= 1 and length >= 30 * SECOND:
            yield row["captured_ns"], at, opened is None


class Flow(NamedTuple):
    """A message at its final destination, and where it went."""

    row: Row
    end: Row
    far: str | None
    """The address that its stream goes to, where the other direction was captured."""


def flows(tables: Rows) -> list[Flow]:
    """Returns the transactional messages that do not pass through their receiver, as far as it is known."""
    ends, far = counting_ends(tables), far_addresses(tables)
    found = []
    for row in tables["once_messages"]:
        if row["transactional"] and row["stream_id"] in ends:
            end = ends[row["stream_id"]]
            if row["queue_manager_address"] in (None, NULL, end["receiver_guid"] or end["receiver_by_address"]):
                found.append(Flow(row, end, far.get(row["stream_id"])))
    return found


def far_addresses(tables: Rows) -> dict[str, str]:
    """Returns the address that each stream goes to, where the other direction was captured."""
    return {way.stream["stream_id"]: way.back["address"] for way in ways(tables)}


def several_receivers(tables: Rows) -> Iterator[Finding]:
    """Finds addresses at which several queue managers take messages, and the sequences that went to several."""
    served: dict[str, dict[str, list[Flow]]] = defaultdict(lambda: defaultdict(list))
    for flow in flows(tables):
        if flow.end["receiver_guid"] is not None and flow.far is not None:
            served[flow.far][flow.end["receiver_guid"]].append(flow)
    for receivers in served.values():
        if len(receivers) < 2:
            continue
        began = sorted((*_place(first_flow(of)), guid) for guid, of in receivers.items())
        sequences: dict[tuple[str, int], dict[str, list[Flow]]] = defaultdict(lambda: defaultdict(list))
        for guid, of in receivers.items():
            for flow in of:
                sequences[flow.row["source_queue_manager"], int(flow.row["tx_sequence_id"])][guid].append(flow)
        split = [
            sorted(_place(first_flow(of))[:2] for of in by_guid.values())
            for by_guid in sequences.values()
            if len(by_guid) > 1
        ]
        witness = min(split)[:2] if split else [one[:2] for one in began[:2]]
        at, _, session, _ = began[1]
        yield Finding(
            *(K.SEVERAL_RECEIVERS, "warning" if split else "info", micros(at), session),
            *(len(began), tuple(at for _, at in witness)),
        )


def first_flow(found: list[Flow]) -> Flow:
    """Returns the earliest of these; on a stream that is the first in the order of its bytes."""
    first: dict[str, Flow] = {}
    for flow in sorted(found, key=lambda flow: int(flow.row["stream_offset"])):
        first.setdefault(flow.row["stream_id"], flow)
    return min(first.values(), key=lambda flow: (flow.row["captured_ns"] or 0, key(flow.row)))


def _place(flow: Flow) -> tuple[int, str, str]:
    return flow.row["captured_ns"], key(flow.row), flow.end["session_id"]


def acknowledged_elsewhere(tables: Rows) -> Iterator[Finding]:
    """Finds acknowledgments that a receiver sends to an address which no message of the sender came from."""
    ends, far = counting_ends(tables), far_addresses(tables)
    came_from: dict[tuple[str, str], set[str]] = defaultdict(set)
    sessions: dict[tuple[str, str], set[str]] = defaultdict(set)
    senders: dict[str, set[str]] = defaultdict(set)
    for flow in flows(tables):
        pair = flow.end["receiver"], flow.row["source_queue_manager"]
        came_from[pair].add(flow.end["address"])
        sessions[pair].add(flow.end["session_id"])
        senders[flow.end["session_id"]].add(pair[1])
    astray: dict[tuple[tuple[str, str], str], list[Row]] = defaultdict(list)
    for row in tables["once_acks"]:
        if row["captured_ns"] is not None and row["stream_id"] in far:
            end = ends[row["stream_id"]]
            for pair in addressees(row, end["sender"], end["receiver"], senders):
                to = far[row["stream_id"]]
                if pair in came_from and pair[0] == end["sender"] and to not in came_from[pair]:
                    astray[pair, to].append(row)
    for (pair, _), acks in astray.items():
        first = first_of(acks)
        yield Finding(
            *(K.ACKNOWLEDGED_ELSEWHERE, "info", micros(first["captured_ns"]), min(sessions[pair])),
            *(len(acks), keys(first)),
        )


KINDS = (captured_twice, clock_stepped, cannot_connect, window_stalled, several_receivers, acknowledged_elsewhere)
