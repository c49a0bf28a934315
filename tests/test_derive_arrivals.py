"""Arrivals that a rule on messages may concern: which ones, and what they are compared with.

tests/test_all_findings.py holds what rules make of them to the second computation.
"""

import random
from collections import defaultdict
from typing import Any

import plain_arrivals
import polars as pl
import pytest
from gold_rows import plain
from random_troubles import troubled
from replay_tables import T0, arrival, frame, replay
from test_findings import played

from schemas.judging import RESUMED
from schemas.replay import VERDICTS
from schemas.wire import LATEST_ORDER_ACK_MS
from udfs.derive.columns import signed
from udfs.derive.facts.arrivals import arrivals_to_look_at
from udfs.derive.frames import to_frame
from udfs.replay.findings.finding import Arrival

Row = dict[str, Any]
SECOND, SECOND_US = 1_000_000_000, 1_000_000
ID = (1 << 63) + 5  # a TxSequenceID that no signed number holds
WATCHED = {"session_id": pl.String, "source_queue_manager": pl.String, "watched_ns": pl.Int64}
FATES = {
    "scope_key": pl.String,
    "tx_sequence_id": pl.UInt64,
    "tx_sequence_number": pl.Int64,
    "source_queue_manager": pl.String,
    "message_id": pl.String,
    "content_hash": pl.Int64,
    "fate": pl.String,
}


def verdict(order: int, number: int, **columns: Any) -> Row:
    """A plain arrival, acknowledged at once, unless `columns` say otherwise; times are in us."""
    at = T0 // 1000 + order * SECOND_US
    plain = {"captured_at": at, "captured_ns": at * 1000, "acknowledged_at": at, "ack_latency_ms": 0.0}
    plain |= {"tx_sequence_id": ID, "incoming_tx_sequence_id": ID, "content_hash": number}
    return arrival(order, number, **plain | columns)


def slots_of(verdicts: pl.DataFrame) -> pl.DataFrame:
    return verdicts.select(
        "scope_key", signed(pl.col("tx_sequence_id")).alias("sequence"), number="tx_sequence_number"
    ).unique()


def arrivals(verdicts: pl.DataFrame, slots: pl.DataFrame, *watched: tuple[Any, ...]) -> list[Arrival]:
    """The arrivals to look at, by scope and order."""
    sessions = pl.DataFrame(watched, WATCHED | {"answers_whole": pl.Boolean}, orient="row")
    found = arrivals_to_look_at(verdicts, sessions, slots, pl.DataFrame(schema=FATES), to_frame(RESUMED.empty_table()))
    assert found.columns == list(Arrival._fields)
    return [Arrival(*one) for one in found.sort("scope_no", "replay_order").iter_rows()]


# --- which arrivals -------------------------------------------------------------------------------------------------

LATE = {"acknowledged_at": T0 // 1000 + 60 * SECOND_US, "ack_latency_ms": LATEST_ORDER_ACK_MS + 1.0}
MISSING = {"acknowledged_at": None, "ack_latency_ms": None}
LONG_ENOUGH = 2 * SECOND + (LATEST_ORDER_ACK_MS + 1) * 1_000_000


@pytest.mark.parametrize(
    ("columns", "watched", "is_looked_at"),
    [
        ({}, (LONG_ENOUGH, True), False),
        (LATE, (0, True), True),
        (LATE | {"ack_latency_ms": float(LATEST_ORDER_ACK_MS)}, (0, True), False),
        (LATE | {"ack_latency_ms": None}, (0, True), False),
        (LATE, (0, False), False),
        (LATE, None, False),
        (MISSING, (LONG_ENOUGH, True), True),
        (MISSING, (LONG_ENOUGH - 1_000_000, True), False),  # the answer was not due when the capture ended
        (MISSING, (LONG_ENOUGH, False), False),
        (MISSING, (None, True), False),
        (MISSING | {"captured_ns": None}, (LONG_ENOUGH, True), False),
        (MISSING | {"accepted": False}, (LONG_ENOUGH, True), False),
        (MISSING | {"accepted": None}, (LONG_ENOUGH, True), False),
    ],
)
def test_a_plain_arrival_is_looked_at_for_its_acknowledgment(
    columns: Row, watched: tuple[int | None, bool] | None, is_looked_at: bool
) -> None:
    sessions = [] if watched is None else [("a->b", "s", watched[0] and T0 + watched[0], watched[1])]
    rows = frame(VERDICTS, [verdict(1, 1), verdict(2, 2, **columns)])
    found = arrivals(rows, slots_of(rows.clear()), *sessions)
    assert [one.replay_order for one in found] == [2] * is_looked_at
    assert all((one.setter, one.is_below_accepted) == (1, False) for one in found)  # the one before was plain
    assert [(one.watched_ns, one.answers_whole) for one in found] == [one[2:] for one in sessions] * is_looked_at


# --- what they are compared with ------------------------------------------------------------------------------------


def alike(rows: list[Arrival]) -> list[str]:
    """The arrivals without numbers that stand for names."""
    return sorted(repr(one._replace(scope_no=0, cause=None)) for one in rows)


@pytest.mark.parametrize("seed", range(3))
def test_neighbours_are_those_of_a_second_computation(seed: int) -> None:
    histories = troubled(random.Random(seed), 500), played()[0]
    judged = [replay(tables.sources()).verdicts for tables in histories]
    scopes = defaultdict(list)
    for one in (row for rows in judged for row in plain(rows)):
        scopes[one["scope_key"]].append(one)
    second = [one for of_scope in scopes.values() for one in plain_arrivals.arrivals_of_scope(of_scope)]
    verdicts = pl.concat(judged)
    every = arrivals(verdicts, slots_of(verdicts))
    assert alike(every) == alike(second)
    assert sum(one.is_sent_after_all_accepted for one in every) > 0
    assert sum(one.interval_s is not None for one in every) > 0
    few = arrivals(verdicts, slots_of(verdicts.filter(pl.col("verdict") != "in_order")))
    assert 0 < len(few) < len(every)
    assert set(few) < set(every)  # unusual arrivals have the same neighbours as among all


def test_a_place_without_a_state_is_below_all() -> None:
    unknown = {"tx_sequence_id": 0, "incoming_tx_sequence_id": None, "incoming_tx_sequence_number": None}
    rows = frame(VERDICTS, [verdict(1, 0, **unknown, accepted=False), verdict(3, 0, **unknown)])
    first, second = arrivals(rows, slots_of(rows))
    assert (first.setter, first.is_below_accepted) == (None, None)
    assert (second.setter, second.is_below_accepted) == (2, False)
