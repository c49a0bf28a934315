"""Compares the replay with the second replayer on random nights, for every scope and reading.

So are what acknowledgments say of verdicts, with the second computation of that.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import Any

import polars as pl
import pytest
from plain_evidence import MS, Row, Said, evidence
from pyspark.sql import SparkSession
from random_nights import CLASSES, night
from replay_tables import NULL, T0, Replayed, Tables, fates, plain, replay
from replayer import Fate, Key, chosen, ends, scope_of, verdicts
from tiers import merge_needs, seeds

from jobs.engines.in_process import InProcess
from jobs.engines.windows import add_states_in_memory, with_states
from jobs.tables.spark_rows import collect, to_spark
from schemas.ingest import STREAM_GAPS
from schemas.replay import Reading, Scope, Verdict
from udfs.replay.findings.receivers import find_stalls, thin_out
from udfs.replay.fitness.flow import filled_rows
from udfs.replay.incidents.events import messages_sent
from udfs.replay.order.conversations import unite
from udfs.replay.order.sources import SOURCES, Sources, read_sources
from udfs.replay.outcomes.plain import SLOT
from udfs.replay.outcomes.tallies import merge_tallies, tally
from udfs.replay.outcomes.unusual import sum_up_verdicts
from udfs.replay.verdicts.judge import AFTER_BREAK, JUDGED, judge
from udfs.replay.words import NS

MODES = tuple(product(Reading, Scope))
USUAL = Reading.CONFORMANT, Scope.AUTO
Replays = Callable[[Reading, Scope], Replayed]
PlainReplays = Callable[[Reading, Scope], dict[Key, Fate]]
ACKNOWLEDGED = ("acknowledged_at", "ack_latency_ms", "covered_at", "evidence", "final_ack_class", "assumed")


def key_of(row: Row) -> Key:
    return row["stream_id"], row["stream_offset"]


def said_of(tables: Tables, given: Mapping[Key, Fate], reading: Reading, scope: Scope) -> dict[Key, Said]:
    """Returns what acknowledgments say of the messages that have these fates, by the second computation."""
    at = ends(tables.rows)
    judged = [row for row in tables.rows["messages"] if key_of(row) in given]
    choice = chosen(judged, at) if scope is Scope.AUTO else {}

    def complete(row: Row) -> Row:
        end = at[row["stream_id"]]
        kind = choice.get((end.session, row["source_queue_manager"]), "queue") if scope is Scope.AUTO else scope.value
        return row | given[key_of(row)]._asdict() | {"scope": scope_of(kind, end, row)}

    return evidence(list(map(complete, judged)), tables.rows["acks"], at, literal=reading is Reading.LITERAL)


def as_columns(said: Said, row: Row) -> tuple[Any, ...]:
    """Returns the columns ACKNOWLEDGED of a message."""
    at, covered = ((ns if ns is None else ns // 1_000) for ns in (said.acknowledged_ns, said.covered_ns))
    is_timed = said.acknowledged_ns is not None and row["captured_ns"] is not None
    latency = (said.acknowledged_ns - row["captured_ns"]) / MS if is_timed else None
    return at, latency, covered, said.evidence, said.final_ack_class, said.assumed


@pytest.fixture(scope="module", params=seeds([18]))
def tables(request: pytest.FixtureRequest) -> Tables:
    return night(random.Random(request.param), 3_000)


@pytest.fixture(scope="module")
def sources(tables: Tables) -> Sources[pl.DataFrame]:
    return tables.sources()


@pytest.fixture(scope="module")
def replayed(sources: Sources[pl.DataFrame]) -> Replays:
    """The product's replay of the night, which runs once for each mode."""
    return cache(lambda reading, scope: replay(sources, reading=reading, scope=scope))


@pytest.fixture(scope="module")
def replayed_plainly(tables: Tables) -> PlainReplays:
    """The second replayer's verdicts of the night, which it computes once for each mode."""
    return cache(lambda reading, scope: verdicts(tables.rows, reading=reading, scope=scope))


@pytest.mark.parametrize(("reading", "scope"), merge_needs([USUAL, (Reading.LITERAL, Scope.QUEUE)], MODES))
def test_two_computations_agree(
    tables: Tables, replayed: Replays, replayed_plainly: PlainReplays, reading: Reading, scope: Scope
) -> None:
    given = replayed_plainly(reading, scope)
    said = said_of(tables, given, reading, scope)
    sent = {key_of(row): row for row in tables.rows["messages"]}
    expected = {key: (*fate, *as_columns(said[key], sent[key])) for key, fate in given.items()}
    rows = plain(replayed(reading, scope).verdicts)
    found = {key_of(row): tuple(row[name] for name in (*Fate._fields, *ACKNOWLEDGED)) for row in rows}
    differing = [one for one in expected.keys() | found.keys() if expected.get(one) != found.get(one)]
    assert [(one, found.get(one), expected.get(one)) for one in differing[:3]] == []


