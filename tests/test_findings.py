"""Findings, coverage and readings: one night of many small sessions, each a scene that shows a thing or nearly does."""

from collections import defaultdict
from collections.abc import Callable
from functools import cache, cached_property, partial
from typing import Any

import plain_arrivals
import polars as pl
import pyarrow as pa
import pytest
import scenes_of_connections
import scenes_of_senders
import scenes_of_sessions
import scenes_of_verdicts
from finding_sentences import SENTENCES
from plain_arrivals import arrivals_of_scope
from replay_tables import Row, Tables, replay, rows_of
from scene import COVERED, READINGS, SCENES, Scene, guid

from jobs.replaying.sources import Sources
from schemas.replay import FindingKind as K
from schemas.replay import Reading, Severity
from schemas.wire import MessageClass
from udfs.derive.columns import signed
from udfs.derive.facts.arrivals import arrivals_to_look_at
from udfs.derive.frames import to_frame
from udfs.replay.findings.finding import Arrival

__all__ = ["scenes_of_connections", "scenes_of_senders", "scenes_of_sessions", "scenes_of_verdicts"]
"""Importing them fills SCENES."""


class Night:
    """Derives from one replay of all scenes what a test asks for."""

    def __init__(self, sources: Sources[pa.Table], scenes: dict[str, Scene], reading: Reading) -> None:
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

    @cached_property
    def transactions(self) -> list[Row]:
        return rows_of(self.replayed.transactions)

    @cached_property
    def verdicts(self) -> dict[tuple[str, int], Row]:
        """The verdicts by the keys of messages."""
        return {(row.stream_id, row.stream_offset): row for row in rows_of(self.replayed.verdicts)}


@pytest.fixture(scope="module")
def nights() -> Callable[[Reading], Night]:
    """Replays all scenes under a reading, once."""
    tables = Tables()
    scenes = {name: Scene(tables, name) for name in SCENES}
    for name, (play, _) in SCENES.items():
        play(scenes[name])
    return cache(partial(Night, tables.sources(), scenes))


@pytest.fixture
def night(nights: Callable[[Reading], Night]) -> Night:
    return nights(Reading.CONFORMANT)


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_gives_these_findings_and_no_others(night: Night, name: str) -> None:
    given = {K(row.kind): Severity(row.severity) for row in night.findings[name]}
    assert given == SCENES[name][1]
    assert all(row.witness for row in night.findings[name])


def test_neighbours_are_those_of_a_second_computation(night: Night) -> None:
    verdicts, fates_of = (to_frame(rows) for rows in (night.replayed.verdicts, night.replayed.fates.of_messages))
    every_slot = verdicts.select(
        "scope_key", signed(pl.col("tx_sequence_id")).alias("sequence"), number="tx_sequence_number"
    )
    nothing = verdicts.clear().select(
        *("session_id", "source_queue_manager"), watched_ns="captured_ns", answers_whole="assumed"
    )
    found = map(Arrival._make, arrivals_to_look_at(verdicts, nothing, every_slot, fates_of).iter_rows())
    fates: dict[str, dict[tuple[Any, ...], str]] = defaultdict(dict)
    for row in night.replayed.fates.rows.to_pylist():
        if row["arrivals"] > 0:
            message = (row[name] for name in ("tx_sequence_id", "tx_sequence_number", "message_id", "content_hash"))
            fates[row["scope_key"]][tuple(message)] = plain_arrivals.fate(row["outcome"])
    scopes = defaultdict(list)
    for row in night.replayed.verdicts.to_pylist():
        scopes[row["scope_key"]].append(row)
    second = [one for name, rows in scopes.items() for one in arrivals_of_scope(rows, fates[name], {})]
    hashed: dict[str, Any] = {"scope_no": 0, "cause": None}
    given, expected = (sorted(repr(one._replace(**hashed)) for one in arrivals) for arrivals in (found, second))
    assert given == expected
    assert len(given) == len(verdicts)


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


