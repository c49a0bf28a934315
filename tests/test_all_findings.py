"""Compares all findings, word by word, and all incidents with the second computation: of scenes and simulated nights.

`python tests/test_all_findings.py 0 40` does so for the nights of these seeds, and prints what differs.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import plain_connection_findings
import plain_incidents
import plain_sender_findings
import pytest
import scenes_of_connections
import scenes_of_senders
import scenes_of_sessions
import scenes_of_verdicts
from gold_rows import complete, finding_of, plain, warehouse_rows, with_conversations
from night_outcomes import SITUATIONS
from plain_message_findings import message_findings
from plain_replay import variant
from plain_words import Finding, Rows
from pyspark.sql import DataFrame, SparkSession
from replay_tables import TABLES as READ
from replay_tables import Derived, Tables, replay
from scene import SCENES, Scene
from tiers import merge_needs
from warehouses import config

from jobs.app.spark_session import open_session
from jobs.simulator import CAPTURE_PREFIX, simulate
from jobs.steps import nightly
from jobs.transforms.incidents import derive_incidents, sequence_incidents, with_incident
from jobs.transforms.summaries.sequences import summarize_sequences
from schemas.ingest import CAPTURES
from schemas.replay import FindingKind as K

__all__ = ["scenes_of_connections", "scenes_of_senders", "scenes_of_sessions", "scenes_of_verdicts"]
KINDS = (*plain_sender_findings.KINDS, *plain_connection_findings.KINDS)
OF_CAPTURES = {K.CAPTURED_TWICE, K.CLOCK_STEPPED, K.CANNOT_CONNECT}


def expected(tables: Rows) -> list[Finding]:
    """Returns the findings by the second computation."""
    watched = plain_sender_findings.watched(tables)
    found = list(message_findings(tables["verdicts"], tables["outcomes"], watched))
    for kind in KINDS:
        found += kind(tables)
    return found


def differences(tables: Rows) -> Iterator[str]:
    """Yields what only one of the two says: the findings and incidents of these tables, or the second computation."""
    given, second = Counter(map(finding_of, tables["findings"])), Counter(expected(tables))
    yield from (f"only the product: {one}" for one in sorted(map(str, (given - second).elements())))
    yield from (f"only the second computation: {one}" for one in sorted(map(str, (second - given).elements())))
    found = list(
        plain_incidents.incidents(tables["outcomes"], tables["sequences"], map(finding_of, tables["findings"]))
    )
    stories = {row["incident_id"]: row for row, _ in found}
    rows = {row["incident_id"]: row for row in tables["incidents"]}
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


@pytest.fixture(scope="module")
def scenes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The tables of all scenes, replayed together."""
    tables = Tables()
    for name, (play, _) in SCENES.items():
        play(Scene(tables, name))
    return derived_rows(spark, tables, tmp_path_factory.mktemp("scenes"))


def derived_rows(spark: SparkSession, tables: Tables, folder: Path) -> Rows:
    """Returns the rows of tables that are replayed, and of all that is derived from them."""
    inputs = tables.on(spark, folder)
    verdicts = replay(inputs)
    derived = Derived(inputs, verdicts)
    findings, sequences = derived.findings().cache(), summarize_sequences(derived.outcomes).cache()
    outcomes = derived.outcomes.rows.where("outcome <> 'delivered'")
    stories = sequence_incidents(findings, outcomes, sequences).cache()
    frames: dict[str, DataFrame] = {
        "verdicts": verdicts,
        "outcomes": outcomes,
        "sequences": sequences,
        "transactions": derived.transactions,
        "ends": inputs["ends"],
        "findings": with_incident(findings, stories),
        "incidents": derive_incidents(stories),
    }
    rows = {name: plain(frame.toArrow()) for name, frame in frames.items()}
    spark.catalog.clearCache()
    given = {name: complete(own, READ[name][0]) for name, own in tables.rows.items()}
    return with_conversations(given | rows | {CAPTURES.name: [], "pings": []})


def test_scenes_give_the_findings_and_incidents_of_the_second_computation(scenes: Rows) -> None:
    assert list(differences(scenes)) == []
    assert {row["kind"] for row in scenes["findings"]} == set(K) - OF_CAPTURES - {K.CLOCKS_DIFFER}


# --- simulated nights -----------------------------------------------------------------------------------------------


def simulated_night(spark: SparkSession, seed: int, folder: Path) -> Rows:
    """Returns the tables of a seed's night: whole, with losses, begun late, captured twice, or as the clock stepped."""
    options: dict[str, Any] = {**variant(seed), **SITUATIONS[seed // 3 % len(SITUATIONS)]}
    simulate(str(folder), seed, **options | ({"situations": True} if seed % 2 else {}))
    captures = sorted(folder.glob(f"{CAPTURE_PREFIX}_*.pcap"))
    nightly.run(spark, config(folder / "warehouse", *captures))
    return warehouse_rows(folder / "warehouse", captures)


@pytest.mark.parametrize("seed", merge_needs([], [1, 4, 9, 16]))
def test_nights_give_the_findings_and_incidents_of_the_second_computation(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    tables = simulated_night(spark, seed, tmp_path)
    assert list(differences(tables)) == []
    assert tables["findings"]


def main() -> int:
    """Compares the nights of the seeds on the command line; returns the exit code."""
    spark, wrong, compared = open_session("findings", is_short=True), 0, Counter[Any]()
    for seed in range(*map(int, sys.argv[1:3])):
        with TemporaryDirectory() as name:
            tables = simulated_night(spark, seed, Path(name))
        said = list(differences(tables))
        wrong += bool(said)
        compared.update(row["kind"] for row in tables["findings"])
        compared["incidents"] += len(tables["incidents"])
        print(f"seed {seed}: {len(said)} differ", *said[:5], sep="\n", flush=True)  # noqa: T201 - the result
    print(f"{wrong} nights differ; compared {dict(compared)}")  # noqa: T201 - the result
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
