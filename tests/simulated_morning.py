"""What a simulation knows of its morning, message by message, and how the twenty questions must be answered of it.

A message's truth is that of its arrivals: truth.json has them in the order in which they came, and the capture has the
label and the frame of each.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import dpkt
import numpy as np
from warehouses import rows

Row = dict[str, Any]


@dataclass(frozen=True)
class Message:
    """A message that was captured, with its arrivals: packets beside their rows of truth.json."""

    outcome: str
    arrivals: tuple[tuple[Row, Row], ...]

    @property
    def first(self) -> Row:
        """The packet of the first arrival."""
        return self.arrivals[0][0]

    @property
    def is_lost(self) -> bool:
        """Whether it is lost for good."""
        return self.outcome in ("displaced", "given_up", "passed_by")

    @property
    def address(self) -> str:
        """The address that it came from."""
        return str(self.first["stream_id"].partition(":")[0])


def sequence(sequence_id: str) -> str:
    """A TxSequenceID as the tables write it."""
    seconds, ordinal = divmod(int(sequence_id), 1 << 32)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}#{ordinal}"


class Morning:
    """The truth of a folder that `simulate` wrote, and packets that a night decoded there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scopes: list[Row] = json.loads((folder / "truth.json").read_text())
        self.packets = _in_order_of_arrival(rows(folder, "messages"))
        self.acks = [row for row in rows(folder, "acks") if row["ack_type"] == "order_ack"]

    def arrivals(self, scope: Row) -> list[tuple[Row, Row]]:
        """Each arrival of a scope: its packet and its truth."""
        of_scope = [
            packet
            for packet in self.packets
            if packet["transactional"]
            and packet["source_queue_manager"] == scope["source_queue_manager"]
            and scope.get("destination_queue") in (None, packet["destination_queue"])
        ]
        for packet, truth in zip(of_scope, scope["rows"], strict=True):
            assert (str(packet["tx_sequence_id"]), packet["tx_sequence_number"]) == (truth["id"], truth["no"])
            assert packet["message_id"].endswith(f"\\{truth['mid']}")
        return list(zip(of_scope, scope["rows"], strict=True))

    @cached_property
    def messages(self) -> list[Message]:
        """Every message; a clone's have other labels than those of its original."""
        found = []
        for scope in self.scopes:
            outcomes = {(row["id"], row["no"], row["mid"]): row["outcome"] for row in scope["outcomes"]}
            alike = defaultdict(list)
            for packet, truth in self.arrivals(scope):
                alike[truth["id"], truth["no"], truth["mid"], packet["label"]].append((packet, truth))
            for key, arrivals in alike.items():
                is_accepted = any(truth["accepted"] for _, truth in arrivals)
                found.append(Message("delivered" if is_accepted else outcomes[key[:3]], tuple(arrivals)))
        return found

    @property
    def unseen(self) -> list[tuple[Row, Row]]:
        """Each number that no message was seen with: its row of the truth, and its scope."""
        return [(row, scope) for scope in self.scopes for row in scope["outcomes"] if row["mid"] is None]

    def latencies(self, source: str) -> list[float]:
        """Milliseconds from each accepted message of a sender to the first OrderAck of its scope that covers it."""
        found = []
        for scope in (scope for scope in self.scopes if scope["source_queue_manager"] == source):
            sequences = {int(truth["id"]) for truth in scope["rows"]}
            answers = sorted(
                (ack["captured_ns"], _slot(ack)) for ack in self.acks if ack["tx_sequence_id"] in sequences
            )
            for packet, truth in self.arrivals(scope):
                if truth["accepted"]:
                    sent = packet["captured_ns"]
                    found.append(next((at - sent) / 1e6 for at, slot in answers if at > sent and slot >= _slot(packet)))
        return found


def _slot(packet: Row) -> tuple[int, int]:
    return packet["tx_sequence_id"], packet["tx_sequence_number"]


def _in_order_of_arrival(packets: list[Row]) -> list[Row]:
    """The packets as their receiver read them: on a stream in its order, when the bytes before them were there."""
    read, latest = [], defaultdict[str, int](int)
    for packet in sorted(packets, key=lambda row: (row["stream_id"], row["stream_offset"])):
        latest[packet["stream_id"]] = max(latest[packet["stream_id"]], packet["captured_ns"])
        read.append((latest[packet["stream_id"]], packet["stream_id"], packet["stream_offset"], packet))
    return [packet for *_, packet in sorted(read, key=lambda each: each[:3])]


def _of(answer: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in answer]


