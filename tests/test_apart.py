"""Captures whose clocks nothing compares: what rests on their order is unknown, and nothing else changes."""

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from histories import History, differences
from plain_replay import read
from table_frames import rows_of
from two_taps import split, with_outcome

from jobs.simulator import TRUTH, simulate
from schemas.ingest import CAPTURES
from udfs.replay.content import CONTENT
from udfs.replay.order.apart import captures_apart, find_clocks, undecided

SECOND = 1_000_000_000
HOUR = 3_600
NIGHT: dict[str, Any] = {"bodies": (0, 500), "situations": True, "file_bytes": 1 << 40}
RING: dict[str, tuple[float, float]] = {
    "x_00001_20260302080000.pcap": (0, 50),
    "x_00002_20260302080050.pcap": (50, 99),
    "x_00003_20260302080139.pcap": (99, 160),
}
SPANS: dict[str, tuple[dict[str, tuple[float, float]], bool]] = {
    "a ring buffer": (RING, False),
    "files of tcpdump -C": ({"x.pcap": (0, 50), "x.pcap1": (50, 99), "x.pcap2": (99, 120)}, False),
    "two taps": ({"inside.pcap": (0, 50), "outside.pcap": (10, 60)}, True),
    "two taps with numbers": ({"tap1.pcap": (0, 50), "tap2.pcap": (600, 650)}, True),
    "files of one name that overlap": ({"x_00001.pcap": (0, 50), "x_00002.pcap": (10, 60)}, True),
    "a tap beside a ring buffer": (RING | {"y.pcap": (20, 30)}, True),
    "long after": ({"inside.pcap": (0, 50), "outside.pcap": (50 + HOUR, 90 + HOUR)}, False),
    "one capture": ({"x.pcap": (0, 50)}, False),
}


def captures(spans: dict[str, tuple[float, float]]) -> pl.DataFrame:
    times = ("first_captured_at", "last_captured_at")
    return rows_of(
        CAPTURES,
        *(
            {"capture_id": name, "uri": f"/captures/{name}"}
            | {at: round(s * 10**6) for at, s in zip(times, span, strict=True)}
            for name, span in spans.items()
        ),
    )


@pytest.mark.parametrize("name", SPANS)
def test_files_that_follow_one_another_under_one_name_are_of_one_tap(name: str) -> None:
    spans, are_apart = SPANS[name]
    found = captures_apart(captures(spans))
    assert found["capture_id"].to_list() == (sorted(spans) if are_apart else [])
    if name == "a tap beside a ring buffer":
        assert found["tap"].n_unique() == 2


CONNECTIONS: dict[str, tuple[list[tuple[str, str]], list[tuple[str, str]], list[set[str]]]] = {
    "nothing compares": ([("s1", "a"), ("s2", "b"), ("s3", "c")], [], [{"a"}, {"b"}, {"c"}]),
    "both directions of a connection": ([("s1", "a"), ("s1 back", "b"), ("s3", "c")], [], [{"a", "b"}, {"c"}]),
    "a copy": ([("s1", "a"), ("s2", "b"), ("s3", "c")], [("b", "c")], [{"a"}, {"b", "c"}]),
    "all by way of one": ([("s1", "a"), ("s1", "b")], [("b", "c")], []),
}


@pytest.mark.parametrize("name", CONNECTIONS)
def test_connections_in_two_captures_compare_their_clocks(name: str) -> None:
    shown, copies, expected = CONNECTIONS[name]
    apart = captures_apart(captures(dict.fromkeys("abc", (0.0, 9.0))))
    streams = pl.DataFrame({"stream_id": [f"s{n}{way}" for n in (1, 2, 3) for way in ("", " back")]})
    found = find_clocks(
        apart,
        pl.DataFrame(shown, ["stream_id", "capture_id"], orient="row"),
        streams.with_columns(connection_id=pl.col("stream_id").str.replace(" back", "")),
        pl.DataFrame(copies, {"one_capture": pl.String, "other_capture": pl.String}, orient="row"),
    )
    clocks = found.group_by("clock").agg("capture_id")["capture_id"].to_list()
    assert sorted(map(set, clocks), key=min) == expected


def message(clock: str, s: float, number: int, previous: int, sequence: int = 7, text: str = "") -> dict[str, Any]:
    """Returns a message; `s` is its time in s, and its offset."""
    address = {"a": "10.0.0.1", "b": "10.0.0.2"}[clock]
    place = {"scope_key": "scope", "stream_id": f"{address}:1>10.0.0.9:1801#0", "stream_offset": round(s)}
    numbers = {"tx_sequence_id": sequence, "tx_sequence_number": number, "previous_tx_sequence_number": previous}
    return place | numbers | {"captured_ns": round(s * SECOND), "clock": clock, "label": text or f"from {clock}"}


