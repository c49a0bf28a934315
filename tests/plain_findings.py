"""Finds situations of connections in simulated nights without Spark, and compares them with the truth.

`python tests/plain_findings.py 0 500` does so for these seeds and prints the nights that differ.
"""

import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from night_outcomes import SITUATIONS
from plain_replay import WHOLE, Night, simulated
from replayer import NULL

from schemas.replay import FindingKind as K
from schemas.wire import NEGATIVE_CLASS

_PATIENCE_NS = 750_000
"""Of each ms of AckTimeout."""
_SHUT_MS = 10_000


class Facts:
    """Collects the senders that each kind of finding should name, from the tables of a night."""

    def __init__(self, night: Night) -> None:
        self.tables = night.raw | night.tables
        self.streams = {row["stream_id"]: row for row in self.tables["streams"]}
        self.sources = defaultdict(set)
        for row in self.tables["messages"]:
            if row["transactional"]:
                self.sources[row["stream_id"]].add(row["source_queue_manager"])
        ways = defaultdict(list)
        for stream, row in self.streams.items():
            ways[row["connection_id"]].append(stream)
        self.back = {way: other for pair in ways.values() for way in pair for other in pair if way != other}
        self.ends, self.arrived = night.ends, night.messages
        self.found: dict[str, set[K]] = defaultdict(set)

    def add(self, kind: K, sources: Iterable[str]) -> None:
        """Adds a finding for each of these senders."""
        for source in sources:
            self.found[source].add(kind)

    def at(self, address: str) -> set[str]:
        """The senders of the messages that came from an address."""
        return {
            one for way, sources in self.sources.items() if self.streams[way]["src_ip"] == address for one in sources
        }

    def initiator(self, way: str) -> str:
        """The address that opened the connection of a stream."""
        row = self.streams[way]
        return str(row["src_ip"] if row["from_initiator"] else row["dst_ip"])

    def cannot_connect(self) -> None:
        """Finds connections without a byte, or an answer, those refused, and those that speak another version."""
        for way, row in self.streams.items():
            whole = row["from_initiator"] and row["closed"] and not row["mid_stream"] and row["acked_bytes"] is not None
            if row["attempt"] is not None or (whole and way not in self.back):
                self.add(K.CANNOT_CONNECT, self.at(row["src_ip"]))
        refused = [row["stream_id"] for row in self.tables["handshakes"] if row["connection_refused"]]
        version = [
            row["stream_id"]
            for row in self.tables["quarantine"]
            if row["reason"] == "bad_version" and row["stream_offset"] == 0
        ]
        for way in refused + version:
            self.add(K.CANNOT_CONNECT, self.at(self.initiator(way)))

    def returned(self) -> None:
        """Finds negative acknowledgments."""
        for row in self.tables["messages"]:
            if row["message_class"] & NEGATIVE_CLASS:
                self.add(K.NOT_RECEIVED_BY_APPLICATION, [row["correlation_id"].partition("\\")[0]])

    def shared(self) -> None:
        """Finds addresses at which several queue managers take messages."""
        served: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for way, sources in self.sources.items():
            if (receiver := self.ends[way].receiver_guid) is not None:
                served[self.streams[way]["dst_ip"]] |= {(receiver, source) for source in sources}
        for pairs in served.values():
            if len({receiver for receiver, _ in pairs}) > 1:
                self.add(K.SEVERAL_RECEIVERS, {source for _, source in pairs})

    def at_two_addresses(self) -> None:
        """Finds senders whose GUID several addresses have."""
        addresses = defaultdict(set)
        for way, end in self.ends.items():
            addresses[end.sender].add(self.streams[way]["src_ip"])
        sources = set.union(*self.sources.values())
        self.add(K.TWO_ADDRESSES, {one for one, of in addresses.items() if len(of) > 1} & sources)

    def answered_elsewhere(self) -> None:
        """Finds acknowledgments that a receiver sends to an address which no message of the sender came from."""
        came_from, senders = defaultdict(set), defaultdict(set)
        for row in self.arrived:
            way, source = row["stream_id"], row["source_queue_manager"]
            came_from[self.ends[way].receiver, source].add(self.streams[way]["src_ip"])
            senders[self.ends[way].session].add(source)
        for row in self.tables["acks"]:
            way, end = row["stream_id"], self.ends[row["stream_id"]]
            named = row["source_guid"] if row["ack_type"] == "final_ack" else row["queue_manager_address"]
            sources = senders[f"{end.receiver}->{end.sender}"] if named in (None, NULL) else {named}
            for source in sources & {one for receiver, one in came_from if receiver == end.sender}:
                if self.streams[way]["dst_ip"] not in came_from[end.sender, source]:
                    self.add(K.ACKNOWLEDGED_ELSEWHERE, [source])

    def stalled(self) -> None:
        """Finds TCP windows of 0, and packets without a SessionHeader from the other side in time."""
        for way, row in self.streams.items():
            if (row["window_shut_ms"] or 0) >= _SHUT_MS:
                self.add(K.WINDOW_STALLED, self.sources[way] or self.at(row["src_ip"]))
        timeouts, headers, packets = {}, defaultdict(list), defaultdict(list)
        for row in self.tables["handshakes"]:
            if row["ack_timeout_ms"]:
                timeouts[row["stream_id"]] = row["ack_timeout_ms"]
        for name in ("messages", "acks", "session_acks"):
            for row in self.tables[name]:
                if row["window_size"] is not None:
                    headers[row["stream_id"]].append(row["captured_ns"])
                if name != "session_acks":
                    packets[row["stream_id"]].append(row["captured_ns"])
        for way, times in packets.items():
            if (back := self.back.get(way)) is None:
                continue
            patience = max(timeouts.get(way, 0), timeouts.get(back, 0)) * _PATIENCE_NS or 120_000 * _PATIENCE_NS
            answers = sorted(headers[back])
            both = [self.streams[way], self.streams[back]]
            until = max(max(row["connection_last_ns"], row["last_captured_at"] * 1000) for row in both)
            for time in times:
                place = bisect_left(answers, time)
                if (answers[place] if place < len(answers) else until) - time > patience:
                    self.add(K.WINDOW_STALLED, self.sources[way] or {"an acknowledging queue manager"})


