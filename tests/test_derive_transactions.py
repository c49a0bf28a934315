"""How messages become transactions: by number within a scope, by message ID across scopes."""

from random import Random
from typing import Any

import plain_transactions
import pytest
from plain_message_findings import fates
from replay_tables import T0, Replayed, Tables, replay

S1 = 1 << 63


@pytest.fixture(scope="module")
def tables() -> Tables:
    tables = Tables()
    for seed in range(12):
        random_transactions(tables, seed)
    return tables


@pytest.fixture(scope="module")
def replayed(tables: Tables) -> Replayed:
    return replay(tables.sources())


def random_transactions(tables: Tables, seed: int) -> None:
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


def differing(replayed: Replayed) -> list[Any]:
    """The transactions of which the two computations differ."""
    expected = plain_transactions.transactions(replayed.verdicts.to_dicts(), fates(replayed.outcomes.to_dicts()))
    key = ("source_queue_manager", "tx_transaction_id", "instance")
    found = {
        tuple(row.pop(name) for name in key): row
        for row in replayed.transactions.drop("tx_sequence").iter_rows(named=True)
    }
    assert len(found) == len(replayed.transactions)
    return [one for one in found.keys() | expected.keys() if found.get(one) != expected.get(one)]


def test_two_computations_agree(replayed: Replayed) -> None:
    assert differing(replayed) == []
    assert {*replayed.transactions["torn_by_sender"]} == {True, False, None}
    assert 0 < replayed.transactions["partly_delivered"].sum() < replayed.transactions["torn"].sum()
    assert sorted({*replayed.transactions["tx_sequence"]}) == [f"2038-01-19T03:14:08Z#{at}" for at in (0, 1)]


@pytest.mark.parametrize("column", ["tx_transaction_id", "tx_first", "tx_last", "captured_at", "destination_queue"])
def test_two_computations_agree_where_something_is_unknown(tables: Tables, column: str) -> None:
    unknown = Tables()
    messages = [row | ({} if at % 7 else {column: None}) for at, row in enumerate(tables.rows["messages"])]
    unknown.rows |= tables.rows | {"messages": messages}
    assert differing(replay(unknown.sources())) == []
