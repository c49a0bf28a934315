"""What a report and a summary collect from whole tables, and the books, in this process."""

from datetime import UTC, datetime, timedelta

import pytest
from table_frames import arrival, empty, message, rows_of

from jobs.app.muted import Muted
from jobs.engine.in_process import InProcess
from jobs.reporting import balancing
from jobs.reporting.few import REPORTED, read_few
from jobs.reporting.flow import Collected, collect
from jobs.steps.summary import summary, with_muted
from schemas.ingest import BOOKS, Book
from schemas.outcomes import OUTCOMES, Outcome
from schemas.replay import FINDINGS, SEQUENCES, SESSIONS, VERDICTS, Verdict
from udfs.derive.frames import Frames
from udfs.derive.report.page import Options

SINCE = datetime(2026, 3, 3, tzinfo=UTC)
BEFORE, AFTER = SINCE - timedelta(hours=1), SINCE + timedelta(hours=1)


def engine(tables: Frames) -> InProcess:
    """An engine over these tables."""
    return InProcess(load=lambda table, *_: tables[table.name])


def reported(tables: Frames, options: Options) -> Collected:
    """What a report is made from."""
    held = engine(tables)
    return collect(held, read_few(held, *REPORTED), options)


@pytest.mark.parametrize("session", [(), ("a->b",)])
@pytest.mark.parametrize("since", [None, SINCE])
def test_a_report_of_nothing_has_rows_of_each_kind(since: datetime | None, session: tuple[str, ...]) -> None:
    options = Options(since, session, (("duplicates", ""),), 50, 5000, 100, 25, 200, 20, 3, 2000)
    rows = reported(empty(), options).rows
    one_row = {"extent", "outcome_counts", "places", "final_acks", "unjudged"}
    assert {name for name, found in rows.items() if len(found) == 1} == one_row
    assert rows["outcome_counts"][0]["told"]
    assert rows["final_acks"] == [{"any": False}]


def some() -> Frames:
    """Traffic of the sessions a and b, before and after SINCE; c had none after it."""
    tables = empty()
    counts = {"delivered": 0} | dict.fromkeys(("messages", "transactional", "passing_through", "missing_bytes"), 1)
    heard = {"first_captured_at": BEFORE, "last_captured_at": AFTER} | counts
    verdict_counts = dict.fromkeys((verdict.value for verdict in Verdict), 0)
    tables["sessions"] = rows_of(
        SESSIONS,
        {"session_id": "a"},
        {"session_id": "b"},
        {"session_id": "c", "last_captured_at": BEFORE},
        receiver="r", **heard | verdict_counts,
    )  # fmt: skip
    tables["sequences"] = rows_of(
        SEQUENCES, *({"scope_key": one, "delivered": 0} for one in "ab"), tx_sequence_id=1, last_captured_at=AFTER
    )
    arrivals = [arrival(1, scope=one, session=one) | {"captured_at": AFTER} for one in "ab"]
    arrivals.append(arrival(2, scope="a", session="a") | {"captured_at": BEFORE})
    tables["verdicts"] = rows_of(VERDICTS, *arrivals, tx_sequence_id=1, tx_sequence_number=1, content_hash=1)
    lost = message(1, Outcome.PASSED_BY, lost=True, numbers=1, stuck=False, tx_sequence_id=1)
    tables["outcomes"] = rows_of(OUTCOMES, *(lost | {"session_id": one, "scope_key": one} for one in "ab"))
    found = ({"session_id": one, "found_at": at} for one in "ab" for at in (BEFORE, AFTER))
    tables["findings"] = rows_of(FINDINGS, *found, kind="duplicates", severity="info", messages=1, witness=[])
    return tables


OF_ONE = Options(SINCE, ("a",), (), 50, 5000, 100, 25, 200, 20, 3, 2000)


def test_a_report_of_a_period_and_a_session_leaves_out_the_others() -> None:
    rows = reported(some(), OF_ONE).rows
    assert rows["extent"][0]["cut"]
    assert [row["session_id"] for row in rows["sessions"]] == ["a"]
    assert [(row["arrivals"], row["verdict"]) for row in rows["arrivals"]] == [(1, "in_order")]
    assert [row["session_id"] for row in rows["listed_messages"]] == ["a"]
    assert rows["listed_messages"][0]["witness"] == ["s@1"]
    assert rows["places"][0]["lost"] == 1
    assert [row["findings"] for row in rows["kinds"]] == [1]
    assert rows["every_finding"] == [{"count": 2}]
    assert [(row["session_id"], row["captured_ns"]) for row in rows["points"]] == [("a", 100)]


def test_a_summary_tells_all_even_where_a_report_of_a_part_took_the_sums() -> None:
    held = engine(some())
    found = summary(held, "place")
    assert found["verdicts"] == {"in_order": 3}
    assert found["lost_by"] == [{"lost": 2, "source_queue_manager": None, "destination_queue": None}]
    assert found["findings_by_severity"] == {"info": {"duplicates": 4}}
    assert summary(held, "place", reported=reported(some(), OF_ONE)) == found


def test_muted_findings_are_counted_by_kind_and_severity() -> None:
    muted = [Muted("duplicates", "", SINCE.date(), "A test.")]
    assert with_muted({"a": 1}, engine(some()), muted) == {"a": 1, "muted": {"duplicates": 4, "info": 4}}
    assert with_muted({"a": 1}, engine(some()), []) == {"a": 1}


def test_books_of_other_laws_are_kept() -> None:
    tables = some()
    tables["packets"] = rows_of("packets", {"stream_id": "s", "size": 3})
    tables["books"] = rows_of(BOOKS, *({"book": book, "balanced": True} for book in Book))
    held = engine(tables)
    balancing.balance(held, balancing.INGESTED)
    rows = held.read(BOOKS).to_dicts()
    assert [row["book"] for row in rows if row["balanced"]] == ["packets", "arrivals", "numbers"]
    assert [(row["book"], row["left_side"], row["right_side"]) for row in rows if not row["balanced"]] == [
        ("bytes", 0, 3),
    ]
    balancing.balance(held, balancing.REPLAYED)
    unbalanced = {(row["book"], row["left_side"], row["right_side"]) for row in held.read(BOOKS).to_dicts()}
    assert unbalanced == {("bytes", 0, 3), ("packets", 1, 0), ("arrivals", 2, 0), ("arrivals", 1, 0)}
