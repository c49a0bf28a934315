"""Books, and the quarantine of what cannot be decoded, from frames."""

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
from table_frames import rows_of

from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE, STREAMS
from schemas.messages import DECODED_TABLES
from schemas.outcomes import OUTCOMES
from schemas.replay import SEQUENCES, VERDICTS
from schemas.table import Table
from udfs.derive import books
from udfs.derive.tables import schema_of
from udfs.passes.decode import quarantine_packets

Row = dict[str, Any]
FIRST = 1772474400 << 32 | 1


def singly(table: Table, rows: Sequence[Row] = ()) -> pl.DataFrame:
    """Returns sums over rows of a table, each over one."""
    return rows_of(table, *rows).with_columns(pl.lit(1).alias("count"))


def balanced(balance: Callable[..., pl.DataFrame], *tables: Any, key: str) -> dict[str | None, tuple[int, int, bool]]:
    """Returns both sides of a book and whether they are equal, by key; no other key is told, and nothing of nothing."""
    rows = balance(*tables)
    nothing = balance(*([one.clear() for one in of] if isinstance(of, list) else of.clear() for of in tables))
    assert nothing.is_empty()
    assert rows.schema == nothing.schema == schema_of(BOOKS.arrow)
    assert all(rows[name].is_null().all() for name in BOOKS.key[1:] if name != key)
    return {row[key]: (row["left_side"], row["right_side"], row["balanced"]) for row in rows.to_dicts()}


def test_records_of_a_capture_are_segments_other_traffic_or_quarantined() -> None:
    captures: list[Row] = [
        {"capture_id": "a", "packet_count": 10, "segment_count": 7, "other_count": 1},
        {"capture_id": "b", "packet_count": 4, "segment_count": 3, "other_count": 2},
        {"capture_id": "unreadable"},
    ]
    unusable = [{"stage": stage, "capture_id": "a"} for stage in ("frame", "frame", "capture", "decode")]
    found = balanced(
        books.balance_records, rows_of(CAPTURES, *captures), singly(QUARANTINE, unusable), key="capture_id"
    )
    assert found == {"a": (10, 10, True), "b": (4, 5, False), "unreadable": (0, 0, True)}


def test_bytes_of_a_stream_are_framed_or_quarantined() -> None:
    streams = [{"stream_id": "a", "recovered_bytes": 1 << 40}, {"stream_id": "b", "recovered_bytes": 5}]
    packets = [{"stream_id": "a", "size": (1 << 40) - 3}, {"stream_id": "a", "size": 1}, {"stream_id": "c", "size": 9}]
    unusable = [{"stage": "framing", "stream_id": "a", "length": 2}, {"stage": "tcp", "stream_id": "a", "length": 7}]
    found = balanced(
        books.balance_bytes,
        rows_of(STREAMS, *streams),
        singly(PACKETS, packets),
        singly(QUARANTINE, unusable),
        key="stream_id",
    )
    assert found == {"a": (1 << 40, 1 << 40, True), "b": (5, 0, False), "c": (0, 9, False)}


def test_packets_of_a_stream_are_decoded_or_quarantined() -> None:
    packets = singly(PACKETS, [{"stream_id": stream} for stream in "aaaab"])
    decoded = [
        singly(table, [{"stream_id": "a"}] * many) for table, many in zip(DECODED_TABLES, (2, 1, 0), strict=False)
    ]
    unusable = singly(QUARANTINE, [{"stage": "decode", "stream_id": "a"}, {"stage": "framing", "stream_id": "a"}])
    found = balanced(books.balance_packets, packets, decoded, unusable, key="stream_id")
    assert found == {"a": (4, 4, True), "b": (1, 0, False)}


def test_verdicts_are_arrivals_of_unusual_and_of_delivered_messages() -> None:
    verdicts = singly(VERDICTS, [{"scope_key": scope} for scope in "aaaaab"])
    outcomes = rows_of(OUTCOMES, {"scope_key": "a", "arrivals": 2}, {"scope_key": "a", "arrivals": 0})
    sequences = rows_of(
        SEQUENCES,
        {"scope_key": "a", "messages": 5, "delivered_arrivals": 3},
        {"scope_key": "b", "messages": 1},  # the literal reading tells no outcomes
    )
    found = balanced(books.balance_arrivals, verdicts, outcomes, sequences, key="scope_key")
    assert found == {"a": (5, 5, True), "b": (1, 1, True)}


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
    found = balanced(
        books.balance_numbers, rows_of(OUTCOMES, *outcomes), rows_of(SEQUENCES, *sequences), key="scope_key"
    )
    assert found == {"a": (10, 10, True), "b": (10, 7, False)}


def test_the_first_bytes_of_a_packet_that_cannot_be_decoded_are_kept() -> None:
    place = {"stream_id": "a", "stream_offset": 7, "capture_id": "c", "raw": b"12345"}
    row = place | {"size": 5, "packet_type": "unknown", "captured_ns": 1, "first_frame": 9, "last_frame": 9}
    packets = pa.RecordBatch.from_pylist([row], PACKETS.arrow)
    (found,) = pa.Table.from_batches(quarantine_packets(3)(iter([packets]))).to_pylist()
    named = place | {"stage": "decode", "frame_number": 9, "length": 5, "raw": b"123"}
    assert found | named == found
    assert all((found["reason"], found["detail"]))
