"""Sums per sequence, states of scopes, books, quarantine and packets on their way, from frames."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE, STREAMS
from schemas.messages import DECODED_TABLES
from schemas.outcomes import LOST, OUTCOME_COUNTS, OUTCOMES, Outcome, count_column
from schemas.replay import SEQUENCES, STATES, VERDICTS, Verdict
from schemas.table import Table
from udfs.derive import books
from udfs.derive.columns import quotient
from udfs.derive.decode import quarantine_undecodable
from udfs.derive.summaries.sequences import summarize_sequences, summarize_states
from udfs.derive.tables import schema_of

Row = Mapping[str, Any]
Schema = dict[str, pl.DataType | type[pl.DataType]]
BEGAN = datetime(2026, 3, 2, 18, tzinfo=UTC)
FIRST = 1772474400 << 32 | 1
HIGHEST = (1 << 64) - 1
TALLY: Schema = {
    **dict.fromkeys(("scope_key", "source_queue_manager", "session_id"), pl.String),
    "tx_sequence_id": pl.UInt64,
    **dict.fromkeys(("messages", *Verdict, "expired", "first_number", "last_number", "last_accepted_number"), pl.Int64),
    **dict.fromkeys(("first_captured_at", "last_captured_at"), pl.Datetime("us", "UTC")),
}
COUNTED: Schema = {
    "scope_key": pl.String,
    "tx_sequence_id": pl.UInt64,
    "session_id": pl.String,
    **dict.fromkeys((*map(count_column, Outcome), "delivered_arrivals"), pl.Int64),
}
SLOTS: Schema = {
    "scope_key": pl.String,
    "tx_sequence_id": pl.UInt64,
    **dict.fromkeys(("first_number_due", "numbers_due", "numbers_seen"), pl.Int64),
}
SCOPE_STATE: Schema = {
    **dict.fromkeys(("scope_key", "source_queue_manager", "session_id"), pl.String),
    **dict.fromkeys(("state_sequence", "state_number", "reject_count", "messages"), pl.Int64),
    "last_captured_at": pl.Datetime("us", "UTC"),
    "last_captured_ns": pl.Int64,
    "state_assumed": pl.Boolean,
}


def frame(table: Table, rows: Sequence[Row] = ()) -> pl.DataFrame:
    """Returns rows of a table; columns that they lack are null."""
    return pl.DataFrame(list(rows), schema_of(table.arrow))


def singly(table: Table, rows: Sequence[Row] = ()) -> pl.DataFrame:
    """Returns sums over rows of a table, each over one."""
    return frame(table, rows).with_columns(pl.lit(1).alias("count"))


def tallies(*rows: Row) -> pl.DataFrame:
    zero = dict.fromkeys((*Verdict, "expired"), 0)
    return pl.DataFrame([{"source_queue_manager": "guid", **zero, **row} for row in rows], TALLY)


def counts(*rows: Row) -> pl.DataFrame:
    zero = dict.fromkeys((*map(count_column, Outcome), "delivered_arrivals"), 0)
    return pl.DataFrame([{**zero, **row} for row in rows], COUNTED)


def test_the_tallies_of_a_sequence_add_up() -> None:
    one = {"scope_key": "one", "tx_sequence_id": FIRST}
    rows = summarize_sequences(
        tallies(
            one
            | {"messages": 3, "in_order": 2, "duplicate": 1, "first_number": 1, "last_number": 2, "expired": 4}
            | {"last_accepted_number": 2, "first_captured_at": BEGAN},
            one
            | {"messages": 1, "out_of_order": 1, "first_number": 9, "last_number": 9}
            | {"last_captured_at": BEGAN + timedelta(seconds=5)},
            {"scope_key": "two", "tx_sequence_id": HIGHEST, "messages": 1, "first_number": 7, "last_number": 7},
        ),
        counts(
            one | {"session_id": "a", "delivered": 2, "delivered_arrivals": 3},
            one | {"session_id": "b", "displaced": 1, "never_seen": 2, "unknown_outcome": 1},
            {"scope_key": "two", "tx_sequence_id": HIGHEST, "session_id": "a"},
        ),
        pl.DataFrame([one | {"first_number_due": 1, "numbers_due": 2, "numbers_seen": 2}], SLOTS),
    )
    assert rows.schema == schema_of(SEQUENCES.arrow)
    first, second = rows.sort("scope_key").to_dicts()
    shown = ("tx_sequence", "messages", "in_order", "duplicate", "out_of_order", "expired", "numbers_due")
    assert [first[name] for name in shown] == ["2026-03-02T18:00:00Z#1", 4, 2, 1, 1, 4, 2]
    assert [first[name] for name in ("first_number", "last_number", "last_accepted_number")] == [1, 9, 2]
    assert first["last_captured_at"] - first["first_captured_at"] == timedelta(seconds=5)
    assert [first[name] for name in ("delivered", "displaced", "never_seen", "unknown_outcome")] == [2, 1, 2, 1]
    assert [first[name] for name in ("lost", "delivered_arrivals", "source_queue_manager")] == [3, 3, "guid"]
    unknown = ("last_accepted_number", "first_captured_at", "first_number_due", "numbers_due", "numbers_seen")
    assert [second[name] for name in unknown] == [None] * 5
    assert (second["tx_sequence"], second["lost"]) == ("2106-02-07T06:28:15Z#4294967295", 0)


def test_every_outcome_that_is_lost_counts_as_lost() -> None:
    key = {"scope_key": "one", "tx_sequence_id": FIRST}
    each = dict(zip(map(count_column, Outcome), range(1, 100), strict=False))
    rows = summarize_sequences(tallies(key | {"messages": 1}), counts(key | each), pl.DataFrame(schema=SLOTS))
    assert rows["lost"].to_list() == [sum(each[outcome] for outcome in LOST)]


def test_without_outcomes_what_counts_them_is_null() -> None:
    rows = summarize_sequences(tallies({"scope_key": "one", "tx_sequence_id": FIRST, "messages": 1}), None, None)
    assert rows.schema == schema_of(SEQUENCES.arrow)
    told = [
        *(column.name for column in OUTCOME_COUNTS),
        "delivered_arrivals",
        "first_number_due",
        "numbers_due",
        "numbers_seen",
    ]
    assert set(rows.select(told).row(0)) == {None}


def test_a_scope_without_messages_since_keeps_its_earlier_state() -> None:
    now = pl.DataFrame(
        [
            {"scope_key": "judged", "state_sequence": FIRST - (1 << 63), "state_number": 5, "reject_count": 2}
            | {"state_assumed": True, "messages": 8},
            {"scope_key": "highest", "state_sequence": (1 << 63) - 1, "state_number": 1, "reject_count": 0}
            | {"state_assumed": False, "messages": 1},
        ],
        SCOPE_STATE,
    )
    earlier = frame(
        STATES,
        [
            {"scope_key": "judged", "tx_sequence_id": FIRST, "tx_sequence_number": 1, "assumed": False, "messages": 3},
            {"scope_key": "idle", "tx_sequence_id": 0, "tx_sequence_number": 0, "assumed": None, "messages": 3},
        ],
    )
    rows = summarize_states(now, earlier)
    assert rows.schema == schema_of(STATES.arrow)
    shown = rows.select("scope_key", "tx_sequence_id", "tx_sequence", "tx_sequence_number", "assumed", "messages")
    assert sorted(shown.rows()) == [
        ("highest", HIGHEST, "2106-02-07T06:28:15Z#4294967295", 1, False, 1),
        ("idle", 0, "1970-01-01T00:00:00Z#0", 0, False, 0),
        ("judged", FIRST, "2026-03-02T18:00:00Z#1", 5, True, 8),
    ]
    assert summarize_states(now, frame(STATES)).height == 2


def balanced(rows: pl.DataFrame, key: str) -> dict[str | None, tuple[int, int, bool]]:
    """Returns both sides and whether they are equal, by key; no other key is told."""
    assert rows.schema == schema_of(BOOKS.arrow)
    assert all(rows[name].is_null().all() for name in BOOKS.key[1:] if name != key)
    return {row[key]: (row["left_side"], row["right_side"], row["balanced"]) for row in rows.to_dicts()}


def test_records_of_a_capture_are_segments_other_traffic_or_quarantined() -> None:
    captures: list[Row] = [
        {"capture_id": "a", "packet_count": 10, "segment_count": 7, "other_count": 1},
        {"capture_id": "b", "packet_count": 4, "segment_count": 3, "other_count": 2},
        {"capture_id": "unreadable"},
    ]
    unusable = [{"stage": stage, "capture_id": "a"} for stage in ("frame", "frame", "capture", "decode")]
    found = books.balance_records(frame(CAPTURES, captures), singly(QUARANTINE, unusable))
    assert found["book"].unique().to_list() == ["records"]
    assert balanced(found, "capture_id") == {"a": (10, 10, True), "b": (4, 5, False), "unreadable": (0, 0, True)}


def test_bytes_of_a_stream_are_framed_or_quarantined() -> None:
    streams = [{"stream_id": "a", "recovered_bytes": 1 << 40}, {"stream_id": "b", "recovered_bytes": 5}]
    packets = [{"stream_id": "a", "size": (1 << 40) - 3}, {"stream_id": "a", "size": 1}, {"stream_id": "c", "size": 9}]
    unusable = [{"stage": "framing", "stream_id": "a", "length": 2}, {"stage": "tcp", "stream_id": "a", "length": 7}]
    found = books.balance_bytes(frame(STREAMS, streams), singly(PACKETS, packets), singly(QUARANTINE, unusable))
    assert balanced(found, "stream_id") == {"a": (1 << 40, 1 << 40, True), "b": (5, 0, False), "c": (0, 9, False)}


def test_packets_of_a_stream_are_decoded_or_quarantined() -> None:
    packets = singly(PACKETS, [{"stream_id": stream} for stream in "aaaab"])
    decoded = [
        singly(table, [{"stream_id": "a"}] * many) for table, many in zip(DECODED_TABLES, (2, 1, 0), strict=False)
    ]
    unusable = singly(QUARANTINE, [{"stage": "decode", "stream_id": "a"}, {"stage": "framing", "stream_id": "a"}])
    found = books.balance_packets(packets, decoded, unusable)
    assert balanced(found, "stream_id") == {"a": (4, 4, True), "b": (1, 0, False)}


def test_verdicts_are_arrivals_of_unusual_and_of_delivered_messages() -> None:
    verdicts = singly(VERDICTS, [{"scope_key": scope} for scope in "aaaaab"])
    outcomes = frame(OUTCOMES, [{"scope_key": "a", "arrivals": 2}, {"scope_key": "a", "arrivals": 0}])
    sequences = frame(
        SEQUENCES,
        [
            {"scope_key": "a", "messages": 5, "delivered_arrivals": 3},
            {"scope_key": "b", "messages": 1},  # the literal reading tells no outcomes
        ],
    )
    found = books.balance_arrivals(verdicts, outcomes, sequences)
    assert balanced(found, "scope_key") == {"a": (5, 5, True), "b": (1, 1, True)}


def test_numbers_were_seen_or_have_an_outcome_without_a_message() -> None:
    due = {"tx_sequence_id": FIRST, "first_number_due": 3, "numbers_due": 10, "numbers_seen": 7}
    sequences: list[Row] = [
        {"scope_key": "a"} | due,
        {"scope_key": "b"} | due,
        {"scope_key": "a", "tx_sequence_id": FIRST + 1},
    ]
    unseen = {"scope_key": "a", "tx_sequence_id": FIRST, "numbers": 3}
    outcomes: list[Row] = [
        unseen | {"tx_sequence_number": 12},  # the last number
        unseen | {"tx_sequence_number": 13},
        unseen | {"tx_sequence_number": 2},
        unseen | {"tx_sequence_number": 5, "message_id": "seen"},
        unseen | {"tx_sequence_number": 5, "tx_sequence_id": FIRST + 1},
    ]
    found = books.balance_numbers(frame(OUTCOMES, outcomes), frame(SEQUENCES, sequences))
    assert balanced(found, "scope_key") == {"a": (10, 10, True), "b": (10, 7, False)}


@pytest.mark.parametrize(
    "balance",
    [
        lambda: books.balance_records(frame(CAPTURES), singly(QUARANTINE)),
        lambda: books.balance_bytes(frame(STREAMS), singly(PACKETS), singly(QUARANTINE)),
        lambda: books.balance_packets(singly(PACKETS), list(map(singly, DECODED_TABLES)), singly(QUARANTINE)),
        lambda: books.balance_arrivals(singly(VERDICTS), frame(OUTCOMES), frame(SEQUENCES)),
        lambda: books.balance_numbers(frame(OUTCOMES), frame(SEQUENCES)),
    ],
)
def test_books_of_nothing_have_no_rows(balance: Callable[[], pl.DataFrame]) -> None:
    assert balanced(balance(), "book") == {}


def test_sums_of_nothing_have_no_rows() -> None:
    nothing = summarize_sequences(tallies(), counts(), pl.DataFrame(schema=SLOTS))
    assert (nothing.height, nothing.schema) == (0, schema_of(SEQUENCES.arrow))
    nothing = summarize_states(pl.DataFrame(schema=SCOPE_STATE), frame(STATES))
    assert (nothing.height, nothing.schema) == (0, schema_of(STATES.arrow))


def test_the_first_bytes_of_a_packet_that_cannot_be_decoded_are_kept() -> None:
    explained = frame(
        PACKETS,
        [
            {"stream_id": "a", "stream_offset": 7, "size": 5, "capture_id": "c", "last_frame": 9, "raw": b"12345"},
            {"stream_id": "b", "raw": b"12"},
            {"stream_id": "c"},
        ],
    ).with_columns(reason=pl.lit("bad"), detail=pl.lit("It is bad."))
    rows = quarantine_undecodable(explained, 3)
    assert rows.schema == schema_of(QUARANTINE.arrow)
    assert rows.row(0) == ("decode", "bad", "It is bad.", "c", "a", 9, 7, 5, b"123")
    assert rows["raw"].to_list() == [b"123", b"12", None]
    assert quarantine_undecodable(explained.clear(), 3).schema == rows.schema


def test_quotients_are_the_nearest_doubles() -> None:
    figures = [60_000_000_000, 7, 999_999_999_999_999, None]
    frame = pl.DataFrame({"ns": figures}, {"ns": pl.Int64})
    for divisor in (1_000_000_000, 1e6, 1000):
        expected = [None if ns is None else ns / divisor for ns in figures]
        assert frame.select(quotient(pl.col("ns"), divisor))["ns"].to_list() == expected
    assert frame.clear().select(quotient(pl.col("ns"), 1000)).schema == {"ns": pl.Float64()}