def _lost_order(morning: Morning, answer: list[Row]) -> None:
    lost, pending, stuck = Counter[Any](), Counter[Any](), Counter[Any]()
    since: dict[Any, Any] = {}
    for message in morning.messages:
        key = message.first["destination_queue"], message.first["source_queue_manager"]
        if message.is_lost or message.outcome == "pending":
            since.setdefault(key, message.first["captured_at"])
            lost[key] += message.is_lost
            pending[key] += not message.is_lost
            stuck[key] += message.outcome == "pending" and len(message.arrivals) > 1
    for row, scope in morning.unseen:
        (queue,) = {queue for queue, source in since if source == scope["source_queue_manager"]} or {None}
        pending[queue, scope["source_queue_manager"]] += row["outcome"] == "awaited"
    asked = _of(answer, "destination_queue", "source_queue_manager", "lost", "pending", "stuck", "since")
    assert sorted(asked) == sorted((*key, lost[key], pending[key], stuck[key], since[key]) for key in since)
    assert sum(lost.values()) == 21
    assert sum(pending.values()) == 125


def _lost_messages(morning: Morning, answer: list[Row]) -> None:
    lost = [message for message in morning.messages if message.is_lost]
    assert _of(answer, "label", "outcome", "first_seen_at") == [
        (message.first["label"], message.outcome, message.first["captured_at"])
        for message in sorted(lost, key=lambda message: message.first["captured_at"])
    ]
    for row in answer:
        frames = {(packet["uri"], packet["frame_number"]) for packet in row["witness"]}
        assert len(frames) > 1
        assert any(row["label"].encode("utf-16-le") in payload(*frame) for frame in frames)


def _by_sender(morning: Morning, answer: list[Row]) -> None:
    became = Counter((message.first["source_queue_manager"], message.outcome) for message in morning.messages)
    became += Counter((scope["source_queue_manager"], row["outcome"]) for row, scope in morning.unseen)
    assert _of(answer, "source_queue_manager", "outcome", "messages") == [(*key, became[key]) for key in sorted(became)]


def _expired(morning: Morning, answer: list[Row]) -> None:
    expired = [(row, scope) for row, scope in morning.unseen if row["outcome"] == "expired_unseen"]
    assert _of(answer, "destination_queue", "tx_sequence", "tx_sequence_number", "numbers") == [
        (scope["destination_queue"], sequence(row["id"]), row["no"], 1) for row, scope in expired
    ]


def _what_happened(morning: Morning, answer: list[Row]) -> None:
    """The sequences that a clone spoiled are one incident, which begins with the first of them."""
    for scope in morning.scopes:
        if scope["incidents"]:
            first, figures = sequence(scope["incidents"][0]["id"]), ("lost", "pending", "repaired")
            (incident,) = (row for row in answer if row["tx_sequence"] == first)
            assert [incident[name] for name in figures] == [
                sum(row[name] for row in scope["incidents"]) for name in figures
            ]
    assert [row["severity"] for row in answer][:2] == ["error"] * 2
    assert all(row["destination_queues"] and row["advice"] for row in answer)


def _sent_again(morning: Morning, answer: list[Row]) -> None:
    of = defaultdict(list)
    for message in morning.messages:
        of[message.first["source_queue_manager"], message.address].append(len(message.arrivals))
    asked = _of(answer, "source_queue_manager", "first_src_ip", "messages", "sent_again")
    assert sorted(asked) == sorted(
        (*key, len(each), sum(each) - len(each)) for key, each in of.items() if max(each) > 1
    )


def _queues_by_day(morning: Morning, answer: list[Row]) -> None:
    of = defaultdict(list)
    for message in morning.messages:
        of[message.first["destination_queue"], message.first["captured_at"].date()].append(message)
    for row, key in zip(answer, sorted(of), strict=True):
        messages = of[key]
        assert (row["destination_queue"], row["day"], row["messages"]) == (*key, len(messages))
        assert row["bytes"] == sum(message.first["body_size"] for message in messages)
        assert row["sent_again"] == sum(len(message.arrivals) - 1 for message in messages)
        share = sum(message.outcome == "delivered" for message in messages) / len(messages)
        assert abs(row["share_at_once"] - share) < 1e-9


def _acknowledged(morning: Morning, answer: list[Row]) -> None:
    assert len(answer) == 3
    for row in answer:
        latencies = morning.latencies(row["source_queue_manager"])
        sent = sum(message.first["source_queue_manager"] == row["source_queue_manager"] for message in morning.messages)
        assert (row["messages"], row["never"]) == (sent, sent - len(latencies))
        expected = [*np.percentile(latencies, [50, 95]), max(latencies)]
        assert np.allclose([row["p50_ms"], row["p95_ms"], row["most_ms"]], expected, atol=0.002)


def _none(_: Morning, answer: list[Row]) -> None:
    assert answer == []


def _cloned(morning: Morning, answer: list[Row]) -> None:
    of_clone = [message for message in morning.messages if message.address == "10.20.0.123"]
    assert sorted(_of(answer, "clone", "label", "outcome", "first_seen_at")) == sorted(
        ("10.20.0.123", message.first["label"], message.outcome, message.first["captured_at"]) for message in of_clone
    )
    assert {"delivered", "displaced"} == {message.outcome for message in of_clone}


