"""Compares all findings, word by word, and all incidents with the second computation: of scenes and simulated nights.

`python tests/test_all_findings.py 0 40` does so for the nights of these seeds, and prints what differs.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import plain_connection_findings
import plain_incidents
import plain_sender_findings
import pytest
from gold_rows import finding_of, replayed_rows
from night_outcomes import SITUATIONS
from plain_message_findings import message_findings
from plain_replay import Night, variant
from plain_words import Finding, Rows
from random_troubles import troubled
from replay_tables import replay
from test_findings import played
from tiers import merge_needs

from jobs.simulator import CAPTURE_PREFIX, simulate
from schemas.replay import FindingKind as K

KINDS = (*plain_sender_findings.KINDS, *plain_connection_findings.KINDS)
OF_CAPTURES = {K.CAPTURED_TWICE, K.CLOCK_STEPPED, K.CANNOT_CONNECT}


def expected(tables: Rows) -> list[Finding]:
    """Returns the findings by the second computation."""
    watched = plain_sender_findings.watched(tables)
    found = list(message_findings(tables["verdicts"], tables["outcomes"], watched))
    for kind in KINDS:
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
    given = Counter(in_any_order(finding_of(row)) for row in tables["findings"])
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


@pytest.mark.parametrize("seed", merge_needs(range(2), range(12)))
def test_random_histories_give_the_findings_and_incidents_of_the_second_computation(seed: int) -> None:
    tables = replayed_rows(replay(troubled(Random(seed), 1_500).sources()))
    assert list(differences(tables)) == []
    assert len({row["kind"] for row in tables["findings"]}) > 20


def simulated_night(seed: int, folder: Path) -> Rows:
    """Returns the tables of a seed's night: whole, with losses, begun late, captured twice, or as the clock stepped."""
    options: dict[str, Any] = {**variant(seed), **SITUATIONS[seed // 3 % len(SITUATIONS)]}
    simulate(str(folder), seed, **options | ({"situations": True} if seed % 2 else {}))
    night = Night(sorted(folder.glob(f"{CAPTURE_PREFIX}_*.pcap")))
    return replayed_rows(night.replayed(), night)


@pytest.mark.parametrize("seed", merge_needs([1, 17], [1, 4, 9, 16, 17]))
def test_nights_give_the_findings_and_incidents_of_the_second_computation(tmp_path: Path, seed: int) -> None:
    tables = simulated_night(seed, tmp_path)
    assert list(differences(tables)) == []
    assert tables["findings"]


def main() -> int:
    """Compares the nights of the seeds on the command line; returns the exit code."""
    wrong, compared = 0, Counter[Any]()
    for seed in range(*map(int, sys.argv[1:3])):
        with TemporaryDirectory() as name:
            tables = simulated_night(seed, Path(name))
        said = list(differences(tables))
        wrong += bool(said)
        compared.update(row["kind"] for row in tables["findings"])
        compared["incidents"] += len(tables["incidents"])
        print(f"seed {seed}: {len(said)} differ", *said[:5], sep="\n", flush=True)  # noqa: T201 - the result
    print(f"{wrong} nights differ; compared {dict(compared)}")  # noqa: T201 - the result
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
