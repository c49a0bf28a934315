"""What became of each message: on Spark against the second computation, and named scenes of each outcome.

`python tests/test_outcomes.py 1000000` makes as many messages as asked, and prints the outcomes that differ.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import night_outcomes
import plain_outcomes
import pytest
from plain_outcomes import Message, Row, Run
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it
from replay_tables import T0, Tables, compare_nights, replay
from scene import guid
from test_agreement import night

from jobs.steps.replay import derive_outcomes
from jobs.transforms.facts.arrivals import with_neighbours
from jobs.transforms.outcomes.rows import Outcomes
from jobs.transforms.outcomes.slots import unarrived
from schemas.outcomes import LOST, Outcome, count_column
from udfs.tcp.connections import Direction
from udfs.tcp.overlap import acked_bytes

READ = (
    *("scope_key", "source_queue_manager", "message_id", "content_hash", "tx_sequence_id", "tx_sequence_number"),
    *("previous_tx_sequence_number", "replay_order", "incoming_tx_sequence_id", "incoming_tx_sequence_number"),
    *("accepted", "verdict", "evidence", "final_ack_class", "covered_at", "captured_at", "assumed"),
    *("missing_runs", "behind_gap", "session_id", "stream_id", "stream_offset"),
)
Found = tuple[dict[Message, str], set[Run]]


def eventful(rng: random.Random, messages: int) -> Tables:
    """A night of `test_agreement` in which messages change their identity at times, and some have FinalAcks."""
    tables = night(rng, messages)
    streams = {row["stream_id"]: row for row in tables.rows["streams"]}
    for row in tables.rows["messages"]:
        source, number = row["source_queue_manager"], row["tx_sequence_number"]
        identity = row["tx_sequence_id"] * 31 + number
        other = rng.choice([1, 2]) if rng.random() < 0.1 else 0
        row["message_id"] = f"{source}\\{(identity + other) % (1 << 32)}"
        row["label"] = rng.choice(["a", "a", "a", "b"]) if rng.random() < 0.1 else "a"
        if rng.random() < 0.06 and row["captured_ns"] is not None:
            back = f"{streams[row['stream_id']]['connection_id']}<"
            tables.ack(
                back, row["captured_ns"] + rng.choice([0, 5_000, 10**10]), (row["tx_sequence_id"], number),
                ack_type="final_ack", source_guid=source, source_queue_manager=f"r{row['stream_id'].split('-')[0]}",
                message_class=rng.choice([0x4000, 0x8000, 0x8002, 0xC000, 0xC002]),
                acknowledged_message_id=row["message_id"],
            )  # fmt: skip
    return tables


def rows_of(verdicts: DataFrame) -> list[Row]:
    """The verdicts as the second computation reads them."""
    columns = [F.col(c).cast("string").alias(c) if c.endswith("sequence_id") else F.col(c) for c in READ]
    return verdicts.select(*columns).toArrow().to_pylist()  # type: ignore[no-any-return]


def on_spark(found: Outcomes) -> Found:
    """Outcomes on Spark in the form of the second computation."""
    messages: dict[Message, str] = {}
    runs: list[Run] = []
    for row in found.rows.withColumn("tx_sequence_id", F.col("tx_sequence_id").cast("string")).toArrow().to_pylist():
        slot = row["scope_key"], int(row["tx_sequence_id"]), row["tx_sequence_number"]
        if row["message_id"] is None:
            runs.append((*slot[:2], row["outcome"], slot[2], slot[2] + row["numbers"] - 1))
        else:
            messages[*slot, row["message_id"], row["content_hash"]] = row["outcome"]
    assert len(plain_outcomes.joined(runs)) == len(runs)  # numbers next to each other with one outcome are one row
    return messages, set(runs)


def cut_off(rows: list[Row]) -> list[tuple[str, int]]:
    """Some of the messages' keys, as if TCP had never acknowledged them."""
    return random.Random(9).sample([(row["stream_id"], row["stream_offset"]) for row in rows], len(rows) // 20)


def disagreements(rows: list[Row], found: Found) -> Iterator[tuple[Any, ...]]:
    """Where the two computations differ; a message that only the second names must be plainly delivered."""
    expected, expected_runs = plain_outcomes.outcomes(rows, set(cut_off(rows)))
    messages, runs = found
    for key in expected.keys() | messages.keys():
        if messages.get(key, "delivered") != expected.get(key):
            yield key, messages.get(key), expected.get(key)
    yield from ((*run, "on Spark alone") for run in runs - expected_runs)
    yield from ((*run, "not on Spark") for run in expected_runs - runs)


def law_broken(rows: list[Row], found: Outcomes) -> Iterator[tuple[Any, ...]]:
    """Scopes whose arrivals or slots do not add up."""
    expected = Counter(row["scope_key"] for row in rows)
    counted: Counter[str] = Counter()
    slots = {(row["scope_key"], int(row["tx_sequence_id"])): row for row in found.slots.collect()}
    unseen: Counter[tuple[str, int]] = Counter()
    for row in found.rows.collect():
        key, number = (row["scope_key"], int(row["tx_sequence_id"])), row["tx_sequence_number"]
        if row["outcome"] != Outcome.DELIVERED:
            counted[row["scope_key"]] += row["arrivals"]
        due = slots.get(key)
        if row["message_id"] is None and due and due["first_due"] <= number < due["first_due"] + due["slots"]:
            unseen[key] += row["numbers"]
    for row in found.counts.collect():
        counted[row["scope_key"]] += row["delivered_arrivals"]
    yield from ((key, counted[key], expected[key]) for key in expected if counted[key] != expected[key])
    for key, row in slots.items():
        if row["slots"] != row["slots_seen"] + unseen[key]:
            yield (*key, row["slots"], row["slots_seen"], unseen[key])


# --- scenes ---------------------------------------------------------------------------------------------------------

GAP, OTHER = "bytes are missing", "another receiver"
FIRST = (1, 0)


class Ack(NamedTuple):
    """An OrderAck that names a number."""

    number: int
    sequence: int = 1


class Final(NamedTuple):
    """A FinalAck of a class for the message with a number."""

    number: int
    message_class: int
    message: str = ""


class Sent(NamedTuple):
    """A message; `message` tells apart those that share a number; a `clone` has the same message ID."""

    number: int
    previous: int
    sequence: int = 1
    message: str = ""


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
    "passed by": ([FIRST, (3, 2), Sent(1, 0, 2, "new")], {2: "never_seen", 3: "passed_by"}),
    "passed by, or in the missing bytes": ([FIRST, (3, 2), GAP, Sent(1, 0, 2, "new")], {2: "unknown", 3: "unknown"}),
    "expired unseen": ([FIRST, (4, 1)], {2: "expired_unseen", 3: "expired_unseen"}),
    "expired or delivered earlier": ([(4, 0), (5, 4)], {}),
    "skipped above the state": (
        [FIRST, (5, 2)], {2: "awaited", 3: "expired_unseen", 4: "expired_unseen", 5: "pending"},
    ),
    "displaced": ([FIRST, (2, 1), Sent(2, 1, 1, "other")], {"2 other": "displaced"}),
    "displaced by its clone": ([FIRST, (2, 1), Sent(2, 1, 1, "clone"), Final(2, 0x4000)], {"2 clone": "displaced"}),
    "displaced before": ([FIRST, Sent(3, 2, 1, "other"), (2, 1), (3, 2)], {"3 other": "displaced"}),
    "delivered twice": ([FIRST, (2, 1), Sent(1, 0, 2, "2")], {"2": "delivered_twice", "1 of 2": "delivered_twice"}),
    "refused for cause": ([FIRST, (2, 1), Final(2, 0x8004)], {2: "refused_for_cause"}),
    "not read": ([FIRST, (2, 1), Final(2, 0xC002)], {2: "not_read"}),
    "read": ([FIRST, (2, 1), Final(2, 0x4000)], {}),
    "another message's FinalAck": ([FIRST, (2, 1), Final(2, 0x8004, "other")], {}),
    "refused, yet acknowledged": ([FIRST, (3, 2), Ack(3)], {2: "awaited", 3: "contradicted"}),
    "no state yet": ([(5, 4)], {5: "unknown"}),
    "no state yet, acknowledged": ([(5, 4), Ack(5)], {5: "delivered_by_acknowledgment"}),
    "no state yet, received": ([(5, 4), Final(5, 0x4000)], {5: "delivered_by_acknowledgment"}),
    "assumed": ([(7, 6), (8, 7), (9, 8)], {7: "unknown", 8: "unknown", 9: "unknown"}),
    "assumed, then acknowledged": ([(7, 6), Ack(7), (8, 7)], {7: "delivered_by_acknowledgment"}),
    "assumed, acknowledged below": ([(7, 6), Ack(6), (8, 7)], {7: "unknown", 8: "unknown"}),
    "assumed, then set": ([(7, 6), Sent(1, 0, 2), Sent(2, 1, 2)], {7: "unknown"}),
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
    "late for one of two receivers": ([(2, 0), (1, 0), OTHER, (3, 2)], {1: "unknown"}),
    "too early for both": ([FIRST, (3, 2), OTHER, Sent(1, 0, 2, "new")], {2: "never_seen", 3: "passed_by"}),
    "displaced at one of two receivers": ([FIRST, (2, 1), OTHER, Sent(2, 1, 1, "other")], {"2 other": "unknown"}),
}  # fmt: skip


