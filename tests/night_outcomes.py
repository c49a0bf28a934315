"""Compares the second computation of outcomes with the truth of simulated nights, without Spark.

`python tests/night_outcomes.py 0 2000` does so for these seeds, each in one of the SITUATIONS, and prints what differs.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import plain_outcomes
import replayer
from plain_replay import CLOCK_STEP, WHOLE, Night, Row, simulated

from schemas.outcomes import LOST

SITUATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"situations": True},
    {"both_ends": True},
    {"mirrored": True},
    CLOCK_STEP,
    {"situations": True, "both_ends": True} | CLOCK_STEP,
)
"""Options of whole captures: of no others is the truth of every message known."""
Fate = tuple[str, int, int | None, str]
"""TxSequenceID, number, ordinal of the message (None for a number never seen), outcome."""


def verdict_rows(night: Night) -> list[Row]:
    """Returns what the second computation reads, of whole captures: nothing is missing, assumed, or contradicted."""
    finals: dict[tuple[str, int, int], tuple[int, int, str]] = {}
    for ack in night.acks:
        if ack["ack_type"] == "final_ack":
            slot = ack["source_guid"], ack["tx_sequence_id"], ack["tx_sequence_number"]
            said = ack["captured_ns"], ack["message_class"], ack["acknowledged_message_id"]
            finals[slot] = max(finals.get(slot, said), said)
    choice = replayer.chosen(night.messages, night.ends)
    rows = []
    for message, fate in night.judged(night.fates()):
        source, queue = message["source_queue_manager"], message["destination_queue"]
        end = night.ends[message["stream_id"]]
        final = finals.get((source, message["tx_sequence_id"], message["tx_sequence_number"]))
        of_this = final if final and final[2] == message["message_id"] else None
        same = ("label", "sent_at", "body_size", "body_crc32", "tx_transaction_id", "correlation_id")
        by_session = choice.get((end.session, source)) == "session"
        scope = f"{end.session} {source}" if by_session else f"{source} {queue}"
        rows.append(
            message
            | fate._asdict()
            | {
                "scope_key": scope,
                "session_id": end.session,
                "content_hash": hash(tuple(message[name] for name in same)),
                "final_ack_class": of_this and of_this[1],
                "evidence": "none",
                "covered_at": None,
                "assumed": False,
                "missing_runs": 0,
                "behind_gap": False,
            }
        )
    return rows


def found_outcomes(night: Night) -> dict[tuple[str, str], Counter[Fate]]:
    """Returns by source and queue all outcomes but `delivered`."""
    rows = verdict_rows(night)
    scopes = {row["scope_key"]: (row["source_queue_manager"], row["destination_queue"]) for row in rows}
    messages, runs = plain_outcomes.outcomes(rows)
    found: dict[tuple[str, str], Counter[Fate]] = {name: Counter() for name in scopes.values()}
    for (scope, sequence, number, message_id, _), outcome in messages.items():
        if outcome != "delivered":
            found[scopes[scope]][str(sequence), number, int(message_id.rpartition("\\")[2]), outcome] += 1
    for scope, sequence, outcome, first, last in runs:
        found[scopes[scope]].update((str(sequence), number, None, outcome) for number in range(first, last + 1))
    return found


def is_known(scope: Mapping[str, Any]) -> bool:
    """Whether a reader of the capture knows every verdict: a connection that was cut may have lost bytes before it."""
    return "outcomes" in scope and all(row["accepted"] is not None for row in scope["rows"])


def lost_though_delivered(scope: Mapping[str, Any], found: Mapping[tuple[str, str], Counter[Fate]]) -> list[Fate]:
    """Returns the outcomes that call a message lost which one of several receivers accepted."""
    delivered = {tuple(message) for message in scope.get("delivered", ())}
    own = (fates for (source, _), fates in found.items() if source == scope["source_queue_manager"])
    return [fate for fates in own for fate in fates if fate[:3] in delivered and fate[3] in LOST]


def difference(seed: int, options: Mapping[str, Any]) -> tuple[int, int, str | None]:
    """Returns of a seed's night how many scopes and outcomes the truth tells, and the first difference."""
    night, scopes = simulated(seed, **WHOLE | dict(options))
    truth = [scope for scope in scopes if is_known(scope)]
    found = found_outcomes(night)
    told = 0
    for scope in scopes:
        if lost := lost_though_delivered(scope, found):
            return len(truth), told, f"seed {seed} {dict(options)}: {scope['source_queue_manager']}: {lost}"
    for scope in truth:
        source, queue = scope["source_queue_manager"], scope.get("destination_queue")
        expected = Counter((row["id"], row["no"], row["mid"], row["outcome"]) for row in scope["outcomes"])
        told += expected.total()
        own = [fates for (of, to), fates in found.items() if of == source and queue in (None, to)]
        if len(own) != 1 or own[0] != expected:
            only = [sorted(map(str, part)) for part in (expected - own[0], own[0] - expected)] if own else []
            return len(truth), told, f"seed {seed} {dict(options)}: {source} {queue}: {len(own)} scopes; {only}"
    return len(truth), told, None


def compare(seeds: Iterable[int]) -> tuple[int, int, list[str]]:
    """Returns how many scopes and outcomes were compared, and the differences."""
    scopes = outcomes = 0
    differences = []
    for seed in seeds:
        of_scopes, of_outcomes, said = difference(seed, SITUATIONS[seed % len(SITUATIONS)])
        scopes, outcomes = scopes + of_scopes, outcomes + of_outcomes
        differences += [said] if said else []
    return scopes, outcomes, differences


if __name__ == "__main__":
    scopes, outcomes, differences = compare(range(*map(int, sys.argv[1:3])))
    print(*differences, f"{scopes} scopes, {outcomes} outcomes, {len(differences)} nights differ", sep="\n")  # noqa: T201
    sys.exit(bool(differences))
