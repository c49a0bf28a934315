"""Arrivals that a rule on messages may concern: which ones, and what they are compared with.

tests/test_all_findings.py holds what rules make of them to the second computation.
"""

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import plain_arrivals
import polars as pl
import pyarrow as pa
import pytest

from schemas.replay import VERDICTS
from schemas.table import row
from schemas.wire import LATEST_ORDER_ACK_MS
from udfs.derive.facts.arrivals import arrivals_to_look_at
from udfs.derive.frames import to_frame
from udfs.replay.findings.finding import Arrival

Row = dict[str, Any]
START = datetime(2026, 3, 2, 8, tzinfo=UTC)
START_NS = int(START.timestamp()) * 1_000_000_000
SECOND = 1_000_000_000
ID = (1 << 63) + 5  # a TxSequenceID that no signed number holds
WATCHED = pl.Schema(
    {
        "session_id": pl.String,
        "source_queue_manager": pl.String,
        "watched_ns": pl.Int64,
        "answers_whole": pl.Boolean,
    }
)
SLOTS = pl.Schema({"scope_key": pl.String, "sequence": pl.Int64, "number": pl.Int64})
FATES = pl.Schema(
    {
        "scope_key": pl.String,
        "tx_sequence_id": pl.UInt64,
        "tx_sequence_number": pl.Int64,
        "source_queue_manager": pl.String,
        "message_id": pl.String,
        "content_hash": pl.Int64,
        "fate": pl.String,
    }
)
NOTHING = pl.DataFrame(schema=WATCHED)


def verdict(order: int, number: int, **columns: Any) -> Row:
    """A plain arrival, acknowledged at once, unless `columns` say otherwise."""
    at = START + timedelta(seconds=order)
    named = {
        "scope_key": "scope",
        "session_id": "a->b",
        "stream_id": "a>b",
        "stream_offset": 100 * order,
        "source_queue_manager": "a",
        "destination_queue": "queue",
        "message_id": rf"a\{number}",
        "content_hash": number,
        "captured_at": at,
        "captured_ns": START_NS + order * SECOND,
        "tx_sequence_id": ID,
        "tx_sequence_number": number,
        "previous_tx_sequence_number": number - 1,
        "incoming_tx_sequence_id": ID,
        "incoming_tx_sequence_number": number - 1,
        "replay_order": order,
        "accepted": True,
        "verdict": "in_order",
        "evidence": "confirmed",
        "gap_size": 0,
        "acknowledged_at": at,
        "ack_latency_ms": 0.0,
    }
    return named | columns


def verdicts(*rows: Row) -> pl.DataFrame:
    return to_frame(pa.Table.from_pylist(list(rows), row(**{c.name: c.type for c in VERDICTS})))


def slots_of(rows: list[Row]) -> pl.DataFrame:
    places = {(one["scope_key"], one["tx_sequence_id"] - (1 << 63), one["tx_sequence_number"]) for one in rows}
    return pl.DataFrame(list(places), SLOTS, orient="row")


def arrivals(rows: list[Row], slots: pl.DataFrame | None = None, watched: pl.DataFrame = NOTHING) -> list[Arrival]:
    """The arrivals to look at, by scope and order; all of them without `slots`."""
    of_all = slots_of(rows) if slots is None else slots
    found = arrivals_to_look_at(verdicts(*rows), watched, of_all, pl.DataFrame(schema=FATES))
    assert found.columns == list(Arrival._fields)
    return [Arrival(*one) for one in found.sort("scope_no", "replay_order").iter_rows()]


# --- which arrivals -------------------------------------------------------------------------------------------------

LATE = {"acknowledged_at": START + timedelta(minutes=1), "ack_latency_ms": LATEST_ORDER_ACK_MS + 1.0}
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
    sessions = [] if watched is None else [("a->b", "a", watched[0] and START_NS + watched[0], watched[1])]
    rows = [verdict(1, 1), verdict(2, 2, **columns)]
    found = arrivals(rows, pl.DataFrame(schema=SLOTS), pl.DataFrame(sessions, WATCHED, orient="row"))
    assert [one.replay_order for one in found] == [2] * is_looked_at
    assert all((one.setter, one.is_below_accepted) == (1, False) for one in found)  # the one before was plain
    assert [(one.watched_ns, one.answers_whole) for one in found] == [one[2:] for one in sessions] * is_looked_at


