"""Findings, coverage and readings: one night of many small sessions, each a scene that shows a thing or nearly does.

tests/test_all_findings.py holds the words and the witness of each finding here to the second computation.
"""

from collections.abc import Callable
from functools import cache, cached_property, partial

import polars as pl
import pytest
import scenes_of_connections
import scenes_of_senders
import scenes_of_sessions
import scenes_of_verdicts
from finding_sentences import SENTENCES
from replay_tables import Row, Tables, replay, rows_of
from scene import COVERED, READINGS, SCENES, Scene, guid

from jobs.replaying.sources import Sources
from schemas.replay import FindingKind as K
from schemas.replay import Reading, Severity

__all__ = ["scenes_of_connections", "scenes_of_senders", "scenes_of_sessions", "scenes_of_verdicts"]
"""Importing them fills SCENES."""


def played() -> tuple[Tables, dict[str, Scene]]:
    """Plays all scenes in the same tables."""
    tables = Tables()
    scenes = {name: Scene(tables, name) for name in SCENES}
    for name, (play, _) in SCENES.items():
        play(scenes[name])
    return tables, scenes


class Night:
    """Derives from one replay of all scenes what a test asks for."""

    def __init__(self, sources: Sources[pl.DataFrame], scenes: dict[str, Scene], reading: Reading) -> None:
        self.replayed, self._scenes = replay(sources, reading=reading), scenes

    @cached_property
    def findings(self) -> dict[str, list[Row]]:
        """The findings of each scene."""
        named = {scene.session: name for name, scene in self._scenes.items()}
        found: dict[str, list[Row]] = {name: [] for name in self._scenes}
        for row in rows_of(self.replayed.findings):
            found[named.get(row.session_id) or str(row.witness[0]).partition(".")[0]].append(row)
        return found

    @cached_property
    def sessions(self) -> dict[str, Row]:
        """The sessions by their senders."""
        return {row.sender: row for row in rows_of(self.replayed.sessions)}


@pytest.fixture(scope="module")
def nights() -> Callable[[Reading], Night]:
    """Replays all scenes under a reading, once."""
    tables, scenes = played()
    return cache(partial(Night, tables.sources(), scenes))


@pytest.fixture
def night(nights: Callable[[Reading], Night]) -> Night:
    return nights(Reading.CONFORMANT)


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_gives_these_findings_and_no_others(night: Night, name: str) -> None:
    given = {K(row.kind): Severity(row.severity) for row in night.findings[name]}
    assert given == SCENES[name][1]
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
    K.ORDINAL_REGRESSED: "message_ids_wrap",
    K.UNACKNOWLEDGED: "the_capture_ends_before_an_answer_is_due",
    K.SLOW_ACKNOWLEDGMENT: "acknowledged_just_in_time",
    K.REPEATED_ORDER_ACK: "the_same_answer_before_it_goes_on",
    K.RESEND_SCHEDULE: "resent_after_the_acknowledgment",
    K.EXPIRED_ON_ARRIVAL: "just_in_time",
    K.TWO_ADDRESSES: "two_identities_at_one_address",
    K.TORN_TRANSACTION: "the_capture_ends_within_a_transaction",
    K.INTERLEAVED_TRANSACTION: "one_transaction_after_another_of_the_same_id",
    K.TRANSACTION_PARTLY_DELIVERED: "a_whole_transaction_is_pending",
    K.NOT_RECEIVED_BY_APPLICATION: "received_by_its_application",
    K.WINDOW_STALLED: "the_connection_ends_before_a_session_ack_is_due",
    K.SEVERAL_RECEIVERS: "two_connections_to_one_receiver",
    K.ACKNOWLEDGED_ELSEWHERE: "the_answers_go_back_on_another_connection",
}
"""Of each kind a scene that nearly shows it."""


def test_every_kind_is_shown_and_nearly_shown() -> None:
    elsewhere = {K.CAPTURED_TWICE, K.CLOCK_STEPPED, K.CLOCKS_DIFFER}  # tests/test_copies.py
    elsewhere |= {K.CANNOT_CONNECT}  # tests/test_cannot_connect.py
    assert {kind for _, kinds in SCENES.values() for kind in kinds} | elsewhere == set(K)
    assert NEARLY.keys() | elsewhere == set(K)
    assert not [kind for kind, name in NEARLY.items() if kind in SCENES[name][1]]


@pytest.mark.parametrize("name", SENTENCES)
def test_words_and_witness(night: Night, name: str) -> None:
    kind, explanation, witness = SENTENCES[name]
    (row,) = [row for row in night.findings[name] if row.kind == kind]
    assert row.explanation == explanation
    assert row.witness == witness


@pytest.mark.parametrize("reading", Reading)
@pytest.mark.parametrize("name", READINGS)
def test_the_reading_that_explains_the_answers_does_not_depend_on_the_one_replayed(
    nights: Callable[[Reading], Night], name: str, reading: Reading
) -> None:
    sender = str(guid(f"{name}.a")) if name == "the_state_fell" else f"ip.{name}.a"
    assert nights(reading).sessions[sender].acks_agree_with == READINGS[name]


@pytest.mark.parametrize("name", COVERED)
def test_coverage(night: Night, name: str) -> None:
    row = night.sessions[f"ip.{name}.a"]
    assert (row.byte_coverage, row.time_coverage, row.mid_stream) == pytest.approx(COVERED[name])
