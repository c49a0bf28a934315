"""How well messages went, by queue: what is worse than before, gone or new, and what nearly is."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import polars as pl
import pytest
from table_frames import rows_of

from schemas.outcomes import OUTCOMES
from schemas.replay import VERDICTS
from udfs.derive.report.health import health

SINCE = datetime(2026, 3, 3, tzinfo=UTC)
BEFORE = SINCE - timedelta(hours=1)


class Night(NamedTuple):
    """Describes the messages of a night, each of 10 bytes: latencies in ms, and how many were not delivered at once."""

    latencies: Sequence[float] = ()
    late: int = 0
    lost: int = 0
    repeats: int = 0


def hundred(slowest: float, *, late: int = 0, lost: int = 0, repeats: int = 0) -> Night:
    """A hundred accepted messages, of which ten are the slowest."""
    return Night([100.0] * 90 + [float(slowest)] * 10, late, lost, repeats)


QUIET = hundred(900)
QUEUES: dict[str, tuple[Night, Night, str | None]] = {
    "as ever": (QUIET, QUIET, None),
    "new": (Night(), QUIET, "new"),
    "gone": (QUIET, Night(), "gone"),
    "slower": (QUIET, hundred(1_901), "worse"),
    "little slower": (QUIET, hundred(1_800), None),
    "twice as fast as a blink": (hundred(100), hundred(400), None),
    "refused at first": (QUIET, hundred(900, late=6), "worse"),
    "seldom refused at first": (QUIET, hundred(900, late=5), None),
    "lost": (QUIET, hundred(900, lost=6), "worse"),
    "repeated": (QUIET, hundred(900, repeats=6), "worse"),
    "as often repeated": (hundred(900, repeats=6), hundred(900, repeats=11), None),
}
"""The nights before and since, and what changed."""


def nights() -> tuple[pl.DataFrame, pl.DataFrame]:
    verdicts: list[dict[str, Any]] = []
    outcomes: list[dict[str, Any]] = []
    for queue, (before, since, _) in QUEUES.items():
        for at, night in ((BEFORE, before), (SINCE, since)):
            arrival = {"destination_queue": queue, "captured_at": at, "accepted": False, "verdict": "out_of_order"}
            taken = arrival | {"accepted": True, "verdict": "in_order"}
            verdicts += [taken | {"ack_latency_ms": ms, "final_ack_latency_ms": 2 * ms} for ms in night.latencies]
            verdicts += [arrival | {"verdict": "duplicate"}] * night.repeats + [arrival] * (night.late + night.lost)
            late = {"destination_queue": queue, "outcome": "delivered_after_refusal", "accepted_at": at}
            outcomes += [late] * night.late
            outcomes += [late | {"outcome": "passed_by", "accepted_at": None, "last_seen_at": at}] * night.lost
    same = {"session_id": "a->b", "body_size": 10}
    return rows_of(VERDICTS, *verdicts, **same), rows_of(OUTCOMES, *outcomes, session_id="a->b")


@pytest.fixture(scope="module")
def healths() -> dict[str, dict[str, Any]]:
    found = health(*nights(), SINCE, 100).to_dicts()
    assert [row["change"] for row in found if row["change"]] == ["worse"] * 4 + ["new", "gone"]
    assert [row["change"] for row in found][6:] == [None] * 5
    return {row["destination_queue"]: row for row in found}


@pytest.mark.parametrize("queue", QUEUES)
def test_what_changed(healths: dict[str, dict[str, Any]], queue: str) -> None:
    assert healths[queue]["change"] == QUEUES[queue][2]


def test_figures_of_health(healths: dict[str, dict[str, Any]]) -> None:
    row = healths["refused at first"]
    figures = ("messages", "bytes", "at_once", "repeats", "ack_median_ms", "ack_p95_ms", "ack_most_ms")
    assert [row[name] for name in figures] == [100, 1000, 0.94, 0, 100.0, 900.0, 900.0]
    assert [row[f"before_{name}"] for name in figures] == [100, 1000, 1.0, 0, 100.0, 900.0, 900.0]
    assert [row[f"final_{name}"] for name in figures[4:]] == [200.0, 1800.0, 1800.0]
    counts = (healths["lost"]["messages"], healths["gone"]["messages"], healths["new"]["before_messages"])
    assert counts == (106, None, None)


def test_without_a_period_nothing_changed() -> None:
    assert health(*nights(), None, 2)["change"].to_list() == [None, None]


@pytest.mark.parametrize(("many", "median", "p95"), [(1, 1, 1), (2, 1, 2), (20, 10, 19), (21, 11, 20)])
def test_a_percentile_is_a_value_that_occurred(many: int, median: int, p95: int) -> None:
    arrivals = ({"ack_latency_ms": float(ms)} for ms in range(1, many + 1))
    verdicts = rows_of(VERDICTS, *arrivals, session_id="s", verdict="in_order", accepted=True)
    (row,) = health(verdicts, rows_of(OUTCOMES), None, 9).to_dicts()
    assert (row["ack_median_ms"], row["ack_p95_ms"], row["ack_most_ms"]) == (median, p95, many)
    assert (row["final_ack_p95_ms"], row["bytes"]) == (None, 0)


def test_health_of_messages_that_name_no_queue_knows_no_refusals() -> None:
    verdicts = rows_of(VERDICTS, {"verdict": "out_of_order"}, session_id="s")
    (row,) = health(verdicts, rows_of(OUTCOMES, {"session_id": "s", "outcome": "pending"}), None, 9).to_dicts()
    assert (row["destination_queue"], row["messages"], row["at_once"]) == (None, 0, None)