CUT = [(f"{name}>", 20) for name in SCENES if name.startswith("captured, ")]
"""Keys of messages that TCP never acknowledged."""
KEY = "stream_id string, stream_offset bigint"


def staged(tables: Tables) -> None:
    """Put every scene on a connection of its own."""
    for name, (events, _) in SCENES.items():
        forth, back = f"{name}>", f"{name}<"
        tables.stream(forth, f"ip-{name}", "ip-receiver")
        tables.stream(back, "ip-receiver", f"ip-{name}")
        receivers = (str(guid(name)), str(guid(OTHER))) if OTHER in events else (f"to {name}",)
        for at, receiver in zip((name, f"{name}, {OTHER}"), receivers, strict=False):
            tables.handshake(at, f"from {name}", receiver)
        for i, event in enumerate(events, 1):
            ns = T0 + i * 1_000_000_000
            source = f"from {name}"
            if event == OTHER:
                forth = f"{name}, {OTHER}>"
                tables.stream(forth, f"ip-{name}", "ip-receiver")
                tables.stream(f"{name}, {OTHER}<", "ip-receiver", f"ip-{name}")
            elif isinstance(event, str):
                tables.rows["stream_gaps"].append({"stream_id": forth, "stream_offset": i * 10, "length": 1})
            elif isinstance(event, Ack):
                tables.ack(back, ns, (event.sequence, event.number), source_queue_manager=f"to {name}")
            elif isinstance(event, Final):
                tables.ack(
                    back, ns, (1, event.number), ack_type="final_ack", source_guid=source,
                    source_queue_manager=f"to {name}", message_class=event.message_class,
                    acknowledged_message_id=f"{source}\\{event.message or event.number}",
                )  # fmt: skip
            else:
                sent = event if isinstance(event, Sent) else Sent(*event)
                known_as = "" if sent.message == "clone" else sent.message
                message = f"{sent.number} other" if known_as == "other" else known_as or str(sent.number)
                tables.message(
                    (forth, i * 10), ns, (sent.sequence, sent.number, sent.previous), source_queue_manager=source,
                    message_id=f"{source}\\{message}", label="clone" if sent.message == "clone" else "",
                )  # fmt: skip


