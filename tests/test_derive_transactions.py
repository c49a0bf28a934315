"""How messages become transactions: by number within a scope, by message ID across scopes."""

from collections import defaultdict
from collections.abc import Iterable
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import plain_transactions
import polars as pl
import pyarrow as pa
import pytest
from replay_tables import T0, Tables, arrival, arrow, fates_of, replay

from jobs.engine.in_process import InProcess
from jobs.replaying.fates import find_transactions
from schemas.replay import VERDICTS
from udfs.derive.frames import to_arrow, to_frame
from udfs.derive.transactions.messages import ID, read_messages
from udfs.derive.transactions.whole import find_uses, whole_transactions

S1 = 1 << 63


class Part:
    """Adds what one sender sends to tables that others share."""

    def __init__(self, tables: Tables, name: str) -> None:
        self._tables, self._name = tables, name

    def stream(self, stream: str) -> None:
        """Adds a stream of the sender's."""
        self._tables.stream(f"{self._name}.{stream}", f"{self._name}.a", "b")

    def message(self, at: tuple[str, int], number: int, transaction: int, marks: tuple[bool, bool], **how: Any) -> None:
        """Adds a message that is first or last of its transaction as `marks` say."""
        stream, place = at
        columns: dict[str, Any] = {"tx_transaction_id": transaction, "tx_first": marks[0], "tx_last": marks[1]}
        columns["destination_queue"] = how.get("queue", "queue")
        columns["message_id"] = f"{self._name}\\{how.get('ordinal', number)}"
        key, ns = (f"{self._name}.{stream}", place), T0 + how.get("after", place)
        self._tables.message(key, ns, (S1, number, number - 1), source_queue_manager=self._name, **columns)


def used_again(part: Part) -> None:
    part.stream("0>")
    marks = ((True, False), (False, True), (True, False), (False, False), (True, True))
    for i, both in enumerate(marks):
        part.message(("0>", 2 * i), i + 1, 7, both, after=i)
    part.message(("0>", 3), 2, 7, (False, True), after=0)  # a resend


def torn_between_connections(part: Part) -> None:
    part.stream("0>")
    part.stream("1>")
    for i, (stream, transaction, *marks) in enumerate((("0>", 7, True, False), ("1>", 8, True, True))):
        part.message((stream, i), i + 1, transaction, (marks[0], marks[1]))
    part.message(("0>", 2), 3, 9, (False, True))


def interleaved_of_two_queues(part: Part) -> None:
    """A sender numbers its messages over all queues."""
    part.stream("0>")
    sent = (("a", 1, 7, True, False), ("a", 2, 8, True, True), ("a", 3, 7, False, False), ("b", 1, 9, True, True))
    for i, (queue, number, transaction, first, last) in enumerate((*sent, ("b", 2, 7, False, True))):
        part.message(("0>", i), number, transaction, (first, last), queue=queue, ordinal=i)


def parts_in_several_queues(part: Part) -> None:
    """Queue b's part, with LM, arrives before queue a's, with FM, and queue c has a message in the middle."""
    part.stream("0>")
    sent = (
        ("b", 1, 12, False, False),
        ("b", 2, 14, False, True),
        ("c", 1, 13, False, False),
        ("a", 1, 11, True, False),
    )
    for i, (queue, number, ordinal, first, last) in enumerate(sent):
        part.message(("0>", i), number, 7, (first, last), queue=queue, ordinal=ordinal)


def with_a_clone(part: Part) -> None:
    """A clone's message has number 2 of transaction 7; the first of transaction 8 is missing, so its last one waits."""
    part.stream("0>")
    sent = ((1, 7, True, False), (2, 9, True, True), (2, 7, False, False), (3, 7, False, True), (5, 8, False, True))
    for i, (number, transaction, first, last) in enumerate(sent):
        part.message(("0>", i), number, transaction, (first, last), ordinal=10 * transaction + number)


PARTS = (used_again, torn_between_connections, interleaved_of_two_queues, parts_in_several_queues, with_a_clone)
Row = Any
"""A row with its columns as attributes."""
Rows = dict[str, list[Row]]


