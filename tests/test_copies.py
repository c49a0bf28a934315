"""Traffic that was captured twice, clocks that step back, and legs of routers: verdicts do not depend on them.

A conversation in captures of both ends of an address translation is judged once. Steps back of a capture's clock are
undone. What may only pass through a queue manager is not judged.
"""

import struct
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import plain_clock
import plain_copies
import plain_outcomes
import pytest
import replayer
from plain_replay import BOTH_ENDS, CLOCK_STEP, Night, Row, difference, differences, expected
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it
from pyspark.sql.types import StructType
from replay_tables import NULL, T0, Tables, fates, found, summarize
from replayer import Fate
from test_outcomes import on_spark, rows_of
from warehouses import config

from jobs.simulator import CAPTURE_PREFIX, simulate
from jobs.steps import nightly
from jobs.steps.replay import derive_outcomes
from jobs.transforms.findings.captures import captured_twice
from jobs.warehouse.store import Warehouse
from schemas.ingest import CAPTURES, STREAMS
from schemas.messages import MESSAGES
from schemas.replay import ENDS, FINDINGS, SESSIONS, VERDICTS
from schemas.table import Table

SEEDS, SEED = 12, 4
SECOND = 1_000_000_000


def test_captures_of_both_ends_give_the_verdicts_of_one() -> None:
    assert differences(range(SEEDS), **BOTH_ENDS) == []


def test_a_clock_that_steps_back_changes_no_verdict() -> None:
    assert differences(range(SEEDS), **CLOCK_STEP) == []


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
    assert difference(SEED, expected(tmp_path), night, night.fates()) is None
    assert bool(plain_copies.copies(night.raw)) is twice


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures of both ends, of which that of the receivers' end has a clock that steps back by 300 s."""
    captures = tmp_path_factory.mktemp("both_ends")
    simulate(str(captures), SEED, 400, bodies=(0, 500), both_ends=True, **CLOCK_STEP)
    return captures