def found(night: Night) -> dict[str, set[K]]:
    """Returns the kinds of findings by sender."""
    facts = Facts(night)
    facts.cannot_connect()
    facts.returned()
    facts.shared()
    facts.answered_elsewhere()
    facts.at_two_addresses()
    facts.stalled()
    return facts.found


def difference(seed: int, options: Mapping[str, Any]) -> tuple[int, str | None]:
    """Returns how many findings the truth of a seed's night has, and the first difference."""
    night, truth = simulated(seed, **WHOLE | dict(options) | {"situations": True})
    given = found(night)
    # Of a connection whose beginning one end missed, nobody knows that it is a copy: its sender then has two addresses.
    unknown = {K.TWO_ADDRESSES} if "both_ends" in options else set()
    for kinds in given.values():
        kinds.difference_update(unknown)
    told = 0
    for scope in truth:
        source = scope["source_queue_manager"]
        if "findings" not in scope:
            given.pop(source, None)
            continue
        expected = {K(kind) for kind in scope["findings"]} - unknown
        told += len(expected)
        if given.pop(source, set()) != expected:
            return told, f"seed {seed} {dict(options)}: {source}: {sorted(expected)} expected"
    more = {source: kinds for source, kinds in given.items() if kinds}
    return told, f"seed {seed} {dict(options)}: {more}" if more else None


def compare(seeds: Iterable[int]) -> tuple[int, list[str]]:
    """Returns how many findings were compared, and the differences."""
    told, differences = 0, []
    for seed in seeds:
        of_seed, said = difference(seed, SITUATIONS[seed % len(SITUATIONS)])
        told += of_seed
        differences += [said] if said else []
    return told, differences


if __name__ == "__main__":
    told, differences = compare(range(*map(int, sys.argv[1:3])))
    print(*differences, f"{told} findings, {len(differences)} nights differ", sep="\n")  # noqa: T201
    sys.exit(bool(differences))
