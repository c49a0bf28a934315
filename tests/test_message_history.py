"""One row per message: compared with a second computation, a statement in SQL, and with what was known at a time."""

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from histories import History, cut, simulated
from tiers import merge_needs, seeds
from warehouses import config, looked_at, rows

from jobs.engines.in_process import InProcess
from jobs.simulator import simulate
from schemas.history import MESSAGE_HISTORY
from schemas.ingest import CAPTURES, STREAMS
from schemas.outcomes import DELIVERED, FATES, OUTCOMES, Fate, Outcome
from schemas.replay import SEQUENCES, VERDICTS, Reading
from udfs.replay.fitness.flow import filled_rows
from udfs.replay.flow import Options, replay
from udfs.replay.order.conversations import unite
from udfs.replay.order.sources import SOURCES, read_sources

Row = dict[str, Any]
SQL = (Path(__file__).parent / "message_history.sql").read_text()
"""The second computation of most columns, from the tables."""
READ = (VERDICTS, OUTCOMES, SEQUENCES, CAPTURES, STREAMS)
OPEN = (Fate.PENDING, Fate.UNCONFIRMED, Fate.UNKNOWN)


def by_sql(tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    found = pl.SQLContext({table.name: tables[table.name] for table in READ}).execute(SQL).collect()
    assert isinstance(found, pl.DataFrame)
    return found


def disagreements(tables: dict[str, pl.DataFrame]) -> Iterator[str]:
    """Where the table and the statement differ, and what is wrong with the columns that the statement lacks."""
    expected, found = by_sql(tables), tables[MESSAGE_HISTORY.name]
    names = [name for name in found.columns if name in expected.columns]
    assert len(names) == len(expected.columns)
    one, other = (
        of.select(names).with_columns(pl.col("verdicts").list.join(",")).sort(MESSAGE_HISTORY.key)
        for of in (found, expected)
    )
    yield from (name for name in names if not one[name].equals(other[name].cast(one.schema[name])))
    fates = {outcome.value: fate.value for fate, of in FATES.items() for outcome in of}
    told = found.drop_nulls("outcome")
    yield from told.filter(pl.col("outcome").replace_strict(fates, return_dtype=pl.String) != pl.col("fate"))["fate"]
    timed = told.filter(pl.col("first_seen_at").is_not_null())
    undecided = timed.filter(pl.col("decided_at").is_null())
    yield from (f"{fate} without a time" for fate in set(undecided["fate"]) - set(OPEN))
    yield from (f"{fate} at a time" for fate in set(told.drop_nulls("decided_at")["fate"]) & set(OPEN))
    if timed.filter(pl.col("decided_at") < pl.col("first_seen_at")).height:
        yield "decided before it was seen"
    of_incidents = told.select("scope_key", "tx_sequence_id", "incident_id").unique()
    kept = tables[SEQUENCES.name].select(of_incidents.columns)
    if of_incidents.join(kept, on=of_incidents.columns, how="anti", nulls_equal=True).height:
        yield "incidents of other sequences"


def with_copies_named(sources: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """Rows of STREAMS as a night leaves them."""
    engine = InProcess(tables=dict(sources))
    renamed = filled_rows(unite(engine, read_sources(engine))).get(STREAMS)
    if renamed is not None:
        engine.write(STREAMS, renamed, update=True)
    found = engine.read(STREAMS)
    assert isinstance(found, pl.DataFrame)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds([3], range(12)))
def test_a_statement_in_sql_tells_the_same_after_each_night(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    history = History(reading=rng.choice([*Reading, Reading.CONFORMANT, Reading.CONFORMANT]), lazy=seed % 2 == 0)
    for night in cut(rng, simulated(tmp_path, seed)):
        made = history.night(*night)
        streams = {STREAMS.name: with_copies_named(history.sources)}
        assert list(disagreements(history.sources | made | streams)) == []


def test_each_message_is_one_row_with_its_arrivals_in_order(branches: Path) -> None:
    arrivals = defaultdict(list)
    for arrival in sorted(rows(branches, "verdicts"), key=lambda row: row["replay_order"]):
        arrivals[tuple(arrival[name] for name in MESSAGE_HISTORY.key)].append(arrival)
    outcomes = {tuple(row[name] for name in OUTCOMES.key): row for row in rows(branches, "outcomes")}
    uris = {row["capture_id"]: row["uri"] for row in rows(branches, "captures")}
    history = {tuple(row[name] for name in MESSAGE_HISTORY.key): row for row in rows(branches, MESSAGE_HISTORY.name)}
    assert set(history) == set(arrivals) | set(outcomes)
    assert sum(row["numbers"] for row in history.values()) == len(arrivals) + sum(
        row["numbers"] for row in outcomes.values() if not row["arrivals"]
    )
    for key, row in history.items():
        came = arrivals[key]
        outcome = outcomes.get(key, {"outcome": "delivered", "lost": False, "stuck": False})
        assert {name: row[name] for name in outcome if name in row} == {
            name: value for name, value in outcome.items() if name in row
        }
        assert (row["verdicts"] or []) == [arrival["verdict"] for arrival in came]
        accepted = [arrival for arrival in came if arrival["accepted"]]
        for which, where in (("first", came), ("accepted", accepted)):
            assert row[f"{which}_frame_number"] == (where[0]["first_frame"] if where else None)
            assert row[f"{which}_uri"] == (uris[where[0]["capture_id"]] if where else None)
        for column, of in (("first_stream_id", "stream_id"), ("first_stream_offset", "stream_offset")):
            assert row[column] == (came[0][of] if came else None)
        ends = re.split(r":\d+>?", came[0]["stream_id"]) if came else [None] * 3
        assert [row["first_src_ip"], row["first_dst_ip"]] == ends[:2]
        assert row["receiver"] == row["session_id"].partition("->")[2]
        judged = accepted or [arrival for arrival in came if arrival["accepted"] is None]
        assert row["ack_latency_ms"] == (judged[0]["ack_latency_ms"] if judged else None)
        acknowledged = [judged[0]["acknowledged_at"]] if judged else []
        if outcome["outcome"] in (*DELIVERED, Outcome.NOT_READ):
            acknowledged += sorted(filter(None, (arrival["acknowledged_at"] for arrival in came)))
        assert row["acknowledged_at"] == next(filter(None, acknowledged), None)


def looked(folder: Path) -> InProcess:
    return looked_at(config(folder, folder / "*.pcap"))


def in_flight_then(engine: InProcess, at: datetime) -> set[str]:
    """The messages that waited, as a replay tells of what was captured until then; some turned out to be unknown."""
    tables = {table.name: engine.read(table) for table in SOURCES}
    for name, of in tables.items():
        if "captured_at" in of.columns:
            tables[name] = of.filter(pl.col("captured_at") <= at)
    then = InProcess(tables=tables)
    replay(unite(then, read_sources(then)), Options())
    waiting = then.read(MESSAGE_HISTORY).filter(pl.col("fate").is_in(OPEN), pl.col("arrivals") > 0)
    return set(waiting["message_key"])


FEW_TIMES = [(-1, 2), (0, 3)]
"""The demonstration and a day, asked at one time and at two."""


@pytest.mark.parametrize(("seed", "parts"), merge_needs(FEW_TIMES[:1], [*FEW_TIMES, *product(range(-1, 12), [8])]))
def test_what_was_in_flight_at_a_time_is_what_a_replay_until_then_says(seed: int, parts: int, tmp_path: Path) -> None:
    """A demonstration, or a simulated day with all that goes wrong, at the times between so many parts of it."""
    simulate(str(tmp_path), max(seed, 0), 400, situations=seed >= 0, is_demo=seed < 0)
    engine = looked(tmp_path)
    history = engine.read(MESSAGE_HISTORY)
    first, last = history["first_seen_at"].min(), history["last_seen_at"].max()
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    unknown = set(history.filter(pl.col("fate") == Fate.UNKNOWN.value)["message_key"])
    many = 0
    for part in range(1, parts):
        at = first + (last - first) * part / parts
        is_open = (pl.col("decided_at") > at) | pl.col("fate").is_in([Fate.PENDING.value, Fate.UNCONFIRMED.value])
        in_flight = history.filter(pl.col("first_seen_at") <= at, is_open)
        found = set(in_flight["message_key"])
        # That one was not acknowledged yet may only show later, and so may that it was not sent again.
        is_shown = pl.col("decided_at") == pl.coalesce("acknowledged_at", "last_seen_at")
        shown_later = set(in_flight.filter(is_shown)["message_key"])
        sent_last = set(
            history.filter(is_shown, pl.col("acknowledged_at").is_null(), pl.col("arrivals") > 1)["message_key"]
        )
        assert found - shown_later <= in_flight_then(engine, at) - unknown <= found | sent_last
        many += len(found)
    assert many or seed >= 0


@pytest.mark.parametrize("seed", seeds([3], range(8)))
def test_a_loss_is_decided_by_what_its_witness_shows(seed: int, tmp_path: Path) -> None:
    simulate(str(tmp_path), seed, 400, situations=True, troubles=seed % 2 == 1)
    engine = looked(tmp_path)
    lost = engine.read(OUTCOMES).filter(pl.col("lost"), pl.col("outcome") != Outcome.REFUSED_FOR_CAUSE.value)
    assert lost.height
    for row in lost.to_dicts():
        accepted = [one["captured_at"] for one in row["witness"] if one["role"] == "accepted"]
        if len(accepted) == 1:
            assert row["decided_at"] == max(filter(None, (row["first_seen_at"], accepted[0])))
