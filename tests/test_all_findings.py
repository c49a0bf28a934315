"""Compares findings, word by word, and incidents with the second computation: of scenes and simulated nights."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import plain_incidents
import plain_sender_findings
import pytest
from gold_rows import finding_of, replayed_rows
from night_truth import SITUATIONS
from plain_message_findings import message_findings
from plain_replay import Night, variant
from plain_words import Finding, Rows
from random_troubles import troubled
from replay_tables import replay
from test_findings import played
from tiers import seeds

from jobs.simulator import CAPTURE_PREFIX, simulate
from schemas.replay import FindingKind as K

OF_CAPTURES = {K.CAPTURED_TWICE, K.CLOCK_STEPPED, K.CANNOT_CONNECT}
OF_CONNECTIONS = OF_CAPTURES | {K.WINDOW_STALLED, K.SEVERAL_RECEIVERS, K.ACKNOWLEDGED_ELSEWHERE}
"""They belong to no sequence, so to no incident; scenes alone show them."""


def expected(tables: Rows) -> list[Finding]:
    watched = plain_sender_findings.watched(tables)
    found = list(message_findings(tables["verdicts"], tables["outcomes"], watched))
    for kind in plain_sender_findings.KINDS:
        found += kind(tables)
    return found


def in_any_order(finding: Finding) -> Finding:
    """Returns a finding whose witness is sorted: tables have it in order of time, the passes in that of the proof."""
    return finding._replace(witness=tuple(sorted(finding.witness)))


def as_grave_as_its_incident(finding: Finding, at_most: dict[tuple[str, int], str]) -> Finding:
    """Returns a finding that is no graver than the incident of its sequence, if it has one."""
    if finding.scope_key is None or finding.tx_sequence_id is None:
        return finding
    limit = at_most.get((finding.scope_key, finding.tx_sequence_id), finding.severity)
    return finding._replace(severity=min(finding.severity, limit, key=["info", "warning", "error"].index))


def differences(tables: Rows) -> Iterator[str]:
    """Yields what only one of the two says: the findings and incidents of these tables, or the second computation."""
    said = expected(tables)
    found = list(plain_incidents.incidents(tables["outcomes"], tables["sequences"], said))
    at_most = {sequence: row["severity"] for row, all_of in found for sequence in all_of}
    of_messages = [row for row in tables["findings"] if row["kind"] not in OF_CONNECTIONS]
    given = Counter(in_any_order(finding_of(row)) for row in of_messages)
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
    assert {row["kind"] for row in scenes["findings"]} == set(K) - OF_CAPTURES - {K.CLOCKS_DIFFER}


# --- random histories and simulated nights ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(range(2), range(12)))
def test_random_histories_give_the_findings_and_incidents_of_the_second_computation(seed: int) -> None:
    tables = replayed_rows(replay(troubled(Random(seed), 1_500).sources()))
    assert list(differences(tables)) == []
    assert len({row["kind"] for row in tables["findings"]}) > 20


@pytest.mark.parametrize("seed", seeds([1, 17], [1, 4, 9, 16, 17]))
def test_nights_give_the_findings_and_incidents_of_the_second_computation(tmp_path: Path, seed: int) -> None:
    """Whole, with losses, begun late, captured twice, or as the clock stepped."""
    options: dict[str, Any] = {**variant(seed), **SITUATIONS[seed // 3 % len(SITUATIONS)]}
    simulate(str(tmp_path), seed, **options | ({"situations": True} if seed % 2 else {}))
    night = Night(sorted(tmp_path.glob(f"{CAPTURE_PREFIX}_*.pcap")))
    tables = replayed_rows(night.replayed(), night)
    assert list(differences(tables)) == []
    assert tables["findings"]
