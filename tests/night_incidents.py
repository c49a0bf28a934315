"""Incidents of simulated nights by the product, without Spark, held to the truth: addresses, and what goes on.

`python tests/night_incidents.py 0 200` does so for these seeds, each with one of the STORIES and one of the SITUATIONS,
and prints what differs.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from night_outcomes import SITUATIONS, is_known
from plain_replay import WHOLE, Row, read, simulated

from jobs.simulator import demo, simulate
from jobs.simulator.branches import Branch, Fault

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
_NS = 1_000
_LATE = timedelta(seconds=1)
"""By how much a message can be captured before all that precedes it on its stream, which the truth waits for."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _time(ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=ns // _NS)


def differences(scope: Row, found: Iterable[Row], ends: dict[str, Row], findings: Iterable[Row]) -> Iterator[str]:
    """Yields what the incidents of a scope say of its senders, and of what goes on, that is not its truth.

    `found` are the incidents of the scope, and `ends` the truth of each address of the sender in all scopes. Sequences
    of which only `findings` tell are part of incidents, too.
    """
    troubled = sorted(found, key=lambda row: int(row["tx_sequence_id"]))
    sequences: list[list[Row]] = [[] for _ in troubled]
    for row in scope["incidents"]:
        at = [place for place, one in enumerate(troubled) if int(one["tx_sequence_id"]) <= int(row["id"])]
        if not at:
            if any(row[name] for name in ("lost", "pending", "repaired", "expired")):
                yield f"no incident tells of sequence {row['id']}"
            continue
        sequences[at[-1]].append(row)
    for incident, truth in zip(troubled, sequences, strict=True):
        for name in ("lost", "pending", "repaired", "expired"):
            if incident[name] != sum(row[name] for row in truth):
                yield f"{incident[name]} {name}, not {sum(row[name] for row in truth)}"
        going_on = any(row["ongoing"] for row in truth)
        # Of one address, a reader cannot tell whether it is one machine that is past what it sent before.
        may_be_two = incident["ongoing"] and incident["cause"] == "number_reused" and len(incident["senders"]) == 1
        if incident["ongoing"] != going_on and not may_be_two:
            yield f"ongoing: {incident['ongoing']}, not {going_on}, of {incident['cause']} {incident['explanation']}"
        only_found = {str(row["tx_sequence_id"]) for row in findings if row["incident_id"] == incident["incident_id"]}
        yield from _sender_differences(scope, incident, only_found | {row["id"] for row in truth}, ends)


def _sender_differences(scope: Row, incident: Row, ids: set[str], ends: dict[str, Row]) -> Iterator[str]:
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
    """Whether another machine sent after the copy began: else it may be the same one, moved to another address."""
    began = machines[copy]["first_ns"]
    return any(machines[one]["last_ns"] > began for one in addresses if one != copy)


def held_to_truth(
    scopes: Iterable[Row], found: Sequence[Row], findings: Sequence[Row] = ()
) -> tuple[Counter[str], list[str]]:
    """Returns how much of each kind was compared, and what differs."""
    compared, said = Counter[str](), []
    ends = {row["address"]: row for scope in scopes for row in scope.get("senders", ())}
    for scope in (scope for scope in scopes if is_known(scope)):
        source, queue = scope["source_queue_manager"], scope.get("destination_queue")
        own = [
            row
            for row in found
            if row["source_queue_manager"] == source and queue in (None, *row["destination_queues"], _queue_of(row))
        ]
        said += [f"{source} {queue}: {text}" for text in differences(scope, own, ends, findings)]
        compared["incidents"] += len(own)
        compared["ongoing"] += sum(row["ongoing"] for row in own)
        compared["suspected"] += sum(one["suspected"] for row in own for one in row["senders"])
    return compared, said


def _queue_of(incident: Row) -> str:
    """Returns the queue of a scope that has one."""
    return str(incident["scope_key"]).rpartition(" ")[2]


def told(seed: int, story: str | None = None, **options: Any) -> tuple[list[Row], list[Row], list[Row]]:
    """Returns the truth of a seed's night, and its incidents and findings; a night with a story is a morning."""
    if story is None:
        night, truth = simulated(seed, **WHOLE | options)
    else:
        with TemporaryDirectory() as name, mock.patch.object(demo, "STORIES", STORIES[story]):
            simulate(name, seed, 0, is_demo=True, **options)
            night, truth = read(Path(name))
    explained = night.replayed().explained
    return truth, explained.incidents.to_dicts(), explained.findings.to_dicts()


def main() -> int:
    """Compares the nights of the seeds on the command line; returns the exit code."""
    compared, wrong = Counter[str](), 0
    for seed in range(*map(int, sys.argv[1:3])):
        story = [*STORIES, None][seed % (len(STORIES) + 1)]
        options = {} if story else SITUATIONS[1]
        of_seed, said = held_to_truth(*told(seed, story, **options))
        compared += of_seed
        wrong += bool(said)
        print(*(f"seed {seed} {story}: {text}" for text in said), sep="\n", end="\n" if said else "", flush=True)  # noqa: T201
    print(f"{wrong} nights differ; compared {dict(compared)}")  # noqa: T201 - the result
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