def test_a_sequence_has_a_finding_for_each_cause_and_queue(night: Night) -> None:
    rows = night.findings["refused_for_several_causes"]
    assert sorted((row.messages, row.explanation.partition("(")[2].partition(")")[0], row.witness) for row in rows) == [
        (1, "NACK_ACCESS_DENIED", ["refused_for_several_causes.0>@30"]),
        (1, "NACK_BAD_DST_Q", ["refused_for_several_causes.0>@10"]),
        (2, "NACK_ACCESS_DENIED", ["refused_for_several_causes.0>@0"]),
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("refused_by_the_rule_yet_acknowledged", "is out of order, but the receiver acknowledged it"),
        ("accepted_by_the_rule_yet_not_acknowledged", "is in order, but an OrderAck at least 10500 ms later"),
        ("refused_by_the_rule_yet_read_from_its_queue", "is out of order, but the receiver acknowledged it"),
    ],
)
def test_a_contradiction_says_which_way_it_goes(night: Night, name: str, words: str) -> None:
    (row,) = night.findings[name]
    assert words in row.explanation


@pytest.mark.parametrize("reading", Reading)
@pytest.mark.parametrize("name", READINGS)
def test_the_reading_that_explains_the_answers_does_not_depend_on_the_one_replayed(
    nights: Callable[[Reading], Night], name: str, reading: Reading
) -> None:
    sender = str(guid(f"{name}.a")) if name == "the_state_fell" else f"ip.{name}.a"
    assert nights(reading).sessions[sender].reading_explained == READINGS[name]


@pytest.mark.parametrize(
    ("name", "offset", "evidence", "final_ack_class"),
    [
        ("all_is_well", 0, "confirmed", None),
        ("bytes_missing_that_the_receiver_had", 20, "none", None),  # nobody said what it did
        ("refused_by_the_rule_yet_acknowledged", 10, "contradicted", None),
        ("refused_and_not_acknowledged", 10, "confirmed", None),
        ("accepted_by_the_rule_yet_not_acknowledged", 10, "contradicted", None),
        ("refused_by_the_rule_yet_read_from_its_queue", 10, "contradicted", MessageClass.MQMSG_CLASS_ACK_RECEIVE),
        ("read_from_its_queue", 0, "confirmed", MessageClass.MQMSG_CLASS_ACK_RECEIVE),
        ("refused_for_cause", 0, "none", MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED),
        ("another_message_was_refused_for_cause", 0, "none", None),
        ("answers_that_do_not_reach_the_sender", 10, "confirmed", None),
    ],
)
def test_evidence(night: Night, name: str, offset: int, evidence: str, final_ack_class: int | None) -> None:
    row = night.verdicts[f"{name}.0>", offset]
    assert (row.evidence, row.final_ack_class) == (evidence, final_ack_class)


@pytest.mark.parametrize(
    ("name", "torn", "by_sender", "interleaved"),
    [
        ("no_last_message", True, True, False),
        ("the_capture_ends_within_a_transaction", True, None, False),
        ("the_capture_begins_within_a_transaction", True, None, False),
        ("bytes_missing_within_a_transaction", True, None, False),
        ("one_transaction_within_another", False, False, True),
        ("one_transaction_after_another_of_the_same_id", False, False, False),
    ],
)
def test_transactions_torn_and_interleaved(
    night: Night, name: str, torn: bool, by_sender: bool | None, interleaved: bool
) -> None:
    rows = [row for row in night.transactions if row.source_queue_manager == str(guid(f"{name}.a"))]
    flags = {(row.torn, row.torn_by_sender, row.interleaved) for row in rows}
    assert flags - {(False, False, False)} == {(torn, by_sender, interleaved)} - {(False, False, False)}


@pytest.mark.parametrize("name", COVERED)
def test_coverage(night: Night, name: str) -> None:
    row = night.sessions[f"ip.{name}.a"]
    assert (row.byte_coverage, row.time_coverage, row.mid_stream) == pytest.approx(COVERED[name])
