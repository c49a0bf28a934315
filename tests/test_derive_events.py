"""The packets of a witness: their roles, and their order."""

from datetime import UTC, datetime, timedelta

import polars as pl
from table_frames import rows_of

from schemas.ingest import CAPTURES, PACKETS
from schemas.replay import FINDINGS, VERDICTS
from schemas.tallies import FINDINGS_ON_MESSAGES
from udfs.frames.tables import schema_of
from udfs.replay.witness import find_frames, places_of, with_frames

BEGAN = datetime(2026, 3, 2, 18, tzinfo=UTC)
A, B = "10.0.0.1:50000>10.0.0.9:1801#0", "[fd00::2]:50001>10.0.0.9:1801#0"
JUDGED = {
    "in_order": "accepted",
    "new_sequence": "accepted",
    "gap_expired": "accepted",
    "duplicate": "duplicate",
    "out_of_order": "refused",
    "unknown": "not_judged",
}
"""Verdicts of the messages on stream A, at offsets 0 to 5, and the roles of these; the last one was captured first."""
WITNESSES: dict[str, tuple[list[str | None] | None, list[tuple[str, str]]]] = {
    "all": ([f"{A}@{at}" for at in range(6)], [(f"{A}@{at}", role) for at, role in enumerate(JUDGED.values())][::-1]),
    "of two streams": (
        [f"{A}@0", f"{B}@1", f"{A}@5"],
        [(f"{A}@5", "not_judged"), (f"{B}@1", "order_ack"), (f"{A}@0", "accepted")],
    ),
    "twice": ([f"{A}@0"] * 2, [(f"{A}@0", "accepted")] * 2),
    "not found, and without a time": (
        [f"{A}@0", f"{A}@99", f"{B}@2"],
        [(f"{A}@99", "not_found"), (f"{B}@2", "user_message"), (f"{A}@0", "accepted")],
    ),
    "none": ([], []),
    "null": (None, []),
    "null among them": ([None, f"{A}@0"], [(f"{A}@0", "accepted")]),
}
"""Keys of witnesses, and the keys and roles of the packets that they list."""


def test_a_witness_lists_packets_in_order_of_time_with_their_roles() -> None:
    places = [{"stream_id": A, "stream_offset": at} for at in range(6)]
    packets = rows_of(
        PACKETS,
        *(place | {"captured_at": BEGAN - timedelta(seconds=at)} for at, place in enumerate(places)),
        {"stream_id": B, "stream_offset": 1, "captured_at": BEGAN - timedelta(seconds=3), "packet_type": "order_ack"},
        {"stream_id": B, "stream_offset": 2, "capture_id": "not listed"},
        {"stream_id": B, "stream_offset": 3},
        packet_type="user_message",
        capture_id="c",
        first_frame=7,
    )
    verdicts = rows_of(VERDICTS, *(place | {"verdict": one} for place, one in zip(places, JUDGED, strict=True)))
    rows = [{"kind": kind, "witness": keys} for kind, (keys, _) in WITNESSES.items()]
    found = pl.DataFrame(rows, schema_of(FINDINGS_ON_MESSAGES.arrow))
    wanted = places_of(rows=found)
    assert sorted(wanted.rows()) == [*((A, at) for at in (*range(6), 99)), (B, 1), (B, 2)]
    captures = rows_of(CAPTURES, {"capture_id": "c", "uri": "night.pcap"})
    frames = find_frames(packets.join(wanted, on=wanted.columns, how="semi"), verdicts, captures)
    told = with_frames(found, frames)
    assert told.schema == schema_of(FINDINGS.arrow)
    for row in told.to_dicts():
        shown = [(f"{one['stream_id']}@{one['stream_offset']}", one["role"]) for one in row["witness"]]
        assert shown == WITNESSES[row["kind"]][1]
        for (key, role), one in zip(shown, row["witness"], strict=True):
            uri = "night.pcap" if role != "not_found" and key != f"{B}@2" else None
            assert (one["uri"], one["frame_number"]) == (uri, None if role == "not_found" else 7)
