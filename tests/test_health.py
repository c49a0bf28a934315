"""How well messages went, by queue: what is worse than before, gone or new, and what nearly is."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from jobs.transforms.health import health

SINCE = datetime(2026, 3, 3)  # noqa: DTZ001 - as Spark has it, in UTC
VERDICTS = (
    "session_id STRING, destination_queue STRING, captured_at TIMESTAMP, accepted BOOLEAN, verdict STRING, "
    "body_size BIGINT, ack_latency_ms DOUBLE, final_ack_latency_ms DOUBLE"
)
OUTCOMES = "session_id STRING, destination_queue STRING, outcome STRING, accepted_at TIMESTAMP, last_seen_at TIMESTAMP"


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


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[str, dict[str, Any]]:
    """The health of each queue."""
    verdicts: list[tuple[Any, ...]] = []
    outcomes: list[tuple[Any, ...]] = []
    for queue, (before, since, _) in QUEUES.items():
        for at, night in ((SINCE - timedelta(hours=1), before), (SINCE, since)):
            verdicts += [("a->b", queue, at, True, "in_order", 10, ms, 2 * ms) for ms in night.latencies]
            verdicts += [("a->b", queue, at, False, "duplicate", 10, None, None)] * night.repeats
            verdicts += [("a->b", queue, at, False, "out_of_order", 10, None, None)] * (night.late + night.lost)
            outcomes += [("a->b", queue, "delivered_after_refusal", at, at)] * night.late
            outcomes += [("a->b", queue, "passed_by", None, at)] * night.lost
    tables = spark.createDataFrame(verdicts, VERDICTS), spark.createDataFrame(outcomes, OUTCOMES)
    found = health(*tables, SINCE, limit=100).collect()
    assert [row["change"] for row in found][-1] is None
    assert [row["change"] for row in found if row["change"]] == ["worse"] * 4 + ["new", "gone"]
    assert [row["change"] for row in health(*tables, None, limit=2).collect()] == [None, None]
    return {row["destination_queue"]: row.asDict() for row in found}


@pytest.mark.parametrize("queue", QUEUES)
def test_what_changed(rows: dict[str, dict[str, Any]], queue: str) -> None:
    assert rows[queue]["change"] == QUEUES[queue][2]


def test_figures(rows: dict[str, dict[str, Any]]) -> None:
    row = rows["refused at first"]
    figures = ("messages", "bytes", "at_once", "repeats", "ack_median_ms", "ack_p95_ms", "ack_most_ms")
    assert [row[name] for name in figures] == [100, 1000, 0.94, 0, 100.0, 900.0, 900.0]
    assert [row[f"before_{name}"] for name in figures] == [100, 1000, 1.0, 0, 100.0, 900.0, 900.0]
    assert [row[f"final_{name}"] for name in figures[4:]] == [200.0, 1800.0, 1800.0]
    assert (rows["lost"]["messages"], rows["gone"]["messages"], rows["new"]["before_messages"]) == (106, None, None)
