"""Captures that were made at the same time, of the same connections, by clocks that differ."""

import random
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from histories import History, differences
from table_frames import rows_of
from tiers import merge_needs

from jobs.simulator import simulate
from schemas.ingest import CAPTURES, PACKETS
from udfs.replay.order.offsets import find_neighbours, find_offsets, find_shared_streams, find_spans

SECOND = 1_000_000_000
OUTCOME = ("scope_key", "tx_sequence_id", "tx_sequence_number", "message_id", "content_hash", "outcome")
Times = dict[str, tuple[int, int]]
AT_ONCE: Times = {"a": (0, 100), "b": (5, 105)}
"""When the first and the last record of each capture were captured, in s."""
CASES: dict[str, tuple[Times, list[list[tuple[str, float]]], dict[str, float]]] = {
    "a packet that one capture lacks": (AT_ONCE, [[("a", 10), ("b", 16.01), ("a", 10.02)]], {"b": 6.01}),
    "the other clock is behind": (AT_ONCE, [[("a", 30), ("b", 24.01), ("b", 24.02), ("a", 30.03)]], {"b": -5.99}),
    "one goes on where the other ends": (AT_ONCE, [[("a", 30), ("b", 25.5)], [("a", 40), ("b", 41)]], {"b": -4.5}),
    "it is ahead, or nothing was sent": (AT_ONCE, [[("a", 30), ("b", 36)]], {}),
    "most packets say the same": (
        AT_ONCE,
        [*[[("a", at), ("b", at + 6), ("a", at + 0.02)] for at in (10, 20, 30)], [("a", 50), ("b", 40), ("a", 50.02)]],
        {"b": 6.0},
    ),
    "too little to count": (AT_ONCE, [[("a", 10), ("b", 10.2), ("a", 10.02)]], {}),
    "a retransmission in the next file": (
        {"a": (0, 50), "b": (50, 99)},
        [[("a", 10), ("b", 60), ("a", 10.02)]],
        {},
    ),
    "a third one goes on after the second": (
        {"a": (0, 100), "b": (5, 105), "c": (105, 200)},
        [[("a", 10), ("b", 16), ("a", 10.02), ("b", 20), ("c", 110)]],
        {"b": 6.0, "c": 6.0},
    ),
    "set back by an hour before the next file, which seems to be the first": (
        {"b": (0, 50), "a": (90, 190)},
        [[("a", 150), ("b", 3)], [("a", 155), ("b", 4), ("b", 5)], [("a", 170), ("b", 40)]],
        {"a": 190.0},
    ),
    "one connection alone goes on, which may have been sent again": (
        {"b": (0, 50), "a": (90, 190)},
        [[("a", 150), ("b", 3)], [("a", 155)], [("b", 40)]],
        {},
    ),
    "set back so that both seem to be made at the same time for a while": (
        {"a": (0, 100), "b": (90, 290)},
        [[("a", 95), ("b", 94)], [("a", 99), ("b", 92)], [("a", 98), ("b", 95)]],
        {"b": -10.0},
    ),
    "packets without a time": (AT_ONCE, [[("a", 10)]], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_neighbours_on_a_stream_tell_how_far_clocks_differ(name: str) -> None:
    times, streams, ahead = CASES[name]
    captures = [
        {"capture_id": one, "first_captured_at": first * 10**6, "last_captured_at": last * 10**6}
        for one, (first, last) in times.items()
    ]
    packets = [
        {"stream_id": f"s{nth}", "stream_offset": 10 * at, "capture_id": one, "captured_ns": round(s * SECOND)}
        for nth, stream in enumerate(streams)
        for at, (one, s) in enumerate(stream)
    ]
    random.Random(7).shuffle(packets)
    packets.append({"stream_id": "s0", "stream_offset": 5, "capture_id": "b"})
    made, shown = find_spans(rows_of(CAPTURES, *captures)), rows_of(PACKETS, *packets)
    streams_shown = find_shared_streams(made, shown.select("stream_id", "capture_id").unique())
    found = find_offsets(made, find_neighbours(shown.join(streams_shown, on="stream_id", how="semi")))
    assert {capture: -behind / SECOND for capture, _, behind in found.rows()} == pytest.approx(ahead, abs=0.02)


def test_only_captures_that_were_made_at_the_same_time_or_by_several_taps_are_looked_at() -> None:
    times = ((0, 50_000_000), (50_100_000, 99_000_000), (98_900_000, 120_000_000))
    captures = [
        {"capture_id": f"c{nth}", "uri": f"a_{nth:05}.pcap", "first_captured_at": first, "last_captured_at": last}
        for nth, (first, last) in enumerate(times)
    ]
    assert find_spans(rows_of(CAPTURES, *captures)).is_empty()
    others = [captures[0], captures[1] | {"uri": "b.pcap"}]
    assert find_spans(rows_of(CAPTURES, *others))["capture_id"].to_list() == ["c0", "c1"]
    later = (
        captures[0]
        | {"uri": "a_00003.pcap"}
        | {"capture_id": "d", "first_captured_at": 49_000_000, "last_captured_at": 60_000_000}
    )
    assert find_spans(rows_of(CAPTURES, *captures, later))["capture_id"].to_list() == ["c0", "d", "c1", "c2"]
    stepped = later | {"clock_steps": [{"frame": 1, "step_ns": -1}]}
    assert find_spans(rows_of(CAPTURES, *captures, stepped)).is_empty()


def records_of(capture: bytes) -> list[bytes]:
    """Returns the records of a capture with their headers."""
    found, at = [], 24
    while at < len(capture):
        end = at + 16 + int.from_bytes(capture[at + 8 : at + 12], "little")
        found.append(capture[at:end])
        at = end
    return found


def later(record: bytes, seconds: float) -> bytes:
    """Returns a record by a clock that is ahead; parts of a second need a capture with times in ns."""
    time = sum(int.from_bytes(record[at : at + 4], "little") * unit for at, unit in ((0, SECOND), (4, 1)))
    return b"".join(part.to_bytes(4, "little") for part in divmod(time + round(seconds * SECOND), SECOND)) + record[8:]


def in_two(capture: Path, seconds: int) -> list[Path]:
    """Replaces a capture by two, each of which lacks some frames; the clock of the second one is ahead."""
    whole, rng = capture.read_bytes(), random.Random(seconds)
    lacks = [rng.choice([None] * 10 + [0, 1]) for _ in records_of(whole)]
    parts = []
    for tap in (0, 1):
        kept = (one for one, lack in zip(records_of(whole), lacks, strict=True) if lack != tap)
        parts.append(capture.with_name(f"tap_{tap}.pcap"))
        parts[tap].write_bytes(whole[:24] + b"".join(later(one, seconds * tap) for one in kept))
    capture.unlink()
    return parts


def by_direction(capture: Path, seconds: float) -> list[Path]:
    """Replaces a capture by one of each direction; the clock of what receivers say is ahead."""
    whole = capture.read_bytes()
    parts = []
    for from_receiver in (False, True):
        kept = (one for one in records_of(whole) if _is_from_receiver(one[16:]) is from_receiver)
        parts.append(capture.with_name(f"direction_{from_receiver}.pcap"))
        parts[-1].write_bytes(whole[:24] + b"".join(later(one, seconds * from_receiver) for one in kept))
    capture.unlink()
    return parts


def _is_from_receiver(frame: bytes) -> bool:
    ports = 34 if frame[12:14] == b"\x08\x00" else 54
    return frame[ports : ports + 2] == (1801).to_bytes(2)


def lost(tables: Mapping[str, pl.DataFrame]) -> list[tuple[Any, ...]]:
    """Returns the messages that were lost, or that the replay contradicts."""
    found = tables["outcomes"].filter(pl.col("lost").fill_null(pl.col("outcome") == "contradicted"))
    return sorted(found.select(OUTCOME).rows(), key=repr)


def fates(tables: Mapping[str, pl.DataFrame]) -> dict[str, list[tuple[Any, ...]]]:
    """Returns what became of messages that were not plainly delivered, and how many a receiver acknowledged."""
    confirmed = tables["verdicts"].filter("accepted", pl.col("acknowledged_at").is_not_null())
    return {
        "outcomes": sorted(tables["outcomes"].select(OUTCOME).rows(), key=repr),
        "acknowledged": sorted(confirmed.select("scope_key", "tx_sequence_id", "tx_sequence_number").rows()),
    }


class Whole(NamedTuple):
    """A simulated capture, and the tables of a night that read it."""

    capture: bytes
    tables: Mapping[str, pl.DataFrame]

    def copied(self, folder: Path) -> Path:
        """Writes the capture into a folder."""
        file = folder / "whole.pcap"
        file.write_bytes(self.capture)
        return file


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Whole]:
    """Simulates the capture of a seed, and replays it, once for each."""

    @cache
    def simulated(seed: int, messages: int, **options: Any) -> Whole:
        folder = tmp_path_factory.mktemp("whole")
        simulate(str(folder), seed, messages, file_bytes=1 << 40, **options)
        (capture,) = folder.glob("*.pcap")
        return Whole(capture.read_bytes(), History().night(capture))

    return simulated


DISORDERED: dict[str, Any] = {"messages": 250, "bodies": (10, 200), "disorder": 0.35}


@pytest.mark.parametrize("seconds", merge_needs([-0.5], [-20, -2, -0.5, 3]))
def test_receivers_acknowledge_in_a_capture_of_their_own_by_another_clock(
    whole: Callable[..., Whole], tmp_path: Path, seconds: float
) -> None:
    night, history = whole(304, **DISORDERED), History()
    assert int.from_bytes(night.capture[:4], "little") == 0xA1B23C4D  # times in ns
    for part in by_direction(night.copied(tmp_path), seconds):
        made = history.night(part)
    assert fates(made) == fates(night.tables)


HOUR = 3_600


@pytest.mark.parametrize(
    ("parts", "is_one_file"),
    [
        pytest.param([(0, 0.4, 0), (0.4, 1, -HOUR)], True, marks=pytest.mark.slow),
        pytest.param([(0, 0.4, 0), (0.4, 0.41, HOUR), (0.41, 1, 0)], True, marks=pytest.mark.slow),
        ([(0, 0.1, 0), (0.1, 0.8, HOUR), (0.8, 1, 0)], True),
        pytest.param([(0, 0.45, 0), (0.45, 1, -HOUR)], False, marks=pytest.mark.slow),
    ],
)
def test_a_clock_that_is_set_by_an_hour_changes_no_fate(
    whole: Callable[..., Whole], tmp_path: Path, parts: list[tuple[float, float, int]], *, is_one_file: bool
) -> None:
    capture, tables = whole(306, 200, troubles=True)
    expected = fates(tables)
    assert "unacknowledged" in {row[-1] for row in expected["outcomes"]}
    records = records_of(capture)
    cut = [
        b"".join(later(one, ahead) for one in records[round(since * len(records)) : round(until * len(records))])
        for since, until, ahead in parts
    ]
    history = History()
    for nth, part in enumerate([b"".join(cut)] if is_one_file else cut):
        path = tmp_path / f"{'ab'[nth]}.pcap"
        path.write_bytes(capture[:24] + part)
        made = history.night(path)
    assert fates(made) == expected


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [-20, -5, 6, 25])
def test_no_message_is_lost_for_which_of_two_captures_holds_a_frame(
    whole: Callable[..., Whole], tmp_path: Path, seconds: int
) -> None:
    night, history = whole(302, **DISORDERED), History()
    for part in in_two(night.copied(tmp_path), seconds):
        made = history.night(part)
    assert lost(made) == lost(night.tables)
    assert list(differences(made, history.replay(None)[0])) == []
    assert made["internal_tallies"].is_empty()  # the next night judges all
