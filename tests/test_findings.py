"""Findings, coverage and readings: one night of many small sessions, each a scene that shows a thing or nearly does.

tests/test_all_findings.py holds the words and the witness of each finding here to the second computation.
"""

import re
from functools import cache
from pathlib import Path

import pytest
from replay_tables import Row, Tables, replay, rows_of
from scene import NAME, Scene, guid
from scenes import COVERED, READINGS, SCENES

from schemas.replay import FindingKind as K
from schemas.replay import Reading, Severity

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

    def __init__(self, reading: Reading) -> None:
        tables, scenes = played()
        replayed = replay(tables.sources(), reading=reading)
        self.sessions = {row.sender: row for row in rows_of(replayed.sessions)}
        self.findings: dict[str, list[Row]] = {name: [] for name in scenes}
        named = {scene.session: name for name, scene in scenes.items()}
        for row in rows_of(replayed.findings):
            first = row.witness[0]["stream_id"]
            self.findings[named.get(row.session_id) or first.partition(".")[0]].append(row)


night_of = cache(Night)


@pytest.fixture
def night() -> Night:
    return night_of(Reading.CONFORMANT)


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_gives_these_findings_and_no_others(night: Night, name: str) -> None:
    given = {K(row.kind): Severity(row.severity) for row in night.findings[name]}
    assert given == SCENES[name][2]
    assert all(row.witness for row in night.findings[name])


NEARLY = {
    K.DUPLICATES: "same_number_in_the_next_sequence",
    K.OUT_OF_ORDER: "one_expired_and_was_bridged",
    K.GAP_EXPIRED: "bytes_missing_where_numbers_expired",
    K.STUCK_SEQUENCE: "resent_and_accepted_at_last",
    K.CAPTURE_GAP: "bytes_missing_without_a_message",
    K.MISSED_BY_CAPTURE: "bytes_missing",
    K.CONTRADICTED: "refused_and_not_acknowledged",
    K.STATE_FELL: "the_state_stayed",
    K.REFUSED_FOR_CAUSE: "another_message_was_refused_for_cause",
    K.DUPLICATES_DIFFER: "resent_with_a_bridged_previous_number",
    K.SEQUENCE_REGRESSED: "old_messages_under_an_old_sequence",
    K.UNACKNOWLEDGED: "the_capture_ends_before_an_answer_is_due",
    K.SLOW_ACKNOWLEDGMENT: "acknowledged_just_in_time",
    K.REPEATED_ORDER_ACK: "the_same_answer_before_it_goes_on",
    K.RESEND_SCHEDULE: "resent_after_the_acknowledgment",
    K.EXPIRED_ON_ARRIVAL: "just_in_time",
    K.TWO_ADDRESSES: "two_identities_at_one_address",
    K.TORN_TRANSACTION: "the_capture_ends_within_a_transaction",
    K.TRANSACTION_PARTLY_DELIVERED: "a_whole_transaction_is_pending",
    K.NOT_RECEIVED_BY_APPLICATION: "received_by_its_application",
    K.WINDOW_STALLED: "the_connection_ends_before_a_session_ack_is_due",
    K.SEVERAL_RECEIVERS: "two_connections_to_one_receiver",
    K.ACKNOWLEDGED_ELSEWHERE: "the_answers_go_back_on_another_connection",
}
"""Of each kind a scene that nearly shows it."""


def test_every_kind_is_shown_and_nearly_shown() -> None:
    elsewhere = {K.CAPTURED_TWICE, K.CLOCK_STEPPED}  # tests/test_copies.py
    elsewhere |= {K.CLOCKS_DIFFER, K.CANNOT_CONNECT}  # tests/test_derive_copies.py, tests/test_cannot_connect.py
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


@pytest.mark.parametrize("reading", Reading)
@pytest.mark.parametrize("name", READINGS)
def test_the_reading_that_explains_the_answers_does_not_depend_on_the_one_replayed(name: str, reading: Reading) -> None:
    sender = guid(f"{name}.a") if name == "the_state_fell" else f"ip.{name}.a"
    assert night_of(reading).sessions[sender].acks_agree_with == READINGS[name]


@pytest.mark.parametrize("name", COVERED)
def test_coverage(night: Night, name: str) -> None:
    row = night.sessions[f"ip.{name}.a"]
    assert (row.byte_coverage, row.mid_stream) == pytest.approx(COVERED[name])