@pytest.fixture(scope="module")
def scenes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """The rows of `outcomes` of all scenes."""
    tables = Tables()
    staged(tables)
    result = replay(tables.on(spark, tmp_path_factory.mktemp("scenes")))
    found = derive_outcomes(result, spark.createDataFrame(CUT, KEY))
    return found.rows.where("outcome != 'delivered'").toArrow().to_pylist()  # type: ignore[no-any-return]


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
def verdicts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    tables = eventful(random.Random(5), 4_000)
    return replay(tables.on(spark, tmp_path_factory.mktemp("night")))


@pytest.fixture(scope="module")
def outcomes(verdicts: DataFrame) -> Outcomes:
    return derive_outcomes(verdicts)


def test_two_computations_agree(spark: SparkSession, verdicts: DataFrame) -> None:
    rows = rows_of(verdicts)
    found = derive_outcomes(verdicts, spark.createDataFrame(cut_off(rows), KEY))
    assert list(disagreements(rows, on_spark(found)))[:3] == []
    assert list(law_broken(rows, found))[:3] == []
    given = Counter(on_spark(found)[0].values()) + Counter(run[2] for run in on_spark(found)[1])
    assert set(given) == set(Outcome)


def test_unusual_arrivals_have_the_same_neighbours_as_among_all(
    spark: SparkSession, verdicts: DataFrame, outcomes: Outcomes
) -> None:
    watched = spark.createDataFrame(
        [], "session_id string, source_queue_manager string, watched_ns bigint, answers_whole boolean"
    )
    few, every = (
        {(row["scope_no"], row["replay_order"]): row for row in with_neighbours(verdicts, watched, unusual).collect()}
        for unusual in (outcomes.unusual, None)
    )
    assert 0 < len(few) < len(every) == verdicts.count()
    assert [(row, every[place]) for place, row in few.items() if row != every[place]][:3] == []