SCENES: dict[str, tuple[list[dict[str, Any]], dict[int, bool]]] = {
    "one goes on after the other": ([message("a", 1, 1, 0), message("a", 2, 2, 1), message("b", 3, 3, 2)], {}),
    "by the clocks, the later one came first": (
        [message("a", 5, 1, 0), message("a", 6, 2, 1), message("b", 3, 3, 2)],
        {3: False, 5: False, 6: False},
    ),
    "two messages have one number": (
        [message("a", 1, 1, 0), message("a", 5, 2, 1), message("b", 3, 2, 1), message("b", 9, 3, 2)],
        {3: True, 5: True},
    ),
    "a message is sent again on another path": ([message("a", 1, 1, 0, text="x"), message("b", 3, 1, 0, text="x")], {}),
    "more than an hour lies between": ([message("a", 1, 1, 0), message("b", 2 + HOUR, 1, 0)], {}),
    "by one clock": ([message("a", 5, 1, 0), message("a", 6, 1, 0, text="other")], {}),
    "another machine begins a sequence": ([message("a", 1, 5, 4), message("b", 3, 1, 0, sequence=8)], {1: True}),
    "another machine skips the number": (
        [message("a", 1, 4, 3), message("a", 2, 5, 4), message("b", 3, 6, 4)],
        {2: True},
    ),
}


@pytest.mark.parametrize("name", SCENES)
def test_a_message_is_undecided_where_the_other_clock_decides(name: str) -> None:
    rows, expected = SCENES[name]
    schema = dict.fromkeys((*rows[0], *CONTENT), pl.String) | {
        "stream_offset": pl.Int64,
        "captured_ns": pl.Int64,
        "tx_sequence_id": pl.UInt64,
        "tx_sequence_number": pl.Int64,
        "previous_tx_sequence_number": pl.Int64,
    }
    found = undecided(messages=pl.DataFrame(rows, schema))
    assert dict(found.select("stream_offset", "contested").rows()) == expected


SEEDS = [seed for seed in range(1, 16) if seed not in {8, 11, 12}]
"""Of nights with a clone."""
SHIFTED = [(seed, (6, -6, 600, -600, Random(seed).randrange(-3000, 3000))) for seed in SEEDS]


def clones_in(folder: Path) -> list[str]:
    """Returns the addresses of the clones of a simulated night."""
    scopes = json.loads((folder / TRUTH).read_text())
    return [one["address"] for scope in scopes for one in scope.get("senders", ()) if one["is_copy"]]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "shifts"), SHIFTED)
def test_no_shift_of_a_clock_that_nothing_compares_makes_another_victim(
    tmp_path: Path, seed: int, shifts: tuple[int, ...]
) -> None:
    """A clone is on a tap of its own: whoever lost a message is that one by the true clocks, or unknown."""
    whole = tmp_path / "whole"
    simulate(str(whole), seed, 300, **NIGHT)
    true = with_outcome(read(whole)[0].replayed.outcomes, lost=True)
    clones = clones_in(whole)
    assert clones
    for seconds in shifts:
        taps = Path(shutil.copytree(whole, tmp_path / str(seconds)))
        split(taps, clones, seconds)
        replayed = read(taps)[0].replayed
        lost, unknown = (with_outcome(replayed.outcomes, lost=of) for of in (True, False))
        assert lost <= true, seconds
        assert true <= lost | unknown, seconds


def test_outcome_incident_and_machines_say_that_clocks_are_why(tmp_path: Path) -> None:
    simulate(str(tmp_path), 3, 300, **NIGHT)
    split(tmp_path, clones_in(tmp_path), 6)
    replayed = read(tmp_path)[0].replayed
    of_two = replayed.outcomes.filter(pl.col("contenders") == 2)
    slots = of_two.select("scope_key", "tx_sequence_id", "tx_sequence_number").n_unique()
    assert of_two.height == 2 * slots > 0
    assert of_two["outcome"].unique().to_list() == ["unknown"]
    assert all("nothing compares the clocks" in text for text in of_two["explanation"])
    (incident,) = (row for row in replayed.incidents.to_dicts() if row["cause"] == "number_reused")
    assert f"of which {slots} were lost; which machine's is not known, because nothing" in incident["explanation"]
    assert incident["severity"] == "error"
    assert not any(one["suspected"] for one in incident["senders"])
    assert replayed.internal_tallies.is_empty()  # another capture may compare them: the next night judges all


@pytest.mark.slow
@pytest.mark.parametrize("first", ["rest", "clone"])
def test_whichever_tap_comes_in_first_the_tables_are_the_same(tmp_path: Path, first: str) -> None:
    simulate(str(tmp_path), 3, 250, **NIGHT)
    split(tmp_path, clones_in(tmp_path), -6)
    history = History()
    for capture in sorted(tmp_path.glob("*.pcap"), key=lambda one: first not in one.name):
        made = history.night(capture)
        assert list(differences(made, history.replay(None)[0])) == []
    assert made["outcomes"]["contenders"].max() == 2