# --- what they are compared with ------------------------------------------------------------------------------------


def night(rng: random.Random, scopes: int, count: int) -> tuple[list[Row], list[Row]]:
    """Verdicts that follow from each other as in a replay, in no order, and those of them that are not plain."""
    rows, unusual = [], []
    for scope in range(scopes):
        state: tuple[int, int] | None = None
        seen: list[Row] = []
        for order in range(1, count + 1):
            made = _next_arrival(rng, order, state, seen)
            made["scope_key"], made["session_id"] = f"scope {scope}", f"a{scope}->b"
            if made["verdict"] != "in_order":
                unusual.append(made)
            if made["accepted"] is not False:
                state = made["tx_sequence_id"], made["tx_sequence_number"]
            seen.append(made)
        rows += seen
    return rng.sample(rows, len(rows)), unusual


def _next_arrival(rng: random.Random, order: int, state: tuple[int, int] | None, seen: list[Row]) -> Row:
    sequence, number = state or (ID, 0)
    before = {"incoming_tx_sequence_id": state and sequence, "incoming_tx_sequence_number": state and number}
    kind = rng.choice(["plain"] * 12 + ["gap", "again", "again", "other", "new", "unknown", "refused"])
    sent = {"sent_at": rng.choice([None, START + timedelta(seconds=order // 10 + rng.randrange(3))])}
    if state is None or kind == "unknown":
        made = verdict(order, number + 1, tx_sequence_id=sequence, accepted=None, verdict="unknown")
    elif kind == "gap":
        made = verdict(order, number + 3, tx_sequence_id=sequence, verdict="gap_expired", gap_size=2)
    elif kind == "new":
        made = verdict(order, 1, tx_sequence_id=sequence + rng.choice([-1, 1, 1 << 40]), verdict="new_sequence")
    elif kind == "refused":
        made = verdict(order, number + 2, tx_sequence_id=sequence, accepted=False, verdict="out_of_order")
    elif kind in {"again", "other"}:
        made = rng.choice(seen) | verdict(order, 0, **_again(rng.choice(seen)))
        made["reason"] = rng.choice(["late", "stale_sequence", "predecessor_missing"])
        made["content_hash"] += 1000 * (kind == "other")
    else:
        made = verdict(order, number + 1, tx_sequence_id=sequence)
    at = rng.choice([None, made["captured_at"], made["captured_at"] + timedelta(seconds=rng.randrange(9))])
    made |= {"stream_id": rng.choice("xxxy"), "acknowledged_at": at, "captured_ns": made["captured_ns"]}
    if not rng.randrange(8):
        made["captured_ns"] = None
    return made | before | sent


def _again(earlier: Row) -> Row:
    kept = ("tx_sequence_id", "tx_sequence_number", "message_id", "content_hash")
    return {name: earlier[name] for name in kept} | {"accepted": False, "verdict": "out_of_order"}


def alike(rows: list[Arrival]) -> list[str]:
    """The arrivals without numbers that stand for names."""
    return sorted(repr(one._replace(scope_no=0, cause=None)) for one in rows)


@pytest.mark.parametrize("seed", range(3))
def test_neighbours_are_those_of_a_second_computation(seed: int) -> None:
    rows, unusual = night(random.Random(seed), scopes=3, count=120)
    scopes = defaultdict(list)
    for one in rows:
        scopes[one["scope_key"]].append({"reason": None, "final_ack_class": None, "next_ack_agrees_with": None} | one)
    second = [one for of_scope in scopes.values() for one in plain_arrivals.arrivals_of_scope(of_scope, {}, {})]
    every = arrivals(rows)
    assert alike(every) == alike(second)
    assert sum(one.is_sent_after_all_accepted for one in every) > 0
    assert sum(one.interval_s is not None for one in every) > 0
    few = arrivals(rows, slots_of(unusual))
    assert 0 < len(few) < len(every)
    assert set(few) < set(every)  # unusual arrivals have the same neighbours as among all
