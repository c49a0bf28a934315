"""A night judges what is new, and its tables are those of one replay of everything."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from histories import History, differences, of_captures, of_rows
from replay_tables import T0, Tables
from table_frames import rows_of
from tiers import seeds

from jobs.simulator import simulate
from schemas.replay import VERDICTS, Reading, Scope


@pytest.mark.parametrize("seed", seeds([0, 4, 5, 6], range(250)))
def test_nights_of_captures_make_the_tables_of_one(seed: int) -> None:
    """Cut anywhere, some of them late or given again, with resends, gaps, clones and restored senders."""
    assert list(of_captures(seed)) == []


@pytest.mark.parametrize("seed", seeds([0, 1, 5, 6], range(250)))
def test_sources_that_change_in_any_way_make_the_tables_of_one_replay(seed: int) -> None:
    """Rows come late and go again: names of ends, acknowledgments, unread bytes, scopes, the ends of streams."""
    assert list(of_rows(seed)) == []


def test_a_night_judges_what_it_brought(tmp_path: Path) -> None:
    """And what is open: the last sequence of each scope that goes on."""
    simulate(str(tmp_path), 3, 2_000, bodies=(10, 20), disorder=0, file_bytes=40_000)
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


# --- what comes after the `yield` of a scene is a second night, which changes what the first one settled --------------

_S = 1_000_000_000
GUID = "01234567-89ab-cdef-0123-456789abcdef"


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


Scene = Callable[[Nights], Iterator[None]]
SCENES: list[tuple[Scope, Scene]] = []


def scene(scope: Scope = Scope.QUEUE) -> Callable[[Scene], Scene]:
    def add(one: Scene) -> Scene:
        SCENES.append((scope, one))
        return one

    return add


@scene()
def what_passed_a_refused_message_is_known(t: Nights) -> Iterator[None]:
    for name, at in (("A>", 0), ("C>", 5), ("B>", 30)):
        t.opened(name, at=at)
    t.unread("B>", 0, 5)
    t.sent("A>", (10, 7, 1, 0), (20, 7, 3, 2))
    t.sent("C>", (60, 8, 1, 0), (61, 9, 1, 0))
    yield
    t.rows["stream_gaps"].clear()
    t.sent("C>", (70, 9, 2, 1), begin=40)


def _from_a_gap(t: Nights) -> None:
    t.connection("A", "a", "r")
    t.sent("A>", (10, 7, 2, 1), (20, 8, 1, 0), (30, 9, 1, 0))
    t.acked("A<", 31, 9, 1)


@scene(Scope.SESSION)
def an_order_ack_from_before_all_messages_comes(t: Nights) -> Iterator[None]:
    _from_a_gap(t)
    yield
    t.acked("A<", 5, 6, 3)


@scene(Scope.SESSION)
def an_order_ack_from_before_all_messages_goes(t: Nights) -> Iterator[None]:
    _from_a_gap(t)
    t.acked("A<", 5, 6, 3)
    yield
    t.rows["acks"].pop()


def _shared_session(t: Nights) -> None:
    t.connection("A", "a", "r")
    t.connection("B", "b", "r")
    t.sent("A>", (1, 7, 1, 0), (2, 8, 1, 0), (3, 9, 1, 0))
    t.sent("B>", (1, 7, 1, 0), source_queue_manager="other", destination_queue="x")
    t.acked("B<", 5, 7, 1)
    t.acked("A<", 4, 9, 1)


@scene()
def a_sender_is_new_to_a_session_with_order_acks_for_anyone(t: Nights) -> Iterator[None]:
    _shared_session(t)
    yield
    t.sent("B>", (50, 10, 1, 0), begin=90, destination_queue="q2")


@scene()
def a_session_has_too_many_senders_for_that(t: Nights) -> Iterator[None]:
    _shared_session(t)
    for nth in range(15):
        t.sent("B>", (1, 100 + nth, 1, 0), begin=10 * nth, source_queue_manager=f"o{nth}", destination_queue="x")
    yield
    t.sent("B>", (50, 300, 1, 0), begin=900, source_queue_manager="o99", destination_queue="x")


@scene(Scope.SESSION)
def a_message_follows_a_range_behind_what_was_the_last_one(t: Nights) -> Iterator[None]:
    t.opened("A>")
    t.opened("C>", at=5)
    t.unread("C>", 50, 5)
    t.sent("C>", (10, 7, 1, 0))
    t.sent("A>", (20, 7, 2, 1), (30, 8, 1, 0), (40, 9, 1, 0))
    yield
    t.sent("C>", (200, 10, 1, 0), begin=100)


@scene(Scope.SESSION)
def a_silent_stream_has_its_first_message(t: Nights) -> Iterator[None]:
    t.opened("A>")
    t.opened("C>", at=15)
    t.unread("C>", 5, 5)
    t.sent("A>", (10, 7, 1, 0), (20, 7, 2, 1), (30, 8, 1, 0), (40, 9, 1, 0))
    yield
    t.sent("C>", (200, 10, 1, 0), begin=100)


def with_one_known_receiver(t: Nights) -> None:
    """Connection A leads to receiver R; nothing names the receiver of stream B."""
    t.connection("A", "a", "r")
    t.opened("B>", dst="x")
    t.handshake("A", "ga", "R")


@scene()
def an_address_has_a_name_so_that_messages_passed_through(t: Nights) -> Iterator[None]:
    with_one_known_receiver(t)
    t.sent("A>", (10, 7, 1, 0), (20, 7, 3, 2), (30, 8, 1, 0), (40, 9, 1, 0), queue_manager_address="R")
    t.sent("B>", (15, 11, 2, 1), queue_manager_address="R")
    yield
    t.connection("D", "z", "x")
    t.handshake("D", "gz", "other")


@scene()
def a_message_that_may_be_on_its_way_comes_late(t: Nights) -> Iterator[None]:
    with_one_known_receiver(t)
    t.sent("A>", (10, 7, 1, 0), (20, 8, 1, 0), (30, 9, 1, 0), queue_manager_address="R")
    yield
    t.sent("B>", (15, 11, 2, 1), queue_manager_address="R")


@scene()
def a_message_names_whom_messages_on_their_way_name(t: Nights) -> Iterator[None]:
    with_one_known_receiver(t)
    t.sent("A>", (10, 7, 1, 0), (20, 8, 1, 0), (30, 9, 1, 0))
    t.sent("B>", (15, 11, 2, 1), queue_manager_address="R")
    yield
    t.sent("A>", (50, 9, 2, 1), begin=90, queue_manager_address="R")


@scene()
def an_address_has_two_names_so_that_messages_on_their_way_may_be_for_anyone(t: Nights) -> Iterator[None]:
    t.connection("D", "z", "x")
    t.handshake("D", "gz", "R")
    for name, src, dst in (("B>", "b", "r"), ("A>", "a", "x"), ("Y>", "c", "y")):
        t.opened(name, src, dst)
    t.sent("B>", (10, 7, 1, 0), (20, 8, 1, 0))
    t.sent("Y>", (15, 11, 2, 1), queue_manager_address="R")
    t.sent("A>", (30, 9, 1, 0), queue_manager_address="R")
    t.sent("A>", (40, 10, 1, 0), begin=50)
    yield
    t.connection("E", "z", "x")
    t.handshake("E", "gz", "other")


@scene()
def a_second_receiver_has_a_state_of_its_own(t: Nights) -> Iterator[None]:
    t.connection("A", "a", "r")
    t.handshake("A", "ga", GUID)
    t.sent("A>", (10, 7, 1, 0), (20, 7, 5, 1), (25, 7, 3, 2), (30, 8, 1, 0), (40, 9, 1, 0))
    yield
    t.connection("B", "a", "r2")
    t.handshake("B", "ga", GUID.replace("0", "f"))
    t.sent("B>", (50, 10, 1, 0))


@scene(Scope.SESSION)
def a_message_comes_after_one_that_never_moved_the_state(t: Nights) -> Iterator[None]:
    t.connection("A", "a", "r")
    t.acked("A<", 1, 9, 5)
    t.sent("A>", (10, 6, 5, 4), (20, 9, 6, 5))
    yield
    t.sent("A>", (50, 9, 9, 8), begin=40)


@scene(Scope.SESSION)
def one_of_two_that_were_accepted_goes(t: Nights) -> Iterator[None]:
    t.opened("A>")
    t.opened("B>", src="b", dst="r2")
    t.sent("A>", (10, 7, 1, 0), message_id=r"source\5")
    t.sent("A>", (20, 8, 1, 0), (30, 9, 1, 0), begin=10)
    t.sent("B>", (11, 107, 1, 0), message_id=r"source\5")
    t.sent("B>", (21, 108, 1, 0), begin=10)
    yield
    t.rows["messages"] = [row for row in t.rows["messages"] if row["tx_sequence_id"] != 107]


@scene()
def the_state_falls_to_that_of_a_sequence_that_was_settled(t: Nights) -> Iterator[None]:
    t.opened("A>")
    t.opened("B>", at=25)
    t.unread("B>", 0, 5)
    t.sent("A>", (10, 7, 1, 0), (20, 8, 1, 0))
    t.sent("B>", (30, 9, 2, 1), begin=10)
    yield
    t.rows["stream_gaps"].clear()


LATER: dict[str, Callable[[Nights], None]] = {
    "a message without a time": lambda t: t.sent("A>", (None, 10, 1, 0), begin=90),
    "a message before others on another stream": lambda t: t.sent("B>", (35, 9, 2, 1)),
    "a message at a lower offset": lambda t: t.sent("A>", (60, 10, 1, 0), begin=15),
    "a message that another queue had": lambda t: t.sent(
        "B>", (50, 20, 1, 0), message_id=r"source\701", destination_queue="other"
    ),
    "an end without acknowledgment of the bytes": lambda t: t.rows["streams"][0].update(closed=True, acked_bytes=5),
}
"""Messages that come in a later night, after four that arrived in order on stream A."""


def after_four_messages(t: Nights, later: str) -> Iterator[None]:
    t.connection("A", "a", "r")
    t.opened("B>")
    t.sent("A>", (10, 7, 1, 0), (20, 7, 2, 1), (30, 8, 1, 0), (40, 9, 1, 0))
    t.rows["packets"] = [{"stream_id": "A>", "stream_offset": offset, "size": 10} for offset in (0, 10, 20, 30)]
    yield
    LATER[later](t)


NAMES = (*(nights.__name__ for _, nights in SCENES), *LATER)
SCENES += [(Scope.QUEUE, partial(after_four_messages, later=later)) for later in LATER]


@pytest.mark.parametrize(("scope", "nights"), SCENES, ids=NAMES)
def test_a_second_night_changes_what_the_first_one_settled(scope: Scope, nights: Scene) -> None:
    rows, history = Nights(), History(scope)
    rows.rows["captures"] = [{"capture_id": "c", "uri": "c.pcap"}]
    going_on = nights(rows)
    for _ in range(2):
        next(going_on, None)
        made = history.go_on({table: rows_of(table, *of) for table, of in rows.rows.items()})
    expected, _ = history.replay(None)
    assert list(differences(made, expected)) == []
