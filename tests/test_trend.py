"""What became of messages, by day: rows in, days out."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from schemas.ingest import CAPTURES
from schemas.outcomes import OUTCOMES
from udfs.frames.tables import schema_of
from udfs.report.trend import harm_by_day, trend

DAY = datetime(2026, 3, 2, 23, 59, tzinfo=UTC)
OUTCOME = schema_of(OUTCOMES.arrow)


def outcome(name: str, at: datetime | None, numbers: int = 1, **more: Any) -> dict[str, Any]:
    return {"outcome": name, "first_seen_at": at, "numbers": numbers, "stuck": False, "witness": [], **more}


def captures(*rows: tuple[datetime | None, int]) -> pl.DataFrame:
    schema = {name: schema_of(CAPTURES.arrow)[name] for name in ("first_captured_at", "message_count")}
    return pl.DataFrame(rows, schema, orient="row")


def test_each_message_counts_on_the_day_on_which_it_was_first_seen() -> None:
    packet = {"captured_at": DAY}
    found = pl.DataFrame(
        [
            outcome("displaced", DAY, lost=True),
            outcome("pending", DAY + timedelta(minutes=1), stuck=True),  # the next day
            outcome("never_seen", None, 7, lost=True, witness=[packet]),  # on the day of what proves it
            outcome("unacknowledged", DAY),
            outcome("contradicted", DAY),
            outcome("expired_unseen", DAY, 9, lost=False),  # no harm
        ],
        OUTCOME,
    )
    # Two parts of the outcomes, as of two tasks.
    harm = pl.concat([harm_by_day(found.head(2)), harm_by_day(found.tail(-2))])
    days = trend(captures((DAY, 20), (DAY, 30), (DAY + timedelta(days=1), 4), (None, 0)), harm)
    assert days == [
        {"day": "2026-03-03", "arrivals": 4, "lost": 0, "stuck": 1, "unacknowledged": 0, "unknown": 0, "share": 0.1},
        {"day": "2026-03-02", "arrivals": 50, "lost": 8, "stuck": 0, "unacknowledged": 1, "unknown": 1, "share": 1.0},
    ]


def test_days_without_harm_have_no_bar_and_only_the_last_ones_are_shown() -> None:
    none = harm_by_day(pl.DataFrame(schema=OUTCOME))
    days = trend(captures(*((DAY + timedelta(days=day), day) for day in range(40))), none)
    assert len(days) == 31
    assert (days[0]["arrivals"], days[-1]["arrivals"]) == (39, 9)
    assert {day["share"] for day in days} == {0.0}
    assert trend(captures(), none) == []
