"""Sums per session: what it carried, how much of it captures hold, and which reading its receiver follows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from table_frames import rows_of

from schemas.messages import MESSAGES
from schemas.outcomes import OUTCOME_COUNTS
from schemas.replay import ENDS, SESSIONS, Scope, Verdict
from udfs.derive.frames import to_arrow
from udfs.derive.replay.coverage import blind_spans, session_coverage
from udfs.derive.summaries.sessions import carried_by_stream, summarize_sessions

BEGAN = datetime(2026, 3, 2, tzinfo=UTC)
RANGE = {"stream_id": pl.String, "stream_offset": pl.Int64, "length": pl.Int64}
Rows = list[dict[str, Any]]


def message(stream: str, at: int, second: int | None = None, **columns: Any) -> dict[str, Any]:
    """Returns a message at an offset, captured some seconds after the beginning."""
    second = at if second is None else second
    row = {"stream_id": stream, "stream_offset": at, "captured_ns": second, "transactional": True}
    return row | {"captured_at": BEGAN + timedelta(seconds=second)} | columns


def end(stream: str, session: str = "a->b", **columns: Any) -> dict[str, Any]:
    """Returns a row of ENDS: of a stream of 1000 bytes and 100 ns."""
    sender, receiver = session.split("->")
    row: dict[str, Any] = {"stream_id": stream, "connection_id": stream, "session_id": session}
    row |= {"sender": sender, "receiver": receiver}
    row |= {"recovered_bytes": 1000, "missing_bytes": 0, "mid_stream": False, "first_ns": 0, "last_ns": 100}
    return row | columns


def unread(*ranges: tuple[str, int, int]) -> pl.DataFrame:
    """Returns ranges of unread bytes: stream, offset and length."""
    return pl.DataFrame(ranges, schema=RANGE, orient="row")


# --- coverage -------------------------------------------------------------------------------------------------------


def test_a_message_may_be_missing_between_those_around_unread_bytes() -> None:
    messages = [message("x", 10), message("x", 40), message("x", 60), message("y", 5), message("whole", 7)]
    ranges = unread(("x", 2, 8), ("x", 20, 10), ("x", 30, 5), ("x", 70, 1), ("y", 9, 1), ("none", 0, 3))
    found = blind_spans(rows_of(MESSAGES, *messages), ranges)
    assert sorted(found.select("stream_id", "span", "began_ns", "ended_ns", "length").rows()) == [
        ("none", 0, None, None, 3),
        ("x", 0, None, 10, 8),
        ("x", 1, 10, 40, 15),
        ("x", 3, 60, None, 1),
        ("y", 1, 5, None, 1),
    ]


def test_a_span_begins_with_the_latest_message_before_it() -> None:
    messages = [message("x", 10, 50), message("x", 20, 30), message("x", 40, 20)]
    found = blind_spans(rows_of(MESSAGES, *messages), unread(("x", 30, 10)))
    assert found.select("began_ns", "ended_ns").rows() == [(50, 20)]


def coverage(messages: Rows, ends: Rows, *ranges: tuple[str, int, int]) -> dict[str, tuple[Any, ...]]:
    """Returns the shares of bytes and time, and the connections without beginning, of each session."""
    spans = blind_spans(rows_of(MESSAGES, *messages), unread(*ranges))
    found = session_coverage(rows_of(ENDS, *ends), spans)
    names = ("byte_coverage", "time_coverage", "mid_stream", "missing_bytes")
    return {row["session_id"]: tuple(row[name] for name in names) for row in found.rows(named=True)}


LACKING: dict[str, Any] = {"recovered_bytes": 900, "missing_bytes": 100}


@pytest.mark.parametrize(
    ("messages", "ends", "ranges", "expected"),
    [
        ([], [end("x", **LACKING)], [("x", 0, 100)], (0.9, 0.0, 0, 100)),
        ([], [end("x", last_ns=0)], [], (1.0, 1.0, 0, 0)),
        ([], [end("x"), end("y", last_ns=None)], [], (1.0, None, 0, 0)),
        ([], [end("x", recovered_bytes=100, last_ns=0)], [("x", 0, 50)], (0.5, None, 0, 0)),
        ([message("x", 10, 60), message("x", 40, 20)], [end("x")], [("x", 20, 100)], (0.9, 1.0, 0, 0)),
        ([message("x", 10, 0), message("x", 40, 300)], [end("x")], [("x", 20, 100)], (0.9, 0.0, 0, 0)),
    ],
)
def test_coverage_where_times_or_messages_are_odd(
    messages: Rows, ends: Rows, ranges: list[tuple[str, int, int]], expected: tuple[Any, ...]
) -> None:
    other = end("whole", "c->d")
    assert coverage(messages, [*ends, other], *ranges) == {"a->b": pytest.approx(expected), "c->d": (1.0, 1.0, 0, 0)}


def test_unread_bytes_of_a_stream_that_does_not_count_are_left_out() -> None:
    assert coverage([], [end("x")], ("copy", 0, 10)) == {"a->b": (1.0, 1.0, 0, 0)}
    assert coverage([], []) == {}


# --- sums -----------------------------------------------------------------------------------------------------------

TALLY = {verdict.value: 0 for verdict in Verdict} | dict.fromkeys(
    ("acks_compared", "acks_conformant", "acks_literal"), 0
)
TALLIES = {"session_id": pl.String, "scope_key": pl.String} | dict.fromkeys(TALLY, pl.Int64)
COUNTS = {"session_id": pl.String} | {column.name: pl.Int64 for column in OUTCOME_COUNTS}
ZERO = {column.name: 0 for column in OUTCOME_COUNTS}


def tally(session: str = "a->b", scope_key: str = "queue source queue", **counts: int) -> dict[str, Any]:
    """Returns the tally of a sequence."""
    return TALLY | {"session_id": session, "scope_key": scope_key} | counts


def sessions_of(
    messages: Rows, ends: Rows, tallies: Rows, outcomes: Rows | None = None, scope: Scope = Scope.AUTO
) -> dict[str, dict[str, Any]]:
    """Returns SESSIONS by their key, after the table's own schema accepted them."""
    carried = carried_by_stream(rows_of(MESSAGES, *messages))
    spans = blind_spans(rows_of(MESSAGES), unread())
    counts = None if outcomes is None else pl.DataFrame(outcomes, schema=COUNTS)
    given = carried, rows_of(ENDS, *ends), spans, pl.DataFrame(tallies, schema=TALLIES), counts
    rows = to_arrow(summarize_sessions(*given, scope=scope)).cast(SESSIONS.arrow)
    return {row["session_id"]: row for row in rows.to_pylist()}


