"""The packets of a witness: their roles, and their order."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from schemas.explained import FOUND
from schemas.ingest import CAPTURES, PACKETS
from schemas.replay import FINDINGS, VERDICTS
from schemas.table import RowType
from udfs.derive.tables import schema_of
from udfs.derive.witness import find_frames, places_of, with_frames

Row = Mapping[str, Any]
BEGAN = datetime(2026, 3, 2, 18, tzinfo=UTC)
A, B = "10.0.0.1:50000>10.0.0.9:1801#0", "[fd00::2]:50001>10.0.0.9:1801#0"


def frame(rows_of: RowType, rows: Sequence[Row] = ()) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema_of(rows_of))


def after(seconds: int | None) -> datetime | None:
    return None if seconds is None else BEGAN + timedelta(seconds=seconds)


CAPTURED = frame(CAPTURES.arrow, [{"capture_id": "c", "uri": "night.pcap"}])


def packet(stream: str, offset: int, at: int | None = None, **others: Any) -> Row:
    place = {"stream_id": stream, "stream_offset": offset, "captured_at": after(at)}
    return {**place, "packet_type": "user_message", "capture_id": "c", "first_frame": offset + 1, **others}


def judged(stream: str, offset: int, verdict: str) -> Row:
    return {"stream_id": stream, "stream_offset": offset, "verdict": verdict}


def test_the_role_of_a_packet_is_its_verdict_or_its_type() -> None:
    verdicts = ("in_order", "new_sequence", "gap_expired", "duplicate", "out_of_order", "unknown")
    packets = [packet(A, at) for at in range(len(verdicts))] + [
        packet(A, 10, packet_type="order_ack"),
        packet(A, 11, capture_id="not listed"),
        packet(A, 12),
        packet(B, 3),
    ]
    keys = pl.DataFrame({"witness": [[f"{A}@{at}" for at in (*range(6), 10)], [f"{A}@{at}" for at in (3, 11, 99)], []]})
    every_verdict = frame(VERDICTS.arrow, [judged(A, at, one) for at, one in enumerate(verdicts)] + [judged(B, 3, "x")])
    places = places_of(rows=keys)
    of_places = frame(PACKETS.arrow, packets).join(places, on=("stream_id", "stream_offset"), how="semi")
    found = find_frames(of_places, every_verdict, CAPTURED)
    shown = dict(found.select("key", pl.col("packet").struct.field("role")).rows())
    roles = ["accepted"] * 3 + ["duplicate", "refused", "not_judged", "order_ack", "user_message"]
    assert shown == dict(zip([f"{A}@{at}" for at in (*range(6), 10, 11)], roles, strict=True))
    assert found.height == len(shown)
    assert min(places.rows()) == (A, 0)
    assert places.height == len(shown) + 1


def test_a_witness_lists_packets_in_order_of_time() -> None:
    packets = frame(PACKETS.arrow, [packet(A, 0, 5), packet(A, 7, 3), packet(B, 1, 4), packet(B, 2, None)])
    rows = frame(
        FOUND,
        [
            {"kind": "all", "witness": [f"{A}@0", f"{A}@7", f"{B}@1"]},
            {"kind": "twice", "witness": [f"{A}@0", f"{A}@0"]},
            {"kind": "not found", "witness": [f"{A}@0", f"{A}@8", f"{B}@2"]},
            {"kind": "none", "witness": []},
            {"kind": "null", "witness": None},
            {"kind": "null among them", "witness": [None, f"{A}@7"]},
        ],
    )
    frames = find_frames(packets, frame(VERDICTS.arrow), CAPTURED)
    told = with_frames(rows, frames)
    assert told.schema == schema_of(FINDINGS.arrow)
    shown = {
        row["kind"]: [f"{one['stream_id']}@{one['stream_offset']}" for one in row["witness"]] for row in told.to_dicts()
    }
    assert shown == {
        "all": [f"{A}@7", f"{B}@1", f"{A}@0"],
        "twice": [f"{A}@0", f"{A}@0"],
        "not found": [f"{A}@8", f"{B}@2", f"{A}@0"],
        "none": [],
        "null": [],
        "null among them": [f"{A}@7"],
    }
    witness = told.filter(pl.col("kind") == "not found")["witness"].to_list()[0]
    assert [(one["role"], one["uri"], one["frame_number"]) for one in witness] == [
        ("not_found", None, None),
        ("user_message", "night.pcap", 3),
        ("user_message", "night.pcap", 1),
    ]
