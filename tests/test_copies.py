"""Traffic that was captured twice, clocks that step back, and legs of routers: verdicts do not depend on them.

A conversation in captures of both ends of an address translation is judged once. Steps back of a capture's clock are
undone. What may only pass through a queue manager is not judged.
"""

import json
import struct
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import plain_clock
import plain_copies
import plain_outcomes
import pytest
import replayer
from gold_rows import finding_of, plain
from night_outcomes import is_known
from plain_message_findings import message_findings
from plain_replay import BOTH_ENDS, CLOCK_STEP, Night, Row, difference, differences, expected
from pyspark.sql import SparkSession
from replay_tables import T0, Tables, arrow, fates, replay_once
from replay_tables import rows_of as attributes_of
from replayer import Fate
from scenes_of_captures import (
    APART,
    LEGS,
    SECOND,
    SOURCE,
    A,
    B,
    add_all,
)
from test_operations import Commits, Killed
from test_outcomes import outcomes_of, rows_of
from tiers import merge_needs
from warehouses import all_rows, config, rows

from jobs.replaying.explaining import tell_facts
from jobs.simulator import CAPTURE_PREFIX, simulate
from jobs.simulator.fates import INCIDENT
from jobs.steps import nightly
from schemas.ingest import CAPTURES
from schemas.messages import MESSAGES
from schemas.replay import FindingKind
from udfs.derive.facts.captures import clock_steps
from udfs.derive.frames import to_frame
from udfs.replay.findings.captures import ClockStepped

SEED, BLOCK = 4, 4
BLOCKS = merge_needs([0], range(3))


@pytest.mark.parametrize("options", [BOTH_ENDS, CLOCK_STEP], ids=["both ends", "clock step"])
@pytest.mark.parametrize("block", BLOCKS)
def test_neither_captures_of_both_ends_nor_a_clock_that_steps_back_change_a_verdict(block: int, options: Row) -> None:
    assert differences(range(block * BLOCK, (block + 1) * BLOCK), of_product=True, **options) == []


def ahead(capture: Path, seconds: int) -> None:
    """Writes the capture again beside it, by a clock that is ahead."""
    records = bytearray(capture.read_bytes())
    at = 24
    while at < len(records):
        second, _, length, _ = struct.unpack_from("<IIII", records, at)
        struct.pack_into("<I", records, at, second + seconds)
        at += 16 + length
    capture.with_name(f"{CAPTURE_PREFIX}_ahead.pcap").write_bytes(records)


@pytest.mark.parametrize(("seconds", "twice"), [(30, False), (3_600, True)])
def test_a_second_capture_by_another_clock_changes_no_verdict(tmp_path: Path, seconds: int, twice: bool) -> None:
    simulate(str(tmp_path), SEED, 200, bodies=(0, 500), file_bytes=1 << 40)
    (capture,) = tmp_path.glob(f"{CAPTURE_PREFIX}_*.pcap")
    ahead(capture, seconds)
    night = Night(sorted(tmp_path.glob(f"{CAPTURE_PREFIX}_*.pcap")))
    assert difference(SEED, expected(tmp_path), night, night.fates_of_product()) is None
    assert bool(plain_copies.copies(night.raw)) is twice


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures of both ends, of which that of the receivers' end has a clock that steps back by 300 s."""
    captures = tmp_path_factory.mktemp("both_ends")
    simulate(str(captures), SEED, 400, bodies=(0, 500), both_ends=True, **CLOCK_STEP)
    return captures


@pytest.fixture(scope="module")
def second(folder: Path) -> Night:
    """The second ingest and replay of these captures."""
    return Night(sorted(folder.glob("simulated_*.pcap")))