def test_gaps_name_the_verdicts_that_are_unknown_because_of_them(
    tables: Tables, sources: Sources[pl.DataFrame], replayed: Replays
) -> None:
    expected: Counter[Key | None] = Counter()
    verdicts(tables.rows, reading=Reading.CONFORMANT, scope=Scope.AUTO, unknown_by=expected)
    gaps = {key_of(row) for row in tables.rows["stream_gaps"]}
    made = replayed(*USUAL)
    engine = InProcess(tables={table.name: getattr(sources, table.name) for table in SOURCES} | made.tables)
    found = filled_rows(unite(engine, read_sources(engine)))[STREAM_GAPS]
    assert {key_of(row): row["unknown_verdicts"] for row in found.to_dicts()} == {key: expected[key] for key in gaps}
    assert 0 < sum(key in expected for key in gaps) < len(gaps)


def test_tallies_of_any_parts_are_those_of_all(replayed: Replays) -> None:
    rows = replayed(*USUAL).verdicts
    parts = rows.sample(fraction=1, shuffle=True, seed=18).iter_slices(97)
    whole, merged = merge_tallies(tally(rows)), merge_tallies(pl.concat(tally(part) for part in parts))
    assert whole.filter(pl.col("messages") > 3).height > 100
    assert sorted(map(repr, merged.rows())) == sorted(map(repr, whole.rows()))


def test_plain_verdicts_are_not_needed_to_count_messages_by_address(replayed: Replays) -> None:
    made = replayed(*USUAL)
    rows = made.verdicts.with_columns(stream_id=pl.format("10.0.0.{}:1>{}", pl.col("stream_offset") % 3, "stream_id"))
    tallies = merge_tallies(tally(rows))
    slots = pl.concat([sum_up_verdicts(rows)["slots"].select(SLOT), made.outcomes.select(SLOT)])
    unusual = rows.join(slots, on=SLOT, how="semi")
    of_all, of_unusual = (messages_sent(some, tallies, made.outcomes) for some in (rows, unusual))
    assert unusual.height < rows.height - 40
    assert of_all["lost"].sum() > 0
    assert sorted(of_unusual.rows()) == sorted(of_all.rows())


def test_stalls_are_seen_in_what_parts_leave_of_packets() -> None:
    draw, streams = random.Random(3), ("a", "b")
    at = [NS * draw.randrange(3_000) for _ in range(400)]
    packets = pl.DataFrame(
        {
            "stream_id": draw.choices(streams, k=400),
            "stream_offset": range(400),
            "captured_ns": [None, *sorted(at)[1:]],
            "window_size": draw.choices([None, 0, 1, 9], [20, 1, 1, 1], k=400),
        }
    )
    ways = pl.DataFrame(
        {"stream_id": streams, "back": streams[::-1], "answering": streams[::-1]}
        | {"is_whole": True, "session_id": "s", "connection_id": "c", "shut_ns": 0, "shut_ms": 0}
        | {"until_ns": 3_000 * NS, "patience_ns": 90 * NS}
    ).cast({pl.Int32: pl.Int64})
    session_acks = packets.filter(pl.col("stream_offset") % 9 == 0).with_columns(window_size=pl.lit(5, pl.Int64))
    thinned = pl.concat(thin_out(part) for part in packets.iter_slices(100))
    whole, found = (find_stalls(ways, some, session_acks)["stalls"] for some in (packets, thinned))
    assert {*whole["cause"]} == {"unanswered", "paused"}
    assert thinned.height < 350
    assert sorted(found.rows()) == sorted(whole.rows())


def test_windows_find_the_states_that_are_found_one_message_after_another(spark: SparkSession, tables: Tables) -> None:
    chains = replay(tables.sources()).chains
    by_windows = collect(with_states(to_spark(spark, chains)))
    assert len(chains) > 1_000
    assert 0 < by_windows[AFTER_BREAK].sum() < len(chains) / 2
    in_memory = add_states_in_memory(spark)(chains)
    for reading in Reading:
        expected = judged(chains, reading)
        assert judged(by_windows, reading) == expected
        assert judged(in_memory, reading) == expected


