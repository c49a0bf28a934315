"""How messages become transactions: by number within a scope, by message ID across scopes."""

from random import Random
from typing import Any

import plain_transactions
import polars as pl
import pytest
from night_truth import SITUATIONS, told
from plain_message_findings import fates
from random_troubles import troubled
from replay_tables import Replayed, Tables, replay
from tiers import merge_needs, seeds

from udfs.replay.content import MESSAGE
from udfs.replay.outcomes.plain import SLOT


@pytest.fixture(scope="module")
def tables() -> Tables:
    return troubled(Random(3), 1_000)


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


UNKNOWN = ("tx_transaction_id", "tx_first", "tx_last", "captured_at", "destination_queue")


@pytest.mark.parametrize("column", merge_needs(["tx_last"], UNKNOWN))
def test_two_computations_agree_where_something_is_unknown(tables: Tables, column: str) -> None:
    unknown = Tables()
    messages = [row | ({} if at % 7 else {column: None}) for at, row in enumerate(tables.rows["messages"])]
    unknown.rows |= tables.rows | {"messages": messages}
    assert differing(replay(unknown.sources())) == []


@pytest.fixture(scope="module")
def morning() -> Replayed:
    """The demonstration, in which a clone uses numbers and transaction IDs of its original."""
    return told(1, "both").replayed


def sums(replayed: Replayed) -> tuple[dict[str, int], dict[str, int]]:
    """What became of the messages that carry a transaction: by `outcomes`, and by `transactions`."""
    carrying = replayed.verdicts.drop_nulls("tx_transaction_id").select(*SLOT, *MESSAGE).unique()
    outcomes = replayed.outcomes.filter(pl.col("arrivals") > 0).join(carrying, [*SLOT, *MESSAGE], "semi")
    of_messages = {
        "messages": carrying.height,
        "lost": int(outcomes["lost"].sum()),
        "pending": int((outcomes["outcome"] == "pending").sum()),
    }
    of_table = replayed.transactions.rename({"lost_messages": "lost"})
    return of_messages, {name: int(of_table[name].sum()) for name in of_messages}


def test_transactions_of_the_demonstration_add_up_to_its_messages(morning: Replayed) -> None:
    of_messages, of_transactions = sums(morning)
    assert of_transactions == of_messages
    assert of_messages["lost"] == 21


@pytest.mark.parametrize("seed", seeds([5], range(30)))
def test_transactions_add_up_to_the_messages_that_carry_one(seed: int) -> None:
    of_messages, of_transactions = sums(told(seed, **SITUATIONS[1]).replayed)
    assert of_transactions == of_messages


def test_transactions_of_a_clone_and_its_original_under_one_id_are_apart(morning: Replayed) -> None:
    """Order 162142, of the clone, is displaced; 038276 ends its transaction; 574426 was a transaction by itself."""
    orders = ["West order 162142", "West order 038276", "West order 574426"]
    first, last, alone = (morning.verdicts.filter(pl.col("label") == order).row(0, named=True) for order in orders)
    keys = [f"{row['stream_id']}@{row['stream_offset']}" for row in (first, last, alone)]
    rows = [row for row in morning.transactions.to_dicts() if {*keys} & {*row["witness_keys"]}]
    names = "messages", "lost_messages", "partly_delivered", "torn"
    assert {tuple(row["witness_keys"]): tuple(row[name] for name in names) for row in rows} == {
        tuple(keys[:2]): (2, 1, True, False),
        (keys[2],): (1, 1, False, False),
    }


def test_a_message_key_tells_messages_apart_where_two_machines_use_one_identity(morning: Replayed) -> None:
    """621 message IDs stand for 668 messages, of which the key is one in all tables."""
    messages = morning.verdicts.select(*MESSAGE, "message_key").unique()
    assert messages["message_id"].n_unique() == 621
    assert messages["message_key"].n_unique() == messages.height == 668
    of_outcomes = morning.outcomes.drop_nulls("message_id")
    assert of_outcomes.join(messages, on=[*MESSAGE, "message_key"], how="anti").is_empty()
    assert morning.outcomes.filter(pl.col("message_id").is_null())["message_key"].null_count() > 0
    first = messages.select(first_message_id="message_id", message_key="message_key")
    assert morning.transactions.join(first, on=["first_message_id", "message_key"], how="anti").is_empty()
