"""How messages become transactions: by number within a scope, by message ID across scopes."""

from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession
from replay_tables import T0, Tables, replay, transactions

from jobs.steps.replay import derive_outcomes, derive_transactions
from jobs.transforms.outcomes.rows import message_fates
from jobs.transforms.summaries.whole_transactions import find_uses, whole_transactions
from jobs.warehouse.checkpoint import materialize
from schemas.replay import TRANSACTIONS

S1 = 1 << 63


def test_a_transaction_id_is_used_again_and_a_torn_one_flagged(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables()
    tables.stream("0>", "a", "b")
    marks = ((True, False), (False, True), (True, False), (False, False), (True, True))
    for i, (first, last) in enumerate(marks):
        tables.message(("0>", 2 * i), T0 + i, (S1, i + 1, i), tx_first=first, tx_last=last, tx_transaction_id=7)
    tables.message(("0>", 3), T0, (S1, 2, 1), tx_first=False, tx_last=True, tx_transaction_id=7)  # a resend
    rows = transactions(replay(tables.on(spark, tmp_path))).orderBy("instance").collect()
    assert [(row.instance, row.messages, row.accepted, row.torn) for row in rows] == [
        (1, 2, 2, False),
        (2, 2, 2, True),  # its LM was not seen
        (3, 1, 1, False),
    ]
    assert [(row.first_message_id, row.last_message_id, row.witness) for row in rows] == [
        ("source\\1", "source\\2", ["0>@0", "0>@2"]),
        ("source\\3", "source\\4", ["0>@4", "0>@6", "0>@8"]),  # the message behind is another transaction's
        ("source\\5", "source\\5", ["0>@8"]),
    ]
    assert {row.scope_key for row in rows} == {"queue source queue"}
    assert {int(row.tx_sequence_id) for row in rows} == {S1}


def test_a_transaction_torn_between_connections_names_its_neighbours_there(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables()
    marks = (("0>", 7, True, False), ("1>", 8, True, True), ("0>", 9, False, True))
    for i, (stream, transaction, first, last) in enumerate(marks):
        if i < 2:
            tables.stream(stream, "a", "b")
        columns = {"tx_first": first, "tx_last": last, "tx_transaction_id": transaction}
        tables.message((stream, i), T0 + i, (S1, i + 1, i), **columns)
    rows = transactions(replay(tables.on(spark, tmp_path))).orderBy("tx_transaction_id").collect()
    assert [(row.torn_by_sender, row.witness) for row in rows] == [
        (True, ["0>@0", "1>@1"]),
        (False, ["1>@1"]),
        (True, ["0>@2", "1>@1"]),
    ]


def test_an_interleaved_transaction_of_two_queues_names_what_is_between(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables()
    tables.stream("0>", "a", "b")
    marks = (("a", 1, 7, True, False), ("a", 2, 8, True, True), ("a", 3, 7, False, False), ("b", 1, 9, True, True))
    for i, (queue, number, transaction, first, last) in enumerate((*marks, ("b", 2, 7, False, True))):
        columns: dict[str, Any] = {"destination_queue": queue, "tx_first": first, "tx_last": last}
        columns["tx_transaction_id"] = transaction
        columns["message_id"] = f"source\\{i}"  # a sender numbers its messages over all queues
        tables.message(("0>", i), T0 + i, (S1, number, number - 1), **columns)
    rows = transactions(replay(tables.on(spark, tmp_path))).orderBy("tx_transaction_id").collect()
    assert [(row.interleaved, row.witness) for row in rows] == [
        (True, ["0>@0", "0>@4", "0>@1"]),
        (False, ["0>@1"]),
        (False, ["0>@3"]),
    ]


def test_parts_of_a_transaction_in_several_queues_follow_one_another_by_message_id(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Queue b's part, with LM, arrives before queue a's, with FM, and queue c has a message in the middle."""
    tables = Tables()
    tables.stream("0>", "a", "b")
    parts = (
        ("b", 1, 12, False, False),
        ("b", 2, 14, False, True),
        ("c", 1, 13, False, False),
        ("a", 1, 11, True, False),
    )
    for i, (queue, number, ordinal, first, last) in enumerate(parts):
        columns: dict[str, Any] = {"destination_queue": queue, "message_id": f"source\\{ordinal}"}
        columns |= {"tx_first": first, "tx_last": last, "tx_transaction_id": 7}
        tables.message(("0>", i), T0 + i, (S1, number, number - 1), **columns)
    (row,) = transactions(replay(tables.on(spark, tmp_path))).collect()
    assert (row.messages, row.torn, row.first_message_id, row.last_message_id) == (4, False, "source\\11", "source\\14")


def test_what_became_of_the_messages_of_a_transaction(spark: SparkSession, tmp_path: Path) -> None:
    """A clone's message has number 2 of transaction 7; the first of transaction 8 is missing, so its last one waits."""
    tables = Tables()
    tables.stream("0>", "a", "b")
    sent = ((1, 7, True, False), (2, 9, True, True), (2, 7, False, False), (3, 7, False, True), (5, 8, False, True))
    for i, (number, transaction, first, last) in enumerate(sent):
        columns: dict[str, Any] = {"tx_first": first, "tx_last": last, "tx_transaction_id": transaction}
        columns["message_id"] = f"source\\{10 * transaction + number}"
        tables.message(("0>", i), T0 + i, (S1, number, number - 1), **columns)
    rows = transactions(replay(tables.on(spark, tmp_path))).orderBy("tx_transaction_id").collect()
    assert [(row.messages, row.accepted, row.lost, row.pending, row.partly_delivered) for row in rows] == [
        (3, 2, 1, 0, True),
        (1, 0, 0, 1, False),
        (1, 1, 0, 0, False),
    ]
    assert not any(row.interleaved for row in rows)


def _random_transactions(tables: Tables, seed: int) -> None:
    """Adds what a sender sends to two queues, over a connection that changes at times, with all kinds of trouble.

    Messages to both may have one message ID, and either one sequence or two.
    """
    random = Random(seed)
    source, numbers, ordinal, connection = f"source{seed}", {"a": 0, "b": 0}, 0, 0
    before: dict[str, int] = {"a": 0, "b": 0}
    arrivals: list[tuple[str, tuple[int, int, int], dict[str, Any]]] = []
    for _ in range(40):
        queues = random.choice((("a",), ("a",), ("b",), ("a", "b")))
        length = random.choice((1, 1, 2, 3, 4))
        transaction, cut = random.randrange(1, 60), random.random() < 0.05
        for i in range(length):
            queue = random.choice(queues)
            numbers[queue] += 1
            ordinal += random.choice((1, 1, 1, 2, 0, -1))
            columns: dict[str, Any] = {
                "tx_first": i == 0 and not cut,
                "tx_last": i == length - 1,
                "tx_transaction_id": transaction,
            }
            if random.random() < 0.03:
                columns["tx_transaction_id"] = random.randrange(1, 60)
            columns |= {
                "destination_queue": queue,
                "message_id": f"{source}\\{ordinal}",
                "label": f"{queue}{numbers[queue]}",
            }
            if random.random() < 0.04:  # it expires before it is sent, and its number is skipped
                continue
            sequence = S1 + seed % 2 * (queue == "b")
            arrivals.append((queue, (sequence, numbers[queue], before[queue]), columns))
            before[queue] = numbers[queue]
    for i in range(len(arrivals) - 1, -1, -1):
        trouble = random.random()
        if trouble < 0.03:
            arrivals.insert(i, arrivals[i])
        elif trouble < 0.06:
            arrivals.insert(min(i + random.randrange(4), len(arrivals) - 1), arrivals.pop(i))
        elif trouble < 0.08:
            del arrivals[i]
    for i, (_, tx, columns) in enumerate(arrivals):
        if i % 50 == 0:
            connection += 1
            tables.stream(f"{seed}.{connection}>", f"a{seed}", "b")
        named = columns | {"source_queue_manager": source}
        tables.message((f"{seed}.{connection}>", i), T0 + i, tx, **named)


def test_an_aggregate_finds_the_same_transactions_as_windows(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables()
    for seed in range(12):
        _random_transactions(tables, seed)
    result = replay(tables.on(spark, tmp_path))
    outcomes = derive_outcomes(result)
    fates = materialize(message_fates(outcomes.rows))
    found, expected = (
        derive_transactions(result, outcomes, fates, aggregated=aggregated).orderBy(*TRANSACTIONS.key).collect()
        for aggregated in (True, False)
    )
    assert found == expected
    assert outcomes.unusual is not None
    whole = whole_transactions(find_uses(result, outcomes.unusual)).count()
    assert 25 < whole < len(expected) - 25
    assert {row.torn_by_sender for row in expected} == {True, False, None}
    assert {row.interleaved for row in expected} == {True, False}
