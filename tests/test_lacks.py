"""What captures lack of the traffic that they show, and what incidents say of it."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from jobs import main
from jobs.simulator import simulate
from schemas.ingest import CAPTURES
from schemas.replay import ENDS
from udfs.frames.tables import schema_of
from udfs.report.lacks import Lacks, count_missing_files, find_lacks, in_words, lacks_of_sessions

WHOLE = {"recovered_bytes": 100, "missing_bytes": 0, "mid_stream": False, "last_ns": 1, "receiver_last_ns": 1}


def ends(*streams: tuple[str, str, dict[str, Any]]) -> pl.DataFrame:
    """Returns rows of ENDS from sender to receiver that are whole but for what is said."""
    rows = [
        {"sender": one, "receiver": other, "session_id": f"{one}->{other}"} | WHOLE | said
        for one, other, said in streams
    ]
    return pl.DataFrame(rows, schema_of(ENDS.arrow))


def captures(*statuses: str) -> pl.DataFrame:
    return pl.DataFrame([{"status": one} for one in statuses], schema_of(CAPTURES.arrow))


def test_what_each_session_lacks_includes_its_way_back() -> None:
    """A sender that sends to itself has one session, whose streams count once."""
    found = ends(
        ("a", "b", {"missing_bytes": 1}),
        ("b", "a", {"missing_bytes": 1000}),
        ("c", "b", {"receiver_last_ns": None, "mid_stream": True}),
        ("d", "d", {"missing_bytes": 7}),
        ("e", "b", {"recovered_bytes": 0, "receiver_last_ns": None}),
        ("untimed", "b", {"last_ns": None, "receiver_last_ns": None}),
    )
    said = lacks_of_sessions(found, captures("ok"))
    one_way = "the way back of 1 of 1 stream and the beginning of 1 of 1 stream"
    assert {name: said[name] for name in ("a->b", "b->a", "c->b", "d->d", "e->b", "untimed->b")} == {
        "a->b": "1,001 bytes",
        "b->a": "1,001 bytes",
        "c->b": one_way,
        "d->d": "7 bytes",
        "e->b": "",
        "untimed->b": "",
    }
    assert lacks_of_sessions(found, captures("ok", "partial"))["d->d"] == "7 bytes and what cannot be read of 1 capture"


def ring(number: int, began: int, name: str = "s3://bucket/lan") -> str:
    return f"{name}_{number:05}_2026030208{began:04}.pcapng.gz"


@pytest.mark.parametrize(
    ("uris", "missing"),
    [
        ([ring(1, 10), ring(2, 20), ring(3, 30)], 0),
        ([ring(3, 30), ring(1, 10)], 1),
        ([ring(1, 10), ring(9, 90), ring(1, 100), ring(2, 110)], 7),  # then the capture was started again
        ([ring(1, 10, "a"), ring(5, 20, "b"), ring(2, 30, "a"), ring(6, 40, "b")], 0),
        (["/data/night_1.pcap", "/data/night_3.pcap", "/data/a_00001_2026.pcap"], 0),
        ([], 0),
    ],
)
def test_a_file_that_is_missing_in_a_series_is_counted(uris: list[str], missing: int) -> None:
    found = pl.DataFrame({"uri": uris, "packet_count": [5] * len(uris)}, {"uri": pl.String, "packet_count": pl.Int64})
    assert count_missing_files(found) == missing
    with_empty = found.with_columns(packet_count=pl.when(pl.col("uri") == uris[0]).then(0)) if uris else found
    assert count_missing_files(with_empty) == 0  # of several files without a frame, one is left


@pytest.mark.parametrize(("begun", "counted"), [(1, 0), (2, 2), (20, 20)])
def test_a_few_streams_of_many_that_began_before_the_captures_are_not_told(begun: int, counted: int) -> None:
    streams = [("a", f"b{n}", {"mid_stream": n < begun}) for n in range(20)]
    assert find_lacks(ends(*streams), captures()) == Lacks(begun=counted, streams=20)


def test_nothing_at_all_lacks_nothing() -> None:
    found = find_lacks(ends(), captures())
    assert found == Lacks()
    assert (in_words(found), found.is_one_way) == ("", False)


def told(capsys: pytest.CaptureFixture[str], *files: Path) -> dict[str, Any]:
    """Returns the JSON summary of a look at captures."""
    capsys.readouterr()
    assert main.main(["look", *map(str, files), "--json"]) == 0
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    return summary


def test_where_bytes_of_the_way_back_are_missing_the_queue_is_not_blamed_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without one file of the middle, acknowledgments may be in it, although TCP took the messages."""
    simulate(str(tmp_path), 2718, 400, situations=True, troubles=True)
    files = sorted(tmp_path.glob("*.pcap"))
    whole, holed = told(capsys, *files), told(capsys, *files[:4], *files[5:])
    assert "The captures lack" not in whole["headline"]
    lack = " bytes and 1 file of their series, which may hold deliveries and acknowledgments"
    assert lack in holed["headline"]
    silent = [one for one in holed["worst_incidents"] if one["cause"] == "never_answered"]
    for one in silent:
        assert "TCP acknowledged all bytes" not in " ".join(one["findings"]) or "bytes" not in one["captures_lack"]
    assert {one["captures_lack"] for one in whole["worst_incidents"]} == {""}
    assert any("bytes" in one["captures_lack"] for one in holed["worst_incidents"])
