"""Outcomes: the replay is compared with a second computation, and named scenes show each outcome."""

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import plain_outcomes
import polars as pl
import pytest
from plain_not_read import NotRead, not_read
from plain_outcomes import Message, Row, Run
from plain_unacknowledged import Answers, answers
from random_nights import night
from replay_tables import T0, Replayed, Tables, replay
from replayer import Key
from scene import S, Scene, guid
from tiers import seeds

from schemas.outcomes import LOST, Outcome, count_column
from schemas.replay import BOTH_SCOPES, Reading, Scope, Verdict
from udfs.replay.outcomes.plain import cut_packets
from udfs.report.books import balance_arrivals, balance_numbers
from udfs.tcp.delivery import acked_bytes
from udfs.tcp.direction import Direction

Found = tuple[dict[Message, str], set[Run]]


def outcomes_of(replayed: Replayed) -> Found:
    messages: dict[Message, str] = {}
    runs: list[Run] = []
    for row in replayed.outcomes.to_dicts():
        slot = row["scope_key"], int(row["tx_sequence_id"]), row["tx_sequence_number"]
        if row["message_id"] is None:
            runs.append((*slot[:2], row["outcome"], slot[2], slot[2] + row["numbers"] - 1))
        else:
            messages[*slot, row["message_id"], row["content_hash"]] = row["outcome"]
    assert len(plain_outcomes.joined(runs)) == len(runs)  # numbers next to each other with one outcome are one row
    return messages, set(runs)