def test_messages_are_counted_by_stream_and_addressee() -> None:
    kinds: Rows = [{"transactional": True, "body_encrypted": True}, {"transactional": False}, {"transactional": None}]
    messages = [message("x", at, **kind) for at, kind in enumerate(kinds)]
    messages += [message("x", 5, queue_manager_address="b"), message("y", 6)]
    found = carried_by_stream(rows_of(MESSAGES, *messages))
    names = ("stream_id", "queue_manager_address", "messages", "transactional", "encrypted")
    assert sorted(found.select(names).rows(), key=repr) == [
        ("x", "b", 1, 1, 0),
        ("x", None, 3, 1, 1),
        ("y", None, 1, 1, 0),
    ]
    times = found.filter((pl.col("stream_id") == "x") & pl.col("queue_manager_address").is_null())
    assert times.select("first_captured_at", "last_captured_at").row(0) == (BEGAN, BEGAN + timedelta(seconds=2))


def test_without_outcomes_their_counts_are_null() -> None:
    found = sessions_of([message("x", 0)], [end("x")], [tally(in_order=1)])["a->b"]
    assert {found[name] for name in ZERO} == {None}
    assert found["in_order"] == 1


@pytest.mark.parametrize(
    ("keys", "scope", "expected"),
    [
        (["queue s q", "queue s r"], Scope.AUTO, "queue"),
        (["session a->b s"], Scope.AUTO, "session"),
        (["queue s q", "session a->b t"], Scope.AUTO, "session and queue"),
        ([], Scope.AUTO, "queue"),
        ([], Scope.SESSION, "session"),
        ([], Scope.QUEUE, "queue"),
    ],
)
def test_the_scope_of_a_session(keys: list[str], scope: Scope, expected: str) -> None:
    found = sessions_of([message("x", 0)], [end("x")], [tally(scope_key=key) for key in keys], scope=scope)
    assert found["a->b"]["replay_scope"] == expected


@pytest.mark.parametrize(
    ("answers", "conformant", "literal", "expected"),
    [
        (0, 0, 0, "unknown"),
        (2, 2, 2, "both"),
        (2, 2, 1, "conformant"),
        (2, 1, 2, "literal"),
        (2, 1, 1, "neither"),
    ],
)
def test_the_reading_that_explains_every_answer(answers: int, conformant: int, literal: int, expected: str) -> None:
    counts: dict[str, Any] = {"acks_compared": answers, "acks_conformant": conformant, "acks_literal": literal}
    assert sessions_of([message("x", 0)], [end("x")], [tally(**counts), tally()])["a->b"]["acks_agree_with"] == expected


@pytest.mark.parametrize("outcomes", [None, []])
def test_no_messages_make_no_sessions(outcomes: Rows | None) -> None:
    assert sessions_of([], [], [], outcomes) == {}
