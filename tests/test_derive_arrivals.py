"""Arrivals that a rule on messages may concern: which ones, what they are compared with, and what is shown of them."""

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import plain_arrivals
import polars as pl
import pyarrow as pa
import pytest

from schemas.judging import RESUMED
from schemas.replay import VERDICTS
from schemas.table import row
from schemas.wire import LATEST_ORDER_ACK_MS
from udfs.derive.facts.arrivals import arrivals_to_look_at, sent_later, watched_sessions
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


NOTHING_RESUMED = to_frame(RESUMED.empty_table())


def slots_of(rows: list[Row]) -> pl.DataFrame:
    places = {(one["scope_key"], one["tx_sequence_id"] - (1 << 63), one["tx_sequence_number"]) for one in rows}
    return pl.DataFrame(list(places), SLOTS, orient="row")


def arrivals(
    rows: list[Row],
    slots: pl.DataFrame | None = None,
    watched: pl.DataFrame = NOTHING,
    fates: pl.DataFrame | None = None,
) -> list[Arrival]:
    """The arrivals to look at, by scope and order; all of them without `slots`."""
    found = arrivals_to_look_at(
        verdicts(*rows),
        watched,
        slots_of(rows) if slots is None else slots,
        pl.DataFrame(schema=FATES) if fates is None else fates,
        NOTHING_RESUMED,
    )
    assert found.columns == list(Arrival._fields)
    return [Arrival(*one) for one in found.sort("scope_no", "replay_order").iter_rows()]


# --- what the captures show of answers ------------------------------------------------------------------------------


def ends(*rows: tuple[str, int | None, str | None]) -> pl.DataFrame:
    """Streams named as their sessions, with the time of the last segment and what they are a copy of."""
    columns = ["stream_id", "session_id", "sender", "receiver", "last_ns", "copy_of"]
    named = [(way, way.rstrip("'"), *way.rstrip("'").split("->"), last, copy) for way, last, copy in rows]
    return pl.DataFrame(named, dict.fromkeys(columns, pl.String) | {"last_ns": pl.Int64}, orient="row")


def watched_rows(of: pl.DataFrame, unread: list[str], answered: Any, senders: Any) -> list[tuple[Any, ...]]:
    pairs = {"receiver": pl.String, "source_queue_manager": pl.String}
    sessions = {"session_id": pl.String, "source_queue_manager": pl.String}
    found = watched_sessions(
        of,
        pl.DataFrame({"stream_id": unread}, {"stream_id": pl.String}),
        pl.DataFrame(answered, pairs, orient="row"),
        pl.DataFrame(senders, sessions, orient="row"),
    )
    assert found.schema == WATCHED
    return sorted(found.iter_rows())


def test_a_hub_of_many_senders_has_one_watched_session_for_each() -> None:
    names = [f"a{i}" for i in range(40)]
    ways = [f"hub->{name}" for name in names] + [f"{name}->hub" for name in names]
    found = watched_rows(
        ends(*((way, 7, None) for way in ways)),
        ["hub->a2"],
        [("hub", name) for name in [*names[1:], "behind a router"]],
        [(f"{name}->hub", name) for name in names] + [("a1->hub", "behind a router")],
    )
    assert found == sorted(
        [(f"{name}->hub", name, 7, name != "a2") for name in names[1:]]
        + [("a1->hub", "behind a router", 7, True)]  # and not each session with each sender; a0 was never acknowledged
    )


@pytest.mark.parametrize(
    ("streams", "unread", "expected"),
    [
        ((("a->b", 5, None), ("b->a", 9, None)), [], [(9, True)]),
        ((("a->b", 9, None), ("b->a", None, None)), [], [(9, True)]),
        ((("a->b", None, None), ("b->a", None, None)), [], [(None, True)]),
        ((("a->b", 5, None), ("b->a", 6, None), ("b->a'", 8, None)), ["b->a'", "b->a'"], [(8, False)]),
        ((("a->b", 5, None), ("b->a", 6, None), ("b->a'", 8, "b->a")), ["b->a'"], [(6, True)]),  # a copy
        ((("a->b", 5, None), ("b->a", 6, None)), ["a->b"], [(6, True)]),  # only the receiver's bytes count
        ((("a->b", 5, None),), [], []),  # nothing of the receiver was seen
        ((), [], []),
    ],
)
def test_both_directions_tell_how_long_a_session_was_watched(
    streams: Any, unread: list[str], expected: list[tuple[int | None, bool]]
) -> None:
    found = watched_rows(ends(*streams), unread, [("b", "a")] * 2, [("a->b", "a")] * 2)
    assert [one[2:] for one in found] == expected


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


def test_a_place_without_a_state_is_below_all() -> None:
    unknown = {"incoming_tx_sequence_id": None, "incoming_tx_sequence_number": None}
    first, second = arrivals(
        [verdict(1, 0, tx_sequence_id=0, **unknown, accepted=False), verdict(3, 0, tx_sequence_id=0, **unknown)]
    )
    assert (first.setter, first.is_below_accepted) == (None, None)
    assert (second.setter, second.is_below_accepted) == (2, False)


@pytest.mark.parametrize(
    ("before", "sent", "is_later"),
    [
        ((0, r"a\5"), (0, r"a\6"), True),
        ((0, r"a\5"), (0, r"a\5"), True),
        ((0, r"a\5"), (0, r"a\4"), False),
        ((0, r"a\9"), (0, r"a\10"), True),  # ordinals are numbers
        ((0, r"a\5"), (1, r"a\4"), True),
        ((1, r"a\5"), (0, r"a\6"), False),
        ((0, "no ordinal"), (0, r"a\0"), True),
        ((0, r"a\0"), (0, "no ordinal"), False),
        ((None, r"a\5"), (0, r"a\6"), False),
        ((0, r"a\5"), (None, r"a\6"), False),
        ((0, rf"a\{2**32 - 1}"), (1, r"a\0"), True),
    ],
)
def test_a_refused_message_was_sent_later(before: Any, sent: Any, is_later: bool) -> None:
    def at(of: tuple[int | None, str]) -> Row:
        return {"sent_at": None if of[0] is None else START + timedelta(seconds=of[0]), "message_id": of[1]}

    rows = [verdict(1, 1, **at(before)), verdict(2, 2, accepted=False, reason="late", **at(sent))]
    rows += [verdict(3, 3, **at((9, "a\\1"))), verdict(1, 1, scope_key="other", **at((9, "a\\1")))]
    found = sent_later(verdicts(*rows), NOTHING_RESUMED)
    assert found.rows() == [("scope", 2, True)] * is_later
    other = sent_later(verdicts(*rows[:1], rows[1] | {"reason": "predecessor_missing"}), NOTHING_RESUMED)
    assert other.is_empty()