@pytest.fixture(scope="module")
def night(spark: SparkSession, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    """The tables of a run over these captures, by name."""
    given = config(tmp_path_factory.mktemp("warehouse"), folder / "simulated_*.pcap")
    nightly.run(spark, given)
    warehouse = Warehouse.of(spark, given)

    def rows(table: Table) -> list[Row]:
        return [row.asDict(recursive=True) for row in warehouse.read(table).collect()]

    return {table.name: rows(table) for table in (CAPTURES, STREAMS, ENDS, MESSAGES, VERDICTS, SESSIONS, FINDINGS)}


@pytest.mark.slow
def test_the_verdicts_of_a_run_are_the_truth(night: dict[str, list[Row]], folder: Path) -> None:
    def fate(row: Row) -> Fate:
        before = row["incoming_tx_sequence_id"]
        given = {name: row[name] for name in Fate._fields} | {"incoming_tx_sequence_id": before and int(before)}
        return Fate(**given)

    plain = Night(sorted(folder.glob("simulated_*.pcap")))
    placed = {own: key for key, own in plain.own_keys.items()}
    keys = [(row["stream_id"], row["stream_offset"]) for row in night["verdicts"]]
    fates = {placed.get(key, key): fate(row) for key, row in zip(keys, night["verdicts"], strict=True)}
    assert difference(SEED, expected(folder), plain, fates) is None


@pytest.mark.slow
def test_every_verdict_leads_back_to_its_message(night: dict[str, list[Row]]) -> None:
    kept = ("captured_ns", "captured_at", "capture_id", "last_frame", "message_id")
    messages = {(row["stream_id"], row["stream_offset"]): [row[name] for name in kept] for row in night["messages"]}
    verdicts = {(row["stream_id"], row["stream_offset"]): [row[name] for name in kept] for row in night["verdicts"]}
    assert verdicts.items() <= messages.items()
    assert len(verdicts) == len(night["verdicts"])


@pytest.mark.slow
def test_a_copy_names_the_stream_that_counts(night: dict[str, list[Row]]) -> None:
    copies = {row["stream_id"]: row["copy_of"] for row in night["ends"] if row["copy_of"]}
    seq = {row["stream_id"]: row["initial_seq"] for row in night["streams"]}
    assert len(copies) > 10
    assert {stream for stream in seq if "192.168." in stream} <= copies.keys() | set(copies.values())
    assert not copies.keys() & set(copies.values())
    assert copies == {row["stream_id"]: row["copy_of"] for row in night["streams"] if row["copy_of"]}
    known = [(seq[a], seq[b]) for a, b in copies.items() if seq[a] is not None and seq[b] is not None]
    assert len(known) > 5
    assert all(a == b for a, b in known)


@pytest.mark.slow
def test_figures_of_sessions_leave_copies_out(night: dict[str, list[Row]]) -> None:
    counted = {row["stream_id"]: row for row in night["ends"] if not row["copy_of"]}
    for session in night["sessions"]:
        streams = [row for row in counted.values() if row["session_id"] == session["session_id"]]
        assert session["connections"] <= len({row["connection_id"] for row in streams})
    assert sum(row["transactional"] for row in night["sessions"]) < sum(
        row["transactional"] for row in night["messages"]
    )
    judged = sum(row["transactional"] - row["passing_through"] - row["receiver_unknown"] for row in night["sessions"])
    assert judged == len(night["verdicts"])


@pytest.mark.slow
def test_findings_tell_of_copies_and_of_the_clock(night: dict[str, list[Row]]) -> None:
    by_kind: dict[str, list[Row]] = {}
    for row in night["findings"]:
        by_kind.setdefault(row["kind"], []).append(row)
    copies = [row for row in night["ends"] if row["copy_of"]]
    twice = by_kind["captured_twice"]
    assert sum(row["messages"] for row in twice) == sum(
        len({row["connection_id"] for row in copies if row["session_id"] == session})
        for session in {row["session_id"] for row in copies}
    )
    assert all(row["severity"] == "info" and len(row["witness"]) == 2 for row in twice)
    (stepped,) = by_kind["clock_stepped"]
    assert (stepped["severity"], stepped["messages"]) == ("warning", 1)
    (capture,) = [row for row in night["captures"] if row["clock_steps"]]
    (step,) = capture["clock_steps"]
    assert -300 * SECOND <= step["step_ns"] < -290 * SECOND
    assert f"at record {step['frame']}." in stepped["explanation"]
    places = {f"{row['stream_id']}@{row['stream_offset']}": row for row in night["messages"]}
    before, after = (places[key] for key in stepped["witness"])
    assert before["last_frame"] < step["frame"] <= after["last_frame"]
    assert before["captured_ns"] > after["captured_ns"]


A, B, ROUTER, SOURCE = (f"00000000-0000-0000-0000-00000000000{n}" for n in range(1, 5))
LEGS: dict[str, tuple[list[str], tuple[int, int, int]]] = {
    "10.0.1.1": ([], (0, 0, 1)),
    "10.0.1.2": ([B], (1, 0, 0)),
    "10.0.1.3": ([ROUTER], (0, 1, 0)),
    "10.0.1.4": ([B, ROUTER], (0, 0, 1)),
}
"""The queue managers that handshakes name at an address; how many messages for B to it are judged, pass, unknown."""


def add_legs(tables: Tables) -> None:
    """Adds connections without a handshake: one message names its queue manager, and one has a direct format name."""
    for address, (elsewhere, _) in LEGS.items():
        tables.stream(f"{address}>", "10.0.1.9", address)
        for at, source, named in ((1, f"{SOURCE} {address}", B), (2, f"{A} {address}", NULL)):
            tables.message((f"{address}>", at), T0 + at, (1, 1, 0), source_queue_manager=source)
            tables.rows["messages"][-1] |= {"queue_manager_address": named, "message_id": f"{source}\\1"}
        for number, server in enumerate(elsewhere, 1):
            tables.stream(f"{address} {number}>", "10.0.1.8", address)
            tables.stream(f"{address} {number}<", address, "10.0.1.8")
            tables.handshake(f"{address} {number}", "elsewhere", server)


def add_a_sender_on_two_legs(tables: Tables) -> None:
    """Adds messages 1, 2 and 5 to B, and 3 and 4 over a connection that may lead to B or to a router."""
    tables.stream("known>", "10.0.3.1", "10.0.3.2")
    tables.stream("known<", "10.0.3.2", "10.0.3.1")
    tables.handshake("known", "two legs", B)
    tables.stream("perhaps>", "10.0.3.1", "10.0.3.3")
    legs = ("known", "known", "perhaps", "perhaps", "known", "known")
    for number, leg in enumerate(legs, 1):
        key = f"{leg}>", 100 * number
        tables.message(key, T0 + number * SECOND, (1, number, number - 1), source_queue_manager="two legs")
        tables.rows["messages"][-1] |= {"queue_manager_address": B, "message_id": f"two legs\\{number}"}


def add_captures_of_both_ends(tables: Tables) -> None:
    """Adds one conversation of five messages, of which each end lacks some; the near end's clock is 7 s ahead."""
    for end, host, late, lacking, length in (
        ("far", "10.0.0.1", 0, (3,), 100),
        ("near", "192.168.0.1", 7, (2, 4), 200),
    ):
        begun = {
            "first_captured_at": T0 // 1000 + late * 1_000_000,
            "missing_bytes": length,
            "recovered_bytes": 500 - length,
        }
        tables.stream(f"{end}>", host, "10.0.0.9", initial_seq=77, **begun)
        tables.stream(f"{end}<", "10.0.0.9", host, initial_seq=88, **begun | {"missing_bytes": 0})
        tables.handshake(end, A, B)
        for row in tables.rows["handshakes"][-2:]:
            row["time_stamp_ms"] = 5
        for at in range(5):
            if at in lacking:
                gap = {"stream_id": f"{end}>", "stream_offset": 100 * at, "length": 100}
                tables.rows["stream_gaps"].append(gap)
            else:
                ns = T0 + (at + late) * SECOND
                key = f"{end}>", 100 * at
                tables.message(key, ns, (1, at + 1, at), source_queue_manager=SOURCE, capture_id=end)


APART = {"disputed": ("near", 15), "far apart": ("near", 20), "one capture": ("far", 15)}
"""The capture that shows message 3 beside the others, and the second of its clock; message 4 came in second 13."""


def add_connections_of_one_end(tables: Tables) -> None:
    """Adds senders with a connection that only the far end shows, and message 3 on another one.

    Also one with messages on eight connections, in any order, each of which only one end shows.
    """
    for address, (source, (end, second)) in enumerate(APART.items(), 1):
        for name in (f"{source} a", f"{source} b"):
            tables.stream(f"{name}>", f"10.0.4.{address}", "10.0.4.9")
            tables.stream(f"{name}<", "10.0.4.9", f"10.0.4.{address}")
            tables.handshake(name, source, B)
        for number, capture, at in ((1, "far", 0), (2, "far", 1), (3, end, second), (4, "far", 13), (5, "far", 60)):
            key = f"{source} {'b' if number == 3 else 'a'}>", 100 * number
            columns = {"source_queue_manager": source, "message_id": f"{source}\\{number}", "capture_id": capture}
            tables.message(key, T0 + at * SECOND, (1, number, number - 1), **columns)
    rng = Random(SEED)
    ends = [rng.choice(["near", "far"]) for _ in range(8)]
    for connection in range(8):
        tables.stream(f"any {connection}>", "10.0.4.7", "10.0.4.9")
        tables.stream(f"any {connection}<", "10.0.4.9", "10.0.4.7")
        tables.handshake(f"any {connection}", "any", B)
    second = 0
    for number in range(1, 300):
        second += rng.choice([0, 1, 1, 30])
        connection = rng.randrange(8)
        at = T0 + (second + 7 * (ends[connection] == "near")) * SECOND
        columns = {"source_queue_manager": "any", "message_id": f"any\\{number}", "capture_id": ends[connection]}
        tables.message((f"any {connection}>", 100 * number), at, (1, number, number - 1), **columns)


def add_clock_step(tables: Tables) -> None:
    """Adds two connections of one sender, in a capture whose clock steps back by 300 s before record 12."""
    for name, number, frame, at in (("one", 1, 10, 0), ("two", 2, 11, 1), ("one", 3, 12, -298), ("two", 4, 13, -297)):
        if number < 3:
            tables.stream(f"{name}>", "10.0.2.1", "10.0.2.2", first_captured_at=T0 // 1000 + at * 1_000_000)
            tables.stream(f"{name}<", "10.0.2.2", "10.0.2.1")
            tables.handshake(name, "stepped", "clock")
        key = f"{name}>", 100 * number
        tables.message(key, T0 + at * SECOND, (1, number, number - 1), source_queue_manager="stepped")
        place = {"capture_id": "stepped", "first_frame": frame, "last_frame": frame}
        tables.rows["messages"][-1] |= place | {"message_id": f"stepped\\{number}"}


@pytest.fixture(scope="module")
def united(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One replay of all scenes that are made of rows."""
    tables = Tables()
    add_legs(tables)
    add_captures_of_both_ends(tables)
    add_a_sender_on_two_legs(tables)
    add_clock_step(tables)
    add_connections_of_one_end(tables)
    steps = [("c", None), ("stepped", [(12, -300 * SECOND)])]
    names = ("capture_id", "clock_steps")
    captures = spark.createDataFrame(steps, StructType([CAPTURES.spark[name] for name in names]))
    verdicts, inputs = tables.replay_once(spark, tmp_path_factory.mktemp("united"), captures)
    sessions = summarize(inputs, verdicts).collect()
    judged = verdicts.orderBy("replay_order").collect()
    twice = {row.session_id: row for row in captured_twice(inputs["every_end"]).collect()}
    outcomes = on_spark(derive_outcomes(verdicts))[0]
    expected = plain_outcomes.outcomes(rows_of(verdicts))[0]
    apart = verdicts.where(F.col("source_queue_manager").isin(*APART))
    second = second_replay(tables, {"stepped": [{"frame": 12, "step_ns": -300 * SECOND}]})
    return {"verdicts": judged, "sessions": sessions, "twice": twice, "ends": inputs["every_end"].collect()} | {
        "outcomes": {message: outcomes.get(message, "delivered") for message in expected},
        "second_outcomes": expected,
        "fates": fates(verdicts),
        "second": second,
        "findings": found(inputs, apart).collect(),
    }


def second_replay(tables: Tables, steps: dict[str, list[Row]]) -> dict[replayer.Key, Fate]:
    """Returns the fates that the second replay finds, by the own key of each message."""
    untimed = {"captured_ns": 0, "capture_id": None}
    rows = tables.rows | {"handshakes": [untimed | row for row in tables.rows["handshakes"]]}
    once, own = plain_copies.once(plain_clock.in_order(rows, defaultdict(list, steps)))
    skew = plain_copies.skews(tables.rows)
    shown_by: dict[str, set[str]] = defaultdict(set)
    for row in once["messages"]:
        if row["transactional"] and (row["stream_id"], row["stream_offset"]) not in own:
            shown_by[row["stream_id"]].add(row["capture_id"])
    found = replayer.verdicts(
        once, reading="conformant", scope="auto", disputed=lambda rows: plain_copies.disputed(rows, skew, shown_by)
    )
    return {own.get(key, key): fate for key, fate in found.items()}


def test_both_replays_agree_on_what_was_captured_twice(united: dict[str, Any]) -> None:
    assert united["fates"] == united["second"]
    assert united["outcomes"] == united["second_outcomes"]
    in_doubt = [fate for (stream, _), fate in united["second"].items() if stream.startswith("any ")]
    assert {None, "clocks_differ", "predecessor_missing"} <= {fate.reason for fate in in_doubt}


def test_a_finding_says_that_clocks_differ(united: dict[str, Any]) -> None:
    (row,) = [row for row in united["findings"] if row.kind == "clocks_differ"]
    assert (row.session_id, row.messages, row.severity) == (f"disputed->{B}", 1, "warning")
    assert row.witness == ["disputed a>@200", "disputed a>@400"]
    assert "The first is number 4, which needs number 3; the receiver stood at: number 2." in row.explanation


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


TWO_LEGS = [(1, "new_sequence"), (2, "in_order"), (5, "unknown"), (6, "in_order")]


def test_what_went_over_an_unknown_leg_is_not_taken_for_lost(united: dict[str, Any]) -> None:
    found = [row for row in united["verdicts"] if row.source_queue_manager == "two legs"]
    assert [(row.tx_sequence_number, row.verdict) for row in found] == TWO_LEGS


def test_what_went_over_an_unknown_leg_is_not_taken_for_lost_without_spark() -> None:
    tables = Tables()
    add_a_sender_on_two_legs(tables)
    fates = replayer.verdicts(tables.rows, reading="conformant", scope="auto")
    assert [(offset // 100, fate.verdict) for (_, offset), fate in sorted(fates.items())] == TWO_LEGS


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
    copies = {row.stream_id: row.copy_of for row in united["ends"] if row.copy_of}
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


def test_one_end_fills_what_the_other_lacks_without_spark() -> None:
    tables = Tables()
    add_captures_of_both_ends(tables)
    once, own = plain_copies.once(tables.rows)
    assert own == {("far>", 300): ("near>", 300)}
    assert once["stream_gaps"] == []
    times = {row["stream_offset"]: row["captured_ns"] - T0 for row in once["messages"]}
    assert times == {100 * at: at * SECOND for at in range(5)}


def scene(frames: Path, **options: Any) -> Night:
    """Returns a simulated night without Spark."""
    simulate(str(frames), SEED, 400, bodies=(0, 500), **options)
    return Night(sorted(frames.glob("simulated_*.pcap")))


def test_without_copies_and_steps_nothing_is_changed(tmp_path: Path) -> None:
    found = scene(tmp_path)
    assert found.tables is found.raw
    assert not any(found.clock_steps.values())


def test_the_clock_of_a_capture_is_read_in_the_order_of_its_records(tmp_path: Path) -> None:
    found = scene(tmp_path, **CLOCK_STEP)
    ((step,),) = [steps for steps in found.clock_steps.values() if steps]
    for rows, falls in ((found.raw["messages"], True), (found.every_message, False)):
        times = {row["last_frame"]: row["captured_ns"] for row in rows}
        after = [ns for frame, ns in times.items() if frame >= step["frame"]]
        assert (min(after) < max(ns for frame, ns in times.items() if frame < step["frame"])) is falls
