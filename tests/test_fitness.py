"""What each capture shows and lacks, and what is said of it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from table_frames import rows_of
from warehouses import CAPTURES as CAPTURES_FOLDER
from warehouses import derived

from jobs import main
from jobs.simulator import simulate
from schemas.ingest import CAPTURES, STREAMS
from udfs.replay.fitness.amiss import amiss, cut_short
from udfs.replay.fitness.counts import fill_captures

BEGAN = datetime(2026, 3, 2, 8, tzinfo=UTC)
FIT = {"status": "ok", "reason": None, "segment_count": 10, "to_port_count": 6, "cut_count": 0, "missing_bytes": 0}
FIT |= {"clock_steps": None, "one_way_count": 0, "damaged_count": None, "packet_count": 9, "first_captured_at": 1}


def at(second: float) -> datetime:
    return BEGAN + timedelta(seconds=second)


def stream(connection: str, begins: float, ends: float, **more: Any) -> dict[str, Any]:
    """One direction of a connection."""
    return {
        "stream_id": f"{connection}{more.pop('way', '>')}",
        "connection_id": connection,
        "first_captured_at": at(begins),
        "last_captured_at": at(ends),
        "connection_last_at": at(ends),
        "missing_bytes": 0,
        "mid_stream": False,
    } | more


def filled(streams: list[dict[str, Any]], **captures: tuple[float, float]) -> dict[str, dict[str, Any]]:
    """What is filled in of captures, each with its first and last second; all hold segments of the endpoints a, b."""
    rows = [
        {"capture_id": name, "first_captured_at": at(first), "last_captured_at": at(last)}
        for name, (first, last) in captures.items()
    ]
    connections = pl.DataFrame([{"capture_id": name, "endpoints": ends} for name in captures for ends in ("a", "b")])
    kinds = (("user_message", 5), ("order_ack", 2), ("final_ack", 1), ("session_ack", 9))
    packets = pl.DataFrame([{"capture_id": "one", "packet_type": kind, "count": many} for kind, many in kinds])
    found = fill_captures(rows_of(CAPTURES, *rows), rows_of(STREAMS, *streams), connections, packets)
    return {row["capture_id"]: row for row in found.to_dicts()}


def test_a_capture_has_the_connections_of_its_time() -> None:
    streams = [
        stream("a#0", 0, 5, missing_bytes=7),
        stream("a#0", 1, 5, way="<", missing_bytes=2),
        stream("a#1", 50, 60, mid_stream=True),
        stream("b#0", 4, 55),
        stream("b#0", 4, 55, way="<"),
    ]
    found = filled(streams, one=(0, 10), two=(40, 70))
    names = ("connection_count", "from_start_count", "one_way_count", "missing_bytes", "message_count")
    assert [found["one"][name] for name in (*names, "acknowledgment_count")] == [2, 2, 0, 9, 5, 3]
    assert [found["two"][name] for name in (*names, "acknowledgment_count")] == [2, 1, 1, 0, 0, 0]


def test_what_is_filled_in_already_is_not_filled_in_again() -> None:
    streams = [stream("a#0", 0, 5)]
    (row,) = filled(streams, one=(0, 10)).values()
    connections = pl.DataFrame([{"capture_id": "one", "endpoints": "a"}])
    packets = pl.DataFrame([{"capture_id": "one", "packet_type": "user_message", "count": 5}])
    captures = rows_of(CAPTURES, row | {"acknowledgment_count": 0})
    assert fill_captures(captures, rows_of(STREAMS, *streams), connections, packets).is_empty()


@pytest.mark.parametrize(
    ("capture", "said"),
    [
        ({}, []),
        ({"segment_count": 0, "to_port_count": 0}, []),
        (
            {"to_port_count": 10, "one_way_count": 1},
            ["it has only what was sent to the MSMQ port, not the other direction"],
        ),
        (
            {"to_port_count": 0, "one_way_count": 2},
            ["it has only what was sent from the MSMQ port, not the other direction"],
        ),
        ({"to_port_count": 10}, []),
        ({"cut_count": 4}, ["4 of 10 segments of MSMQ are cut short: capture whole frames (tcpdump -s 0)"]),
        (
            {"damaged_count": 1},
            [
                (
                    "1 of 10 segments of MSMQ is damaged (wrong TCP checksum): what they carry may not be what was "
                    "sent, so a message may look like another one, or like one of another machine"
                )
            ],
        ),
        ({"missing_bytes": 1}, ["1 byte of its connections is in no capture"]),
        ({"missing_bytes": None}, []),
        ({"status": "partial", "reason": "truncated_record_body"}, ["only partly read: truncated record body"]),
        ({"clock_steps": [{"frame": 9, "step_ns": -1}]}, ["its clock steps back 1 time"]),
        ({"clock_steps": [{"frame": 8, "step_ns": 9}, {"frame": 9, "step_ns": -9}]}, ["its clock steps back 1 time"]),
        (
            {"first_captured_at": None},
            ["its records have no time, so nothing tells how long a sender waited or whether it still sends"],
        ),
        ({"first_captured_at": None, "packet_count": 0}, []),
    ],
)
def test_what_is_amiss_with_a_capture(capture: dict[str, Any], said: list[str]) -> None:
    assert amiss(FIT | capture) == said


def test_frames_that_are_cut_short_are_told_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each frame was cut at 128 bytes, as `editcap -s 128` does: no message is whole, and nothing can be judged."""
    simulate(str(tmp_path / "whole"), 5, 40)
    cut = []
    for path in (tmp_path / "whole").glob("*.pcap"):
        cut.append(tmp_path / f"cut_{path.name}")
        cut[-1].write_bytes(cut_at(path.read_bytes(), 128))
    assert main.main(["look", *map(str, cut), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["headline"].startswith("No message could be judged: ")
    assert "tcpdump -s 0" in said["headline"]
    assert said["unfit_captures"]["many"] == len(cut)
    assert all("cut short" in one["amiss"][0] for one in said["unfit_captures"]["last"])


def cut_at(capture: bytes, most: int) -> bytes:
    """A little-endian capture with at most so many bytes of each frame."""
    made, at_byte = capture[:24], 24
    while at_byte < len(capture):
        header = capture[at_byte : at_byte + 16]
        held = int.from_bytes(header[8:12], "little")
        data = capture[at_byte + 16 : at_byte + 16 + min(held, most)]
        made += header[:8] + len(data).to_bytes(4, "little") + header[12:] + data
        at_byte += 16 + held
    return made


def test_frames_that_are_cut_short_are_one_sentence() -> None:
    captures = [FIT | {"uri": "a", "cut_count": 3}, FIT | {"uri": "b"}, FIT | {"uri": "c", "cut_count": 10}]
    assert cut_short(captures[1:2]) == ""
    assert cut_short(captures) == (
        "No message could be judged: 13 of 20 segments of MSMQ in 2 captures are cut short, and no message is whole. "
        "Capture again with whole frames (tcpdump -s 0)."
    )


def test_the_branches_are_seen_in_both_directions_from_the_start() -> None:
    captures = derived(str(CAPTURES_FOLDER / "branches_*"))["captures"]
    assert captures["to_port_count"].is_between(1, captures["segment_count"] - 1).all()
    assert captures["from_start_count"].sum() > 0
    assert (captures["cut_count"] == 0).all()
