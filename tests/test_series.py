"""The clock of a capture machine is set back between two files of a series."""

from pathlib import Path
from typing import Any

import pytest
from plain_replay import Row, difference, read
from tiers import merge_needs

from jobs.simulator import simulate
from schemas.replay import FindingKind
from udfs.ingest.series import with_steps_between

S = 1_000_000_000
HOUR = 3_600


def file(number: int, first: float, last: float, *steps: tuple[int, float], name: str = "/data/lan") -> dict[str, Any]:
    """A file of a series by seconds, with its own steps (frame, seconds)."""
    rows = [{"frame": frame, "step_ns": int(seconds * S)} for frame, seconds in steps]
    uri = f"{name}_{number:05}_20260302080000.pcap"
    times = {"first_ns": int(first * S), "last_ns": int(last * S), "begins_ns": int(first * S)}
    return {"uri": uri, "clock_steps": rows or None} | times


def behind(*captures: Row, known: tuple[Row, ...] = ()) -> list[float]:
    """By how many seconds the clock of each capture is behind at its first record."""
    found = [row["clock_steps"] or [] for row in with_steps_between(captures, known)]
    return [-sum(step["step_ns"] for step in steps if step["frame"] == 1) / S for steps in found]


def test_files_after_a_step_back_are_behind() -> None:
    assert behind(file(1, 0, 100), file(2, 100, 200), file(3, 20, 120), file(4, 120, 220)) == [0, 0, 180, 180]


def test_their_order_is_that_of_their_numbers() -> None:
    assert behind(file(3, 20, 120), file(2, 100, 200)) == [180, 0]


def test_a_step_in_a_file_goes_on_in_those_that_follow() -> None:
    captures = file(1, 0, 200, (7, -150)), file(2, 60, 160, (9, -5)), file(3, 160, 260)
    assert behind(*captures) == [0, 150, 155]
    assert with_steps_between(captures, ())[1]["clock_steps"] == [
        {"frame": 1, "step_ns": -150 * S},
        {"frame": 9, "step_ns": -5 * S},
    ]


def test_the_first_record_counts_not_the_earliest_one() -> None:
    assert behind(file(1, 0, 100), file(2, 30, 130, (9, -100)) | {"begins_ns": 101 * S}) == [0, 0]


def test_a_file_that_begins_in_time_is_not_behind() -> None:
    """The clock is right again, or nothing came for so long that the order of the times is right."""
    assert behind(file(1, 0, 100), file(2, 20, 40), file(3, 121, 300), file(4, 300, 400)) == [0, 80, 0, 0]


def test_what_was_read_before_stays_and_counts() -> None:
    known = file(1, 0, 200), file(2, 60, 160, (1, -140))
    assert behind(file(3, 161, 261), known=known) == [140]
    assert behind(file(2, 60, 160), known=known) == [140]  # it is read again


@pytest.mark.parametrize(
    "captures",
    [
        (file(1, 0, 100), file(2, 99.5, 200)),  # records of two interfaces
        (file(1, 0, 100), file(2, 500, 600)),
        (file(1, 0, 3 * HOUR), file(2, 1, 2 * HOUR)),  # a damaged time
        (file(1, 0, 9e8, (7, -9e8)), file(2, 100, 200), file(3, 200, 300)),
        (file(1, 0, 100), file(2, 20, 120, name="/data/wan")),
        (file(1, 0, 100), file(1, 0, 100) | {"uri": "/data/lan_00001_20260302090000.pcap.gz"}, file(2, 20, 120)),
        (file(1, 0, 100), file(2, 20, 120) | {"uri": "/data/b.pcap"}),
        (file(1, 0, 100), file(2, 0, 0) | {"first_ns": None, "last_ns": None}, file(3, 100, 200)),
    ],
)
def test_other_captures_stay_as_they_are(captures: tuple[Row, ...]) -> None:
    assert with_steps_between(captures, ()) == list(captures)


@pytest.mark.parametrize("seed", merge_needs([4], [4, 11]))
def test_a_night_of_several_files_with_a_step_back_is_judged_by_the_truth(tmp_path: Path, seed: int) -> None:
    simulate(str(tmp_path), seed, 400, bodies=(0, 500), clock_step_s=-300, file_bytes=60_000)
    night, truth = read(tmp_path)
    assert len(night.found.captures) > 5
    assert difference(seed, truth, night, night.fates_of_product()) is None
    assert FindingKind.CLOCK_STEPPED in set(night.replayed.findings["kind"])