class Replayed(NamedTuple):
    """Verdicts, and what follows from them."""

    verdicts: pl.DataFrame
    fates: pl.DataFrame
    transactions: pl.DataFrame


def derived(verdicts: pa.Table) -> Replayed:
    """Derives transactions from verdicts."""
    fates = fates_of(verdicts)
    transactions = find_transactions(InProcess(), verdicts, fates)
    return Replayed(to_frame(verdicts), to_frame(fates.of_messages), to_frame(transactions))


@pytest.fixture(scope="module")
def tables() -> Tables:
    """All parts, and random transactions."""
    tables = Tables()
    for play in PARTS:
        play(Part(tables, play.__name__))
    for seed in range(12):
        random_transactions(tables, seed)
    return tables


@pytest.fixture(scope="module")
def replayed(tables: Tables) -> Replayed:
    """What follows from the verdicts on all of them."""
    return derived(replay(tables.sources()).verdicts)


@pytest.fixture(scope="module")
def rows(replayed: Replayed) -> Rows:
    """The transactions by sender."""
    found: Rows = defaultdict(list)
    for row in replayed.transactions.sort("tx_transaction_id", "instance").to_dicts():
        found[row["source_queue_manager"]].append(SimpleNamespace(**row))
    return found


def witnesses(rows: Iterable[Row]) -> list[list[str]]:
    """Returns the witness of each row, without the names of parts."""
    return [[key.partition(".")[2] for key in row.witness] for row in rows]


def test_a_transaction_id_is_used_again_and_a_torn_one_flagged(rows: Rows) -> None:
    found = rows["used_again"]
    assert [(row.instance, row.messages, row.accepted, row.torn) for row in found] == [
        (1, 2, 2, False),
        (2, 2, 2, True),  # its LM was not seen
        (3, 1, 1, False),
    ]
    assert [row.first_message_id for row in found] == [f"used_again\\{first}" for first in (1, 3, 5)]
    # the message behind the second is another transaction's
    assert witnesses(found) == [["0>@0", "0>@2"], ["0>@4", "0>@6", "0>@8"], ["0>@8"]]
    assert {row.scope_key for row in found} == {"queue used_again queue"}
    assert {int(row.tx_sequence_id) for row in found} == {S1}


def test_a_transaction_torn_between_connections_names_its_neighbours_there(rows: Rows) -> None:
    found = rows["torn_between_connections"]
    assert [row.torn_by_sender for row in found] == [True, False, True]
    assert witnesses(found) == [["0>@0", "1>@1"], ["1>@1"], ["0>@2", "1>@1"]]


def test_an_interleaved_transaction_of_two_queues_names_what_is_between(rows: Rows) -> None:
    found = rows["interleaved_of_two_queues"]
    assert [row.interleaved for row in found] == [True, False, False]
    assert witnesses(found) == [["0>@0", "0>@4", "0>@1"], ["0>@1"], ["0>@3"]]


def test_parts_of_a_transaction_in_several_queues_follow_one_another_by_message_id(rows: Rows) -> None:
    (row,) = rows["parts_in_several_queues"]
    assert (row.messages, row.torn) == (4, False)
    assert row.first_message_id == "parts_in_several_queues\\11"


def test_what_became_of_the_messages_of_a_transaction(rows: Rows) -> None:
    found = rows["with_a_clone"]
    assert [(row.messages, row.accepted, row.lost, row.pending, row.partly_delivered) for row in found] == [
        (3, 2, 1, 0, True),
        (1, 0, 0, 1, False),
        (1, 1, 0, 0, False),
    ]
    assert not any(row.interleaved for row in found)


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
    expected = plain_transactions.transactions(replayed.verdicts.to_dicts(), replayed.fates.to_dicts())
    key = ("source_queue_manager", "tx_transaction_id", "instance")
    found = {
        tuple(row.pop(name) for name in key): row
        for row in replayed.transactions.drop("tx_sequence").iter_rows(named=True)
    }
    assert len(found) == len(replayed.transactions)
    return [
        (one, found.get(one), expected.get(one))
        for one in found.keys() | expected.keys()
        if found.get(one) != expected.get(one)
    ]


