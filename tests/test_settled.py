"""A night judges what is new, and its tables are those of one replay of everything."""

from pathlib import Path

import pytest
from histories import History, differences, of_captures, of_rows
from replay_tables import frame
from scenes_of_nights import SCENES, Nights
from table_frames import TABLE
from tiers import merge_needs

from jobs.simulator import simulate
from schemas.replay import VERDICTS, Reading


@pytest.mark.parametrize("seed", merge_needs(range(8), range(250)))
def test_nights_of_captures_make_the_tables_of_one(seed: int) -> None:
    """Cut anywhere, some of them late or given again, with resends, gaps, clones and restored senders."""
    assert list(of_captures(seed)) == []


@pytest.mark.parametrize("seed", merge_needs(range(12), range(250)))
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