@pytest.fixture(scope="module")
def night(second: Night) -> dict[str, list[Row]]:
    """The tables of the product's replay of them, by name."""
    replayed = second.replayed()
    renamed = replayed.once.renamed_copies(replayed.sources.streams)
    assert renamed is not None
    streams = {row["stream_id"]: row for rows in (replayed.sources.streams, renamed) for row in rows.to_pylist()}
    tables = {
        "captures": replayed.sources.captures,
        "stream_ends": replayed.inputs.every_end,
        "messages": replayed.sources.messages,
        "verdicts": replayed.verdicts,
        "sessions": replayed.sessions,
        "findings": replayed.explained.findings,
        "incidents": replayed.explained.incidents,
    }
    return {"streams": list(streams.values())} | {name: rows.to_pylist() for name, rows in tables.items()}


def test_the_verdicts_are_the_truth_and_lead_back_to_their_messages(
    night: dict[str, list[Row]], folder: Path, second: Night
) -> None:
    assert difference(SEED, expected(folder), second, second.fates_of_product()) is None
    kept = ("stream_id", "stream_offset", "captured_ns", "captured_at", "capture_id", "last_frame", "message_id")
    messages, verdicts = ({tuple(row[name] for name in kept) for row in night[of]} for of in ("messages", "verdicts"))
    assert verdicts <= messages
    assert len(verdicts) == len(night["verdicts"])


def test_incidents_add_up_to_the_truth(night: dict[str, list[Row]], folder: Path) -> None:
    """An incident may join several sequences, so they are compared by sender; what the truth does not know is left."""
    truth = json.loads((folder / "truth.json").read_text())
    unknown = {scope["source_queue_manager"] for scope in truth if not is_known(scope)}
    expected: Counter[tuple[str, str]] = Counter()
    found: Counter[tuple[str, str]] = Counter()
    for scope in truth:
        for row in scope.get("incidents", ()):
            expected.update({(scope["source_queue_manager"], name): row[name] for name in INCIDENT})
    for row in night["incidents"]:
        found.update({(row["source_queue_manager"], name): row[name] for name in INCIDENT})
    known = {key: count for key, count in expected.items() if key[0] not in unknown and count}
    assert {key: count for key, count in found.items() if key[0] not in unknown and count} == known
    assert {name for _, name in known} >= {"lost", "repaired", "expired"}


def test_figures_of_sessions_leave_copies_out(night: dict[str, list[Row]]) -> None:
    counted = {row["stream_id"]: row for row in night["stream_ends"] if not row["copy_of"]}
    for session in night["sessions"]:
        streams = [row for row in counted.values() if row["session_id"] == session["session_id"]]
        assert session["connections"] <= len({row["connection_id"] for row in streams})
    assert sum(row["transactional"] for row in night["sessions"]) < sum(
        row["transactional"] for row in night["messages"]
    )
    judged = sum(row["transactional"] - row["passing_through"] - row["receiver_unknown"] for row in night["sessions"])
    assert judged == len(night["verdicts"])


def test_the_messages_next_to_the_first_step_of_a_clock_are_shown() -> None:
    """On any stream, in any order; a record of which the number is not known is not next to it."""
    steps = [{"frame": frame, "step_ns": -SECOND} for frame in (5, 9)]
    captures: list[Row] = [{"capture_id": name, "uri": f"{name}.pcap"} for name in "cde"]
    captures[0]["clock_steps"] = steps
    places = [("c", 4, 0), ("c", 5, 400), ("c", 5, 0), ("c", 4, 9), ("c", 3, 1), ("c", None, 7), ("d", 5, 1)]
    for order in (places, places[::-1]):
        messages = (
            {"capture_id": of, "last_frame": at, "stream_id": "s", "stream_offset": offset} for of, at, offset in order
        )
        facts = clock_steps(to_frame(arrow(CAPTURES, captures)), to_frame(arrow(MESSAGES, messages)))
        (found,) = tell_facts({ClockStepped: facts}).to_dicts()
        assert (found["messages"], found["witness"]) == (2, ["s@9", "s@0"])
        assert "first by 1.0 s at record 5" in found["explanation"]


