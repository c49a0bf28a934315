"""Findings, coverage and readings: one night of many small sessions, each a scene that shows a thing or nearly does.

tests/test_all_findings.py holds them to the second computation, too.
"""

import re
from functools import cache
from pathlib import Path

import pytest
from replay_tables import Row, Tables, attributes_of, replay
from scene import NAME, Scene, guid
from scenes import COVERED, NEARLY, SCENES

from schemas.replay import FindingKind as K
from schemas.replay import Severity
from udfs.replay.findings import facts

_SAID = r"^(\w+): (\w+), (.*)\n(.*)$"
SENTENCES = re.findall(_SAID, Path(__file__).with_name("sentences.txt").read_text(), re.MULTILINE)
"""Scene, kind, rows that prove it, and the sentence."""


@cache
def played() -> tuple[Tables, dict[str, Scene]]:
    """Plays all scenes in the same tables."""
    tables, scenes = Tables(), {}
    for name, (events, guids, _) in SCENES.items():
        scenes[name] = Scene(tables, name, guids)
        for one in events:
            one(scenes[name])
    return tables, scenes


class Night:
    """Holds what one replay of all scenes says of each."""

    def __init__(self) -> None:
        tables, scenes = played()
        replayed = replay(tables.sources())
        self.outcomes, self.incidents = attributes_of(replayed.outcomes), attributes_of(replayed.incidents)
        self.sessions = {row.sender: row for row in attributes_of(replayed.sessions)}
        self.findings: dict[str, list[Row]] = {name: [] for name in scenes}
        named = {scene.session: name for name, scene in scenes.items()}
        for row in attributes_of(replayed.findings):
            first = row.witness[0]["stream_id"]
            self.findings[named.get(row.session_id) or first.partition(".")[0]].append(row)


@pytest.fixture(scope="module")
def night() -> Night:
    return Night()


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_gives_these_findings_and_no_others(night: Night, name: str) -> None:
    given = {K(row.kind): Severity(row.severity) for row in night.findings[name]}
    assert given == SCENES[name][2]
    assert all(row.witness for row in night.findings[name])


@pytest.mark.parametrize(
    "name",
    [
        *("the_answers_take_another_path", "a_restore_by_the_book", "resent_from_another_address"),
        *("one_host_on_two_networks", "nothing_is_missing", "the_capture_ends_before_an_answer_is_due"),
        *("the_answer_may_be_in_missing_bytes", "resent_after_the_acknowledgment", "all_is_well"),
    ],
)
def test_what_says_nothing_against_the_receiver_is_no_alarm(night: Night, name: str) -> None:
    """No outcome but `delivered`, and no incident that is not repaired."""
    source = played()[1][name].sender
    assert not [row for row in night.outcomes if row.source_queue_manager == source]
    assert {row.outcome for row in night.incidents if row.source_queue_manager == source} <= {"repaired"}


def test_every_kind_is_shown_and_nearly_shown() -> None:
    elsewhere = {K.CAPTURED_TWICE, K.CLOCKS_DIFFER}  # tests/test_derive_copies.py
    elsewhere |= {K.CLOCK_STEPPED, K.CANNOT_CONNECT}  # tests/test_copies.py, tests/test_cannot_connect.py
    elsewhere |= {K.UNANSWERED_PINGS}  # tests/test_pings.py
    # Those of nights in trouble: tests/test_simulated_nights.py.
    elsewhere |= {K.ACKNOWLEDGED_ELSEWHERE, K.ACKNOWLEDGMENT_FELL}
    assert {kind for *_, kinds in SCENES.values() for kind in kinds} | elsewhere == set(K)
    assert NEARLY.keys() | elsewhere == set(K)
    assert not [kind for kind, name in NEARLY.items() if kind in SCENES[name][2]]


@pytest.mark.parametrize(("name", "kind", "proof", "words"), SENTENCES)
def test_words_and_witness(night: Night, name: str, kind: str, proof: str, words: str) -> None:
    (row,) = [row for row in night.findings[name] if row.kind == kind]
    assert row.session_id == played()[1][name].session or kind == K.SEVERAL_RECEIVERS  # the second session
    guids = {end: guid(f"{name}.{end}") for end in "abc"}
    assert row.explanation == words.format(sequence=NAME, name=name, **guids)
    witness = [f"{one['stream_id']}@{one['stream_offset']}" for one in row.witness]
    assert witness == [f"{name}.{place}" for place in proof.split()]


def test_words_of_what_no_scene_shows() -> None:
    twice = facts.captured_twice(messages=2, stream_id="b", copy_of="a")
    assert twice.sentence == (
        "2 connections were captured twice, at both ends of an address translation, and count once. The first is a; "
        "its copy is b."
    )
    stepped = facts.clock_stepped(
        messages=1, uri="a.pcap", step_ns=-5_260_000_000, frame=7, key_before=None, key_after=None
    )
    assert stepped.sentence == (
        "The clock of capture a.pcap stepped back 1 time, first by 5.3 s at record 7. The replay undoes this; the "
        "tables show the times that were recorded."
    )


@pytest.mark.parametrize("name", COVERED)
def test_coverage(night: Night, name: str) -> None:
    row = night.sessions[f"ip.{name}.a"]
    assert (row.byte_coverage, row.mid_stream_connections) == pytest.approx(COVERED[name])
