"""Compares findings and incidents with the second computation: of scenes and simulated nights."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import plain_incidents
import pytest
from night_truth import SITUATIONS
from plain_finding import Finding, Rows
from plain_message_findings import message_findings
from plain_replay import Night, variant
from plain_unacknowledged import closed_by_receiver
from plain_watched import watched
from random_troubles import troubled
from replay_tables import TABLES, Replayed, finding_of, plain, replay, with_keys
from test_findings import played
from tiers import seeds

from jobs.simulator import CAPTURE_PREFIX, simulate
from schemas.replay import FindingKind as K

OF_MESSAGES = {
    *(
        K.DUPLICATES,
        K.OUT_OF_ORDER,
        K.GAP_EXPIRED,
        K.STUCK_SEQUENCE,
        K.CAPTURE_GAP,
        K.MISSED_BY_CAPTURE,
        K.CONTRADICTED,
    ),
    *(K.REFUSED_FOR_CAUSE, K.DUPLICATES_DIFFER, K.SEQUENCE_REGRESSED, K.UNACKNOWLEDGED),
    *(K.SLOW_ACKNOWLEDGMENT, K.RESEND_SCHEDULE, K.CLOCKS_DIFFER, K.NOT_RECEIVED_BY_APPLICATION),
}
"""Kinds of findings on messages. Scenes show the others, which are parts of incidents as they are."""


def replayed_rows(replayed: Replayed, night: Night | None = None) -> Rows:
    """Returns the rows of all tables of a replay; `night` is the second ingest of its captures.

    Where captures hold conversations twice, `messages`, `acks` and what is missing are those of each one once.
    """
    tables = {name: getattr(replayed.sources, name) for name in TABLES}
    names = ("stream_ends", "verdicts", "outcomes", "sequences", "transactions", "findings", "incidents")
    tables |= {name: replayed.tables[name] for name in names}
    rows = {name: list(map(with_keys, plain(of))) for name, of in tables.items()}
    rows["unreadable"] = rows["quarantine"]
    if night is not None:
        times = {(row["stream_id"], row["stream_offset"]): row["captured_ns"] for row in night.tables["messages"]}
        for row in rows["verdicts"]:
            row["unstepped_ns"] = times.get((row["stream_id"], row["stream_offset"]), row["captured_ns"])
    if night is None or all(row["copy_of"] is None for row in rows["stream_ends"]):
        return rows
    for name in ("messages", "acks"):
        keys = {(row["stream_id"], row["stream_offset"]) for row in night.tables[name]}
        own = {night.own_keys.get(key, key) for key in keys}
        rows[name] = [row for row in rows[name] if (row["stream_id"], row["stream_offset"]) in own]
    return rows | {"stream_gaps": night.tables["stream_gaps"], "unreadable": night.tables["quarantine"]}


def in_any_order(finding: Finding) -> Finding:
    """Returns a finding whose witness is sorted: tables have it in order of time, the passes in that of the proof."""
    return finding._replace(witness=tuple(sorted(finding.witness)))


def as_grave_as_told(finding: Finding, explanation: str) -> Finding:
    """Returns a finding of another kind on a sequence as it is before its incident limits how grave it is."""
    is_error = finding.kind in {K.TORN_TRANSACTION, K.TWO_ADDRESSES} or re.search(" (is|are) lost", explanation)
    if finding.scope_key and is_error:
        return finding._replace(severity="error")
    is_warning = finding.kind == K.TRANSACTION_PARTLY_DELIVERED or ": in this time it refused " in explanation
    return finding._replace(severity="warning") if is_warning else finding


def as_grave_as_its_incident(finding: Finding, at_most: dict[tuple[str, int], str]) -> Finding:
    """Returns a finding that is no graver than the incident of its sequence, if it has one."""
    if finding.scope_key is None or finding.tx_sequence_id is None:
        return finding
    limit = at_most.get((finding.scope_key, finding.tx_sequence_id), finding.severity)
    return finding._replace(severity=min(finding.severity, limit, key=["info", "warning", "error"].index))


def differences(tables: Rows) -> Iterator[str]:
    """Yields what only one of the two says: the findings and incidents of these tables, or the second computation."""
    said = list(message_findings(tables["verdicts"], tables["outcomes"], watched(tables)))
    given, others = Counter[Finding](), list[Finding]()
    for row in tables["findings"]:
        finding = finding_of(row)
        if finding.kind in OF_MESSAGES and finding.scope_key:  # a message that was returned has none
            given[in_any_order(finding)] += 1
        else:
            others.append(as_grave_as_told(finding, row["explanation"]))
    closed = {(row.scope_key, row.tx_sequence_id) for row in others if row.kind == K.CLOSED_BY_RECEIVER}
    yield from (f"closed by receiver: {one}" for one in closed ^ closed_by_receiver(tables))
    of_messages = [*said, *others], tables["verdicts"]
    found = list(plain_incidents.incidents(tables["outcomes"], tables["sequences"], *of_messages))
    at_most = {sequence: row["severity"] for row, all_of in found for sequence in all_of}
    second = Counter(in_any_order(as_grave_as_its_incident(one, at_most)) for one in said)
    yield from (f"only the product: {one}" for one in sorted(map(str, (given - second).elements())))
    yield from (f"only the second computation: {one}" for one in sorted(map(str, (second - given).elements())))
    stories = {row["incident_id"]: row for row, _ in found}
    rows = {row["incident_id"]: row for row in tables["incidents"]}
    for row in (*stories.values(), *rows.values()):
        row["witness"] = sorted(row["witness"])
    for name in sorted(stories.keys() | rows.keys()):
        one, other = rows.get(name, {}), stories.get(name, {})
        if (one.get("session_id"), one.get("destination_queue")) in other.pop("places", ()):
            other |= {part: one[part] for part in ("session_id", "destination_queue")}
        parts = {part: (one.get(part), other.get(part)) for part in other or one if one.get(part) != other.get(part)}
        if parts:
            yield f"incident {name}: {parts}"
    of_sequence: dict[Any, str] = {sequence: row["incident_id"] for row, all_of in found for sequence in all_of}
    for row in tables["findings"]:
        if row["incident_id"] != of_sequence.get((row["scope_key"], row["tx_sequence_id"])):
            yield f"incident of a finding: {row}"


# --- literal scenes -------------------------------------------------------------------------------------------------


def test_scenes_give_the_findings_and_incidents_of_the_second_computation() -> None:
    scenes = replayed_rows(replay(played()[0].sources()))
    assert list(differences(scenes)) == []


# --- random histories and simulated nights ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds([0], range(12)))
def test_random_histories_give_the_findings_and_incidents_of_the_second_computation(seed: int) -> None:
    tables = replayed_rows(replay(troubled(Random(seed), 1_500).sources()))
    assert list(differences(tables)) == []
    assert len({row["kind"] for row in tables["findings"]}) > 15


@pytest.mark.parametrize("seed", seeds([17], [1, 4, 9, 16, 17]))
def test_nights_give_the_findings_and_incidents_of_the_second_computation(tmp_path: Path, seed: int) -> None:
    """Whole, with losses, begun late, captured twice, or as the clock stepped."""
    options: dict[str, Any] = {**variant(seed), **SITUATIONS[seed // 3 % len(SITUATIONS)]}
    simulate(str(tmp_path), seed, **options | ({"situations": True} if seed % 2 else {}))
    night = Night(sorted(tmp_path.glob(f"{CAPTURE_PREFIX}_*.pcap")))
    tables = replayed_rows(night.replayed, night)
    assert list(differences(tables)) == []
    assert tables["findings"]