def test_two_computations_agree(replayed: Replayed) -> None:
    assert differing(replayed)[:1] == []
    assert {*replayed.transactions["torn_by_sender"]} == {True, False, None}
    assert {*replayed.transactions["interleaved"]} == {True, False}
    assert 0 < replayed.transactions["partly_delivered"].sum() < replayed.transactions["torn"].sum()
    assert replayed.transactions["tx_sequence"].unique().sort().to_list() == [
        "2038-01-19T03:14:08Z#0",
        "2038-01-19T03:14:08Z#1",
    ]


@pytest.mark.parametrize("column", ["tx_transaction_id", "tx_first", "tx_last", "captured_at", "destination_queue"])
def test_two_computations_agree_where_something_is_unknown(replayed: Replayed, column: str) -> None:
    known = pl.int_range(pl.len()) % 7 != 0
    rows = to_arrow(replayed.verdicts.with_columns(pl.when(known).then(column)))
    assert differing(derived(rows))[:1] == []


def test_most_whole_transactions_are_not_assembled(replayed: Replayed) -> None:
    """What they cost follows disorder."""
    messages, none = read_messages(replayed.verdicts), replayed.verdicts.clear()
    uses = find_uses(messages, none.select("scope_key", sequence=pl.lit(0, pl.Int64), number="tx_sequence_number"))
    whole = whole_transactions(uses)
    assert 25 < len(whole) < len(replayed.transactions) - 25
    same = (*ID, "instance")
    assert whole.join(replayed.transactions, on=same, how="anti").is_empty()
    assert 2 in uses.filter("all_whole")["instance"]


# --- verdicts as literals -------------------------------------------------------------------------------------------

WHOLE = {"tx_transaction_id": 7, "tx_first": True, "tx_last": True}
LAST = {"tx_transaction_id": 7, "tx_first": False, "tx_last": True}
ELSEWHERE = {"scope_key": "queue s r", "stream_id": "b>", "content_hash": 2}


def transactions(*rows: dict[str, Any]) -> list[Row]:
    """The transactions of verdicts, on which the two computations agree."""
    replayed = derived(arrow(VERDICTS, rows))
    assert differing(replayed) == []
    return [SimpleNamespace(**row) for row in replayed.transactions.sort(ID).to_dicts()]


def test_the_number_before_is_a_neighbour_in_its_own_scope_only() -> None:
    other = WHOLE | {"tx_transaction_id": 8}
    for where, shown in ((ELSEWHERE, ["b>@10"]), ({}, ["a>@10", "a>@0"])):
        row, _ = transactions(arrival(0, 1, **other), arrival(1, 2, **LAST, **where))
        assert (row.torn, row.torn_by_sender, row.witness) == (True, True if where == {} else None, shown)


def test_whole_transactions_with_one_message_id_in_two_scopes_follow_one_another() -> None:
    ids = range(2, 22)
    here = (arrival(i, i, **WHOLE | {"tx_transaction_id": i}) for i in ids)
    there = (arrival(i, i, **WHOLE | {"tx_transaction_id": i}, **ELSEWHERE) for i in ids)
    rows = transactions(*here, *there)
    scopes = ((1, "queue s q"), (2, "queue s r"))
    assert sorted((row.tx_transaction_id, row.instance, row.scope_key) for row in rows) == [
        (i, *scope) for i in ids for scope in scopes
    ]


def test_messages_of_one_number_and_content_are_told_apart_by_their_ids() -> None:
    other = {"message_id": "s\\9", "accepted": False, "verdict": "duplicate", "incoming_tx_sequence_number": 2}
    rows = transactions(
        arrival(1, 1), arrival(2, 2, **WHOLE), arrival(3, 2, **WHOLE | {"tx_transaction_id": 8}, **other)
    )
    assert [(row.tx_transaction_id, row.accepted, row.lost) for row in rows] == [(7, 1, 0), (8, 0, 1)]
