"""How messages become transactions: by number within a scope, by message ID across scopes."""

from random import Random
from typing import Any

import plain_transactions
import polars as pl
import pytest
from plain_message_findings import fates
from random_troubles import troubled
from replay_tables import Replayed, Tables, replay


@pytest.fixture(scope="module")
def tables() -> Tables:
    return troubled(Random(3), 2_000)


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


def test_two_computations_agree(tables: Tables) -> None:
    replayed = replay(tables.sources())
    assert differing(replayed) == []
    assert {*replayed.transactions["torn_by_sender"]} == {True, False, None}
    assert 0 < replayed.transactions["partly_delivered"].sum() < replayed.transactions["torn"].sum()
    named = replayed.transactions.filter(pl.col("tx_sequence_id") == (1 << 63) - 2)["tx_sequence"]
    assert {*named} == {"2038-01-19T03:14:07Z#4294967294"}


@pytest.mark.parametrize("column", ["tx_transaction_id", "tx_first", "tx_last", "captured_at", "destination_queue"])
def test_two_computations_agree_where_something_is_unknown(tables: Tables, column: str) -> None:
    unknown = Tables()
    messages = [row | ({} if at % 7 else {column: None}) for at, row in enumerate(tables.rows["messages"])]
    unknown.rows |= tables.rows | {"messages": messages}
    assert differing(replay(unknown.sources())) == []
