"""Nights of which captures lack many frames: what one incident says in several places comes from the same messages.

The rows of `verdicts` and `outcomes` are counted here a second time, one by one.
"""

import random
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock

import dpkt
import pytest
from night_truth import STORIES
from tiers import merge_needs, seeds
from warehouses import config, looked_at

from jobs.commands.summary import summary
from jobs.engines.in_process import InProcess
from jobs.simulator import CAPTURE_PREFIX, demo, simulate
from schemas.incidents import INCIDENTS
from schemas.outcomes import DELIVERED, LOSS_UNKNOWN, LOST, NOT_KNOWN, OUTCOMES, Outcome
from schemas.replay import ENDS, FINDINGS, SEQUENCES, VERDICTS

Row = dict[str, Any]
KEY = ("scope_key", "tx_sequence_id", "tx_sequence_number", "source_queue_manager", "message_id", "content_hash")
VARIANTS: tuple[Row, ...] = (
    {"keeps": 0.5},
    {"keeps": 0.5, "both_ends": True},
    {"keeps": 0.9, "both_ends": True},
    {"keeps": 0.97, "both_ends": True},
    {"keeps": 0.5, "only_some": True},
)
"""Shares of frames that remain, of each capture or of some."""


class Night:
    """Holds the tables of a thinned morning with a clone and a stuck branch, and the incidents of its summary."""

    def __init__(self, seed: int, *, keeps: float, only_some: bool = False, both_ends: bool = False) -> None:
        draw = random.Random(seed)
        with TemporaryDirectory() as folder, mock.patch.object(demo, "STORIES", STORIES["both"]):
            simulate(folder, seed, 0, is_demo=True, both_ends=both_ends)
            for capture in sorted(Path(folder).glob(f"{CAPTURE_PREFIX}_*.pcap")):
                thin(capture, draw, 1 if only_some and draw.random() < 0.5 else keeps)
            self.engine: InProcess = looked_at(config(Path("w"), Path(folder) / "*.pcap"))
        self.told = summary(self.engine, "w")["worst_incidents"]
        self.incidents, self.verdicts, self.outcomes = map(self.rows, (INCIDENTS, VERDICTS, OUTCOMES))
        self.outcome = {tuple(row[name] for name in KEY): row["outcome"] for row in self.outcomes}
        self.counting = {row["stream_id"]: row["copy_of"] or row["stream_id"] for row in self.rows(ENDS)}

    def rows(self, table: Any) -> list[Row]:
        """Returns the rows of a table."""
        found: list[Row] = self.engine.read(table).to_dicts()
        return found

    def address(self, verdict: Row) -> str:
        """Returns the address that a message came from, on the stream that counts."""
        counting: str = self.counting[verdict["stream_id"]]
        return counting.partition(">")[0].rpartition(":")[0].strip("[]")

    def sequences(self, incident: Row) -> set[tuple[str, int]]:
        """Returns the sequences of an incident: as many as it says, from its first one on, that are in trouble."""
        rows = (*self.outcomes, *(row for row in self.rows(FINDINGS) if row["kind"] != "two_addresses"))
        concerned = {
            (row["scope_key"], row["tx_sequence_id"])
            for row in rows
            if row["scope_key"] == incident["scope_key"] and is_trouble(row)
        }
        after = [one for one in sorted(concerned) if one[1] >= incident["tx_sequence_id"]]
        return set(after[: incident["sequences"]])


def is_trouble(row: Row) -> bool:
    """Whether an outcome or a finding is part of a story."""
    return "outcome" not in row or row["outcome"] not in {
        *("delivered", "delivered_by_acknowledgment", "delivered_before_capture")
    }


def thin(capture: Path, draw: random.Random, keeps: float) -> None:
    """Leaves out frames of a capture."""
    with capture.open("rb") as file:
        reader = dpkt.pcap.Reader(file)
        linktype, frames = reader.datalink(), [one for one in reader if draw.random() < keeps]
    with capture.open("wb") as file:
        writer = dpkt.pcap.Writer(file, linktype=linktype, nano=True)
        for at, frame in frames:
            writer.writepkt(frame, at)


night = cache(Night)


@pytest.fixture(params=seeds([1], range(15)))
def thinned(request: pytest.FixtureRequest) -> Night:
    """A thinned night."""
    return night(request.param, **VARIANTS[request.param % len(VARIANTS)])


def test_messages_of_each_machine_are_those_of_the_rows(thinned: Night) -> None:
    assert thinned.incidents
    for incident in thinned.incidents:
        own = thinned.sequences(incident)
        seen: dict[str, dict[tuple[Any, ...], bool]] = defaultdict(dict)
        for row in thinned.verdicts:
            if (row["scope_key"], row["tx_sequence_id"]) in own:
                key, of = tuple(row[name] for name in KEY), seen[thinned.address(row)]
                of[key] = of.get(key, False) or bool(row["accepted"])
        expected = {
            address: (
                len(of),
                sum(accepted and thinned.outcome.get(key) not in (*LOST, *NOT_KNOWN) for key, accepted in of.items()),
                sum(thinned.outcome.get(key) in LOST for key in of),
            )
            for address, of in seen.items()
        }
        found = {one["address"]: (one["messages"], one["accepted"], one["lost"]) for one in incident["senders"]}
        assert found == expected
        assert all(accepted + lost <= messages for messages, accepted, lost in found.values())
        assert incident["lost_messages"] == sum(
            row["numbers"]
            for row in thinned.outcomes
            if (row["scope_key"], row["tx_sequence_id"]) in own and row["outcome"] in LOST
        )


