"""Reports and summaries list and count the rows of literal tables; books are balanced."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from table_frames import arrival, empty, message, rows_of

from jobs.engine.in_process import InProcess
from jobs.reporting import balancing
from jobs.reporting.few import REPORTED, read_few
from jobs.reporting.flow import Collected, collect
from jobs.steps.summary import summary as summary_of
from schemas.ingest import BOOKS, CAPTURES, Book
from schemas.outcomes import OUTCOMES, Outcome
from schemas.replay import FINDINGS, SEQUENCES, SESSIONS, VERDICTS, Verdict
from udfs.derive.frames import Frames
from udfs.derive.report import findings as listed
from udfs.derive.report import messages, period, sessions, summary
from udfs.derive.report.page import Options, proofs, witness_keys
from udfs.derive.report.pictures import asked, carriers, holes, order_acks, pictures, points, stairs

SINCE = datetime(2026, 3, 3, tzinfo=UTC)
BEFORE, AFTER = SINCE - timedelta(hours=1), SINCE + timedelta(hours=1)
NS = 10**9


def engine(tables: Frames) -> InProcess:
    return InProcess(load=lambda table, *_: tables[table.name])


def reported(tables: Frames, options: Options) -> Collected:
    held = engine(tables)
    return collect(held, read_few(held, *REPORTED), options)


@pytest.mark.parametrize("session", [(), ("a->b",)])
@pytest.mark.parametrize("since", [None, SINCE])
def test_a_report_of_nothing_has_rows_of_each_kind(since: datetime | None, session: tuple[str, ...]) -> None:
    options = Options(since, session, 50, 5000, 100, 25, 200, 20, 3, 2000)
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


OF_ONE = Options(SINCE, ("a",), 50, 5000, 100, 25, 200, 20, 3, 2000)


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


def test_a_summary_tells_all() -> None:
    held = engine(some())
    found = summary_of(held, "place")
    assert found["verdicts"] == {"in_order": 3}
    assert found["lost_by"] == [{"lost": 2, "source_queue_manager": None, "destination_queue": None}]
    assert found["findings_by_severity"] == {"info": {"duplicates": 4}}


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


# --- what is chosen, one table at a time -----------------------------------------------------------------------------


def test_the_extent_begins_with_the_period_and_says_whether_it_cuts_traffic_off() -> None:
    rows = rows_of(
        SESSIONS,
        {"first_captured_at": BEFORE, "last_captured_at": BEFORE},
        {"first_captured_at": BEFORE, "last_captured_at": AFTER},
        {},
    )
    since, before, after = (int(at.timestamp()) * NS for at in (SINCE, BEFORE, AFTER))
    cut = {"sessions": 2, "first_ns": since, "last_ns": after, "cut": True}
    assert period.extent(rows, SINCE) == cut
    assert period.extent(rows, SINCE.astimezone()) == cut
    assert period.extent(rows, None) == {"sessions": 3, "first_ns": before, "last_ns": after, "cut": False}
    nothing = {"sessions": 0, "first_ns": None, "last_ns": None, "cut": False}
    assert period.extent(rows.clear(), SINCE) == nothing


def test_the_last_run_begins_with_its_earliest_capture() -> None:
    run = {"ingested_at": AFTER, "first_captured_at": SINCE + timedelta(microseconds=5)}
    captures = rows_of(CAPTURES, run, run | {"first_captured_at": AFTER}, run | {"ingested_at": SINCE}, {})
    assert period.begin_of_last_run(captures) == SINCE
    assert period.begin_of_last_run(captures.clear()) is None
    assert period.begin_of_last_run(captures.tail(1)) is None
    begins = sorted(row["first_ns"] for row in period.busy_hours(captures))
    assert begins == [int(SINCE.timestamp()) * NS + 5_000, int(AFTER.timestamp()) * NS]


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
    )
    found = period.findings_of_period(rows, sequences, SINCE)
    assert found.select("tx_sequence_id", "found_at").rows() == [(1, BEFORE), (None, AFTER), (None, None)]
    assert period.findings_of_period(rows, sequences, None).height == rows.height
    assert period.chosen_sequences(sequences, since=SINCE)["tx_sequence_id"].to_list() == [1]
    assert period.chosen_sequences(sequences, pl.DataFrame({"scope_key": ["t"]})).is_empty()


def test_the_worst_findings_of_each_kind_are_those_in_no_incident_with_most_messages() -> None:
    rows = rows_of(
        FINDINGS,
        {"messages": 9, "incident_id": "i"},
        {"messages": 3, "session_id": "b", "found_at": SINCE},
        {"messages": 3, "session_id": "a"},
        {"messages": 7, "session_id": "a"},
        {"messages": 1, "severity": "info"},
        kind="duplicates",
        severity="error",
    )
    found = listed.worst_findings(rows, 2)
    assert sorted(found.select("severity", "messages", "place", "found_ns").rows()) == [
        *(("error", 3, 2, None), ("error", 7, 1, None)),
        ("info", 1, 1, None),
    ]
    by_kind = {row["severity"]: row for row in listed.findings_by_kind(rows).to_dicts()}
    assert by_kind["error"] | {"findings": 4, "alone": 3, "sessions": 2, "messages": 22} == by_kind["error"]
    assert by_kind["info"]["sessions"] == 0
    gravest = listed.findings_of_incidents(rows.with_columns(incident_id=pl.lit("i")), ["i"], 2)
    assert gravest.select("severity", "messages", "place").rows() == [("error", 9, 1), ("error", 7, 2)]


def test_places_are_since_when_and_where_messages_are_lost_and_stuck() -> None:
    lost = {"lost": True, "numbers": 2, "first_seen_at": AFTER, "destination_queue": "a"}
    rows = rows_of(
        OUTCOMES,
        lost,
        lost | {"destination_queue": "b", "first_seen_at": SINCE},
        lost | {"destination_queue": None, "numbers": 1},
        {"stuck": True, "numbers": 1, "first_seen_at": BEFORE},
        {"lost": None, "numbers": 9},
        source_queue_manager="m",
        stuck=False,
    )
    queues = messages.harm_by_queue(rows)
    (found,) = messages.places(queues).to_dicts()
    since, before = (int(at.timestamp()) * NS for at in (SINCE, BEFORE))
    assert found == {
        "lost": 5,
        "lost_since_ns": since,
        "lost_queue": "b",
        "lost_queues": 3,
        "stuck": 1,
        "stuck_since_ns": before,
        "stuck_queue": None,
        "stuck_queues": 1,
    }
    assert [(row["lost"], row["destination_queue"]) for row in summary.lost_by(queues)] == [
        (2, "a"),
        (2, "b"),
        (1, None),
    ]
    assert summary.sums_of_sessions(rows_of(SESSIONS))["judged"] is None
    (nowhere,) = messages.places(queues.clear()).to_dicts()
    assert (nowhere["lost"], nowhere["lost_since_ns"], nowhere["stuck_queue"]) == (0, None, None)


def test_listed_messages_take_each_outcome_in_turn_and_the_stuck_ones_first() -> None:
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
    found = messages.listed_messages(rows, 2)
    assert found.select("list", "place", "tx_sequence_number").rows() == [
        *(("lost", 1, 6), ("pending", 1, 4)),
        *(("pending", 1, 2), ("pending", 2, 1)),
    ]
    assert found["tx_sequence"][0] == "2026-03-02T18:00:00Z#7"
    assert messages.take_turns(found, 1)["tx_sequence_number"].to_list() == [6, 4]
    assert messages.listed_messages(rows.clear(), 2).columns == found.columns


def test_the_fate_of_a_message_is_that_of_all_its_arrivals() -> None:
    key = {"scope_key": "s", "tx_sequence_id": 1, "source_queue_manager": "m"}
    one = {"tx_sequence_number": 1, "message_id": "m\\1", "content_hash": 11}
    verdicts = rows_of(VERDICTS, one, one, one | {"message_id": "m\\2"}, one | {"content_hash": 12}, **key)
    outcomes = rows_of(OUTCOMES, one | {"lost": True}, one | {"message_id": "m\\2", "outcome": "pending"}, **key)
    assert messages.with_fate(verdicts, outcomes)["fate"].to_list() == ["lost", "lost", "pending", ""]
    unseen_numbers = outcomes.with_columns(message_id=pl.lit(None, pl.String))
    assert messages.with_fate(verdicts, unseen_numbers)["fate"].to_list() == [""] * 4


def test_sessions_with_lost_messages_come_first() -> None:
    counts = dict.fromkeys((verdict.value for verdict in Verdict), 5)
    rows = rows_of(SESSIONS, *({"session_id": one, "messages": 9} for one in "abcd"), missing_bytes=0, **counts)
    verdicts = rows_of(VERDICTS, {"session_id": "a", "verdict": "duplicate"})
    outcomes = rows_of(OUTCOMES, message(1, Outcome.GIVEN_UP, session_id="d", numbers=3, stuck=True))
    found = rows_of(FINDINGS, {"session_id": "c", "severity": "warning"}, {"severity": "error"})
    ranked = sessions.ranked_sessions(rows, sessions.session_figures(verdicts, outcomes), found, 3)
    names = ("session_id", "messages_lost", "messages_stuck", "warning", "error", "duplicate")
    assert ranked.select(names).rows() == [("d", 3, 1, 0, 0, 0), ("c", 0, 0, 1, 0, 0), ("a", 0, 0, 0, 0, 1)]


def test_points_thin_each_verdict_of_a_scope_to_an_equal_share() -> None:
    rows = rows_of(
        VERDICTS,
        *(arrival(order) for order in range(1, 11)),
        *(arrival(order, "out_of_order") for order in (11, 12)),
        *(arrival(order, "duplicate", scope="y") for order in range(1, 21)),
        arrival(1, "unknown", scope="z"),
        arrival(1, session="t"),
    ).with_columns(fate=pl.lit(""))
    found = points(rows.sample(fraction=1, shuffle=True, seed=1), 2, 8)
    chosen = ("session_id", "scope_key", "place", "scopes", "messages", "captured_ns")
    of_x, of_z = ("s", "x", 1, 3, 12), ("s", "z", 2, 3, 1)
    assert found.select(chosen).rows() == [
        *((*of_x, order * 100) for order in (1, 4, 7, 10, 11, 12)),
        (*of_z, 100),
        ("t", "x", 1, 1, 1, 100),
    ]
    shown = pictures(found, pl.DataFrame({"session_id": ["s", "t"], "receiver": ["r", "q"]}))
    assert shown.select("session_id", "scope_key", "receiver").rows() == [
        *(("s", "x", "r"), ("s", "z", "r")),
        ("t", "x", "q"),
    ]


def test_a_hole_has_the_time_of_the_next_message_or_of_the_end_of_its_stream() -> None:
    tables = empty()
    gaps = [("s1", 15, 3), ("s1", 5, 2), ("s2", 0, 1), ("t1", 0, 7), ("none", 0, 9)]
    tables["stream_gaps"] = pl.DataFrame(gaps, schema=tables["stream_gaps"].schema, orient="row")
    ends = rows_of("stream_ends", *({"stream_id": one, "session_id": one[0]} for one in ("s1", "s2", "t1")))
    streams = rows_of("streams", *({"stream_id": one, "last_captured_at": SINCE} for one in ("s1", "s2", "t1")))
    verdicts = rows_of(VERDICTS, arrival(1), arrival(2) | {"captured_ns": None}, arrival(3))
    known = tables["stream_gaps"].join(carriers(ends, streams), on="stream_id")
    end = int(SINCE.timestamp()) * NS
    assert holes(known, verdicts, 10).rows() == [("s", 100, 2), ("s", 300, 5), ("s", end, 6)]
    assert holes(known, verdicts, 1).rows() == [("s", 100, 2), ("s", end, 6)]
    assert holes(known, verdicts.clear(), 10).is_empty()


def test_order_acks_are_for_the_pair_that_they_name_or_for_the_senders_of_their_session() -> None:
    shown = pl.DataFrame(
        [("m->r", "x", "m", "r"), ("m->r", "y", "n", "r")],
        schema=["session_id", "scope_key", "source_queue_manager", "receiver"],
        orient="row",
    )
    ends = rows_of(
        "stream_ends",
        {"stream_id": "back", "sender": "r", "receiver": "m"},
        {"stream_id": "other", "sender": "10.0.0.9", "receiver": "m"},
    )
    sequences = rows_of(SEQUENCES, *({"scope_key": one, "tx_sequence_id": 2**64 - 1} for one in "xy"))
    ack = {"stream_id": "back", "captured_ns": 1, "tx_sequence_number": 1, "source_queue_manager": "r"}
    nobody = "00000000-0000-0000-0000-000000000000"
    acks = rows_of(
        "acks",
        ack | {"queue_manager_address": nobody},
        ack | {"captured_ns": 2, "queue_manager_address": "n"},
        ack | {"stream_id": "other", "captured_ns": 3, "queue_manager_address": "m"},
        ack | {"stream_id": "other", "captured_ns": 4},  # of a session that is not drawn
        ack | {"captured_ns": None},
        ack | {"captured_ns": 5, "ack_type": "final_ack"},
        ack | {"captured_ns": 6, "tx_sequence_id": 7},
        ack_type="order_ack",
        tx_sequence_id=2**64 - 1,
    )
    answers = order_acks(acks, ends=ends, asked=asked(shown, sequences))
    found = stairs(pl.concat([answers, answers]), 10)
    assert found.select("scope_key", "ns").rows() == [("x", 1), ("x", 3), ("y", 1), ("y", 2)]
    assert stairs(found, 1).select("scope_key", "ns").rows() == [("x", 1), ("x", 3), ("y", 1), ("y", 2)]
    assert order_acks(acks, ends=ends, asked=asked(shown.clear(), sequences)).is_empty()


def test_a_witness_is_looked_up_in_the_first_table_that_has_it() -> None:
    tables = empty()
    place = {"stream_id": "s", "stream_offset": 1}
    tables["verdicts"] = rows_of(
        VERDICTS, place | {"verdict": "in_order", "capture_id": "c"}, place | {"stream_offset": 9}
    )
    tables["stream_gaps"] = rows_of("stream_gaps", *(place | {"stream_offset": at, "length": 49 + at} for at in (1, 2)))
    tables["captures"] = rows_of(CAPTURES, {"capture_id": "c", "uri": "night.pcap"})
    outcomes = rows_of(OUTCOMES, *(message(number, Outcome.PENDING) for number in (1, 2, 3, 1)), {"witness": []})
    nothing = outcomes.clear()
    keys = witness_keys({"incidents": outcomes, "evidence": nothing, "findings": nothing, "listed_messages": outcomes})
    assert sorted(keys.rows()) == [("s", 1), ("s", 2), ("s", 3)]
    names = ("stream_offset", "verdict", "length", "uri")
    assert sorted(proofs(tables, keys).select(names).rows()) == [
        *((1, "in_order", None, "night.pcap"), (2, None, 51, None)),
    ]


def test_what_captures_cannot_show_is_counted() -> None:
    tables = empty()
    aside = [{"what": "http", "records": 4}]
    captures = rows_of(
        CAPTURES,
        {"status": "ok", "size_bytes": 5, "not_judged": aside},
        {"status": "ok", "size_bytes": 6, "not_judged": [*aside, {"what": "rpc", "records": 1}]},
        {"status": "partial", "reason": "bad_block", "size_bytes": 7},
    )
    bad = {"stage": "framing", "reason": "mid_stream", "length": 3}
    quarantine = rows_of("quarantine", *(bad | {"stream_id": one} for one in "ab"))
    unusable = sessions.unusable(quarantine)
    encrypted = rows_of(SESSIONS, {"encrypted": 2})
    found = sessions.caveats(captures, tables["streams"], unusable, tables["books"], encrypted)
    assert sorted(found.rows(), key=str) == [
        *(("capture ok", None, 2, 11), ("capture partial", "bad_block", 1, 7), ("conflict", None, 0, None)),
        *(("framing", "mid_stream", 2, 6), ("message", "encrypted_body", 2, None), ("mid_stream", None, 0, None)),
        *(("missing", None, 0, None), ("other traffic", "http", 8, None), ("other traffic", "rpc", 1, None)),
        ("unbalanced", None, 0, None),
    ]
    none = (captures.clear(), tables["streams"], unusable.clear(), tables["books"], encrypted.clear())
    assert sessions.caveats(*none).height == 4
