"""The clocks of a capture: which step back, and which are several."""

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from pipeline import index_captures, look
from tiers import merge_needs
from wiretap import BILLION, NEW_YEAR, Record, Sent, conversation, enhanced, interface, msmq, pcap, section

from udfs.capture.clocks import Clocks, behind_at
from udfs.capture.records import NO_TIME, Records
from udfs.ingest.options import IngestOptions

A, B = 1, 2
Times = list[tuple[int, float | None]]
"""The records of a file: number of their clock, and time in s."""


class Case(NamedTuple):
    """Records, their steps (number of the record, from 1, and s), and whether their times tell their order."""

    records: Times
    steps: list[tuple[int, float]]
    by_time: bool


def of(clock: int, *times: float) -> Times:
    return [(clock, time) for time in times]


CASES = {
    "one clock": Case(of(A, 0, 1, 2, 3), [], False),
    "less than half a second back": Case(of(A, 0, 1, 0.6, 2), [], False),
    "it steps back": Case(of(A, 0, 9, 4, 5, 6), [(3, -5)], False),
    "it steps back twice": Case(of(A, 0, 9, 4, 5, 2, 3), [(3, -5), (5, -3)], False),
    "it steps back at the end": Case(of(A, 0, 9, 4), [(3, -5)], False),
    "wrong for one record": Case(of(A, 0, 9, 4, 9.1, 9.2), [(3, -5), (4, 5)], False),
    "ahead by an hour or less, and back": Case(of(A, 0, 9, 3_609, 11, 12), [(4, -3_598)], False),
    "ahead for one record": Case(of(A, 0, 9, 9_999, 11, 12, 5, 6), [(3, 9_990), (4, -9_990), (6, -7)], False),
    "ahead at the end, and back": Case(of(A, 0, 9, 9_999, 11), [(3, 9_990), (4, -9_990)], False),
    "ahead, and back to before": Case(of(A, 7, 8.5, 9, 9_999, 8, 9), [(5, -9_991)], False),
    "two sections": Case(of(A, 0, 4, 9) + of(B, 0.1, 4.1, 9.1), [], True),
    "two sections, one after the other in time": Case(of(A, 0, 4, 9) + of(B, 9.1, 12), [], False),
    "two interfaces in turn": Case(of(A, 0, 0.9) + of(B, 0, 0.9) + of(A, 1, 1.9) + of(B, 1, 1.9), [], True),
    "two interfaces, in order": Case([(A, 0), (B, 0.1), (A, 0.2), (B, 0.15)], [], False),
    "the first section steps back": Case(of(A, 0, 9, 4, 5, 7) + of(B, 1, 6), [(3, -5), (6, 5)], True),
    "the second section steps back": Case(of(A, 0, 9, 12) + of(B, 1, 9, 4, 5), [(6, -5)], True),
    "both step back": Case(of(A, 0, 9, 4, 7) + of(B, 1, 8, 3, 5), [(3, -5), (5, 5), (7, -5)], True),
    "two interfaces of a machine step back": Case(
        [(A, 0), (B, 8), (A, 9), (A, 4), (B, 5), (A, 6), (B, 7)], [(4, -5)], True
    ),
    "without names, one source behind the other": Case(of(A, 0, 4, 9, 0.1, 4.1, 9.1), [], True),
    "without names, the second source ends early": Case(of(A, 0, 4, 9, 0.05, 1.1), [], True),
    "set back to soon after it began": Case(of(A, 0, 4, 9, 0.2, 4.1), [(4, -8.8)], False),
    "the second file before the first": Case(of(A, 5, 6, 8, 9, 0, 1, 3, 4), [], True),
    "a first file far earlier": Case(of(A, 5, 6, 8, 9, -5, -3, -2), [(5, -14)], False),
    "the last file after the first": Case(of(A, 0, 1, 3, 18, 19, 4, 5, 7, 9, 11, 13, 15, 17), [], True),
    "files in any order": Case(of(A, *(5 * file + n for file in (5, 2, 7, 0, 3, 6, 1, 4) for n in range(5))), [], True),
    "files by their names": Case(of(A, 0, 1, 3, 18, 19, 4, 5, 20, 21, 7, 8, 9, 11, 13, 15, 16), [], True),
    "two files that changed places": Case(of(A, 0, 1, 2, 6, 7, 8, 1.9995, 3, 5, 6.0001, 8.0003, 9, 11), [], True),
    "a file of which another shows a part": Case(of(A, *range(0, 9, 2), 16, 5, 7, 9, 11, 13), [(7, -11)], False),
    "ahead for most of the time": Case(of(A, 0, *range(40, 70), *range(31, 71)), [(32, -38)], False),
    "ahead for a while": Case(of(A, 0, 1, 2, 53, 54, 55, 56, 7, 8, 9, 10), [(8, -49)], False),
    "without names, in turn": Case(of(A, *(i // 10 + i % 5 / 5 for i in range(100))), [], True),
    "without names, some without a time": Case([*of(A, 0, 4, 9, 0.1), (A, None), *of(A, 4.1, 9.1)], [], False),
    "without times": Case([(A, None), (B, None)], [], False),
}


WRONG_ONCE = ("wrong for one record", "ahead for one record")


def clocks_of(records: Times, cut: int) -> Clocks:
    """What is found of the records when they come in blocks of so many."""
    clocks = Clocks()
    nothing = np.zeros(0, np.uint8), np.zeros(0, np.int64)
    for at in range(0, len(records), cut):
        block = records[at : at + cut]
        times = np.array([NO_TIME if time is None else round(time * BILLION) for _, time in block])
        numbers = np.array([clock for clock, _ in block])
        clocks.take(Records(nothing[0], nothing[1], nothing[1], times, nothing[1], at + 1, numbers))
    clocks.end()
    return clocks


@pytest.mark.parametrize("what", CASES)
def test_what_is_found_of_clocks_whatever_the_blocks(what: str) -> None:
    records, steps, by_time = CASES[what]
    for cut in (1, 2, 3, 100):
        clocks = clocks_of(records, cut)
        assert [(row["frame"], row["step_ns"]) for row in clocks.steps or ()] == [
            (frame, round(step * BILLION)) for frame, step in steps
        ]
        assert clocks.by_time is by_time


@pytest.mark.parametrize("what", CASES)
def test_from_when_to_when_a_capture_is_whatever_was_wrong_for_one_record(what: str) -> None:
    records, steps, _ = CASES[what]
    wrong = {frame for frame, step in steps if (frame + 1, -step) in steps}
    times = [time for at, (_, time) in enumerate(records, 1) if time is not None and at not in wrong]
    for cut in (1, 2, 3, 100):
        span = clocks_of(records, cut).span_ns
        assert span == ((round(min(times) * BILLION), round(max(times) * BILLION)) if times else None)


def test_by_the_steps_no_clock_goes_back() -> None:
    for what in ("the first section steps back", "both step back", "it steps back twice", *WRONG_ONCE):
        records, _, _ = CASES[what]
        behind = behind_at(np.arange(1, len(records) + 1), clocks_of(records, 100).steps or ())
        in_time = [(clock, time + late / BILLION) for (clock, time), late in zip(records, behind.tolist(), strict=True)]
        for number in (A, B):
            times = [time for clock, time in in_time if clock == number]
            assert all(one <= other + 1e-6 for one, other in pairwise(times)), what


# --- files ------------------------------------------------------------------------------------------------------------


def talk() -> list[tuple[Sent, int]]:
    """Two connections between the same ports, one after the other, with the time of each segment in µs."""
    rng, found = random.Random(4), []
    for nth in range(2):
        packets = [b"".join(msmq(900, rng.randbytes(884)) for _ in range(40)) for _ in range(2)]
        sent = conversation(rng, *packets, client_isn=1000 + nth * 90_000, server_isn=7_000 + nth * 80_000, closed=True)
        found += [(one, (NEW_YEAR + nth * 10) * 1_000_000 + at * 20_000) for at, one in enumerate(sent)]
    return found


def blocks(sent: list[tuple[Sent, int]], number: int = 0) -> bytes:
    return b"".join(enhanced(one.frame(), time, number=number) for one, time in sent)


def in_sections(sent: list[tuple[Sent, int]]) -> bytes:
    return b"".join(
        section() + interface() + blocks([one for one in sent if one[0].by_server is side]) for side in (False, True)
    )


def in_turns(sent: list[tuple[Sent, int]]) -> bytes:
    parts = [section(), interface(), interface()]
    for second in sorted({time // 1_000_000 for _, time in sent}):
        of_second = [one for one in sent if one[1] // 1_000_000 == second]
        parts += [blocks([one for one in of_second if one[0].by_server is side], side) for side in (False, True)]
    return b"".join(parts)


def appended(sent: list[tuple[Sent, int]]) -> bytes:
    in_order = sorted(sent, key=lambda one: one[0].by_server)
    return pcap([Record(one.frame(), time * 1000) for one, time in in_order])


def by_names(sent: list[tuple[Sent, int]]) -> bytes:
    """A ring of twelve files, joined as `cat part*` does it: the last three after the first one."""
    size = -(-len(sent) // 12)
    parts = {str(at // size): sent[at : at + size] for at in range(0, len(sent), size)}
    return pcap([Record(one.frame(), time * 1000) for name in sorted(parts) for one, time in parts[name]])


@pytest.mark.parametrize("form", merge_needs([in_turns, by_names], [in_sections, in_turns, appended, by_names]))
def test_files_of_several_clocks_are_read_as_one_in_order_however_they_are_split(
    form: Callable[[list[tuple[Sent, int]]], bytes], tmp_path: Path
) -> None:
    """`look` reads each in one part and in parts of 20 kB."""
    sent = talk()
    (tmp_path / "plain").mkdir()
    plain = look(tmp_path / "plain", section() + interface() + blocks(sent))
    found = look(tmp_path, form(sent))
    assert found.streams == plain.streams
    assert (found.gaps, found.counts, found.quarantine) == (plain.gaps, plain.counts, plain.quarantine)
    assert len(found.packets) == 160
    of_place = {"first_frame", "last_frame", "capture"}
    if form is by_names:  # a packet that two files share has the time of the record that stands behind the other
        of_place.add("captured_ns")
    kept = [[{k: v for k, v in row.items() if k not in of_place} for row in one.packets] for one in (found, plain)]
    assert kept[0] == kept[1]
    (row,) = index_captures([tmp_path / "0.cap"], IngestOptions(split_bytes=3_000))
    assert (row["by_time"], row["clock_steps"]) == (True, None)
