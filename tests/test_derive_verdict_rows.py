"""Rows of VERDICTS: messages, each with what the passes found of its run."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
from frames_of import frame_of

from schemas.judging import ENDED, PIECE_BYTES, PROVEN
from schemas.messages import MESSAGES
from schemas.replay import ENDS, VERDICTS
from udfs.derive.frames import to_frame
from udfs.derive.replay.marks import number_streams
from udfs.derive.replay.scopes import CONTENT, FLOW_KEY, TRANSACTIONAL
from udfs.derive.replay.verdict_rows import verdict_rows, with_disputes
from udfs.derive.spark_hash import xxhash64
from udfs.replay.evidence import end_doubts

S = 1 << 63
"""A TxSequenceID that is 0 when it is `signed`."""
_FLOW: dict[str, Any] = {
    **dict.fromkeys((*FLOW_KEY, "session_id", "receiver", "replay_scope", "scope_key"), pl.String),
    "first_ns": pl.Int64,
    "mid_stream": pl.Boolean,
    "doubtful": pl.Boolean,
}
_PLACE: dict[str, Any] = {"stream_id": pl.String, "stream_offset": pl.Int64}
Rows = list[dict[str, Any]]


def message(at: int, stream: str = "x", number: int = 1, **columns: Any) -> dict[str, Any]:
    """Returns a message from a, captured 1 s after 1970."""
    row = {"stream_id": stream, "source_queue_manager": "a", "destination_queue": "q", "stream_offset": at}
    row |= {"captured_ns": 1_000_000_000, "tx_sequence_id": S, "tx_sequence_number": number, "message_id": f"a\\{at}"}
    return row | columns


def streams_of(*streams: str) -> pl.DataFrame:
    """Returns streams, each in a scope with its name."""
    rows = [
        message(0, name) | {"session_id": "a->b", "receiver": "b", "scope_key": f"of {name}", "first_ns": 1}
        for name in streams
    ]
    flows = pl.DataFrame([{name: row.get(name) for name in _FLOW} for row in rows], schema=_FLOW)
    return number_streams(flows, pl.DataFrame(schema=_PLACE), frame_of(ENDS))


def run(streams: pl.DataFrame, first: int, last: int, stream: str = "x", **columns: Any) -> dict[str, Any]:
    """Returns a row of PROVEN for the offsets of a stream."""
    place = streams.filter(pl.col("stream_id") == stream).row(0, named=True)
    row = {
        "scope_no": place["scope_no"],
        "stream_no": place["stream_no"],
        "piece": first // PIECE_BYTES,
        "replay_order": 4,
    }
    row |= {"first_offset": first, "last_offset": last, "sequence": 0, "first_number": 1, "accepted": True}
    return row | {"verdict": "in_order", "evidence": "none", "in_doubt": False} | columns


def proven_of(*rows: dict[str, Any]) -> pl.DataFrame:
    """Returns rows of PROVEN, by scope and order, with the end of their doubt."""
    proven = pa.Table.from_pylist(sorted(rows, key=lambda row: (row["scope_no"], row["replay_order"])), PROVEN)
    return to_frame(pa.Table.from_batches(end_doubts(proven.to_batches(max_chunksize=2)), ENDED))


def verdicts(messages: Rows, streams: pl.DataFrame, *runs: dict[str, Any]) -> Rows:
    """Returns rows of VERDICTS, by stream and offset."""
    rows = frame_of(MESSAGES, *messages).select(TRANSACTIONAL)
    found = verdict_rows(proven_of(*runs), rows, streams)
    assert found.schema == frame_of(VERDICTS).schema
    return found.sort("stream_id", "stream_offset").rows(named=True)


def test_each_message_has_what_its_run_says() -> None:
    streams = streams_of("x", "y")
    runs = [
        run(streams, 0, 200, replay_order=10, verdict="new_sequence"),
        run(streams, 300, 300, replay_order=13, first_number=8, verdict="duplicate"),
        run(streams, 0, 300, "y", replay_order=1, first_number=5),
    ]
    places = [("x", 0, 1), ("x", 100, 2), ("x", 200, 3), ("x", 250, 9), ("x", 300, 8), ("y", 200, 6), ("z", 0, 1)]
    found = verdicts([message(at, stream, number) for stream, at, number in reversed(places)], streams, *runs)
    assert [(row["stream_id"], row["stream_offset"], row["verdict"], row["replay_order"]) for row in found] == [
        ("x", 0, "new_sequence", 10),
        ("x", 100, "new_sequence", 11),
        ("x", 200, "new_sequence", 12),
        ("x", 300, "duplicate", 13),
        ("y", 200, "in_order", 2),
    ]
    assert {(row["scope_key"], row["session_id"]) for row in found if row["stream_id"] == "y"} == {("of y", "a->b")}


def test_values_of_a_verdict() -> None:
    streams, second = streams_of("x"), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    columns = {"state_sequence": -1, "state_number": 6, "first_number": 7}
    times = {"acknowledged_ns": 1_002_000_999, "covered_ns": 999_999_999, "final_ns": 1_000_500_000}
    (row,) = verdicts([message(0, number=8)], streams, run(streams, 0, 0) | columns | times)
    assert (row["incoming_tx_sequence_id"], row["incoming_tx_sequence_number"]) == (S - 1, 7)
    assert row["tx_sequence"] == "2038-01-19T03:14:08Z#0"
    assert (row["ack_latency_ms"], row["final_ack_latency_ms"]) == (2.000999, 0.5)
    assert row["acknowledged_at"] == second + timedelta(microseconds=2_000)
    assert row["covered_at"] == second - timedelta(microseconds=1)


def test_what_is_not_known_is_null() -> None:
    streams = streams_of("x")
    (row,) = verdicts([message(0, captured_ns=None)], streams, run(streams, 0, 0, acknowledged_ns=5))
    names = ("incoming_tx_sequence_id", "incoming_tx_sequence_number", "ack_latency_ms", "covered_at")
    assert [row[name] for name in names] == [None] * len(names)


def test_the_content_has_the_hash_that_spark_gives_it() -> None:
    streams = streams_of("x")
    content = {"label": "l", "tx_first": True, "message_class": 1, "sent_at": datetime(2026, 3, 2, tzinfo=UTC)}
    messages = [message(0) | content, message(9), message(9, "other")]
    found = verdicts(messages, streams, run(streams, 0, 9))
    expected = xxhash64(frame_of(MESSAGES, *messages[:2]).select(CONTENT)).to_list()
    assert [row["content_hash"] for row in found] == expected


def test_a_doubt_ends_when_an_order_ack_covers_the_message_that_it_rests_on() -> None:
    streams = streams_of("x", "y")
    rows = [
        run(streams, 0, 0, replay_order=1, accepted=None, covered_ns=70, initially_until=5),
        run(streams, 1, 1, replay_order=2, doubt_order=1, in_doubt=True, initially_until=80),
        run(streams, 2, 2, replay_order=3, doubt_order=1, initially_until=90),
        run(streams, 3, 3, replay_order=4, accepted=None, doubt_order=1),
        run(streams, 4, 4, replay_order=5, doubt_order=4),
        run(streams, 0, 0, "y", replay_order=1),
        run(streams, 1, 1, "y", replay_order=2, accepted=None, covered_ns=60),
        run(streams, 2, 2, "y", replay_order=3, doubt_order=2, initially_until=50),
    ]
    found = proven_of(*rows).join(streams, on="scope_no").sort("scope_key", "replay_order")
    assert found["doubt_ended_ns"].to_list() == [5, 70, 70, 70, None, None, None, 60]


def test_a_verdict_is_assumed_until_its_doubt_ends() -> None:
    streams = streams_of("x")
    cases = [(True, None), (True, 999_999_999), (True, 1_000_000_000), (False, None), (None, None), (None, 5)]
    runs = [run(streams, at, at, in_doubt=doubt, initially_until=ns) for at, (doubt, ns) in enumerate(cases)]
    found = verdicts([message(at) for at in range(len(cases))], streams, *runs)
    assert [row["assumed"] for row in found] == [True, False, True, False, None, False]


def test_disputed_messages_that_cannot_be_judged_say_why() -> None:
    reasons = ["capture_gap", "capture_gap", "late", None]
    rows = [{"stream_id": "x", "stream_offset": at, "reason": reason} for at, reason in enumerate(reasons)]
    disputed = pl.DataFrame([("x", 3), ("x", 2), ("x", 1), ("x", 1), ("y", 0)], schema=_PLACE, orient="row")
    found = with_disputes(frame_of(VERDICTS, *rows), disputed)
    assert found["reason"].to_list() == ["capture_gap", "clocks_differ", "late", None]
    assert found.schema == frame_of(VERDICTS).schema
    assert with_disputes(found.clear(), disputed).schema == found.schema


def test_no_messages_have_no_verdicts() -> None:
    assert verdicts([], streams_of()) == []
    assert verdicts([message(0)], streams_of("x")) == []