def _transactions(morning: Morning, answer: list[Row]) -> None:
    of = defaultdict(list)
    for message in morning.messages:
        of[message.first["source_queue_manager"], message.first["tx_transaction_id"], message.address].append(message)
    wanted = set()
    for (source, transaction, _), messages in of.items():
        whole = any(one.first["tx_first"] for one in messages) and any(one.first["tx_last"] for one in messages)
        if not whole or len({one.outcome == "delivered" for one in messages}) > 1:
            wanted.add((source, transaction))
    assert set(_of(answer, "source_queue_manager", "tx_transaction_id")) == wanted
    assert len(answer) == len(wanted) == 4


def _found(morning: Morning, answer: list[Row]) -> None:
    found = {(row["kind"], row["session_id"].partition("->")[0]) for row in answer}
    assert found >= {(kind, scope["source_queue_manager"]) for scope in morning.scopes for kind in scope["findings"]}
    again = sum(len(message.arrivals) - 1 for message in morning.messages if message.outcome == "pending")
    assert [row["messages"] for row in answer if row["kind"] == "stuck_sequence"] == [again]


def _sessions(morning: Morning, answer: list[Row]) -> None:
    judged, lost = defaultdict[str, Counter[str]](Counter), Counter[str]()
    for message in morning.messages:
        source = message.first["source_queue_manager"]
        judged[source] += Counter(truth["verdict"] for _, truth in message.arrivals)
        lost[source] += message.is_lost
    for row in answer:
        source = row["session_id"].partition("->")[0]
        assert [row[name] for name in ("transactional", "out_of_order", "duplicate", "lost")] == [
            judged[source].total(),
            judged[source]["out_of_order"],
            judged[source]["duplicate"],
            lost[source],
        ]
        assert row["connections"] == len(
            {packet["stream_id"] for packet in morning.packets if packet["source_queue_manager"] == source}
        )
    assert len(answer) == len(judged)


def _worst_sequence(morning: Morning, answer: list[Row]) -> None:
    (stuck,) = (scope for scope in morning.scopes if any(row["outcome"] == "awaited" for row in scope["outcomes"]))
    worst = stuck["incidents"][0]["id"]
    assert [tuple(row.values())[1:] for row in answer] == [
        (packet["label"], truth["no"], truth["prev"], truth["before"][1], truth["verdict"], truth["reason"])
        for packet, truth in morning.arrivals(stuck)
        if truth["id"] == worst
    ]


def _frames(_: Morning, answer: list[Row]) -> None:
    assert len(answer) > 100
    for row in answer:
        for which in ("first", "accepted"):
            uri, number = row[f"{which}_uri"], row[f"{which}_frame_number"]
            assert uri is None or row["label"].encode("utf-16-le") in payload(uri, number)


def payload(uri: str, number: int) -> bytes:
    """What a frame carries of its stream, with the two segments after it: a packet may end in these."""
    with Path(uri).open("rb") as file:
        frames = [dpkt.ethernet.Ethernet(raw) for _, raw in dpkt.pcap.Reader(file)]
    began = frames[number - 1]
    of_stream = (frame.data.data for frame in frames if _flow(frame) == _flow(began))
    segments = {each.seq: bytes(each.data) for each in of_stream if each.seq >= began.data.data.seq}
    return b"".join(segments[seq] for seq in sorted(segments)[:3])


def _flow(frame: Any) -> tuple[Any, ...]:
    return frame.data.src, frame.data.data.sport, frame.data.data.dport


def _books(_: Morning, answer: list[Row]) -> None:
    assert {row["book"] for row in answer} == {"arrivals", "bytes", "numbers", "packets", "records"}
    assert {row["unbalanced"] for row in answer} == {0}


def _captures(morning: Morning, answer: list[Row]) -> None:
    files = sorted(morning.folder.glob("*.pcap"))
    assert [(Path(row["uri"]).name, row["status"]) for row in answer] == [(file.name, "ok") for file in files]
    for row, path in zip(answer, files, strict=True):
        with path.open("rb") as file:
            assert row["packet_count"] == sum(1 for _ in dpkt.pcap.Reader(file))


def _queues(morning: Morning, answer: list[Row]) -> None:
    arrivals = Counter(packet["destination_queue"] for message in morning.messages for packet, _ in message.arrivals)
    asked = {row["destination_queue"]: row["arrivals"] for row in answer if row["transactional"]}
    assert asked == arrivals


ANSWERS: Sequence[Callable[[Morning, list[Row]], None]] = (
    _lost_order,
    _lost_messages,
    _by_sender,
    _expired,
    _what_happened,
    _sent_again,
    _queues_by_day,
    _acknowledged,
    _none,
    _cloned,
    _transactions,
    _found,
    _sessions,
    _worst_sequence,
    _frames,
    _none,
    _none,
    _books,
    _captures,
    _queues,
)
"""What holds the answer of each question to the truth, in their order."""
