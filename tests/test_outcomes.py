"""What became of each message: the replay against the second computation, and named scenes of each outcome.

`python tests/test_outcomes.py 1000000` makes as many messages as asked, and prints the outcomes that differ.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from typing import Any

import night_outcomes
import plain_outcomes
import polars as pl
import pytest
from plain_outcomes import Message, Row, Run
from replay_tables import T0, Replayed, Tables, arrival, compare_nights, fates_of, frame, replay
from replayer import Key
from scenes_of_outcomes import CUT, SCENES, eventful, staged

from schemas.outcomes import LOST, Outcome, count_column
from schemas.replay import BOTH_SCOPES, VERDICTS, Reading, Scope, Verdict
from udfs.derive.books import balance_arrivals, balance_numbers
from udfs.derive.outcomes.slots import unarrived
from udfs.derive.outcomes.tallies import scope_states
from udfs.tcp.connections import Direction
from udfs.tcp.overlap import acked_bytes

READ = (
    *("scope_key", "source_queue_manager", "message_id", "content_hash", "tx_sequence_id", "tx_sequence_number"),
    *("previous_tx_sequence_number", "replay_order", "incoming_tx_sequence_id", "incoming_tx_sequence_number"),
    *("accepted", "verdict", "evidence", "final_ack_class", "covered_at", "captured_at", "assumed"),
    *("missing_runs", "behind_gap", "session_id", "stream_id", "stream_offset"),
)
Found = tuple[dict[Message, str], set[Run]]


def rows_of(replayed: Replayed) -> list[Row]:
    """The verdicts as the second computation reads them."""
    return replayed.verdicts.select(READ).to_dicts()


def outcomes_of(replayed: Replayed) -> Found:
    """The outcomes in the form of the second computation."""
    messages: dict[Message, str] = {}
    runs: list[Run] = []
    for row in replayed.fates.rows.to_dicts():
        slot = row["scope_key"], int(row["tx_sequence_id"]), row["tx_sequence_number"]
        if row["message_id"] is None:
            runs.append((*slot[:2], row["outcome"], slot[2], slot[2] + row["numbers"] - 1))
        else:
            messages[*slot, row["message_id"], row["content_hash"]] = row["outcome"]
    assert len(plain_outcomes.joined(runs)) == len(runs)  # numbers next to each other with one outcome are one row
    return messages, set(runs)


def cut_off(tables: Tables, keys: Collection[Key]) -> None:
    """Lets TCP acknowledge all packets but these: they end behind the last byte that it acknowledged."""
    tables.rows["packets"] = [
        {"stream_id": stream, "stream_offset": offset, "size": 1 << 30} for stream, offset in keys
    ]
    for row in tables.rows["streams"]:
        row |= {"closed": True, "recovered_bytes": 1 << 30, "acked_bytes": (1 << 30) - 1}


def some_of(tables: Tables) -> list[Key]:
    """Some of the messages."""
    rows = tables.rows["messages"]
    return random.Random(9).sample([(row["stream_id"], row["stream_offset"]) for row in rows], len(rows) // 20)


def disagreements(rows: list[Row], found: Found, cut: Collection[Key]) -> Iterator[tuple[Any, ...]]:
    """Where the two computations differ; a message that only the second names must be plainly delivered."""
    expected, expected_runs = plain_outcomes.outcomes(rows, set(cut))
    messages, runs = found
    for key in expected.keys() | messages.keys():
        if messages.get(key, "delivered") != expected.get(key):
            yield key, messages.get(key), expected.get(key)
    yield from ((*run, "only the product") for run in runs - expected_runs)
    yield from ((*run, "only the second computation") for run in expected_runs - runs)


def unbalanced(replayed: Replayed) -> list[Row]:
    """The books of the replay that do not balance: arrivals and numbers that do not add up."""
    outcomes, sequences = replayed.fates.undelivered, replayed.sequences
    arrivals = replayed.verdicts.with_columns(pl.lit(1).alias("count"))
    of_scopes = balance_arrivals(arrivals, outcomes, sequences), balance_numbers(outcomes, sequences)
    return pl.concat(of_scopes).filter(~pl.col("balanced")).to_dicts()


# --- scenes ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scenes() -> list[Row]:
    """The rows of `outcomes` of all scenes."""
    tables = Tables()
    staged(tables)
    cut_off(tables, CUT)
    return replay(tables.sources()).fates.undelivered.to_dicts()


@pytest.mark.parametrize("name", SCENES)
def test_scene(scenes: list[Row], name: str) -> None:
    found = sorted(
        (row["tx_sequence_number"] + i, row["outcome"])
        for row in scenes
        if row["source_queue_manager"] == f"from {name}"
        for i in range(row["numbers"])
    )
    expected = SCENES[name][1]
    assert found == sorted((int(str(key).split()[0]), outcome) for key, outcome in expected.items())


def of(scenes: list[Row], name: str, number: int) -> Row:
    """The row of a number in a scene."""
    return next(
        row for row in scenes if row["source_queue_manager"] == f"from {name}" and row["tx_sequence_number"] == number
    )


def test_numbers_never_seen_that_lie_next_to_each_other_are_one_row(scenes: list[Row]) -> None:
    run = of(scenes, "skipped above the state", 3)
    assert (run["outcome"], run["numbers"]) == ("expired_unseen", 2)
    assert run["explanation"].endswith(" This holds for 2 numbers, from 3 to 4.")
    assert of(scenes, "across missing bytes", 2)["numbers"] == 2
    assert {row["numbers"] for row in scenes if row["message_id"] is not None} == {1}


def test_only_a_message_refused_again_is_stuck(scenes: list[Row]) -> None:
    assert of(scenes, "stuck", 3)["stuck"]
    assert not of(scenes, "pending", 3)["stuck"]
    assert [row["stuck"] for row in scenes if row["outcome"] != "pending"].count(True) == 0


def test_witness_names_the_first_arrival_and_what_decided(scenes: list[Row]) -> None:
    assert of(scenes, "given up", 3)["witness"] == ["given up>@20", "given up>@30"]
    assert of(scenes, "displaced", 2)["witness"] == ["displaced>@30", "displaced>@20"]
    assert of(scenes, "refused, then accepted", 3)["witness"] == [f"refused, then accepted>@{at}" for at in (20, 40)]
    assert of(scenes, "expired unseen", 2)["witness"] == ["expired unseen>@20"]


def test_lost_is_null_where_the_captures_do_not_tell(scenes: list[Row]) -> None:
    lost = {row["outcome"]: row["lost"] for row in scenes}
    assert {outcome for outcome, value in lost.items() if value is None} == {"contradicted", "unknown"}
    assert {outcome for outcome, value in lost.items() if value} == set(LOST)


# --- the two computations -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables() -> Tables:
    return eventful(random.Random(5), 4_000)


@pytest.fixture(scope="module")
def replayed(tables: Tables) -> Replayed:
    return replay(tables.sources())


def test_two_computations_agree(tables: Tables) -> None:
    cut, with_cut = some_of(tables), Tables()
    with_cut.rows |= tables.rows | {"streams": [dict(row) for row in tables.rows["streams"]]}
    cut_off(with_cut, cut)
    replayed = replay(with_cut.sources())
    rows, found = rows_of(replayed), outcomes_of(replayed)
    assert list(disagreements(rows, found, cut))[:3] == []
    assert unbalanced(replayed) == []
    given = Counter(found[0].values()) + Counter(run[2] for run in found[1])
    assert set(given) == set(Outcome)


def test_counts_are_those_of_all_messages_and_numbers(replayed: Replayed) -> None:
    messages, runs = plain_outcomes.outcomes(rows_of(replayed))
    expected = Counter(messages.values())
    for *_, outcome, first, last in runs:
        expected[outcome] += last - first + 1
    counts = replayed.fates.counts
    assert {one.value: counts[count_column(one)].sum() for one in Outcome} == dict(expected)
    named = [row for row in replayed.fates.rows.to_dicts() if row["message_id"] is not None]
    assert replayed.fates.of_messages.height == len(named)


def test_sequences_are_the_sums_of_their_arrivals_and_outcomes(replayed: Replayed) -> None:
    arrivals: dict[Any, list[Row]] = defaultdict(list)
    became: dict[Any, Counter[str]] = defaultdict(Counter)
    for row in replayed.verdicts.to_dicts():
        arrivals[row["scope_key"], row["tx_sequence_id"]].append(row)
    for row in replayed.fates.rows.to_dicts():
        became[row["scope_key"], row["tx_sequence_id"]][row["outcome"]] += row["numbers"]
    sequences = {(row["scope_key"], row["tx_sequence_id"]): row for row in replayed.sequences.to_dicts()}
    assert sequences.keys() == arrivals.keys()
    for key, rows in arrivals.items():
        numbers = [row["tx_sequence_number"] for row in rows]
        accepted = [row["tx_sequence_number"] for row in rows if row["accepted"]]
        times = [row["captured_at"] for row in rows if row["captured_at"] is not None]
        expected: Row = {verdict.value: sum(row["verdict"] == verdict for row in rows) for verdict in Verdict}
        known = [row for row in rows if row["incoming_tx_sequence_number"] is not None and not row["assumed"]]
        expected |= {"messages": len(rows), "expired": sum(row["gap_size"] for row in known)}
        expected |= {"first_number": min(numbers), "last_number": max(numbers)}
        expected |= {"last_accepted_number": max(accepted, default=None)}
        expected |= {"first_captured_at": min(times, default=None), "last_captured_at": max(times, default=None)}
        expected |= {count_column(one): became[key][one] for one in Outcome if one != Outcome.DELIVERED}
        expected["lost"] = sum(became[key][one] for one in LOST)
        assert {name: sequences[key][name] for name in expected} == expected


def test_sessions_are_the_sums_of_their_messages_and_of_what_became_of_them(replayed: Replayed) -> None:
    ends = {row["stream_id"]: row for row in replayed.inputs.every_end.to_dicts()}
    sent, judged = defaultdict[str, list[Row]](list), defaultdict[str, Counter[str]](Counter)
    scopes = defaultdict[str, set[str]](set)
    for row in replayed.sources.messages.to_dicts():
        sent[ends[row["stream_id"]]["session_id"]].append(row)
    for row in replayed.verdicts.to_dicts():
        judged[row["session_id"]][row["verdict"]] += 1
        scopes[row["session_id"]].add(row["scope_key"].partition(" ")[0])
    for row in replayed.fates.rows.to_dicts():
        judged[row["session_id"]][count_column(Outcome(row["outcome"]))] += row["numbers"]
    sessions = {row["session_id"]: row for row in replayed.sessions.to_dicts()}
    assert sessions.keys() == sent.keys()
    for session, rows in sent.items():
        found = sessions[session]
        times = [row["captured_at"] for row in rows if row["captured_at"] is not None]
        counted = [*Verdict, *(count_column(one) for one in Outcome if one != Outcome.DELIVERED)]
        expected: Row = {name: judged[session][name] for name in counted}
        expected |= {"messages": len(rows), "transactional": sum(row["transactional"] for row in rows)}
        expected |= {"encrypted": sum(row["body_encrypted"] for row in rows)}
        expected |= {"connections": len({ends[row["stream_id"]]["connection_id"] for row in rows})}
        expected |= {"first_captured_at": min(times, default=None), "last_captured_at": max(times, default=None)}
        assert {name: found[name] for name in expected} == expected
        not_judged = found["passing_through"] + found["receiver_unknown"]
        assert found["transactional"] - not_judged == sum(judged[session][verdict] for verdict in Verdict)
        assert found["replay_scope"] == " and ".join(sorted(scopes[session], reverse=True)) or Scope.QUEUE
    assert {row["replay_scope"] for row in sessions.values()} == {"session", "queue", BOTH_SCOPES}


@pytest.mark.parametrize(("reading", "scope"), [(Reading.CONFORMANT, Scope.SESSION), (Reading.LITERAL, Scope.QUEUE)])
def test_sessions_have_the_scope_asked_for_and_counts_of_outcomes_where_they_are_told(
    tables: Tables, reading: Reading, scope: Scope
) -> None:
    sessions = replay(tables.sources(), reading=reading, scope=scope).sessions.to_dicts()
    assert {row["replay_scope"] for row in sessions} == {scope.value}
    assert {row["lost"] is None for row in sessions} == {reading is Reading.LITERAL}


def test_the_second_computation_is_the_truth_of_simulated_nights() -> None:
    scopes, told, differences = night_outcomes.compare(range(2 * len(night_outcomes.SITUATIONS)))
    assert differences == []
    assert min(told, scopes) > 100


REFUSED = {"accepted": False, "verdict": "out_of_order"}
UNKNOWN = {"accepted": None, "verdict": "unknown"}
COVERED = {"covered_at": T0 // 1000}


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
    (state,) = scope_states(fates_of(frame(VERDICTS, rows)).tallies).to_dicts()
    assert state["state_assumed"] is assumed


@pytest.mark.parametrize(
    ("columns", "is_unusual"),
    [
        ({}, False),
        ({"final_ack_class": 0x4000}, False),
        ({"evidence": "confirmed"}, False),
        ({"previous_tx_sequence_number": 0}, True),
        (REFUSED, True),
        ({"tx_sequence_number": 1}, True),  # the slot of a refused one
    ],
)
def test_only_arrivals_that_are_not_plain_are_looked_at(columns: Row, is_unusual: bool) -> None:
    fates = fates_of(frame(VERDICTS, [arrival(2, 1, **REFUSED), arrival(9, 9) | columns]))
    named = [row["message_id"] for row in fates.rows.to_dicts() if row["message_id"] is not None]
    assert sorted(named) == ["s\\1", "s\\9"][: 1 + is_unusual]


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
    sizes = pl.DataFrame({"stream_offset": [0, 100, 120, 150], "size": [100, 50, 31, 50]})
    packets = streams.select("stream_id").join(sizes, how="cross")
    messages = packets.filter(pl.col("stream_offset") < 150).with_columns(scope_key=pl.lit("queue s q"))
    found = unarrived(streams, packets, messages).rows()
    assert sorted(found) == [("queue s q", name, 120) for name in ("closed", "closed, the rest missing")]


def test_what_tcp_acknowledged() -> None:
    assert acked_bytes(Direction(isn=99)) is None
    assert acked_bytes(Direction(isn=99, acked=150, sent=200, done=100)) == 50
    assert acked_bytes(Direction(isn=99, acked=201, sent=200, fin=200, done=100)) == 100
    assert acked_bytes(Direction(first=100, acked=90, sent=200, done=100)) == 0


def differences(tables: Tables) -> Iterator[tuple[str, list[Any]]]:
    """Yields the outcomes and unbalanced books of a night that differ."""
    cut = some_of(tables)
    cut_off(tables, cut)
    replayed = replay(tables.sources())
    rows = rows_of(replayed)
    yield "outcomes", [*disagreements(rows, outcomes_of(replayed), cut), *unbalanced(replayed)]


if __name__ == "__main__":
    compare_nights(__doc__, eventful, 100_000, differences)
