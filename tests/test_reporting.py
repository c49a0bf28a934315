"""Reports and summaries list and count the rows of literal tables; books are balanced."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from table_frames import arrival, empty, message, rows_of

from jobs.engines.in_process import InProcess
from schemas.incidents import INCIDENTS, WORST_FIRST, Cause
from schemas.ingest import BOOKS, CAPTURES, Book
from schemas.outcomes import OUTCOMES, Outcome
from schemas.replay import FINDINGS, SEQUENCES, SESSIONS, VERDICTS, FindingKind, Severity, Verdict
from udfs.frames.derivation import Frames
from udfs.report import balancing, findings, incidents, messages, period, pictures, sessions, summary
from udfs.report.flow import REPORTED, collect, read_few, why_nothing_in_period
from udfs.report.page import WITNESSES, proofs, witness_columns, witness_keys

SINCE = datetime(2026, 3, 3, tzinfo=UTC)
BEFORE, AFTER = SINCE - timedelta(hours=1), SINCE + timedelta(hours=1)
NS = 10**9
NO_COPIES = pl.DataFrame(schema={"stream_id": pl.String, "copy_of": pl.String})


def engine(tables: Frames) -> InProcess:
    return InProcess(load=lambda table, *_: tables[table.name])


def reported(tables: Frames, since: datetime | None, *session: str) -> dict[str, Any]:
    held = engine(tables)
    return collect(held, read_few(held, *REPORTED), since, session)


@pytest.mark.parametrize("session", [(), ("a->b",)])
@pytest.mark.parametrize("since", [None, SINCE])
def test_a_report_of_nothing_has_no_rows(since: datetime | None, session: tuple[str, ...]) -> None:
    rows = reported(empty(), since, *session)
    assert not [name for name, found in rows.items() if isinstance(found, list) and found]
    assert rows["told"]
    assert (rows["since"], rows["first_ns"], rows["places"]["lost"]) == (None, None, 0)


def some() -> Frames:
    """Traffic of the sessions a and b, before and after SINCE; c had none after it."""
    tables = empty()
    counts = {"delivered": 0} | dict.fromkeys(
        ("messages", "transactional_messages", "passing_through", "missing_bytes"), 1
    )
    heard = {"first_captured_at": BEFORE, "last_captured_at": AFTER} | counts
    verdict_counts = dict.fromkeys((verdict.value for verdict in Verdict), 0)
    tables["sessions"] = rows_of(
        SESSIONS,
        {"session_id": "a"},
        {"session_id": "b"},
        {"session_id": "c", "last_captured_at": BEFORE},
        sender="s", receiver="r", **heard | verdict_counts,
    )  # fmt: skip
    ended = {"a": AFTER, "b": AFTER, "c": BEFORE}
    sequences = ({"scope_key": one, "last_captured_at": at} for one, at in ended.items())
    tables["sequences"] = rows_of(SEQUENCES, *sequences, tx_sequence_id=1, delivered=0)
    arrivals = [arrival(1, scope=one, session=one) | {"captured_at": AFTER} for one in "ab"]
    arrivals.append(arrival(2, scope="a", session="a") | {"captured_at": BEFORE})
    tables["verdicts"] = rows_of(VERDICTS, *arrivals, tx_sequence_id=1, tx_sequence_number=1, content_hash=1)
    lost = message(1, Outcome.PASSED_BY, lost=True, numbers=1, stuck=False, tx_sequence_id=1)
    tables["outcomes"] = rows_of(OUTCOMES, *(lost | {"session_id": one, "scope_key": one} for one in "abc"))
    found = ({"session_id": one, "found_at": at} for one in "ab" for at in (BEFORE, AFTER))
    tables["findings"] = rows_of(FINDINGS, *found, kind="duplicates", severity="info", messages=1, witness=[])
    return tables


def test_a_report_of_a_period_and_a_session_leaves_out_the_others() -> None:
    rows = reported(some(), SINCE, "a")
    assert (rows["since"], rows["session_count"]) == (SINCE, 1)
    assert (rows["first_ns"], rows["last_ns"]) == tuple(int(at.timestamp()) * NS for at in (SINCE, AFTER))
    assert [row["session_id"] for row in rows["sessions"]] == ["a"]
    assert [(row["arrivals"], row["verdict"]) for row in rows["arrivals"]] == [(1, "in_order")]
    assert [(row["session_id"], row["witness"]) for row in rows["listed_messages"]] == [("a", ["s@1"])]
    assert rows["places"]["lost"] == 1
    assert [row["findings"] for row in rows["kinds"]] == [1]
    assert [(row["session_id"], row["captured_ns"]) for row in rows["points"]] == [("a", 100)]
    recent, of_all = reported(some(), SINCE), reported(some(), None)
    assert (recent["session_count"], recent["places"]["lost"], len(recent["listed_messages"])) == (2, 2, 2)
    assert (of_all["session_count"], of_all["places"]["lost"]) == (3, 3)
    assert sum(row["arrivals"] for row in of_all["arrivals"]) == 3
    assert reported(some(), BEFORE)["since"] is None  # nothing is older


def books(*, is_replayed: bool) -> set[tuple[str, str, int, int, bool]]:
    """Balances literal tables, of which a part is accounted for; returns law, key, both sides and whether they agree.

    The books of laws that are not balanced say `left_side` 0.
    """
    tables = empty()
    tables["books"] = rows_of(
        BOOKS, *({"book": book, "left_side": 0, "right_side": 0, "balanced": True} for book in Book)
    )
    tables["captures"] = rows_of(
        CAPTURES,
        {"capture_id": "a", "packet_count": 10, "segment_count": 7, "other_count": 1},
        {"capture_id": "b", "packet_count": 4, "segment_count": 3, "other_count": 2},
        {"capture_id": "unreadable"},
    )
    tables["streams"] = rows_of(
        "streams", {"stream_id": "s", "recovered_bytes": 1 << 40}, {"stream_id": "t", "recovered_bytes": 5}
    )
    sizes = {"s": ((1 << 40) - 3, 1, 0, 0), "u": (9,)}
    tables["packets"] = rows_of(
        "packets", *({"stream_id": stream, "size": size} for stream, of in sizes.items() for size in of)
    )
    for table, many in (("messages", 2), ("acks", 1)):
        tables[table] = rows_of(table, *[{"stream_id": "s"}] * many)
    tables["quarantine"] = rows_of(
        "quarantine",
        *({"stage": stage, "capture_id": "a"} for stage in ("frame", "frame", "capture", "tcp")),
        *(
            {"stage": stage, "stream_id": "s", "length": length}
            for stage, length in (("framing", 2), ("decode", 6), ("tcp", 7))
        ),
    )
    tables["verdicts"] = rows_of(VERDICTS, *({"scope_key": scope} for scope in "xxxxxy"))
    due = {"tx_sequence_id": 1, "first_number_due": 3, "numbers_due": 10, "numbers_seen": 7}
    tables["sequences"] = rows_of(
        SEQUENCES,
        {"scope_key": "x", "messages": 5, "delivered_arrivals": 3} | due,
        {"scope_key": "x", "tx_sequence_id": 2, "delivered_arrivals": 0},
        {"scope_key": "y", "messages": 1} | due,  # the literal reading tells no arrivals of delivered messages
    )
    unseen = {"scope_key": "x", "tx_sequence_id": 1, "numbers": 3, "arrivals": 0}
    tables["outcomes"] = rows_of(
        OUTCOMES,
        *(unseen | {"tx_sequence_number": number} for number in (2, 12, 13)),  # 3 to 12 are due
        unseen | {"tx_sequence_number": 5, "message_id": "seen", "arrivals": 2},
        unseen | {"tx_sequence_number": 5, "tx_sequence_id": 2},
    )
    held = engine(tables)
    balancing.balance(held, balancing.REPLAYED if is_replayed else balancing.INGESTED)
    names = ("left_side", "right_side", "balanced")
    rows = held.read(BOOKS).to_dicts()
    return {
        (row["book"], "".join(row[name] or "" for name in BOOKS.key[1:]), *(row[name] for name in names))
        for row in rows
    }


def test_books_say_what_is_not_accounted_for_and_those_of_other_laws_are_kept() -> None:
    ingested = {
        *(("records", "a", 10, 10, True), ("records", "b", 4, 5, False), ("records", "unreadable", 0, 0, True)),
        *(("bytes", "s", 1 << 40, 1 << 40, True), ("bytes", "t", 5, 0, False), ("bytes", "u", 0, 9, False)),
    }
    replayed = {
        *(("packets", "s", 4, 4, True), ("packets", "u", 1, 0, False)),
        *(("arrivals", "x", 5, 5, True), ("arrivals", "y", 1, 1, True)),
        *(("numbers", "x", 10, 10, True), ("numbers", "y", 10, 7, False)),
    }
    assert books(is_replayed=True) == ingested | replayed
    kept = {(book, "", 0, 0, True) for book in ("packets", "arrivals", "numbers")}
    assert books(is_replayed=False) == ingested | kept


# --- what is chosen, one table at a time -----------------------------------------------------------------------------


def test_the_last_run_begins_with_its_earliest_capture() -> None:
    run = {"ingested_at": AFTER, "first_captured_at": SINCE + timedelta(microseconds=5)}
    captures = rows_of(CAPTURES, run, run | {"first_captured_at": AFTER}, run | {"ingested_at": SINCE}, {})
    assert period.begin_of_last_run(captures) == SINCE
    assert period.begin_of_last_run(captures.tail(1)) is None


def test_a_file_that_was_read_in_whole_later_lacks_nothing() -> None:
    """But another file may have taken its name, and what could be read once may have got more since."""
    cut = {"status": "partial", "reason": "truncated_block", "first_captured_at": SINCE, "size_bytes": 5}
    whole = {"status": "ok", "first_captured_at": SINCE, "size_bytes": 9, "ingested_at": AFTER}
    closed = {"status": "unreadable", "reason": "not_readable", "size_bytes": 0}
    captures = rows_of(
        CAPTURES,
        {"uri": "grown"} | cut,
        {"uri": "grown"} | whole,
        {"uri": "overwritten"} | cut,
        {"uri": "overwritten"} | whole | {"first_captured_at": AFTER},
        {"uri": "opened"} | closed,
        {"uri": "opened"} | whole,
        {"uri": "shut"} | whole,
        {"uri": "shut", "ingested_at": AFTER + timedelta(days=1)} | closed,
        {"uri": "still"} | cut,
        {"uri": "still"} | cut | {"size_bytes": 6},
        ingested_at=SINCE,
    )
    left = period.not_read_again(captures)
    assert left.filter(pl.col("status") != "ok").select("uri", "size_bytes").rows() == [
        ("overwritten", 5),
        ("shut", 0),
        ("still", 6),
    ]
    assert left.height == 7


@pytest.mark.parametrize(
    ("reason", "minutes", "is_broken"),
    [
        ("truncated_record_body", 9, False),
        ("truncated_record_body", 11, True),
        ("truncated_record_body", -9, False),
        ("truncated_record_body", None, True),
        ("bad_record_header", 9, True),
    ],
)
def test_a_file_that_is_still_being_written_is_not_broken(reason: str, minutes: int | None, is_broken: bool) -> None:
    last = None if minutes is None else SINCE - timedelta(minutes=minutes)
    row = {"status": "partial", "reason": reason, "ingested_at": SINCE, "last_captured_at": last}
    assert period.broken(rows_of(CAPTURES, row)) == is_broken


def test_a_period_without_messages_is_not_said_to_have_none_in_transactions() -> None:
    tables = some()
    held = {"message_count": 9, "packet_count": 9, "status": "ok"}
    tables["captures"] = rows_of(CAPTURES, {"last_captured_at": BEFORE} | held)
    few = read_few(engine(tables), *REPORTED)
    assert why_nothing_in_period(engine(tables), few, SINCE, has_failed=False) == "No capture is of this period."
    said = why_nothing_in_period(engine(tables), few, BEFORE, has_failed=False)
    assert said.startswith("The captures have some of other times.")
    tables["sessions"] = rows_of(SESSIONS)
    few = read_few(engine(tables), *REPORTED)
    said = why_nothing_in_period(engine(tables), few, SINCE, has_failed=False)
    assert said.startswith("The captures hold 9 messages, none of them transactional")


@pytest.mark.parametrize(("seconds", "step"), [(0, 0.01), (12, 1), (119, 1), (120, 5), (86_400, 900), (10**8, 86_400)])
def test_the_period_is_drawn_in_at_most_120_steps_or_days_with_traffic(seconds: int, step: float) -> None:
    captures = rows_of(CAPTURES, {"first_captured_at": SINCE, "last_captured_at": SINCE + timedelta(seconds=seconds)})
    first = int(SINCE.timestamp()) * NS
    assert period.steps(captures, first, first + seconds * NS) == (first // int(step * NS) * int(step * NS), step * NS)
    assert seconds == 0 or period.steps(captures, first, first + 2 * seconds * NS).step_ns == step * NS


def test_findings_are_of_a_period_if_their_sequence_still_had_messages() -> None:
    sequences = rows_of(
        SEQUENCES,
        {"scope_key": "s", "tx_sequence_id": 1, "last_captured_at": AFTER},
        {"scope_key": "s", "tx_sequence_id": 2, "last_captured_at": BEFORE},
    )
    rows = rows_of(
        FINDINGS,
        *({"scope_key": "s", "tx_sequence_id": number, "found_at": BEFORE} for number in (1, 2, 3)),
        *({"found_at": at} for at in (BEFORE, AFTER, None)),
        {"found_at": AFTER, "kind": "resend_schedule"},
        kind="duplicates",
    )
    found = findings.shown_findings(rows, sequences, SINCE)
    assert found.select("tx_sequence_id", "found_at").rows() == [(1, BEFORE), (None, AFTER), (None, None)]
    assert findings.shown_findings(rows, sequences, None).height == rows.height - 1


def test_the_worst_findings_are_the_gravest_with_most_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "LISTED_FINDINGS", 2)
    rows = rows_of(
        FINDINGS,
        {"messages": 3, "session_id": "b", "found_at": SINCE},
        {"messages": 3, "session_id": "a"},
        {"messages": 7, "session_id": "a", "incident_id": "i"},
        {"messages": 9, "severity": "info"},
        kind="duplicates",
        severity="error",
    )
    found = findings.worst_findings(rows, "severity", "kind")
    assert found.select("severity", "messages", "found_ns").rows() == [
        *(("error", 7, None), ("error", 3, None)),
        ("info", 9, None),
    ]
    assert findings.worst_findings(rows, "kind")["messages"].to_list() == [7, 3]
    by_kind = {row["severity"]: row for row in findings.findings_by_kind(rows).to_dicts()}
    assert by_kind["error"] | {"findings": 3, "alone": 2, "sessions": 2, "messages": 13} == by_kind["error"]
    assert by_kind["info"]["sessions"] == 0


def test_places_are_since_when_and_where_messages_are_lost_stuck_or_never_acknowledged() -> None:
    lost = {"lost": True, "numbers": 2, "first_seen_at": AFTER, "destination_queue": "a"}
    unacknowledged = {"outcome": Outcome.UNACKNOWLEDGED, "numbers": 1, "destination_queue": "c"}
    twice = {"outcome": Outcome.DELIVERED_TWICE, "numbers": 1, "destination_queue": "a", "message_id": "m\\1"}
    rows = rows_of(
        OUTCOMES,
        lost,
        lost | {"destination_queue": "b", "first_seen_at": SINCE},
        lost | {"destination_queue": None, "numbers": 1},
        {"lost": True, "numbers": 1, "outcome": Outcome.PASSED_BY, "sent_at": BEFORE, "destination_queue": "b"},
        {"lost": False, "numbers": 1, "outcome": Outcome.DELIVERED_AFTER_REFUSAL, "sent_at": BEFORE},
        {"outcome": Outcome.REFUSED_FOR_CAUSE, "lost": True, "numbers": 1, "final_ack_class": 0x8004}
        | {"destination_queue": "d"},
        {"stuck": True, "numbers": 1, "first_seen_at": BEFORE},
        {"lost": None, "numbers": 9, "contenders": 2, "outcome": Outcome.UNKNOWN},
        {"outcome": Outcome.PENDING, "numbers": 1, "destination_queue": "a", "first_seen_at": SINCE},
        {"outcome": Outcome.AWAITED, "numbers": 2, "destination_queue": "a"},
        unacknowledged | {"first_seen_at": BEFORE},
        unacknowledged | {"next_resend_at": AFTER},
        unacknowledged | {"next_resend_at": BEFORE},
        *[twice] * 2,
        {"outcome": Outcome.EXPIRED_UNSEEN, "numbers": 7, "destination_queue": "e"},
        source_queue_manager="m",
        stuck=False,
    )
    since, before = (int(at.timestamp()) * NS for at in (SINCE, BEFORE))
    queues = messages.harm_by_queue(rows, begun_ns=since, until_ns=since)
    assert messages.places(queues) == {
        "lost": 7,
        "lost_since_ns": since,
        "lost_queue": "b",
        "lost_in_queue": 3,
        "lost_queues": 4,
        "stuck": 1,
        "stuck_since_ns": before,
        "stuck_queue": None,
        "stuck_in_queue": 1,
        "stuck_queues": 1,
        "unacknowledged": 3,
        "unacknowledged_since_ns": before,
        "unacknowledged_queue": "c",
        "unacknowledged_in_queue": 3,
        "unacknowledged_queues": 1,
        "pending": 3,
        "pending_since_ns": since,
        "pending_queue": "a",
        "pending_in_queue": 3,
        "pending_queues": 1,
        "unknown": 9,
        "unknown_since_ns": None,
        "unknown_queue": None,
        "unknown_in_queue": 9,
        "unknown_queues": 1,
        "expired_unseen": 7,
        "expired_unseen_since_ns": None,
        "expired_unseen_queue": "e",
        "expired_unseen_in_queue": 7,
        "expired_unseen_queues": 1,
        "undecided": 0,
        "by_clocks": 1,
        "resent": 1,
        "silent": 1,
        "twice": 1,
        "early": 1,
        "classes": [0x8004],
    }
    by_queue = [(row["lost"], row["destination_queue"]) for row in summary.lost_by(queues)]
    assert by_queue == [(3, "b"), (2, "a"), (1, None)]


def test_each_cause_has_the_messages_that_it_kept_from_being_acknowledged() -> None:
    """Where every message was acknowledged, those count that a receiver lost when it went back."""
    fell = {"cause": "acknowledgment_fell", "unknown": 7, "unacknowledged": 0}
    missing = {"cause": "capture_incomplete", "unknown": 9, "unacknowledged": 0}
    silent = [{"cause": "cannot_connect", "unacknowledged": many} for many in (2, 3)]
    silent += [{"cause": "never_answered", "unacknowledged": 4}]
    of = incidents.causes_of_silence
    assert of(rows_of(INCIDENTS, fell, missing, *silent)) == {Cause.CANNOT_CONNECT: 5, Cause.NEVER_ANSWERED: 4}
    assert of(rows_of(INCIDENTS, fell, missing)) == {Cause.ACKNOWLEDGMENT_FELL: 7}
    assert of(rows_of(INCIDENTS, missing)) == {}


def test_a_summary_counts_the_causes_of_what_it_leaves_out() -> None:
    told = [{"cause": "message_missing", "outcome": "lost", "lost_messages": 9}] * 5
    rest = [
        {"cause": cause, "outcome": "unknown", "unknown": 1} for cause in ("clocks", "contradicted", "contradicted")
    ]
    rows = rows_of(INCIDENTS, *told, *rest, {"cause": "message_missing", "outcome": "repaired"})
    assert incidents.causes_untold(rows, incidents.unrepaired_incidents(rows)[0]) == {"contradicted": 2, "clocks": 1}


def test_incidents_are_ranked_by_what_was_lost_then_stuck_then_by_all_else() -> None:
    ranked: tuple[tuple[str, dict[str, int], bool | None], ...] = (
        ("lost", {"lost_messages": 24}, False),
        ("lost", {"lost_messages": 1, "pending": 14, "stuck_messages": 9}, True),
        ("lost", {"lost_messages": 1, "repaired": 50}, None),
        ("pending", {"pending": 3, "stuck_messages": 3}, True),
        ("unacknowledged", {"unacknowledged": 2}, True),
        ("pending", {"pending": 90}, True),
        ("unknown", {"unknown": 9}, None),
        ("unknown", {"unknown": 9}, False),
        ("repaired", {"repaired": 7}, False),
    )
    rows = [
        dict.fromkeys(WORST_FIRST, 0) | counts | {"incident_id": str(place), "outcome": outcome, "ongoing": ongoing}
        for place, (outcome, counts, ongoing) in enumerate(ranked)
    ]
    found = incidents.worst_incidents(rows_of(INCIDENTS, *rows[::-1], findings=0, senders=[]), len(rows))
    assert found["incident_id"].to_list() == [row["incident_id"] for row in rows]


def test_listed_messages_take_each_outcome_in_turn_and_the_stuck_ones_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "SAVED_MESSAGES", 2)
    rows = rows_of(
        OUTCOMES,
        message(1, Outcome.PENDING),
        message(2, Outcome.PENDING, stuck=True, first_seen_at=AFTER),
        message(3, Outcome.PENDING, first_seen_at=BEFORE),
        message(4, Outcome.AWAITED),
        message(5, Outcome.DELIVERED),
        message(6, Outcome.PASSED_BY),
        scope_key="s",
        tx_sequence_id=(1_772_474_400 << 32) + 7,
        stuck=False,
    )
    worst = messages.worst_messages(rows)
    assert sorted(worst["tx_sequence_number"]) == [1, 2, 4, 6]
    found = messages.listed_messages(worst, NO_COPIES)
    assert found.select("list", "tx_sequence_number").rows() == [("lost", 6), ("pending", 4), ("pending", 2)]
    assert found["tx_sequence"][0] == "2026-03-02T18:00:00Z#7"
    assert messages.listed_messages(worst.clear(), NO_COPIES).columns == found.columns


def test_a_message_came_from_its_own_address_not_from_that_of_the_one_accepted_in_its_place() -> None:
    accepted, refused, ack = (
        {"role": role, "stream_id": f"{address}>10.0.0.1:1801#0", "stream_offset": 9}
        for role, address in (("accepted", "10.0.0.123:5"), ("duplicate", "[fd00::3]:5"), ("final_ack", "10.0.0.1:7"))
    )
    rows = rows_of(
        OUTCOMES,
        {"witness": [accepted, refused], "message_id": "m\\1"},
        {"witness": [ack, accepted], "message_id": "m\\1"},
        {"witness": [accepted]},
        outcome=Outcome.DISPLACED.value,
        tx_sequence_id=1,
    )
    assert messages.listed_messages(rows, NO_COPIES)["address"].to_list() == ["fd00::3", "10.0.0.123", None]
    copies = pl.DataFrame({"stream_id": [refused["stream_id"]], "copy_of": ["10.0.0.3:5>10.0.0.1:1801#0"]})
    assert messages.listed_messages(rows, copies)["address"].to_list() == ["10.0.0.3", "10.0.0.123", None]


def test_the_fate_of_a_message_is_that_of_all_its_arrivals() -> None:
    key = {"scope_key": "s", "tx_sequence_id": 1, "source_queue_manager": "m"}
    one = {"tx_sequence_number": 1, "message_id": "m\\1", "content_hash": 11}
    verdicts = rows_of(VERDICTS, one, one, one | {"message_id": "m\\2"}, one | {"content_hash": 12}, **key)
    outcomes = rows_of(OUTCOMES, one | {"lost": True}, one | {"message_id": "m\\2", "outcome": "pending"}, **key)
    assert messages.with_fate(verdicts, outcomes)["fate"].to_list() == ["lost", "lost", "pending", ""]


def test_sessions_with_lost_messages_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "LISTED_SESSIONS", 3)
    counts = dict.fromkeys((verdict.value for verdict in Verdict), 5)
    rows = rows_of(SESSIONS, *({"session_id": one, "messages": 9} for one in "abcd"), missing_bytes=0, **counts)
    verdicts = rows_of(VERDICTS, {"session_id": "a", "verdict": "duplicate"})
    outcomes = rows_of(OUTCOMES, message(1, Outcome.GIVEN_UP, session_id="d", numbers=3, stuck=True))
    found = rows_of(FINDINGS, {"session_id": "c", "severity": "warning"}, {"severity": "error"})
    ends = rows_of("stream_ends", *({"stream_id": one, "session_id": "c"} for one in ("s", "t")))
    streams = rows_of("streams", {"stream_id": "s", "src_ip": "1.1.1.1"}, {"stream_id": "t", "src_ip": "1.1.1.2"})
    unusable = sessions.unusable(rows_of("quarantine", {"stage": "framing", "length": 3, "stream_id": "t"}))
    covered = sessions.coverage(streams, ends, unusable)
    ranked = sessions.ranked_sessions(rows, sessions.session_figures(verdicts, outcomes), found, covered)
    names = ("session_id", "messages_lost", "messages_stuck", "warning", "error", "duplicate", "unreadable_bytes")
    assert ranked.select(names).rows() == [("d", 3, 1, 0, 0, 0, 0), ("c", 0, 0, 1, 0, 0, 3), ("a", 0, 0, 0, 0, 1, 0)]
    assert ranked["src_ip"].to_list() == ["", "1.1.1.1, 1.1.1.2", ""]


def test_points_thin_each_verdict_of_a_scope_to_an_equal_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "DRAWN_POINTS", 8)
    monkeypatch.setattr(pictures, "DRAWN_SCOPES", 2)
    rows = rows_of(
        VERDICTS,
        *(arrival(order) for order in range(1, 11)),
        *(arrival(order, "out_of_order") for order in (11, 12)),
        *(arrival(order, "duplicate", scope="y") for order in range(1, 21)),
        arrival(1, "unknown", scope="z"),
        arrival(1, session="t"),
    ).with_columns(fate=pl.lit(""))
    found = pictures.points(rows.sample(fraction=1, shuffle=True, seed=1))
    of_x, of_z = ("s", "x", 3, 12), ("s", "z", 3, 1)
    assert found.select("session_id", "scope_key", "scopes", "messages", "captured_ns").rows() == [
        *((*of_x, order * 100) for order in (1, 4, 7, 10, 11, 12)),
        (*of_z, 100),
        ("t", "x", 1, 1, 100),
    ]
    shown = pictures.pictures(found, pl.DataFrame({"session_id": ["t", "s"], "receiver": ["q", "r"]}))
    expected = [("s", "x", "r"), ("s", "z", "r"), ("t", "x", "q")]
    assert shown.select("session_id", "scope_key", "receiver").rows() == expected


def test_order_acks_are_for_the_pair_that_they_name_or_for_the_senders_of_their_session() -> None:
    drawn = [("m->r", "x", "m", "r"), ("m->r", "y", "n", "r")]
    shown = pl.DataFrame(drawn, schema=[*pictures.PICTURE, "source_queue_manager", "receiver"], orient="row")
    ends = rows_of("stream_ends", {"stream_id": "back", "sender": "r", "receiver": "m"})
    sequences = rows_of(SEQUENCES, *({"scope_key": one, "tx_sequence_id": 2**64 - 1} for one in "xy"))
    acks = rows_of(
        "acks",
        {"queue_manager_address": "00000000-0000-0000-0000-000000000000", "captured_ns": 1},
        {"queue_manager_address": "n", "captured_ns": 2},
        {"captured_ns": 3, "ack_type": "final_ack"},
        {"captured_ns": 4, "tx_sequence_id": 7},
        stream_id="back",
        tx_sequence_number=1,
        source_queue_manager="r",
        ack_type="order_ack",
        tx_sequence_id=2**64 - 1,
    )
    answers = pictures.order_acks(acks, ends=ends, asked=pictures.asked(shown, sequences))
    found = pictures.stairs(pl.concat([answers, answers]))
    assert found.select("scope_key", "ns").rows() == [("x", 1), ("y", 1), ("y", 2)]


def test_a_witness_is_looked_up_in_the_first_table_that_has_it() -> None:
    tables = empty()
    place = {"stream_id": "s", "stream_offset": 1}
    tables["verdicts"] = rows_of(VERDICTS, place | {"verdict": "in_order", "capture_id": "c"})
    tables["stream_gaps"] = rows_of("stream_gaps", *(place | {"stream_offset": at, "length": 49 + at} for at in (1, 2)))
    outcomes = rows_of(OUTCOMES, *(message(number, Outcome.PENDING) for number in (1, 2, 3, 1)), {"witness": []})
    nothing = outcomes.clear()
    others = dict.fromkeys(("earlier", "evidence", "findings"), nothing)
    keys = witness_keys({"incidents": outcomes, "listed_messages": outcomes} | others)
    assert sorted(keys.rows()) == [("s", 1), ("s", 2), ("s", 3)]
    found = {table.name: tables[table.name].select(witness_columns(table)) for table in WITNESSES}
    captures = rows_of(CAPTURES, {"capture_id": "c", "uri": "night.pcap"})
    shown = proofs(found, captures).select("stream_offset", "verdict", "length", "uri")
    assert sorted(shown.rows()) == [(1, "in_order", None, "night.pcap"), (2, None, 51, None)]


def test_what_captures_cannot_show_is_counted() -> None:
    aside = [{"what": "http", "records": 4}]
    captures = rows_of(
        CAPTURES,
        {"status": "ok", "size_bytes": 5, "not_judged": aside},
        {"status": "ok", "size_bytes": 6, "not_judged": [*aside, {"what": "rpc", "records": 1}]},
        {"status": "partial", "reason": "bad_block", "size_bytes": 7},
    )
    bad = {"stage": "framing", "reason": "mid_stream", "length": 3}
    unusable = sessions.unusable(rows_of("quarantine", *(bad | {"stream_id": one} for one in "ab")))
    encrypted = rows_of(SESSIONS, {"encrypted": 2})
    found = sessions.damages(captures, unusable, encrypted).select("what", "reason", "many", "bytes")
    assert found.rows() == [
        ("capture partial", "bad_block", 1, 7),
        ("framing", "mid_stream", 2, 6),
        ("message", "encrypted_body", 2, None),
        *(("other traffic", "http", 8, None), ("other traffic", "rpc", 1, None)),
    ]
    assert sessions.damages(captures.clear(), unusable.clear(), encrypted.clear()).is_empty()
    streams = rows_of("streams", {"missing_bytes": 3, "conflict": True}, {"missing_bytes": 0, "conflict": True})
    books = rows_of(BOOKS, {"balanced": False}, {"balanced": True})
    found_of_streams = {"missing_bytes": 3, "missing": 1, "mid_stream": 0, "conflict": 2, "unbalanced": 1}
    assert sessions.caveats(streams, books) == found_of_streams


def test_all_machines_that_could_not_connect_are_counted() -> None:
    """A summary tells of a few of them; its headline says how many there are."""
    kind = FindingKind.CANNOT_CONNECT.value
    rows = [{"explanation": f"10.0.0.{n} could not connect"} for n in range(9)]
    found = rows_of(FINDINGS, *rows, kind=kind, severity=Severity.WARNING.value)
    assert len(findings.found_alone(found, FindingKind.CANNOT_CONNECT)) == 9


def test_a_sequence_that_is_acknowledged_in_vain_is_told_with_its_machines() -> None:
    rows = (
        {"kind": "repeated_order_ack", "severity": severity, "explanation": f"{severity}.", "found_at": SINCE}
        | {"incident_id": incident, "session_id": "s->r", "destination_queue": "Q"}
        for severity, incident in (("info", "known"), ("info", "nowhere"), ("warning", "known"))
    )
    told = rows_of(INCIDENTS, {"incident_id": "known", "receivers": ["10.0.0.1"], "senders": [{"address": "10.0.0.9"}]})
    assert findings.unheard(rows_of(FINDINGS, *rows), told) == [
        "info. The messages are from 10.0.0.9 to 10.0.0.1, to Q: look to which machine the receiver connects.",
        "info. The messages are of session s->r, to Q: look to which machine the receiver connects.",
    ]