def cut_off(tables: Tables, keys: Collection[Key], closed: float = 1) -> None:
    """Lets TCP acknowledge all packets but these: they end behind the last byte that it acknowledged.

    Such a share of connections is closed, and of some receivers an ACK without data came later.
    """
    tables.rows["packets"] = [
        {"stream_id": stream, "stream_offset": offset, "size": 1 << 30} for stream, offset in keys
    ]
    rng = random.Random(9)
    for row in tables.rows["streams"]:
        row |= {"closed": rng.random() < closed, "recovered_bytes": 1 << 30, "acked_bytes": (1 << 30) - 1}
        row["receiver_last_at"] = rng.choice([None, T0 // 1000 + rng.randrange(120 * 1_000_000)])


def some_of(tables: Tables) -> list[Key]:
    rows = tables.rows["messages"]
    return random.Random(9).sample([(row["stream_id"], row["stream_offset"]) for row in rows], len(rows) // 20)


def said_of(replayed: Replayed) -> Answers:
    """What the tables say of answers, by the second computation."""
    names = ("verdicts", "stream_ends")
    tables = {name: replayed.tables[name].to_dicts() for name in names}
    tables |= {name: getattr(replayed.sources, name).to_dicts() for name in ("acks", "stream_gaps", "quarantine")}
    return answers(tables | {"unreadable": tables["quarantine"]})


def disagreements(
    rows: list[Row], found: Found, cut: Collection[Key], said: Answers, still_open: Collection[str] = ()
) -> Iterator[tuple[Any, ...]]:
    """Where the two computations differ; a message that only the second names must be plainly delivered."""
    expected, expected_runs = plain_outcomes.outcomes(rows, set(cut), said, still_open)
    messages, runs = found
    for key in expected.keys() | messages.keys():
        if messages.get(key, "delivered") != expected.get(key):
            yield key, messages.get(key), expected.get(key)
    yield from ((*run, "only the product") for run in runs - expected_runs)
    yield from ((*run, "only the second computation") for run in expected_runs - runs)


def unbalanced(replayed: Replayed) -> list[Row]:
    """The books of the replay that do not balance: arrivals and numbers that do not add up."""
    arrivals = replayed.verdicts.with_columns(pl.lit(1).alias("count"))
    of_arrivals = balance_arrivals(arrivals, replayed.outcomes, replayed.sequences)
    of_scopes = of_arrivals, balance_numbers(replayed.outcomes, replayed.sequences)
    return pl.concat(of_scopes).filter(~pl.col("balanced")).to_dicts()


# --- scenes of each outcome, and random nights that have all of them --------------------------------------------------

GAP, OTHER = "bytes are missing", "another receiver"
FIRST = (1, 0)


class Ack(NamedTuple):
    """An OrderAck that names a number."""

    number: int


class Final(NamedTuple):
    """A FinalAck of a class for the message with a number, or for another one."""

    number: int
    message_class: int
    named: int | None = None


class Sent(NamedTuple):
    """A message, told apart from others with its number by its ordinal, if not the number, or by its label."""

    number: int
    previous: int
    sequence: int = 0
    ordinal: int | None = None
    label: str = ""


NEW = Sent(1, 0, 1, ordinal=99)
Event = Sent | Ack | Final | tuple[int, int] | str
"""One event on a connection, a second after the one before; a pair is a message by number and previous number.

What follows OTHER is on a connection with another receiver.
"""

SCENES: dict[str, tuple[list[Event], dict[int | str, str]]] = {
    "in order": ([FIRST, (2, 1), (3, 2)], {}),
    "resent after delivery": ([FIRST, (2, 1), (2, 1)], {}),
    "refused, then accepted": ([FIRST, (3, 2), (2, 1), (3, 2)], {3: "delivered_after_refusal"}),
    "accepted, then resent": ([FIRST, (2, 1), (3, 2), (3, 2)], {}),
    "pending": ([FIRST, (3, 2)], {2: "awaited", 3: "pending"}),
    "stuck": ([FIRST, (3, 2), (3, 2)], {2: "awaited", 3: "pending"}),
    "given up": ([FIRST, (3, 2), (4, 1)], {2: "expired_unseen", 3: "given_up"}),
    "given up, or in the missing bytes": (
        [FIRST, (3, 2), GAP, (4, 1)], {2: "expired_unseen", 3: "unknown", 4: "unknown"},
    ),
    "passed by": ([FIRST, (3, 2), NEW], {2: "never_seen", 3: "passed_by"}),
    "passed by, or in the missing bytes": ([FIRST, (3, 2), GAP, NEW], {2: "unknown", 3: "unknown"}),
    "expired unseen": ([FIRST, (4, 1)], {2: "expired_unseen", 3: "expired_unseen"}),
    "expired or delivered earlier": ([(4, 0), (5, 4)], {}),
    "skipped above the state": (
        [FIRST, (5, 2)], {2: "awaited", 3: "expired_unseen", 4: "expired_unseen", 5: "pending"},
    ),
    "displaced": ([FIRST, (2, 1), Sent(2, 1, ordinal=99)], {"2 other": "displaced"}),
    "displaced by its clone": ([FIRST, (2, 1), Sent(2, 1, label="clone"), Final(2, 0x4000)], {"2 clone": "displaced"}),
    "displaced before": ([FIRST, Sent(3, 2, ordinal=99), (2, 1), (3, 2)], {"3 other": "displaced"}),
    "delivered twice": (
        [FIRST, (2, 1), Sent(1, 0, 1, ordinal=2)], {"2": "delivered_twice", "1 of 2": "delivered_twice"},
    ),
    "refused for cause": ([FIRST, (2, 1), Final(2, 0x8004)], {2: "refused_for_cause"}),
    "refused for cause, another one received": (
        [FIRST, (2, 1), Final(2, 0x8004), Final(2, 0x4000, 99)], {2: "refused_for_cause"},
    ),
    "not read": ([FIRST, (2, 1), Final(2, 0xC002)], {2: "not_read"}),
    "read": ([FIRST, (2, 1), Final(2, 0x4000)], {}),
    "another message's FinalAck": ([FIRST, (2, 1), Final(2, 0x8004, 99)], {}),
    "refused, yet acknowledged": ([FIRST, (3, 2), Ack(3)], {2: "awaited", 3: "contradicted"}),
    "no state yet": ([(5, 4)], {5: "unknown"}),
    "no state yet, acknowledged": ([(5, 4), Ack(5)], {5: "delivered_by_acknowledgment"}),
    "no state yet, received": ([(5, 4), Final(5, 0x4000)], {5: "delivered_by_acknowledgment"}),
    "assumed": ([(7, 6), (8, 7), (9, 8)], {7: "unknown", 8: "unknown", 9: "unknown"}),
    "assumed, then acknowledged": ([(7, 6), Ack(7), (8, 7)], {7: "delivered_by_acknowledgment"}),
    "assumed, acknowledged below": ([(7, 6), Ack(6), (8, 7)], {7: "unknown", 8: "unknown"}),
    "assumed, then set": ([(7, 6), Sent(1, 0, 1), Sent(2, 1, 1)], {7: "unknown"}),
    "assumed, refused and then skipped": (
        [(7, 6), (9, 8), (10, 7), Ack(10)],
        {7: "delivered_by_acknowledgment", 8: "expired_unseen", 9: "unknown", 10: "delivered_by_acknowledgment"},
    ),
    "not judged, then skipped": (
        [FIRST, GAP, (3, 2), (4, 1), Ack(4)],
        {2: "expired_unseen", 3: "unknown", 4: "delivered_by_acknowledgment"},
    ),
    "assumed, then sent out of turn": (
        [(7, 6), (8, 7), (5, 8), (6, 5), Ack(8)],
        {5: "unknown", 6: "unknown", 7: "delivered_by_acknowledgment", 8: "delivered_by_acknowledgment"},
    ),
    "assumed above": ([(7, 6), (9, 8)], {7: "unknown", 8: "unknown", 9: "unknown"}),
    "delivered before the capture": (
        [(7, 6), Ack(7), (5, 4)], {7: "delivered_by_acknowledgment", 5: "delivered_before_capture"},
    ),
    "across missing bytes": ([FIRST, GAP, (4, 3)], {2: "unknown", 3: "unknown", 4: "unknown"}),
    "captured, not arrived": ([FIRST, (2, 1)], {2: "unknown"}),
    "captured, then resent": ([FIRST, (2, 1), (2, 1)], {}),
    "captured, then acknowledged": ([FIRST, (2, 1), Ack(2)], {}),
    "across missing bytes, in order": ([FIRST, GAP, (2, 1)], {}),
    "late": ([(2, 0), (1, 0), (3, 2)], {1: "passed_by"}),
    "late for one of two receivers": ([(2, 0), (1, 0), OTHER, (3, 2)], {1: "passed_by", 3: "unknown"}),
    "given up by one receiver, perhaps accepted by another": (
        [FIRST, (3, 2), (4, 1), OTHER, (3, 2)], {2: "expired_unseen", 3: "unknown", "3 there": "unknown"},
    ),
    "too early for both": ([FIRST, (3, 2), OTHER, NEW], {2: "awaited", 3: "pending"}),
    "displaced at one of two receivers": ([FIRST, (2, 1), OTHER, Sent(2, 1, ordinal=99)], {"2 other": "unknown"}),
}  # fmt: skip

CUT = [(f"{name}.0>", 10) for name in SCENES if name.startswith("captured, ")]
"""Keys of messages that TCP never acknowledged."""


def staged(tables: Tables) -> None:
    """Puts every scene on a connection of its own."""
    for name, (events, _) in SCENES.items():
        scene, on = Scene(tables, name, guids=True), 0
        scene.connection()
        for at, event in enumerate(events):
            if event == OTHER:
                scene.guids, on = False, 1
                scene.connection(on)
                tables.handshake(f"{name}.1", scene.sender, guid(OTHER))
            elif isinstance(event, str):
                scene.missing(on=on)
            elif isinstance(event, Ack):
                scene.ack(at, event.number)
            elif isinstance(event, Final):
                scene.final_ack(at, *event)
            else:
                sent = Sent(*event)
                scene.message(
                    at, sent.number, sent.previous, S + sent.sequence, on, ordinal=sent.ordinal, label=sent.label
                )


@pytest.fixture(scope="module")
def scenes() -> list[Row]:
    tables = Tables()
    staged(tables)
    cut_off(tables, CUT)
    return replay(tables.sources()).outcomes.to_dicts()


@pytest.mark.parametrize("name", SCENES)
def test_scene(scenes: list[Row], name: str) -> None:
    found = sorted(
        (row["tx_sequence_number"] + i, row["outcome"])
        for row in scenes
        if row["source_queue_manager"] == guid(f"{name}.a")
        for i in range(row["numbers"])
    )
    expected = SCENES[name][1]
    assert found == sorted((int(str(key).split()[0]), outcome) for key, outcome in expected.items())


def of(scenes: list[Row], name: str, number: int) -> Row:
    return next(
        row
        for row in scenes
        if row["source_queue_manager"] == guid(f"{name}.a") and row["tx_sequence_number"] == number
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
    shown = {"given up": (3, 10, 20), "displaced": (2, 10, 20), "refused, then accepted": (3, 10, 30)}
    for name, (number, *offsets) in (shown | {"expired unseen": (2, 10)}).items():
        witness = of(scenes, name, number)["witness"]
        assert [(one["stream_id"], one["stream_offset"]) for one in witness] == [(f"{name}.0>", at) for at in offsets]


def test_lost_is_null_where_the_captures_do_not_tell(scenes: list[Row]) -> None:
    lost = {row["outcome"]: row["lost"] for row in scenes}
    assert {outcome for outcome, value in lost.items() if value is None} <= {
        "contradicted",
        "unacknowledged",
        "unknown",
    }
    assert {outcome for outcome, value in lost.items() if value} == set(LOST)


# --- the two computations ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=seeds([5]))
def tables(request: pytest.FixtureRequest) -> Tables:
    return night(random.Random(request.param), 2_500)


@pytest.fixture(scope="module")
def replayed(tables: Tables) -> Replayed:
    return replay(tables.sources())


def test_two_computations_agree(tables: Tables) -> None:
    cut, with_cut = some_of(tables), Tables()
    with_cut.rows |= tables.rows | {"streams": [dict(row) for row in tables.rows["streams"]]}
    cut_off(with_cut, cut, closed=0.7)
    replayed = replay(with_cut.sources())
    rows, found = replayed.verdicts.to_dicts(), outcomes_of(replayed)
    still_open = {row["stream_id"] for row in with_cut.rows["streams"] if not row["closed"]}
    assert list(disagreements(rows, found, cut, said_of(replayed), still_open))[:3] == []
    assert unbalanced(replayed) == []
    given = Counter(found[0].values()) + Counter(run[2] for run in found[1])
    assert set(given) == set(Outcome) - {Outcome.DELIVERED}


def test_counts_are_those_of_all_messages_and_numbers(replayed: Replayed) -> None:
    messages, runs = plain_outcomes.outcomes(replayed.verdicts.to_dicts(), said=said_of(replayed))
    expected = Counter(messages.values())
    for *_, outcome, first, last in runs:
        expected[outcome] += last - first + 1
    assert {one.value: replayed.sequences[count_column(one)].sum() for one in Outcome} == dict(expected)


ASKS: Row = {"tx_final_ack_required": True}
NOT_READ: dict[str, tuple[list[tuple[int, int] | Ack | Final], Row, NotRead]] = {
    "not reported where nobody asked": ([FIRST, (2, 1), Ack(2)], {}, NotRead()),
    "not reported without an acknowledgment": ([FIRST, (2, 1)], ASKS, NotRead()),
    "none read": ([FIRST, (2, 1), Ack(2)], ASKS, NotRead(2, 0)),
    "the first one read": ([FIRST, (2, 1), Ack(2), Final(1, 0x4000)], ASKS, NotRead(1, 1)),
    "all read": ([FIRST, (2, 1), Ack(2), Final(1, 0x4000), Final(2, 0x4000)], ASKS, NotRead(0)),
    "one purged": ([FIRST, (2, 1), Ack(2), Final(1, 0xC002)], ASKS, NotRead(1, 1)),
    "one refused for cause": ([FIRST, (2, 1), Ack(2), Final(1, 0x8004)], ASKS, NotRead(1, 1)),
    "another one's FinalAck": ([FIRST, Ack(1), Final(1, 0x4000, 99)], ASKS, NotRead(1, 0)),
    "came twice": ([FIRST, (2, 1), (2, 1), Ack(2)], ASKS, NotRead(2, 0)),
    "accepted after a refusal": ([FIRST, (3, 2), (2, 1), (3, 2), Ack(3), Final(1, 0x4000)], ASKS, NotRead(2, 2)),
    "only refused": ([FIRST, (3, 2), Ack(1)], ASKS, NotRead(1, 0)),
    "delivered as acknowledged": ([(5, 4), Ack(5)], ASKS, NotRead(1, 0)),
    "delivered before the capture": ([(7, 6), Ack(7), (5, 4)], ASKS, NotRead(1, 0)),
    "journal of what failed": ([FIRST, Ack(1)], {"negative_source_journal": True}, NotRead(1, 0)),
    "journal of what arrived": ([FIRST, Ack(1)], {"positive_source_journal": True}, NotRead(1, 0)),
}
"""Messages and acknowledgments, a second apart; what messages ask for; how many wait, since which second."""


@pytest.fixture(scope="module")
def not_read_scenes() -> Replayed:
    tables = Tables()
    for name, (events, asks, _) in NOT_READ.items():
        scene = Scene(tables, name, guids=True)
        scene.connection()
        for at, event in enumerate(events):
            if isinstance(event, Ack):
                scene.ack(at, event.number)
            elif isinstance(event, Final):
                scene.final_ack(at, *event)
            else:
                scene.message(at, *event[:2], **asks)
    return replay(tables.sources())


def test_an_acknowledgment_on_a_later_connection_is_of_messages_that_came_without_a_handshake() -> None:
    """The later connection's handshake says who is at the address that the messages went to."""
    tables, a, b = Tables(), guid("a"), guid("b")
    tables.connection("x", "10.0.0.1", "10.0.0.2", mid_stream=True)
    for number in (1, 2, 3):
        asks = ASKS | {"source_queue_manager": a, "message_id": rf"{a}\{number}"}
        tables.message(("x>", 10 * number), T0 + number, (1, number, number - 1), **asks)
    tables.connection("y", "10.0.0.2", "10.0.0.1")
    tables.handshake("y", b, a)
    tables.ack("y>", T0 + 10, (1, 2), source_queue_manager=b, queue_manager_address=a)
    final = {"ack_type": "final_ack", "message_class": 0x4000, "acknowledged_message_id": rf"{a}\1", "source_guid": a}
    tables.ack("y>", T0 + 11, (1, 1), source_queue_manager=b, **final)
    replayed = replay(tables.sources())
    (sequence,) = replayed.sequences.to_dicts()
    assert (sequence["accepted_not_read_messages"], sequence["confirmed"]) == (2, 2)
    assert replayed.verdicts.sort("tx_sequence_number")["evidence"].to_list() == ["confirmed", "confirmed", "none"]


@pytest.mark.parametrize("table", ["sequences", "sessions"])
@pytest.mark.parametrize("name", NOT_READ)
def test_what_is_accepted_and_not_read_yet(not_read_scenes: Replayed, name: str, table: str) -> None:
    rows = not_read_scenes.tables[table].to_dicts()
    sender = "sender" if table == "sessions" else "source_queue_manager"
    (row,) = (row for row in rows if row[sender] == guid(f"{name}.a"))
    since = row["accepted_not_read_since"]
    seconds = since and round(since.timestamp() - T0 / 1_000_000_000)
    assert NotRead(row["accepted_not_read_messages"], seconds) == NOT_READ[name][2]


@pytest.mark.parametrize("table", ["sequences", "sessions"])
def test_messages_accepted_and_not_read_yet_are_those_of_a_second_computation(replayed: Replayed, table: str) -> None:
    tables = {name: replayed.tables[name].to_dicts() for name in ("verdicts", "stream_ends")}
    tables |= {name: getattr(replayed.sources, name).to_dicts() for name in ("messages", "acks")}
    outcomes, _ = plain_outcomes.outcomes(replayed.verdicts.to_dicts(), said=said_of(replayed))
    by = {"sequences": "scope_key", "sessions": "session_id"}[table]
    expected = not_read(tables, outcomes, by)
    for row in replayed.tables[table].to_dicts():
        key = row[by] if table == "sessions" else (row[by], int(row["tx_sequence_id"]))
        found = NotRead(row["accepted_not_read_messages"], row["accepted_not_read_since"])
        assert found == expected.pop(key, NotRead()), key
    assert expected == {}
    counts = replayed.tables[table]["accepted_not_read_messages"]
    assert (counts.null_count() > 0, (counts == 0).any(), (counts > 1).any()) == (True, True, True)


def test_sequences_are_the_sums_of_their_arrivals_and_outcomes(replayed: Replayed) -> None:
    arrivals: dict[Any, list[Row]] = defaultdict(list)
    became: dict[Any, Counter[str]] = defaultdict(Counter)
    stuck = Counter[Any]()
    for row in replayed.verdicts.to_dicts():
        arrivals[row["scope_key"], row["tx_sequence_id"]].append(row)
    for row in replayed.outcomes.to_dicts():
        became[row["scope_key"], row["tx_sequence_id"]][row["outcome"]] += row["numbers"]
        stuck[row["scope_key"], row["tx_sequence_id"]] += row["stuck"]
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
        expected["lost_messages"] = sum(became[key][one] for one in LOST)
        expected["stuck_messages"] = stuck[key]
        expected["accepted_arrivals"] = sum(row["accepted"] is True for row in rows)
        assert {name: sequences[key][name] for name in expected} == expected


def test_sessions_are_the_sums_of_their_messages_and_of_what_became_of_them(replayed: Replayed) -> None:
    ends = {row["stream_id"]: row for row in replayed.stream_ends.to_dicts()}
    sent, judged = defaultdict[str, list[Row]](list), defaultdict[str, Counter[str]](Counter)
    scopes = defaultdict[str, set[str]](set)
    for row in replayed.sources.messages.to_dicts():
        sent[ends[row["stream_id"]]["session_id"]].append(row)
    for row in replayed.verdicts.to_dicts():
        judged[row["session_id"]][row["verdict"]] += 1
        scopes[row["session_id"]].add(row["scope_key"].partition(" ")[0])
    for row in replayed.outcomes.to_dicts():
        judged[row["session_id"]][count_column(Outcome(row["outcome"]))] += row["numbers"]
    sessions = {row["session_id"]: row for row in replayed.sessions.to_dicts()}
    assert sessions.keys() == sent.keys()
    for session, rows in sent.items():
        found = sessions[session]
        times = [row["captured_at"] for row in rows if row["captured_at"] is not None]
        counted = [*Verdict, *(count_column(one) for one in Outcome if one != Outcome.DELIVERED)]
        expected: Row = {name: judged[session][name] for name in counted}
        expected |= {"messages": len(rows), "transactional_messages": sum(row["transactional"] for row in rows)}
        expected |= {"encrypted": sum(row["body_encrypted"] for row in rows)}
        expected |= {"connections": len({ends[row["stream_id"]]["connection_id"] for row in rows})}
        expected |= {"first_captured_at": min(times, default=None), "last_captured_at": max(times, default=None)}
        assert {name: found[name] for name in expected} == expected
        not_judged = found["passing_through"] + found["receiver_unknown"]
        assert found["transactional_messages"] - not_judged == sum(judged[session][verdict] for verdict in Verdict)
        assert found["replay_scope"] == " and ".join(sorted(scopes[session], reverse=True)) or Scope.QUEUE
    assert {row["replay_scope"] for row in sessions.values()} == {"session", "queue", BOTH_SCOPES}


@pytest.mark.parametrize(("reading", "scope"), [(Reading.CONFORMANT, Scope.SESSION), (Reading.LITERAL, Scope.QUEUE)])
def test_sessions_have_the_scope_asked_for_and_counts_of_outcomes_where_they_are_told(
    tables: Tables, reading: Reading, scope: Scope
) -> None:
    sessions = replay(tables.sources(), reading=reading, scope=scope).sessions.to_dicts()
    assert {row["replay_scope"] for row in sessions} == {scope.value}
    assert {row["lost_messages"] is None for row in sessions} == {reading is Reading.LITERAL}


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
    found = cut_packets(streams, packets).rows()
    expected = {"closed": True, "closed, the rest missing": True, "open": False}
    assert sorted(found) == sorted((name, at, closed) for name, closed in expected.items() for at in (120, 150))


def test_what_tcp_acknowledged() -> None:
    assert acked_bytes(Direction(isn=99)) is None
    assert acked_bytes(Direction(isn=99, acked=150, sent=200, done=100)) == 50
    assert acked_bytes(Direction(isn=99, acked=201, sent=200, fin=200, done=100)) == 100
    assert acked_bytes(Direction(first=100, acked=90, sent=200, done=100)) == 0


def test_any_segment_of_the_receiver_shows_that_a_message_never_arrived() -> None:
    tables = Tables()
    seen: dict[str, tuple[float | None, int | None]] = {  # when the receiver was seen last, and what it acknowledged
        "nothing shows that the capture would have held its acknowledgment": (None, 500),
        "too early": (10.5, 500),
        "by an ACK without data": (10.6, 500),
        "all acknowledged": (10.6, 1000),
        "not known what was acknowledged": (10.6, None),
    }
    for name, (seconds, acked) in seen.items():
        last = seconds and T0 // 1000 + int(seconds * 1_000_000)
        tables.stream(f"{name}>", f"{name} a", f"{name} b", acked_bytes=acked, closed=False, receiver_last_at=last)
        tables.message((f"{name}>", 0), T0, (7, 1, 0), source_queue_manager=name, message_id=f"{name}\\1")
        tables.rows["packets"].append({"stream_id": f"{name}>", "stream_offset": 0, "size": 1000})
    found = replay(tables.sources()).outcomes.select("source_queue_manager", "outcome").rows()
    assert found == [("by an ACK without data", "unacknowledged")]