def judged(chains: pl.DataFrame, reading: Reading) -> list[tuple[Any, ...]]:
    rows = InProcess().run(chains, judge(reading), JUDGED, ("scope_no",), ("replay_order",))
    return sorted(rows.drop("offsets", "times", "message_nos").rows(), key=repr)


def test_order_of_rows_does_not_matter(tables: Tables, replayed_plainly: PlainReplays) -> None:
    shuffled = Tables()
    for name, rows in tables.rows.items():
        shuffled.rows[name] = random.Random(7).sample(rows, len(rows))
    assert fates(replay(shuffled.sources()).verdicts) == replayed_plainly(*USUAL)


def test_clocks_do_not_matter_within_a_connection(tables: Tables) -> None:
    """Of sessions with one connection, without OrderAcks and routers, as their times decide."""
    rng, right, wrong = random.Random(8), Tables(), Tables()
    connections = (row["connection_id"].rpartition("-") for row in tables.rows["streams"])
    several = {session for session, _, number in connections if number != "0"}
    for name in tables.rows.keys() - {"acks"}:
        right.rows[name] = [row for row in tables.rows[name] if row["stream_id"].rpartition("-")[0] not in several]
    right.rows["messages"] = [row | {"queue_manager_address": NULL} for row in right.rows["messages"]]
    stamps = (None, 0, T0 - 10**15, T0, T0 + 10**15)
    wrong.rows |= right.rows
    wrong.rows["messages"] = [row | {"captured_ns": rng.choice(stamps)} for row in right.rows["messages"]]
    expected = verdicts(right.rows, reading="conformant", scope="session")
    assert len(expected) > len(tables.rows["messages"]) / 4
    assert fates(replay(wrong.sources(), scope=Scope.SESSION).verdicts) == expected


def test_the_night_has_every_verdict_and_reason_and_all_that_acknowledgments_can_say(
    tables: Tables, replayed_plainly: PlainReplays
) -> None:
    given = replayed_plainly(*USUAL)
    assert {fate.verdict for fate in given.values()} == set(Verdict)
    assert len({fate.reason for fate in given.values()}) == 6
    said = said_of(tables, given, Reading.CONFORMANT, Scope.AUTO)
    shown = {(given[key].accepted, given[key].verdict == "duplicate", one.evidence) for key, one in said.items()}
    assert shown == {
        *((True, False, what) for what in ("none", "confirmed", "contradicted")),
        *((False, False, what) for what in ("none", "confirmed", "contradicted")),
        *((False, True, what) for what in ("none", "confirmed")),
        (None, False, "none"),
    }
    assert {one.final_ack_class for one in said.values()} == {None, *map(int, CLASSES)}
    assert {one.assumed for one in said.values()} == {True, False}


def test_all_scopes_and_readings_differ_on_the_night(replayed_plainly: PlainReplays) -> None:
    given = [replayed_plainly(reading, scope) for reading, scope in MODES]
    assert all(one != other for i, one in enumerate(given) for other in given[:i])


def test_a_leg_of_a_router_at_the_time_of_the_acknowledgment_may_have_come_after_it() -> None:
    """A message that may have been routed on counts as missing, but not one before the state that an OrderAck named."""
    tables, expected = Tables(), {}
    for name, later_ns in (("before", -1), ("with", 0), ("after", 1)):
        tables.connection(f"{name} a", f"{name} ip.sender", f"{name} ip.receiver")
        tables.handshake(f"{name} a", f"{name} sender", f"{name} receiver")
        tables.connection(f"{name} b", f"{name} ip.sender", f"{name} ip.router")
        sent = {"source_queue_manager": f"{name} sender", "queue_manager_address": f"{name} receiver"}
        back = {"source_queue_manager": f"{name} receiver", "queue_manager_address": f"{name} sender"}
        tables.ack(f"{name} a<", T0 + 5 * NS, (1, 3), **back)
        second, fifth = ({"message_id": rf"{name} sender\{number}"} for number in (2, 5))
        tables.message((f"{name} b>", 10), T0 + 5 * NS + later_ns, (1, 2, 1), **sent, **second)
        tables.message((f"{name} a>", 10), T0 + 6 * NS, (1, 5, 3), **sent, **fifth)
        expected[f"{name} a>", 10] = Verdict.GAP_EXPIRED if later_ns < 0 else Verdict.UNKNOWN
    found = fates(replay(tables.sources(), scope=Scope.QUEUE).verdicts)
    assert found == verdicts(tables.rows, reading="conformant", scope="queue")
    assert {key: fate.verdict for key, fate in found.items()} == expected
