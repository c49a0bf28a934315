"""A night judges what is new, and its tables are those of one replay of everything."""

from pathlib import Path

import polars as pl
import pytest
from histories import History, differences, of_captures, of_rows
from replay_tables import T0
from scenes import Event
from settled_scenes import (
    ASKED,
    COPIED,
    COPIES,
    SCENES,
    SECOND,
    acked,
    after,
    after_each,
    opened,
    prefix,
    read,
    sent,
    side_by_side,
)
from tiers import merge_needs, seeds

from jobs.simulator import simulate
from schemas.replay import TRANSACTIONS, VERDICTS, Reading, Scope


@pytest.mark.parametrize("seed", seeds([77], range(250)))
def test_nights_of_captures_make_the_tables_of_one(seed: int) -> None:
    """Cut anywhere, some of them late or given again, with resends, gaps, clones and restored senders."""
    assert list(of_captures(seed)) == []


@pytest.mark.parametrize("seed", seeds([86], range(250)))
def test_sources_that_change_in_any_way_make_the_tables_of_one_replay(seed: int) -> None:
    """Rows come late and go again: names of ends, acknowledgments, unread bytes, scopes, the ends of streams."""
    assert list(of_rows(seed)) == []


@pytest.mark.slow
def test_a_night_judges_what_it_brought(tmp_path: Path) -> None:
    """And what is open: the last sequence of each scope that goes on."""
    simulate(str(tmp_path), 3, 2_000, bodies=(10, 20), disorder=0, file_bytes=40_000)
    captures = sorted(tmp_path.glob("*.pcap"))
    history = History()
    history.night(*captures[:-3])
    history.judged, there = 0, 0
    for capture in captures[-3:]:
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


OF_SESSIONS, OF_QUEUES = (
    tuple(name for name, (scope, *_) in SCENES.items() if scope is of and name not in COPIES)
    for of in (Scope.SESSION, Scope.QUEUE)
)


PLAYED = {"in sessions": OF_SESSIONS, "in queues": OF_QUEUES} | {name: (name,) for name in COPIES}
AT_ONCE = ("in sessions", "in queues", "what was a copy is a connection of its own")


@pytest.mark.parametrize("played", merge_needs(AT_ONCE, PLAYED))
def test_a_second_night_changes_what_the_first_one_settled(played: str) -> None:
    history, made = side_by_side(*PLAYED[played])
    expected, _ = history.replay(None)
    assert list(differences(made, expected)) == []


@pytest.mark.slow
@pytest.mark.parametrize("scene", [*OF_SESSIONS, *OF_QUEUES])
def test_a_scene_beside_others_is_judged_as_one_alone(scene: str) -> None:
    """Else one of them could have the messages of another judged again, which would miss that by itself."""
    scope, *nights = SCENES[scene]
    history, made = after(scope, *nights)
    expected, _ = history.replay(None)
    assert list(differences(made, expected)) == []
    together = side_by_side(*(OF_SESSIONS if scene in OF_SESSIONS else OF_QUEUES))
    assert together.judged_again(scene) == {*history.judged_last.rows()}


@pytest.mark.parametrize(
    ("name", "instances", "judged"),
    [  # the last sequence goes on
        ("a transaction ID is used again", [1, 2, 3], 3),
        ("a transaction ID is used again, and FM is lost", [1, 2], 2),
        ("a transaction ID was used again, and FM was lost", [1, 2], 3),
    ],
)
def test_a_transaction_id_that_is_used_again_leaves_its_first_use_alone(
    name: str, instances: list[int], judged: int
) -> None:
    together = side_by_side(*OF_QUEUES)
    own = together.made[TRANSACTIONS.name].filter(pl.col("source_queue_manager") == f"{prefix(name)}source")
    assert own["instance"].sort().to_list() == instances
    assert len(together.judged_again(name)) == judged


def test_a_night_says_what_is_not_read_of_what_earlier_nights_settled() -> None:
    """Reading: a FinalAck for each; of a sender without any acknowledgment nothing is reported."""
    nights: list[tuple[Event, ...]] = [
        ASKED,
        (acked("A<", 60, 9, 1),),
        (read("A<", 70, 7, 1),),
        (read("A<", 80, 8, 1), read("A<", 81, 9, 1)),
    ]
    found = []
    for _, made in after_each(Scope.QUEUE, *nights):
        (session,) = made["sessions"].to_dicts()
        since = session["accepted_not_read_since"]
        found.append((session["accepted_not_read_messages"], since and round(since.timestamp() - T0 / SECOND)))
    assert found == [(None, None), (3, 10), (2, 20), (0, None)]


def test_connections_that_were_captured_twice_leave_other_senders_settled() -> None:
    before = (*COPIED, opened("E>"), sent("A>", (1, 5, 1, 0), source_queue_manager="other"))
    first = (*before, sent("E>", (10, 7, 1, 0), (20, 8, 1, 0), (30, 9, 1, 0)))
    history, _ = after(Scope.QUEUE, first, (sent("E>", (40, 10, 1, 0), begin=90),))
    assert history.judged == 4 + 3  # that of the copied connection, and the last one of the other sender