def test_no_machine_has_two_figures(thinned: Night) -> None:
    """Of a suspected copy, all that was accepted counts as accepted since it was there."""
    for told in (one for one in thinned.told if "accepted_from" in one):
        since = {one["address"]: one["messages"] for one in told["accepted_from"]}
        of_sender = [one for one in thinned.incidents if one["source_queue_manager"] == told["source_queue_manager"]]
        for copy in (one for one in told["addresses"] if one["suspected"]):
            of_copy = Counter({one["address"]: one["accepted"] for of in of_sender for one in of["senders"]})
            assert since.get(copy["address"], 0) >= max(copy["accepted"], of_copy[copy["address"]])
        accepted = Counter(
            thinned.address(row)
            for row in thinned.verdicts
            if row["source_queue_manager"] == told["source_queue_manager"]
            and row["accepted"]
            and thinned.outcome.get(tuple(row[name] for name in KEY)) not in (*LOST, *NOT_KNOWN)
        )
        assert all(many <= accepted[address] for address, many in since.items())


def test_an_incident_is_over_only_where_the_captures_show_it(thinned: Night) -> None:
    """That is where nothing waits, and after the last message in doubt another one of its scope was delivered."""
    delivered: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in thinned.verdicts:
        outcome = thinned.outcome.get(tuple(row[name] for name in KEY), "delivered")
        if outcome in DELIVERED:
            place = row["tx_sequence_id"], row["tx_sequence_number"]
            delivered[row["scope_key"]] = max(delivered[row["scope_key"]], place)
    ends = Counter(incident["ongoing"] for incident in thinned.incidents)
    assert ends[False]
    for incident in thinned.incidents:
        own = thinned.sequences(incident)
        doubtful = [
            (row["tx_sequence_id"], row["tx_sequence_number"] + row["numbers"] - 1)
            for row in thinned.outcomes
            if (row["scope_key"], row["tx_sequence_id"]) in own and row["outcome"] in LOSS_UNKNOWN
        ]
        is_shown = max(doubtful, default=(-1, 0)) < delivered[incident["scope_key"]]
        if incident["ongoing"] is False:
            assert incident["pending"] == 0
            assert is_shown
        elif incident["ongoing"] is None:
            assert not is_shown


class Whole(NamedTuple):
    """Holds the frames of a night, with their times, its messages, and those that were delivered twice."""

    frames: list[tuple[float, bytes]]
    known: set[str]
    twice: set[str]


@cache
def whole_night(seed: int) -> Whole:
    """Simulates a night in which all goes wrong, and looks at it."""
    with TemporaryDirectory() as folder:
        simulate(folder, seed, 400, situations=True)
        captures = sorted(Path(folder).glob(f"{CAPTURE_PREFIX}_*.pcap"))
        frames = sorted(frame for capture in captures for frame in frames_of(capture))
        engine = looked_at(config(Path("w"), Path(folder) / "*.pcap"))
    return Whole(frames, set(engine.read(VERDICTS)["message_id"]), messages_delivered_twice(engine))


@pytest.mark.parametrize("part", merge_needs([3], [3, 8]))
@pytest.mark.parametrize("seed", seeds([901], range(895, 905)))
def test_missing_handshakes_deliver_nothing_twice(seed: int, part: int, tmp_path: Path) -> None:
    """Without its handshake, a connection tells only the address of its receiver; another one may tell the GUID."""
    frames, known, twice = whole_night(seed)
    with (tmp_path / "with_a_hole.pcap").open("wb") as file:
        writer = dpkt.pcap.Writer(file, nano=True)
        for number, (at, frame) in enumerate(frames):
            if number * 12 // len(frames) != part:
                writer.writepkt(frame, at)
    found = messages_delivered_twice(looked_at(config(Path("w"), tmp_path / "with_a_hole.pcap")))
    assert found & known <= twice


def frames_of(capture: Path) -> list[tuple[float, bytes]]:
    """Returns the frames of a capture, each with its time."""
    with capture.open("rb") as file:
        return list(dpkt.pcap.Reader(file))


def messages_delivered_twice(engine: InProcess) -> set[str]:
    """Returns the IDs of the messages that were delivered twice."""
    rows = engine.read(OUTCOMES, "message_id", "outcome")
    return set(rows.filter(rows["outcome"] == Outcome.DELIVERED_TWICE)["message_id"])


@pytest.mark.parametrize("seed", seeds([0], range(3)))
def test_a_branch_that_is_stuck_is_never_said_to_be_over(seed: int) -> None:
    """Half of the frames hide why it is stuck: whether it goes on is not known."""
    thinned = night(seed, keeps=0.5)
    last = max(thinned.rows(SEQUENCES), key=lambda row: row["messages"])
    (stuck,) = (
        one for one in thinned.incidents if (last["scope_key"], last["tx_sequence_id"]) in thinned.sequences(one)
    )
    assert stuck["ongoing"] is not False
