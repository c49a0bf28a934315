"""Simulated nights, replayed in this process, and how what the replay found differs from the truth."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from plain_replay import CLOCK_STEP, WHOLE, Row, read, simulated
from replay_tables import Replayed

from jobs.simulator import demo, simulate
from jobs.simulator.branches import Branch, Fault, Trouble
from schemas.outcomes import LOST
from schemas.replay import FindingKind as K

SITUATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"situations": True},
    {"both_ends": True},
    {"mirrored": True},
    CLOCK_STEP,
    {"situations": True, "both_ends": True} | CLOCK_STEP,
)
"""Options of whole captures: of no others is the truth of every message known."""
_WELL, _STUCK, _CLONED = demo.STORIES
STORIES: dict[str, Sequence[tuple[Branch, tuple[tuple[int, Fault], ...], int]]] = {
    "neither": (_WELL, (_STUCK[0], (), 60)),
    "stuck": (_WELL, _STUCK),
    "cloned": (_WELL, _CLONED),
    "cloned, the copy soon silent": (_WELL, (replace(_CLONED[0], copy_sends=1 / 4), (), 260)),
    "cloned early, by IPv6": ((replace(_CLONED[0], cloned_after=1 / 4, ip_version=6), (), 400),),
    "both": demo.STORIES,
    "both in one branch": (_WELL, (_CLONED[0], ((70, Fault.VANISHED),), 300)),
}
"""Mornings of the demonstration: with a clone, with a branch that is stuck, with both, and with neither."""
OF_CONNECTIONS = {K.CANNOT_CONNECT, K.WINDOW_STALLED, K.NOT_RECEIVED_BY_APPLICATION, K.TWO_ADDRESSES}
"""Kinds of findings of which the truth says which senders have them."""
_FIGURES = {"lost": "lost_messages", "pending": "pending", "repaired": "repaired", "expired": "expired"}
"""Figures of the truth, and the columns of `incidents` that have them."""
_LATE = timedelta(seconds=1)
"""By how much a message can be captured before all that precedes it on its stream, which the truth waits for."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Fate = tuple[str, int, int | None, str]
"""TxSequenceID, number, ordinal of the message (None for a number never seen), outcome."""


