"""Sums per session: its scope, and how much of it captures hold where times or messages are odd.

tests/scenes_of_sessions.py and tests/test_outcomes.py have the other sums.
"""

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


@pytest.mark.parametrize("outcomes", [None, []])
def test_no_messages_make_no_sessions(outcomes: Rows | None) -> None:
    assert sessions_of([], [], [], outcomes) == {}