@pytest.mark.slow
def test_a_run_killed_right_after_it_named_copies_ends_as_if_it_never_had_been(
    spark: SparkSession, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processed, tmp_path = tmp_path / "processed", tmp_path / "killed"
    nightly.run(spark, config(processed, folder / "simulated_*.pcap"))
    given = config(tmp_path, folder / "simulated_*.pcap")
    commits = Commits(monkeypatch)
    commits.last = "OVERWRITE streams"
    with pytest.raises(Killed):
        nightly.run(spark, given)
    assert rows(tmp_path, "streams") == rows(processed, "streams")
    assert rows(tmp_path, "books") != rows(processed, "books")
    commits.last = ""
    nightly.run(spark, given)
    assert all_rows(tmp_path) == all_rows(processed)


@pytest.fixture(scope="module")
def united() -> dict[str, Any]:
    """One replay of all scenes that are made of rows."""
    tables = Tables()
    add_all(tables)
    steps: dict[str, list[Row]] = {"stepped": [{"frame": 12, "step_ns": -300 * SECOND}]}
    tables.rows["captures"] = [{"capture_id": name, "clock_steps": steps.get(name)} for name in ("c", "stepped")]
    replayed = replay_once(tables.sources())
    outcomes = outcomes_of(replayed)[0]
    expected = plain_outcomes.outcomes(rows_of(replayed))[0]
    told = {"findings": replayed.findings_on_messages, "outcomes": replayed.fates.rows, "verdicts": replayed.verdicts}
    twice = [row for row in attributes_of(replayed.findings) if row.kind == FindingKind.CAPTURED_TWICE]
    return {
        "verdicts": sorted(attributes_of(replayed.verdicts), key=lambda row: row.replay_order),
        "sessions": attributes_of(replayed.sessions),
        "twice": {row.session_id: row for row in twice},
        "stream_ends": attributes_of(replayed.inputs.every_end),
        "outcomes": {message: outcomes.get(message, "delivered") for message in expected},
        "second_outcomes": expected,
        "fates": fates(replayed.verdicts),
        "second": second_replay(tables, steps),
        "findings": attributes_of(replayed.findings_on_messages),
        "rows": {name: plain(rows) for name, rows in told.items()},
    }


def second_replay(tables: Tables, steps: dict[str, list[Row]]) -> dict[replayer.Key, Fate]:
    """Returns the fates that the second replay finds, by the own key of each message."""
    untimed = {"captured_ns": 0, "capture_id": None}
    timed = tables.rows | {"handshakes": [untimed | row for row in tables.rows["handshakes"]]}
    del timed["captures"]
    once, own = plain_copies.once(plain_clock.in_order(timed, defaultdict(list, steps)))
    skew = plain_copies.skews(tables.rows)
    shown_by: dict[str, set[str]] = defaultdict(set)
    for row in once["messages"]:
        if row["transactional"] and (row["stream_id"], row["stream_offset"]) not in own:
            shown_by[row["stream_id"]].add(row["capture_id"])
    found = replayer.verdicts(
        once, reading="conformant", scope="auto", disputed=lambda scope: plain_copies.disputed(scope, skew, shown_by)
    )
    return {own.get(key, key): fate for key, fate in found.items()}


def test_both_replays_agree_on_what_was_captured_twice(united: dict[str, Any]) -> None:
    assert united["fates"] == united["second"]
    assert united["outcomes"] == united["second_outcomes"]
    in_doubt = [fate for (stream, _), fate in united["second"].items() if stream.startswith("any ")]
    assert {None, "clocks_differ", "predecessor_missing"} <= {fate.reason for fate in in_doubt}


def test_a_finding_says_that_clocks_differ(united: dict[str, Any]) -> None:
    apart = {f"{source}->{B}" for source in APART}
    (row,) = [row for row in united["findings"] if row.kind == "clocks_differ" and row.session_id in apart]
    assert (row.session_id, row.messages, row.severity) == (f"disputed->{B}", 1, "warning")
    assert row.witness == ["disputed a>@200", "disputed a>@400"]
    assert "The first is number 4, which needs number 3; the receiver stood at: number 2." in row.explanation


def test_a_second_computation_says_the_same_of_messages_whose_clocks_differ(united: dict[str, Any]) -> None:
    rows = united["rows"]
    second = set(message_findings(rows["verdicts"], rows["outcomes"], {}))
    acknowledged = {FindingKind.UNACKNOWLEDGED, FindingKind.SLOW_ACKNOWLEDGMENT}  # these need all acknowledgments
    assert second == {one for one in map(finding_of, rows["findings"]) if one.kind not in acknowledged}
    assert FindingKind.CLOCKS_DIFFER in {one.kind for one in second}


def test_what_rests_on_clocks_that_differ_is_unknown(united: dict[str, Any]) -> None:
    found = {
        source: [
            (row.tx_sequence_number, row.reason) for row in united["verdicts"] if row.source_queue_manager == source
        ]
        for source in APART
    }
    refused = [(1, None), (2, None), (4, "predecessor_missing"), (3, None), (5, "predecessor_missing")]
    assert found == {
        "disputed": [(1, None), (2, None), (4, "clocks_differ"), (3, None), (5, None)],
        "far apart": refused,
        "one capture": refused,
    }
    outcomes = {message[3]: outcome for message, outcome in united["outcomes"].items()}
    assert [outcomes[f"disputed\\{number}"] for number in (3, 4, 5)] == ["unknown"] * 3
    assert [outcomes[f"far apart\\{number}"] for number in (3, 4, 5)] == ["delivered", "pending", "pending"]


def test_the_address_names_a_receiver_without_a_handshake(united: dict[str, Any]) -> None:
    for address, (_, (judged, passing, unknown)) in LEGS.items():
        sources = [row.source_queue_manager for row in united["verdicts"] if row.stream_id == f"{address}>"]
        assert sources.count(f"{SOURCE} {address}") == judged
        assert sources.count(f"{A} {address}") == 1  # a direct format name: always at its end
        (session,) = [row for row in united["sessions"] if row.session_id == f"10.0.1.9->{address}"]
        assert (session.transactional, session.passing_through, session.receiver_unknown) == (2, passing, unknown)


def test_what_went_over_an_unknown_leg_is_not_taken_for_lost(united: dict[str, Any]) -> None:
    found = [row for row in united["verdicts"] if row.source_queue_manager == "two legs"]
    assert [(row.tx_sequence_number, row.verdict) for row in found] == [
        (1, "new_sequence"),
        (2, "in_order"),
        (5, "unknown"),
        (6, "in_order"),
    ]


def test_one_end_fills_what_the_other_lacks(united: dict[str, Any]) -> None:
    found = [row for row in united["verdicts"] if row.source_queue_manager == SOURCE]
    assert [(row.stream_id, row.stream_offset, row.verdict) for row in found] == [
        ("far>", 0, "new_sequence"),
        ("far>", 100, "in_order"),
        ("far>", 200, "in_order"),
        ("near>", 300, "in_order"),
        ("far>", 400, "in_order"),
    ]
    assert [(row.captured_ns - T0) // SECOND for row in found] == [0, 1, 2, 10, 4]
    (session,) = [row for row in united["sessions"] if row.session_id == f"{A}->{B}"]
    assert (session.connections, session.transactional, session.missing_bytes) == (1, 5, 0)


def test_copies_are_named(united: dict[str, Any]) -> None:
    copies = {row.stream_id: row.copy_of for row in united["stream_ends"] if row.copy_of}
    assert copies == {"near>": "far>", "near<": "far<"}
    assert united["twice"].keys() == {f"{A}->{B}", f"{B}->{A}"}
    twice = united["twice"][f"{A}->{B}"]
    assert (twice.severity, twice.messages, twice.witness) == ("info", 1, ["far>@0", "near>@0"])


def test_a_step_back_does_not_change_the_order(united: dict[str, Any]) -> None:
    found = [row for row in united["verdicts"] if row.source_queue_manager == "stepped"]
    assert [(row.tx_sequence_number, row.verdict) for row in found] == [
        (1, "new_sequence"),
        (2, "in_order"),
        (3, "in_order"),
        (4, "in_order"),
    ]
    assert [(row.captured_ns - T0) // SECOND for row in found] == [0, 1, -298, -297]  # as recorded
