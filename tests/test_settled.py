"""A night judges what is new, and its tables are those of one replay of everything."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from histories import History, differences, of_captures, of_rows
from replay_tables import T0, Tables, frame
from table_frames import TABLE
from tiers import seeds

from jobs.simulator import simulate
from schemas.replay import VERDICTS, Reading, Scope


@pytest.mark.parametrize("seed", seeds(range(8), range(250)))
def test_nights_of_captures_make_the_tables_of_one(seed: int) -> None:
    """Cut anywhere, some of them late or given again, with resends, gaps, clones and restored senders."""
    assert list(of_captures(seed)) == []


@pytest.mark.parametrize("seed", seeds(range(12), range(250)))
def test_sources_that_change_in_any_way_make_the_tables_of_one_replay(seed: int) -> None:
    """Rows come late and go again: names of ends, acknowledgments, unread bytes, scopes, the ends of streams."""
    assert list(of_rows(seed)) == []


def test_a_night_judges_what_it_brought(tmp_path: Path) -> None:
    """And what is open: the last sequence of each scope that goes on."""
    simulate(str(tmp_path), 3, 3_000, bodies=(10, 20), disorder=0, file_bytes=40_000)
    captures = sorted(tmp_path.glob("*.pcap"))
    half = len(captures) // 2
    history = History()
    history.night(*captures[:half])
    history.judged, there = 0, 0
    for capture in captures[half:]:
        there += history.night(capture)[VERDICTS.name].height
    assert 3 * history.judged < there


def test_nights_of_the_literal_reading_are_judged_as_a_whole(tmp_path: Path) -> None:
    """It counts no outcomes, so nothing is settled."""
    simulate(str(tmp_path), 3, 100, bodies=(10, 20), file_bytes=40_000)
    history = History(reading=Reading.LITERAL)
    for capture in sorted(tmp_path.glob("*.pcap")):
        made = history.night(capture)
    expected, _ = history.replay(None)
    assert list(differences(made, expected)) == []


# --- two nights of which the second one changes what the first one settled; a scene is called by what happens then ----

_S = 1_000_000_000
Night = Callable[["Nights"], None]


class Nights(Tables):
    """Rows of the sources, which grow from night to night."""

    def opened(self, name: str, src: str = "a", dst: str = "r", at: int = 0) -> None:
        """Adds a stream that began at a time."""
        us = (T0 + at * _S) // 1_000
        self.stream(name, src, dst, first_captured_at=us, last_captured_at=us)

    def sent(self, stream: str, *messages: tuple[int | None, int, int, int], begin: int = 0, **columns: Any) -> None:
        """Adds messages (time, ID, number, previous) one after another."""
        for nth, (at, sequence, number, previous) in enumerate(messages):
            ns = None if at is None else T0 + at * _S
            key, named = (stream, begin + 10 * nth), {"message_id": rf"source\{sequence * 100 + number}"}
            self.message(key, ns, (sequence, number, previous), **(named | columns))

    def acked(self, stream: str, at: int, sequence: int, number: int) -> None:
        """Adds an OrderAck."""
        self.ack(stream, T0 + at * _S, (sequence, number), stream_offset=at)


class Scene(NamedTuple):
    """Holds the two nights of a scene."""

    first: Night
    second: Night
    scope: Scope = Scope.QUEUE


def _one_sender(t: Nights) -> None:
    t.connection("A", "a", "r")
    t.sent("A>", (10, 7, 1, 0), (20, 7, 2, 1), (30, 8, 1, 0), (40, 9, 1, 0))


def _refused_and_passed(t: Nights) -> None:
    t.opened("A>")
    t.opened("C>", at=5)
    t.opened("B>", at=30)
    t.unread("B>", 0, 5)
    t.sent("A>", (10, 7, 1, 0), (20, 7, 3, 2))
    t.sent("C>", (60, 8, 1, 0), (61, 9, 1, 0))


def _filled(t: Nights) -> None:
    t.rows["stream_gaps"].clear()
    t.sent("C>", (70, 9, 2, 1), begin=40)


def _two_streams(t: Nights) -> None:
    t.opened("A>", at=10)
    t.opened("B>", src="b", at=15)
    t.sent("A>", (10, 7, 1, 0))
    t.sent("B>", (20, 8, 1, 0))


def _silent_begins(t: Nights) -> None:
    t.opened("C>", at=50)
    t.unread("C>", 0, 5)
    t.sent("B>", (100, 8, 3, 2), begin=20)


def _from_a_gap(t: Nights) -> None:
    t.connection("A", "a", "r")
    t.sent("A>", (10, 7, 2, 1), (20, 8, 1, 0), (30, 9, 1, 0))
    t.acked("A<", 31, 9, 1)


def _shared_session(t: Nights) -> None:
    t.connection("A", "a", "r")
    t.connection("B", "b", "r")
    t.sent("A>", (1, 7, 1, 0), (2, 8, 1, 0), (3, 9, 1, 0))
    t.sent("B>", (1, 7, 1, 0), source_queue_manager="other", destination_queue="x")
    t.acked("B<", 5, 7, 1)
    t.acked("A<", 4, 9, 1)


def _crowd(t: Nights) -> None:
    _shared_session(t)
    for nth in range(15):
        t.sent("B>", (1, 100 + nth, 1, 0), begin=10 * nth, source_queue_manager=f"o{nth}", destination_queue="x")


def _tail(t: Nights) -> None:
    t.opened("A>")
    t.opened("C>", at=5)
    t.unread("C>", 50, 5)
    t.sent("C>", (10, 7, 1, 0))
    t.sent("A>", (20, 7, 2, 1), (30, 8, 1, 0), (40, 9, 1, 0))


def _silent(t: Nights) -> None:
    t.opened("A>")
    t.opened("C>", at=15)
    t.unread("C>", 5, 5)
    t.sent("A>", (10, 7, 1, 0), (20, 7, 2, 1), (30, 8, 1, 0), (40, 9, 1, 0))


def _leg(t: Nights) -> None:
    t.connection("A", "a", "r")
    t.opened("B>", dst="x")
    t.handshake("A", "ga", "R")
    t.sent("A>", (10, 7, 1, 0), (20, 7, 3, 2), (30, 8, 1, 0), (40, 9, 1, 0), queue_manager_address="R")
    t.sent("B>", (15, 11, 2, 1), queue_manager_address="R")


def _named_elsewhere(t: Nights) -> None:
    t.connection("D", "z", "x")
    t.handshake("D", "gz", "other")


def _stale_first(t: Nights) -> None:
    t.connection("A", "a", "r")
    t.acked("A<", 1, 9, 5)
    t.sent("A>", (10, 6, 5, 4), (20, 9, 6, 5))


def _twins(t: Nights) -> None:
    t.opened("A>")
    t.opened("B>", src="b", dst="r2")
    t.sent("A>", (10, 7, 1, 0), message_id=r"source\5")
    t.sent("A>", (20, 8, 1, 0), (30, 9, 1, 0), begin=10)
    t.sent("B>", (11, 107, 1, 0), message_id=r"source\5")
    t.sent("B>", (21, 108, 1, 0), begin=10)


def _without_twin(t: Nights) -> None:
    t.rows["messages"] = [row for row in t.rows["messages"] if row["tx_sequence_id"] != 107]


def _last_beside_a_range(t: Nights) -> None:
    t.opened("A>")
    t.opened("B>", at=5)
    t.unread("B>", 5, 5)
    t.sent("A>", (10, 7, 1, 0), (20, 8, 1, 0), (22, 9, 1, 0), (40, 11, 1, 0))
    t.sent("B>", (30, 10, 1, 0), begin=10)


def _goes_elsewhere(t: Nights) -> None:
    next(row for row in t.rows["messages"] if row["stream_id"] == "B>")["destination_queue"] = "other"
    t.sent("A>", (50, 12, 1, 0), begin=200)


def _across_a_range(t: Nights) -> None:
    t.opened("A>")
    t.opened("B>", at=25)
    t.unread("B>", 0, 5)
    t.sent("A>", (10, 7, 1, 0), (20, 8, 1, 0))
    t.sent("B>", (30, 9, 2, 1), begin=10)


def _one_sequence(t: Nights) -> None:
    t.connection("A", "a", "r")
    for nth in range(17):
        sequence = 8 if nth == 16 else 7
        t.sent("A>", (1, sequence, 1, 0), begin=10 * nth, source_queue_manager=f"o{nth}", message_id=rf"o{nth}\1")
    t.acked("A<", 5, 7, 1)


def _one_sender_more(t: Nights) -> None:
    t.sent("A>", (50, 7, 1, 0), begin=900, source_queue_manager="o16", destination_queue="q2", message_id=r"o16\2")


def _named_by_address(t: Nights) -> None:
    t.connection("D", "z", "x")
    t.handshake("D", "gz", "R")
    for name, src, dst in (("B>", "b", "r"), ("A>", "a", "x"), ("Y>", "c", "y")):
        t.opened(name, src, dst)
    t.sent("B>", (10, 7, 1, 0), (20, 8, 1, 0))
    t.sent("Y>", (15, 11, 2, 1), queue_manager_address="R")
    t.sent("A>", (30, 9, 1, 0), queue_manager_address="R")
    t.sent("A>", (40, 10, 1, 0), begin=50)


def _named_twice(t: Nights) -> None:
    t.connection("E", "z", "x")
    t.handshake("E", "gz", "other")


def _twin_by_address(t: Nights) -> None:
    t.connection("D", "z", "x")
    t.handshake("D", "gz", "R")
    t.opened("B>", "b", "r")
    t.opened("A>", "a", "x")
    t.sent("B>", (10, 7, 1, 0), message_id=r"source\5")
    t.sent("B>", (12, 8, 1, 0), begin=10)
    t.sent("A>", (20, 9, 1, 0), message_id=r"source\5", queue_manager_address="R", destination_queue="other")


def _not_named_yet(t: Nights) -> None:
    t.connection("B", "a", "r")
    t.connection("Y", "a", "y")
    t.handshake("B", "ga", "R")
    t.sent("B>", (10, 7, 1, 0), (12, 8, 1, 0), (14, 9, 1, 0))
    t.sent("Y>", (50, 7, 2, 1), queue_manager_address="R")


def _clock_fell(t: Nights) -> None:
    t.connection("A", "a", "r")
    t.unread("A<", 5, 5)
    t.sent("A>", (68, 6, 2, 1), (16, 8, 1, 0))


SCENES = {
    "what passed a refused message is known": Scene(_refused_and_passed, _filled),
    "a silent stream begins on a session of which nothing else is judged": Scene(_two_streams, _silent_begins),
    "an OrderAck from before all messages comes": Scene(_from_a_gap, lambda t: t.acked("A<", 5, 6, 3), Scope.SESSION),
    "it goes": Scene(_from_a_gap, lambda t: t.rows["acks"].clear(), Scope.SESSION),
    "a sender is new to a session with OrderAcks for anyone": Scene(
        _shared_session, lambda t: t.sent("B>", (50, 10, 1, 0), begin=90, destination_queue="q2")
    ),
    "a session has too many senders for that": Scene(
        _crowd, lambda t: t.sent("B>", (50, 300, 1, 0), begin=900, source_queue_manager="o99", destination_queue="x")
    ),
    "a message follows a range behind what was the last one": Scene(
        _tail, lambda t: t.sent("C>", (200, 10, 1, 0), begin=100), Scope.SESSION
    ),
    "a silent stream has its first message": Scene(
        _silent, lambda t: t.sent("C>", (200, 10, 1, 0), begin=100), Scope.SESSION
    ),
    "an address has a name, so that messages passed through": Scene(_leg, _named_elsewhere),
    "a message without a time comes": Scene(_one_sender, lambda t: t.sent("A>", (None, 10, 1, 0), begin=90)),
    "a message comes at a lower offset": Scene(_one_sender, lambda t: t.sent("A>", (60, 10, 1, 0), begin=15)),
    "a message comes after one that never moved the state": Scene(
        _stale_first, lambda t: t.sent("A>", (50, 9, 9, 8), begin=40), Scope.SESSION
    ),
    "one of two that were accepted goes": Scene(_twins, _without_twin, Scope.SESSION),
    "a message goes to another queue, and its stream is silent": Scene(_last_beside_a_range, _goes_elsewhere),
    "the state falls to that of a sequence that was settled": Scene(
        _across_a_range, lambda t: t.rows["stream_gaps"].clear()
    ),
    "one sender more uses a sequence of a crowded session": Scene(_one_sequence, _one_sender_more),
    "an address has two names, so that messages on its way may be for anyone": Scene(_named_by_address, _named_twice),
    "one of two that were accepted may be on its way": Scene(_twin_by_address, _named_twice),
    "a message with an old sequence was on its way": Scene(_not_named_yet, lambda t: t.handshake("Y", "ga", "R")),
    "an OrderAck comes from before the first message, whose time is not the first": Scene(
        _clock_fell, lambda t: t.acked("A<", 28, 9, 2), Scope.SESSION
    ),
}


@pytest.mark.parametrize("name", SCENES)
def test_a_second_night_changes_what_the_first_one_settled(name: str) -> None:
    scene, rows = SCENES[name], Nights()
    rows.rows["captures"] = [{"capture_id": "c", "uri": "c.pcap"}]
    history = History(scene.scope)
    for night in (scene.first, scene.second):
        night(rows)
        made = history.go_on({table: frame(TABLE[table], of) for table, of in rows.rows.items()})
        expected, _ = history.replay(None)
        assert list(differences(made, expected)) == []