def test_the_second_computation_is_the_truth_of_simulated_nights() -> None:
    scopes, told, differences = night_outcomes.compare(range(2 * len(night_outcomes.SITUATIONS)))
    assert differences == []
    assert min(told, scopes) > 100


def test_counts_are_those_of_all_messages_and_numbers(verdicts: DataFrame, outcomes: Outcomes) -> None:
    messages, runs = plain_outcomes.outcomes(rows_of(verdicts))
    expected = Counter(messages.values())
    for *_, outcome, first, last in runs:
        expected[outcome] += last - first + 1
    (counts,) = outcomes.counts.agg(*(F.sum(count_column(one)).alias(one.value) for one in Outcome)).collect()
    assert counts.asDict() == dict(expected)


def test_verdicts_on_an_assumed_state_are_marked(verdicts: DataFrame) -> None:
    for rows in plain_outcomes.scopes_of(rows_of(verdicts)).values():
        ordered = sorted(rows, key=lambda row: row["replay_order"])
        covers = {row["covered_at"] for row in ordered if row["accepted"] is None}
        for row, expected in zip(ordered, plain_outcomes.assumed(ordered), strict=True):
            assert row["captured_at"] in covers or row["assumed"] == expected  # ns decide within a microsecond


def test_bytes_that_were_never_acknowledged(spark: SparkSession) -> None:
    streams = spark.createDataFrame(
        [
            ("closed", True, 150, 200, 0),  # stream, closed, acknowledged, recovered and missing bytes
            ("closed, the rest missing", True, 150, 150, 50),
            ("open", False, 150, 200, 0),
            ("no acknowledgment captured", True, None, 200, 0),
            ("all acknowledged", True, 200, 200, 0),
        ],
        "stream_id string, closed boolean, acked_bytes bigint, recovered_bytes bigint, missing_bytes bigint",
    )
    packets = streams.selectExpr("stream_id", "explode(array(0L, 100L, 150L)) AS stream_offset", "50L AS size")
    packets = packets.withColumn("size", F.when(F.col("stream_offset") == 0, 100).otherwise(60))
    found = {tuple(row) for row in unarrived(streams, packets).collect()}
    assert found == {(name, at) for name in ("closed", "closed, the rest missing") for at in (100, 150)}


def test_what_tcp_acknowledged() -> None:
    assert acked_bytes(Direction(isn=99)) is None
    assert acked_bytes(Direction(isn=99, acked=150, sent=200, done=100)) == 50
    assert acked_bytes(Direction(isn=99, acked=201, sent=200, fin=200, done=100)) == 100
    assert acked_bytes(Direction(first=100, acked=90, sent=200, done=100)) == 0


def differences(spark: SparkSession, tables: Tables, folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """Yields the outcomes and broken laws of a night that differ."""
    result = replay(tables.on(spark, folder))
    rows = rows_of(result)
    found = derive_outcomes(result, spark.createDataFrame(cut_off(rows), KEY))
    yield "outcomes", [*disagreements(rows, on_spark(found)), *law_broken(rows, found)]
    spark.catalog.clearCache()


if __name__ == "__main__":
    compare_nights(__doc__, eventful, 100_000, differences)
