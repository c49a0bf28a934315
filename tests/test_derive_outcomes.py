"""What outcomes are derived from: a random night against the second computation, and verdicts as literals.

Scenes of each outcome are in tests/test_outcomes.py.
"""

import random
from collections import Counter
from typing import Any

import derived_outcomes
import plain_outcomes
import polars as pl
import pytest
from derived_outcomes import AT, Outcomes, arrival, derive, judge, verdicts_of
from plain_outcomes import Row
from scenes_of_outcomes import eventful

from schemas.outcomes import Outcome, count_column
from schemas.replay import Reading
from udfs.derive.outcomes.arrivals import first_due, unusual_arrivals
from udfs.derive.outcomes.counts import add_up, count_outcomes, message_fates, with_fate
from udfs.derive.outcomes.slots import accepted_twice, unarrived
from udfs.derive.outcomes.tallies import scope_states, tally

KEY = ["stream_id", "stream_offset"]
NO_TWICE = pl.DataFrame(
    schema={"scope_key": pl.String, "source_queue_manager": pl.String, "message_id": pl.String}
    | {"content_hash": pl.Int64}
)


# --- the two computations -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def verdicts() -> pl.DataFrame:
    return judge(eventful(random.Random(5), 700))


@pytest.fixture(scope="module")
def cut(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Some of the messages, as if TCP had never acknowledged them."""
    return verdicts.sample(len(verdicts) // 20, seed=9).select("scope_key", *KEY)


@pytest.fixture(scope="module")
def outcomes(verdicts: pl.DataFrame, cut: pl.DataFrame) -> Outcomes:
    return derive(verdicts, cut)


def test_two_computations_agree(verdicts: pl.DataFrame, cut: pl.DataFrame, outcomes: Outcomes) -> None:
    expected, expected_runs = plain_outcomes.outcomes(verdicts.to_dicts(), set(cut.select(KEY).iter_rows()))
    messages, runs = {}, []
    for row in outcomes.rows.iter_rows(named=True):
        slot = row["scope_key"], row["tx_sequence_id"], row["tx_sequence_number"]
        if row["message_id"] is None:
            runs.append((*slot[:2], row["outcome"], slot[2], slot[2] + row["numbers"] - 1))
        else:
            messages[*slot, row["message_id"], row["content_hash"]] = row["outcome"]
    assert set(messages) <= set(expected)
    differing = {key: said for key, said in expected.items() if messages.get(key, "delivered") != said}
    assert not differing
    assert sorted(runs) == sorted(expected_runs)
    given = Counter(expected.values())
    for *_, outcome, first, last in runs:
        given[outcome] += last - first + 1
    assert set(given) == set(Outcome)
    counted = outcomes.counts.select(pl.col([count_column(one) for one in Outcome]).sum()).row(0, named=True)
    assert counted == {count_column(Outcome(outcome)): count for outcome, count in given.items()}


def test_all_arrivals_are_accounted_for(verdicts: pl.DataFrame, outcomes: Outcomes) -> None:
    told = outcomes.rows.filter(pl.col("outcome") != "delivered").select("scope_key", pl.col("arrivals"))
    delivered = outcomes.counts.select("scope_key", pl.col("delivered_arrivals").alias("arrivals"))
    found = pl.concat([told, delivered]).group_by("scope_key").agg(pl.col("arrivals").sum())
    assert dict(found.iter_rows()) == Counter(verdicts["scope_key"])


def test_all_slots_up_to_the_state_are_seen_or_told(outcomes: Outcomes) -> None:
    due, number = outcomes.slots, pl.col("tx_sequence_number")
    of_due = number.is_between(pl.col("first_due"), pl.col("first_due") + pl.col("slots") - 1)
    unseen = outcomes.rows.filter(pl.col("message_id").is_null()).join(due, on=["scope_key", "tx_sequence_id"])
    told = [*due["slots_seen"], *unseen.filter(of_due)["numbers"]]
    assert sum(due["slots"]) == sum(told) > len(due)


def test_scopes_may_come_apart_or_together(verdicts: pl.DataFrame, cut: pl.DataFrame, outcomes: Outcomes) -> None:
    twice, is_even = accepted_twice(verdicts), pl.col("scope_key").hash() % 2 == 0
    halves = [unusual_arrivals(*(rows.filter(half) for rows in (verdicts, twice, cut))) for half in (is_even, ~is_even)]
    for name, first in halves[0].items():
        together = getattr(outcomes, name)
        apart = pl.concat([first, halves[1][name]])
        assert apart.schema == together.schema
        assert 0 < len(first) < len(together)
        assert sorted(map(repr, apart.iter_rows())) == sorted(map(repr, together.iter_rows()))


def test_nothing_gives_frames_without_rows(verdicts: pl.DataFrame, outcomes: Outcomes) -> None:
    nothing = derive(verdicts.clear())
    for name, frame in nothing._asdict().items():
        assert frame.schema == getattr(outcomes, name).schema
        assert frame.is_empty()
    fates = message_fates(nothing.rows)
    assert fates.is_empty()
    assert fates.schema == message_fates(outcomes.rows).schema
    assert accepted_twice(verdicts.clear()).schema == accepted_twice(verdicts).schema
    assert unusual_arrivals(verdicts, NO_TWICE, pl.DataFrame(schema=derived_outcomes.NOT_ARRIVED))["plain"].height > 0


# --- verdicts as literals -------------------------------------------------------------------------------------------

REFUSED = {"accepted": False, "verdict": "out_of_order"}
UNKNOWN = {"accepted": None, "verdict": "unknown"}
COVERED = {"covered_at": AT}


def tallied(*rows: Row, reading: Reading = Reading.CONFORMANT) -> Row:
    """The tally of verdicts of one sequence on one stream."""
    return tally(verdicts_of(list(rows)), reading).row(0, named=True)


def test_a_tally_counts_verdicts_and_answers() -> None:
    found = tallied(
        arrival(1, 3, verdict="gap_expired", gap_size=2, explained_by="both"),
        arrival(2, 9, **REFUSED, explained_by="literal"),
        arrival(3, 4, verdict="gap_expired", gap_size=5, assumed=True, captured_at=None, captured_ns=None),
        arrival(4, 5, explained_by="conformant", reject_count=3),
    )
    assert [found[name] for name in ("messages", "in_order", "gap_expired", "out_of_order")] == [4, 1, 2, 1]
    assert [found[name] for name in ("answers", "answers_conformant", "answers_literal")] == [3, 2, 2]
    assert [found[name] for name in ("first_number", "last_number", "last_accepted_number")] == [3, 9, 5]
    assert [found[name] for name in ("expired", "reject_count", "first_ns", "last_captured_ns")] == [2, 3, 1, 4]
    assert [found[name] for name in ("first_order", "last_order", "first_offset", "last_offset")] == [1, 4, 10, 40]


def test_a_refused_message_sets_the_state_under_the_literal_reading_only() -> None:
    rows = arrival(1, 1), arrival(2, 9, **REFUSED, incoming_tx_sequence_id=6, incoming_tx_sequence_number=1)
    for reading, state in ((Reading.CONFORMANT, (6, 1)), (Reading.LITERAL, (7, 9))):
        found = tallied(*rows, reading=reading)
        assert (found["state_sequence"] + (1 << 63), found["state_number"]) == state
        assert (found["opening_sequence"] + (1 << 63), found["opening_number"]) == (7, 0)


def test_a_tally_is_null_where_there_is_nothing() -> None:
    nothing = {"incoming_tx_sequence_id": None, "incoming_tx_sequence_number": None}
    found = tallied(arrival(1, 1, **REFUSED, **nothing, captured_at=None, captured_ns=None))
    names = ("opening_sequence", "opening_number", "state_sequence", "state_number", "last_accepted_number")
    times = ("first_captured_at", "last_captured_at", "first_ns", "last_captured_ns", "last_from_zero", "last_unknown")
    assert [found[name] for name in (*names, *times)] == [None] * (len(names) + len(times))


@pytest.mark.parametrize(
    ("rows", "assumed"),
    [
        ([arrival(1, 1)], False),
        ([arrival(1, 1, **UNKNOWN), arrival(2, 2, assumed=True)], True),
        ([arrival(1, 1, **UNKNOWN, **COVERED), arrival(2, 2)], False),
        ([arrival(1, 1, **UNKNOWN), arrival(2, 2, **UNKNOWN, **COVERED)], False),
        ([arrival(1, 5, **UNKNOWN), arrival(2, 1, tx_sequence_id=8)], False),  # from zero on
        ([arrival(1, 1), arrival(2, 2, **UNKNOWN)], True),
        ([arrival(1, 2, assumed=True)], True),  # what the previous warehouse left
        ([arrival(1, 2, assumed=True), arrival(2, 3, assumed=True, **COVERED)], False),
        ([arrival(1, 1, assumed=True)], False),
    ],
)
def test_a_state_is_assumed_until_something_ends_the_doubt(rows: list[Row], assumed: bool) -> None:
    (state,) = scope_states(tally(verdicts_of(rows))).to_dicts()
    assert state["state_assumed"] is assumed


def test_where_a_scope_stood_is_that_of_its_last_arrival() -> None:
    rows = [
        arrival(1, 1),
        arrival(3, 3, session_id="c->d", stream_id="c>", reject_count=2),
        arrival(2, 2, stream_offset=99),
        arrival(1, 5, scope_key="queue s r", **UNKNOWN, incoming_tx_sequence_number=None),
    ]
    found = {row["scope_key"]: row for row in scope_states(tally(verdicts_of(rows))).to_dicts()}
    state = found["queue s q"]
    assert [state[name] for name in ("session_id", "stream_id", "stream_offset")] == ["c->d", "c>", 30]
    assert [state[name] for name in ("messages", "state_number", "opening_number", "reject_count")] == [3, 3, 0, 2]
    assert [found["queue s r"][name] for name in ("state_number", "opening_number")] == [5, None]


@pytest.mark.parametrize(
    ("receivers", "several"),
    [
        (["1" * 8 + "-1111-1111-1111-" + "1" * 12, "2" * 8 + "-1111-1111-1111-" + "1" * 12], True),
        (["1" * 8 + "-1111-1111-1111-" + "1" * 12] * 2, False),
        (["1" * 8 + "-1111-1111-1111-" + "1" * 12, "10.0.0.1"], False),
        (["10.0.0.1", "10.0.0.2"], False),
    ],
)
def test_receivers_are_several_if_their_guids_differ(receivers: list[str], several: bool) -> None:
    rows = [arrival(i, i, session_id=f"a->{name}") for i, name in enumerate(receivers, 1)]
    assert scope_states(tally(verdicts_of(rows)))["several_receivers"].to_list() == [several]


def test_bytes_that_were_never_acknowledged() -> None:
    streams = pl.DataFrame(
        [
            ("closed", True, 150, 200, 0),  # stream, closed, acknowledged, recovered and missing bytes
            ("closed, the rest missing", True, 150, 150, 50),
            ("open", False, 150, 200, 0),
            ("no acknowledgment captured", True, None, 200, 0),
            ("all acknowledged", True, 200, 200, 0),
        ],
        schema=["stream_id", "closed", "acked_bytes", "recovered_bytes", "missing_bytes"],
        orient="row",
    )
    packets = streams.select("stream_id").join(
        pl.DataFrame({"stream_offset": [0, 100, 120, 150], "size": [100, 50, 31, 50]}), how="cross"
    )
    messages = packets.filter(pl.col("stream_offset") < 150).with_columns(scope_key=pl.lit("queue s q"))
    found = unarrived(streams, packets, messages).rows()
    assert sorted(found) == [("queue s q", name, 120) for name in ("closed", "closed, the rest missing")]


def test_messages_are_accepted_twice_over_all_scopes_unless_a_state_is_assumed() -> None:
    other: Row = {"scope_key": "queue s r"}
    rows = [
        *(arrival(1, 1), arrival(1, 1, **other)),
        *(arrival(2, 2), arrival(2, 2, **other, **REFUSED)),
        *(arrival(3, 3), arrival(3, 3, **other, assumed=True)),
        *(arrival(4, 4), arrival(4, 4, **other, **UNKNOWN)),
        *(arrival(5, 5), arrival(5, 5, **other, content_hash=2)),
        *(arrival(6, 6, previous_tx_sequence_number=0, assumed=True), arrival(6, 6, **other)),
        *(arrival(7, 7), arrival(8, 7), arrival(7, 7, **other, **REFUSED)),
    ]
    found = accepted_twice(verdicts_of(rows)).select("scope_key", "message_id").sort("message_id", "scope_key").rows()
    both = [(f"queue s {queue}", f"s\\{number}") for number in (1, 6) for queue in "qr"]
    assert found == [*both, ("queue s q", "s\\7")]


@pytest.mark.parametrize(
    ("columns", "is_unusual"),
    [
        ({}, False),
        ({"final_ack_class": 0x4000}, False),
        ({"final_ack_class": 0xC000}, True),
        ({"final_ack_class": 0x8000}, True),
        ({"final_ack_class": 0}, True),
        ({"evidence": "confirmed"}, False),
        ({"evidence": "contradicted"}, True),
        ({"assumed": True}, True),
        ({"previous_tx_sequence_number": 0}, True),
        ({"replay_order": 1}, True),
        (REFUSED, True),
        ({"tx_sequence_number": 1}, True),  # the slot of a refused one
        ({"message_id": "s\\twice"}, True),
        ({"stream_offset": 0}, True),
    ],
)
def test_arrivals_that_are_looked_at(columns: Row, is_unusual: bool) -> None:
    twice = NO_TWICE.vstack(pl.DataFrame([("queue s q", "s", "s\\twice", 1)], schema=NO_TWICE.schema, orient="row"))
    cut_off = pl.DataFrame([("queue s q", "a>", 0)], schema=derived_outcomes.NOT_ARRIVED, orient="row")
    one = arrival(9, 9) | columns
    found = unusual_arrivals(verdicts_of([arrival(2, 1, **REFUSED), one]), twice, cut_off)
    assert found["unusual"].select("source_queue_manager", "scope_key").unique().rows() == [("s", "queue s q")]
    others = found["arrivals"].filter(pl.col("key") == f"a>@{one['stream_offset']}")
    assert len(others) == is_unusual
    assert found["plain"]["plain"].to_list() == [1] * (not is_unusual)
    for flag, is_set in (("cut_off", one["stream_offset"] == 0), ("accepted_twice", "twice" in one["message_id"])):
        assert not is_set or others[flag].to_list() == [True]


@pytest.mark.parametrize(
    ("rows", "opening", "due"),
    [
        ([(1, 5, 0, 2, True, False)], (0, 2), 3),
        ([(1, 5, None, None, None, False), (2, 3, 0, 5, False, False)], (None, None), 5),
        ([(1, 5, None, None, None, False), (2, 3, 0, 5, None, False)], (None, None), 3),
        ([(1, 5, -1, 2, True, False)], (-1, 2), 1),
        ([(1, 5, -1, 2, True, True)], (-1, 2), 5),
        ([(1, 5, 1, 2, False, False)], (1, 2), None),
    ],
)
def test_the_first_number_due(rows: list[tuple[Any, ...]], opening: tuple[Any, Any], due: int | None) -> None:
    names = ("replay_order", "number", "before_sequence", "before_number", "accepted", "assumed")
    kinds = {name: pl.Boolean if name in {"accepted", "assumed"} else pl.Int64 for name in names}
    arrivals = pl.DataFrame(rows, schema=kinds, orient="row").with_columns(
        scope_key=pl.lit("s"), sequence=pl.lit(0, pl.Int64)
    )
    states = pl.DataFrame(
        [("s", *opening)],
        schema={"scope_key": pl.String, "opening_sequence": pl.Int64, "opening_number": pl.Int64},
        orient="row",
    )
    assert first_due(arrivals, states)["due"].to_list() == ([] if due is None else [due])


def test_counts_add_up_by_fewer_columns(outcomes: Outcomes) -> None:
    by_session = add_up(outcomes.counts, "session_id")
    lost = outcomes.rows.filter("lost").group_by("session_id").agg(pl.col("numbers").sum())
    assert dict(by_session.filter(pl.col("lost") > 0).select("session_id", "lost").iter_rows()) == dict(
        lost.iter_rows()
    )
    only_plain = count_outcomes(outcomes.plain, outcomes.rows.clear())
    assert only_plain["delivered"].sum() == only_plain["delivered_arrivals"].sum() == outcomes.plain["plain"].sum()
    assert only_plain["unknown_outcome"].to_list() == [0] * len(only_plain)


def test_messages_without_an_outcome_were_delivered(verdicts: pl.DataFrame, outcomes: Outcomes) -> None:
    fates = message_fates(outcomes.rows)
    expected = {"displaced": "lost", "passed_by": "lost", "given_up": "lost", "refused_for_cause": "lost"}
    expected |= {"unknown": "unknown", "contradicted": "unknown", "pending": "pending"}
    told = outcomes.rows.filter(pl.col("arrivals") > 0)["outcome"]
    assert fates["fate"].to_list() == [expected.get(outcome, "delivered") for outcome in told]
    found = with_fate(verdicts, fates)
    assert len(found) == len(verdicts)
    refused = found.filter(~pl.col("accepted"))
    assert set(refused["fate"]) == {"lost", "unknown", "pending", "delivered"}