def _time(ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=ns // 1_000)


def is_known(scope: Mapping[str, Any]) -> bool:
    """Whether the capture shows every verdict; where it begins in a connection, earlier bytes may be missing."""
    return "outcomes" in scope and all(row["accepted"] is not None for row in scope["rows"])


@dataclass
class Told:
    """Holds the truth of each scope of a night, and what the replay found."""

    scopes: list[Row]
    replayed: Replayed

    @cached_property
    def known(self) -> list[Row]:
        """The scopes of which all is known."""
        return list(filter(self._is_known, self.scopes))

    def _is_known(self, scope: Row) -> bool:
        """Returns whether all of it is known, and `auto` can know that a sender numbers all its queues together.

        It looks for the messages that others name as their predecessors, among all of the sender and in each queue.
        """
        if not is_known(scope) or "destination_queue" in scope:
            return is_known(scope)
        source = scope["source_queue_manager"]
        own = [row for row in self.replayed.verdicts.to_dicts() if row["source_queue_manager"] == source]
        by_session = [(row["tx_sequence_id"], "") for row in own]
        by_queue = [(row["tx_sequence_id"], row["destination_queue"]) for row in own]
        found = []
        for scopes in (by_session, by_queue):
            seen = {(*one, row["tx_sequence_number"]) for one, row in zip(scopes, own, strict=True)}
            asked = [(*one, row["previous_tx_sequence_number"]) for one, row in zip(scopes, own, strict=True)]
            found.append(sum(one in seen for one in asked))
        return found[0] > found[1] or len({row["destination_queue"] for row in own}) == 1

    @cached_property
    def outcomes(self) -> dict[tuple[str, str, str], Counter[Fate]]:
        """By source, queue and receiver of each scope, all outcomes but `delivered`."""
        named = {
            row["scope_key"]: (
                row["source_queue_manager"],
                row["destination_queue"],
                row["session_id"].rpartition("->")[2],
            )
            for row in self.replayed.verdicts.to_dicts()
        }
        found: dict[tuple[str, str, str], Counter[Fate]] = {name: Counter() for name in named.values()}
        for row in self.replayed.outcomes.to_dicts():
            ordinal = row["message_id"] and int(row["message_id"].rpartition("\\")[2])
            for number in range(row["tx_sequence_number"], row["tx_sequence_number"] + row["numbers"]):
                found[named[row["scope_key"]]][str(row["tx_sequence_id"]), number, ordinal, row["outcome"]] += 1
        return found

    @cached_property
    def incidents(self) -> list[Row]:
        """The rows of INCIDENTS."""
        return self.replayed.incidents.to_dicts()

    @cached_property
    def findings(self) -> dict[str, set[K]]:
        """The kinds OF_CONNECTIONS by the sender that they name."""
        at = {row["address"]: row["sender_guid"] for row in self.replayed.stream_ends.to_dicts()}
        found: dict[str, set[K]] = defaultdict(set)
        for row in self.replayed.findings.to_dicts():
            sender = str(row["session_id"]).split("->")[0]
            if row["kind"] in OF_CONNECTIONS and (row["kind"] == K.TWO_ADDRESSES or row["scope_key"] is None):
                found[at.get(sender, sender)].add(K(row["kind"]))
        return found

    def wrong_outcomes(self) -> Iterator[str]:
        """Yields scopes whose outcomes are not the truth, and messages called lost that another receiver accepted."""
        for scope in self.scopes:
            source, queue = scope["source_queue_manager"], scope.get("destination_queue")
            of_source = {name: fates for name, fates in self.outcomes.items() if name[0] == source}
            delivered = set(map(tuple, scope.get("delivered", ())))
            lost = [fate for fates in of_source.values() for fate in fates if fate[3] in LOST]
            yield from (f"{source}: {fate}" for fate in lost if fate[:3] in delivered)
            if self._is_known(scope):
                expected = Counter((row["id"], row["no"], row["mid"], row["outcome"]) for row in scope["outcomes"])
                receiver = scope.get("receiving_queue_manager")
                own = [
                    fates for (_, to, at), fates in of_source.items() if queue in (None, to) and receiver in (None, at)
                ]
                if own != [expected]:
                    yield f"{source} {queue}: {[(expected - one, one - expected) for one in own]}"

    def wrong_findings(self) -> Iterator[str]:
        """Yields senders whose kinds OF_CONNECTIONS are not the truth."""
        for scope in self.scopes:
            if "findings" in scope:
                found = self.findings.get(scope["source_queue_manager"], set())
                if found != OF_CONNECTIONS.intersection(scope["findings"]):
                    yield f"{scope['source_queue_manager']}: {found}, not {scope['findings']}"

    def wrong_causes(self) -> Iterator[str]:
        """Yields scopes in trouble without an incident of that cause, and incidents of such a cause elsewhere."""
        causes = {trouble.cause for trouble in Trouble}
        for scope in (one for one in self.scopes if "outcomes" in one):
            found = {row["cause"] for row in self.of(scope)} & causes
            # What explains more is the cause of an incident in which messages were refused or lost as well.
            is_more = any(row[name] for row in scope["incidents"] for name in ("lost", "pending", "repaired"))
            if found != ({scope["cause"]} if "cause" in scope else set()) and (found or not is_more):
                yield f"{scope['source_queue_manager']}: {found}, not {scope.get('cause')}"

    def wrong_not_read(self) -> Iterator[str]:
        """Yields sequences of which another number of messages waits in its queue, or since another time."""
        columns = "accepted_not_read_messages", "accepted_not_read_since"
        for scope in self.known:
            found = {
                str(row["tx_sequence_id"]): tuple(row[name] for name in columns)
                for row in filter(partial(_is_own, scope), self.replayed.sequences.to_dicts())
                if row[columns[0]] is not None
            }
            expected = {row["id"]: (row["messages"], row["since_ns"]) for row in scope["not_read"]}
            if {one: messages for one, (messages, _) in found.items()} != {one: of[0] for one, of in expected.items()}:
                yield f"{scope['source_queue_manager']}: {found}, not {expected}"
                continue
            times = ((since, expected[one][1]) for one, (_, since) in found.items() if since is not None)
            yield from (f"{since}, not {ns}" for since, ns in times if abs(since - _time(ns)) > _LATE)

    def wrong_incidents(self) -> Iterator[str]:
        """Yields what incidents say of senders, and of what goes on, that is not the truth."""
        ends = {row["address"]: row for scope in self.scopes for row in scope.get("senders", ())}
        for scope in self.known:
            yield from self._of_scope(scope, self.of(scope), ends)

    def of(self, scope: Row) -> list[Row]:
        """Returns the incidents of a scope in the order of their sequences."""
        own = filter(partial(_is_own, scope), self.incidents)
        return sorted(own, key=lambda row: int(row["tx_sequence_id"]))

    def _of_scope(self, scope: Row, found: Sequence[Row], ends: dict[str, Row]) -> Iterator[str]:
        """Sequences of which only findings tell are part of incidents, too."""
        sequences: list[list[Row]] = [[] for _ in found]
        for row in scope["incidents"]:
            at = [place for place, one in enumerate(found) if int(one["tx_sequence_id"]) <= int(row["id"])]
            if at:
                sequences[at[-1]].append(row)
            elif any(row[name] for name in _FIGURES):
                yield f"no incident tells of sequence {row['id']}"
        for incident, truth in zip(found, sequences, strict=True):
            for name, column in _FIGURES.items():
                if incident[column] != sum(row[name] for row in truth):
                    yield f"{incident[column]} {name}, not {sum(row[name] for row in truth)}"
            said = {row["ongoing"] for row in truth}
            going_on = True in said or (None if None in said else False)
            # Of one address, a reader cannot tell whether it is one machine that is past what it sent before.
            may_be_two = incident["ongoing"] and incident["cause"] == "number_reused" and len(incident["senders"]) == 1
            # What a receiver refused for a cause goes on until somebody mends it, which no capture shows.
            not_shown = incident["ongoing"] is None and not going_on and incident["cause"] == "refused_for_cause"
            if incident["ongoing"] != going_on and not (may_be_two or not_shown):
                yield f"ongoing: {incident['ongoing']}, not {going_on}, of {incident['explanation']}"
            findings = (
                row for row in self.replayed.findings.to_dicts() if row["incident_id"] == incident["incident_id"]
            )
            ids = {str(row["tx_sequence_id"]) for row in findings} | {row["id"] for row in truth}
            yield from _wrong_senders(scope, incident, ids, ends)


def _is_own(scope: Row, row: Row) -> bool:
    """Returns whether a row of INCIDENTS or SEQUENCES is of a scope."""
    receiver = scope.get("receiving_queue_manager")
    queues = None, *row.get("destination_queues", ()), row["scope_key"].rpartition(" ")[2]
    is_to = receiver is None or receiver in row["scope_key"]
    is_from = row["source_queue_manager"] == scope["source_queue_manager"]
    return is_from and is_to and scope.get("destination_queue") in queues


def _wrong_senders(scope: Row, incident: Row, ids: set[str], ends: dict[str, Row]) -> Iterator[str]:
    machines = {row["address"]: row for row in scope.get("senders", ())}
    expected = {}
    for address, row in machines.items():
        figures = [sum(counts) for counts in zip(*(row["sequences"].get(one, (0, 0, 0)) for one in ids), strict=True)]
        if figures[0]:
            expected[address] = figures
    given = {one["address"]: [one[name] for name in ("messages", "accepted", "lost")] for one in incident["senders"]}
    if expected and given != expected:
        yield f"senders: {given}, not {expected}"
    if not expected and len(given) > 1:
        yield f"senders: {given}, of one machine"
    copies = {address for address in expected if machines[address]["is_copy"] and _meets(address, expected, machines)}
    suspected = {one["address"] for one in incident["senders"] if one["suspected"]}
    if suspected != copies and (suspected or incident["cause"] == "number_reused"):
        yield f"suspected: {suspected}, not {copies}, of {incident['explanation']}"
    for one in incident["senders"]:
        if truth := ends.get(one["address"]):
            times = [_time(truth[name]) for name in ("first_ns", "last_ns")]
            found = one["first_seen_at"], one["last_seen_at"]
            if any(abs(seen - true) > _LATE for seen, true in zip(found, times, strict=True)):
                yield f"{one['address']}: {one['first_seen_at']} to {one['last_seen_at']}, not {times}"


def _meets(copy: str, addresses: Iterable[str], machines: dict[str, Row]) -> bool:
    """Whether the original machine still sent after the copy began; otherwise it may have moved to a new address."""
    began = machines[copy]["first_ns"]
    return any(machines[one]["last_ns"] > began for one in addresses if one != copy)


def told(seed: int, story: str | None = None, **options: Any) -> Told:
    """Simulates a seed's whole night, or a morning with a story, and replays it."""
    if story is None:
        night, truth = simulated(seed, **WHOLE | options)
        return Told(truth, night.replayed)
    with TemporaryDirectory() as name, mock.patch.object(demo, "STORIES", STORIES[story]):
        simulate(name, seed, 0, is_demo=True, **options)
        night, truth = read(Path(name))
    return Told(truth, night.replayed)
