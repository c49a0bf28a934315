"""The questions of docs/questions.md in Spark's, DuckDB's and Polars' SQL, and those of the dashboard."""

import json
import re
import zlib
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import dpkt
import duckdb
import polars as pl
import pytest
from pyspark.sql import SparkSession
from warehouses import config, in_duckdb, looked_at, new_session, rows, without_spark
from weeks import write_nights

from jobs.simulator import simulate
from jobs.tables.spark_rows import to_spark
from schemas.incidents import WORST_FIRST
from schemas.table import Table
from schemas.tables import TABLES
from udfs import functions

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "questions.md"
QUESTIONS = re.findall(
    r"^## (\d+)\. (.+?)\n\n(?:[^`]+\n\n)?```sql\n(.+?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL
)
"""Number, question and SQL of each question of the page."""
DASHBOARD = json.loads((ROOT / "conf" / "databricks" / "night.lvdash.json").read_text())
DATASETS = [pytest.param("".join(one["queryLines"]), id=one["name"]) for one in DASHBOARD["datasets"]]
ANSWERS: Mapping[str, tuple[int, dict[str, float]]] = {
    "1": (2, {"lost": 21, "pending": 125, "stuck": 104}),
    "2": (21, {"numbers": 21}),
    "3": (7, {"messages": 523 + 21 + 124 + 1 + 1}),
    "4": (1, {"numbers": 1}),
    "5": (4, {"lost_messages": 21, "pending": 125, "stuck_messages": 104, "unknown": 0, "ongoing": 1}),
    "6": (104, {"sent_again": 219}),
    "7": (2, {"messages": 669, "sent_again": 224, "bytes": 489_837, "share_delivered": 407 / 552 + 116 / 117}),
    "8": (3, {"messages": 668, "never": 145, "most_ms": 31_547.409}),
    "9": (0, {}),
    "10": (44, {}),
    "11": (4, {"torn": 1, "messages": 9, "accepted_messages": 5, "lost_messages": 3, "pending": 1}),
    "12": (2, {"messages": 219 + 2}),
    "13": (5, {"arrivals": 892, "bytes": 649_725}),
    "14": (7, {"tx_sequence_number": 12}),
    "15": (343, {}),
    "16": (0, {}),
    "17": (0, {}),
    "18": (5, {"accounts": 29, "unbalanced": 0}),
    "19": (5, {"packet_count": 1_968}),
    "20": (3, {"arrivals": 892 + 19}),
    "21": (66, {}),
    "22": (40, {"acknowledged": 523}),
    "23": (2, {"messages": 124 + 21}),
    "24": (22, {"arrivals": 21}),
    "25": (1, {"body_size": 686}),
    "26": (0, {}),
    "27": (4, {"arrivals": 892}),
    "28": (1, {"messages": 2}),
    "29": (0, {}),
    "30": (8, {}),
}
"""How many rows answer each question of the demonstration's morning, and sums of their columns: as its truth has it.

Of 670 messages, 523 were delivered, 21 lost and 1 expired; 124 are pending and 1 is awaited. 49 came from the clone.
"""
CUT = "TIMESTAMP '2026-03-03 08:24:30'"
"""A time within the morning, at which the clone has begun to send."""
OF_ALL_TIMES = "18"
"""The question that no period is asked of."""
NOT_CUT = ("6", "24")
"""Questions whose rows are all of one side of the time: what is sent again to the end, and a list in every period."""
NOT_READ = "29"
"""The question that neither the morning nor the weeks have rows for."""
NOT_ADDED_UP = {"7": {"share_delivered"}, "8": {"most_ms"}}
"""Columns whose sums before and after a time are not those of all."""
ELSEWHERE = {
    "9": (
        "SELECT captured_at AS t FROM verdicts WHERE verdict = 'unknown' OR evidence = 'contradicted'",
        "arrivals",
    ),
    "16": ("SELECT last_captured_at AS t FROM streams WHERE mid_stream OR missing_bytes > 0", "gaps"),
    "17": (
        "SELECT c.last_captured_at AS t FROM quarantine q JOIN captures c ON c.capture_id = q.capture_id",
        "bytes",
    ),
    "26": (
        "SELECT coalesce(first_after_at, last_before_at) AS t FROM stream_gaps WHERE unknown_verdicts > 0",
        "unknown_verdicts",
    ),
}
"""Questions that the morning has no rows for: the times of what they count, and the column that adds up."""
WITHOUT_ROWS = (NOT_READ, *ELSEWHERE)


def test_they_are_numbered() -> None:
    assert [number for number, *_ in QUESTIONS] == [str(number) for number in range(1, 31)]


def test_incidents_are_ranked_as_in_the_report() -> None:
    """On the page, on the dashboard and wherever else SQL ranks them."""
    order = ", ".join(f"{name} DESC" for name in WORST_FIRST)
    statements = [statement for *_, statement in QUESTIONS] + [one.values[0] for one in DATASETS]
    ranking = [one for one in statements if re.search(r"FROM incidents\b.*ORDER BY", one, re.DOTALL)]
    assert len(ranking) == 3
    assert all(f"ORDER BY {order}, began_at" in one for one in ranking)


class Engines(NamedTuple):
    """Three engines that know the same tables by their names."""

    spark: SparkSession
    duckdb: duckdb.DuckDBPyConnection
    polars: "pl.SQLContext[Any]"


def answers(engines: Engines, statement: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the answers of Spark and of DuckDB; that of Polars is DuckDB's."""
    by_duckdb = engines.duckdb.sql(statement).to_arrow_table().to_pylist()
    by_polars = engines.polars.execute(statement, eager=True).to_dicts()
    assert sorted(map(plain, by_polars), key=repr) == sorted(map(plain, by_duckdb), key=repr)
    return engines.spark.sql(statement).toArrow().to_pylist(), by_duckdb


def plain(value: Any) -> Any:
    """A value without what engines say in different ways: zones, kinds of numbers, and their last digits."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return round(float(value), 2) if isinstance(value, Decimal | float | int) else value


def in_spark(spark: SparkSession, warehouse: Path) -> SparkSession:
    """A session that knows the tables by their names; to read their files is a matter of other tests."""
    own, tables = new_session(spark), without_spark(warehouse)
    for table in TABLES:
        to_spark(own, tables.read_local(table)).createOrReplaceTempView(table.name)
    return own


def in_polars(warehouse: Path) -> "pl.SQLContext[Any]":
    """The tables by their names, with times as the start page gives them."""
    utc = pl.selectors.datetime().dt.replace_time_zone(None)
    return pl.SQLContext({table.name: pl.scan_delta(str(warehouse / table.name)).with_columns(utc) for table in TABLES})


def engines(spark: SparkSession, warehouse: Path) -> Engines:
    """The three engines, with a list of orders: all that were lost, and one that nobody sent."""
    found = Engines(in_spark(spark, warehouse), in_duckdb(warehouse), in_polars(warehouse))
    lost = [row["label"] for row in rows(warehouse, "outcomes") if row["lost"] and row["label"]]
    orders = pl.DataFrame({"label": sorted({*lost, "West order 0"})})
    found.spark.createDataFrame(orders.to_arrow(compat_level=pl.CompatLevel.oldest())).createOrReplaceTempView("orders")
    found.duckdb.register("orders", orders.to_arrow())
    found.polars.register("orders", orders)
    return found


@pytest.fixture(scope="module")
def connection(branches: Path) -> duckdb.DuckDBPyConnection:
    return in_duckdb(branches)


@pytest.fixture(scope="module")
def morning(spark: SparkSession, demo: Path) -> Engines:
    """The tables of a morning with a clone and a stuck branch, in both engines."""
    return engines(spark, demo)


@pytest.mark.parametrize(
    ("number", "statement"),
    [pytest.param(number, statement, id=f"{number}. {question}") for number, question, statement in QUESTIONS],
)
def test_the_answer_is_the_truth_in_spark_and_in_duckdb(morning: Engines, number: str, statement: str) -> None:
    by_spark, by_duckdb = answers(morning, statement)
    many, sums = ANSWERS[number]
    assert len(by_duckdb) == many
    found = {name: float(sum(row[name] for row in by_duckdb)) for name in sums}
    assert found == pytest.approx(sums, abs=0.01)
    assert by_spark == [rounded_alike(row) for row in by_duckdb]


def in_period(statement: str, condition: str, cut: str = CUT) -> str:
    """The statement with its period, which the page has behind dashes, from or before the cut."""
    told = re.sub(r"^-- ", "", statement, flags=re.MULTILINE)
    assert told != statement
    return re.sub(r">= (TIMESTAMP|DATE) '[^']+'", f"{condition} {cut}", told)


@pytest.mark.parametrize(
    ("number", "statement"),
    [
        pytest.param(number, of, id=number)
        for number, _, of in QUESTIONS
        if number not in {OF_ALL_TIMES, NOT_READ, *ELSEWHERE}
    ],
)
def test_a_period_drops_nothing(morning: Engines, number: str, statement: str) -> None:
    """What was before a time and what came from then on are all there is, and both engines tell the same."""
    by_spark, later = answers(morning, in_period(statement, ">="))
    assert by_spark == [rounded_alike(row) for row in later]
    earlier = morning.duckdb.sql(in_period(statement, "<")).to_arrow_table().to_pylist()
    many, sums = ANSWERS[number]
    for name in sums.keys() - NOT_ADDED_UP.get(number, set()):
        assert sum(row[name] for row in (*earlier, *later)) == pytest.approx(sums[name], abs=0.01)
    assert len(earlier) + len(later) >= many
    if many >= 20 and number not in NOT_CUT:
        assert earlier
        assert 0 < len(later) < many


def test_the_frames_of_a_lost_message_hold_its_label(morning: Engines) -> None:
    for row in morning.duckdb.sql(QUESTIONS[1][2]).to_arrow_table().to_pylist():
        frames = [(packet["uri"], packet["frame_number"]) for packet in row["witness"]]
        assert len(frames) > 1
        assert any(row["label"].encode("utf-16-le") in payload(*frame) for frame in frames)


def payload(uri: str, number: int) -> bytes:
    """The TCP payload of a frame and of the next two segments of its stream, in which its packet may end."""
    with Path(uri).open("rb") as file:
        segments = [dpkt.ethernet.Ethernet(raw).data for _, raw in dpkt.pcap.Reader(file)]

    def flow(segment: Any) -> tuple[Any, ...]:
        return segment.src, segment.dst, segment.data.sport, segment.data.dport

    began = segments[number - 1]
    after = {one.data.seq: one.data.data for one in segments if flow(one) == flow(began)}
    return b"".join(bytes(after[seq]) for seq in sorted(seq for seq in after if seq >= began.data.seq)[:3])


def test_the_question_for_spark_alone_decodes_the_packets_of_lost_messages(morning: Engines, demo: Path) -> None:
    functions.register(morning.spark)
    asked = re.findall(r"^## In Spark: .+?```sql\n(.+?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found = [tuple(row) for row in morning.spark.sql(*asked).drop("sent_at", "body_type").collect()]
    lost = [(row["label"], True, row["tx_sequence_number"]) for row in rows(demo, "outcomes") if row["lost"]]
    assert sorted(found) == sorted(lost)


@pytest.fixture(scope="module")
def weeks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Engines:
    """Tables of two nights with holes in their captures, and with something that could not be read."""
    warehouse = tmp_path_factory.mktemp("weeks")
    write_nights(warehouse, 2)
    return engines(spark, warehouse)


@pytest.mark.parametrize("statement", [statement for number, _, statement in QUESTIONS if number in ELSEWHERE])
def test_what_a_clean_capture_has_no_rows_for_is_found_in_others(weeks: Engines, statement: str) -> None:
    by_spark, by_duckdb = answers(weeks, statement)
    assert by_spark == by_duckdb != []


@pytest.mark.parametrize(
    ("number", "statement"),
    [pytest.param(number, statement, id=number) for number, _, statement in QUESTIONS if number in ELSEWHERE],
)
def test_a_period_cuts_what_other_captures_have(weeks: Engines, number: str, statement: str) -> None:
    """The time is the latest of what the question counts: something is before it, and something from then on."""
    times, column = ELSEWHERE[number]
    ((latest,),) = weeks.duckdb.sql(f"SELECT CAST(max(t) AS VARCHAR) FROM ({times})").fetchall()  # noqa: S608 - its own
    cut = f"TIMESTAMP '{latest.removesuffix('+00')}'"
    by_spark, later = answers(weeks, in_period(statement, ">=", cut))
    assert by_spark == later
    earlier = weeks.duckdb.sql(in_period(statement, "<", cut)).to_arrow_table().to_pylist()
    everything = weeks.duckdb.sql(statement).to_arrow_table().to_pylist()
    assert later
    assert earlier
    assert sum(row[column] for row in (*earlier, *later)) == sum(row[column] for row in everything) > 0


@pytest.fixture(scope="module")
def troubled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Engines]:
    """Tables with bodies, of a day on which some messages are not read; and the folder with its truth."""
    folder = tmp_path_factory.mktemp("troubled")
    simulate(str(folder), 3, 300, troubles=True)
    engine = looked_at(config(folder / "tables", folder / "*.pcap", bodies="keep"))
    tables = without_spark(folder / "tables")
    for table in TABLES:
        tables.create(table)
        if table.name in engine.tables:
            tables.append(table, engine.read(table).select(table.names))
    return folder, engines(spark, folder / "tables")


def statement_of(number: str) -> str:
    return str(next(statement for one, _, statement in QUESTIONS if one == number))


def test_what_was_not_read_is_what_the_truth_says(troubled: tuple[Path, Engines]) -> None:
    folder, of = troubled
    by_spark, by_duckdb = answers(of, statement_of(NOT_READ))
    assert by_spark == by_duckdb
    truth = [
        (scope["source_queue_manager"], row["messages"])
        for scope in json.loads((folder / "truth.json").read_text())
        for row in scope.get("not_read", ())
        if row["messages"]
    ]
    waiting = [row for row in by_duckdb if row["accepted_not_read_messages"]]
    found = [(row["source_queue_manager"], row["accepted_not_read_messages"]) for row in waiting]
    assert sorted(found) == sorted(truth) != []
    outcomes = [row["outcome"] for row in rows(folder / "tables", "outcomes")]
    assert sum(row["not_read"] for row in by_duckdb) == outcomes.count("not_read") > 0
    cut = f"TIMESTAMP '{max(row['accepted_not_read_since'] for row in waiting):%Y-%m-%d %H:%M:%S}'"
    told = in_period(statement_of(NOT_READ), ">=", cut), in_period(statement_of(NOT_READ), "<", cut)
    assert sum(len(answers(of, one)[1]) for one in told) == len(by_duckdb)


def test_a_body_is_what_was_sent(troubled: tuple[Path, Engines]) -> None:
    folder, of = troubled
    sums = {row["body_crc32"] for row in rows(folder / "tables", "packets")}
    label = next(row["label"] for row in rows(folder / "tables", "messages") if row["body_size"])
    by_spark, by_duckdb = answers(of, statement_of("25").replace("West order 574426", label))
    assert sorted(map(repr, by_spark)) == sorted(map(repr, by_duckdb))
    bodies = [row["raw"][row["body_offset"] :][: row["body_size"]] for row in by_duckdb]
    assert {zlib.crc32(body) for body in bodies if body} <= sums
    assert any(bodies)


def test_keys_of_several_messages(troubled: tuple[Path, Engines]) -> None:
    folder, of = troubled
    keys = defaultdict(set)
    for row in rows(folder / "tables", "message_history"):
        if row["arrivals"]:
            keys[row["label"]].add(row["message_key"])
    expected = {label: len(found) for label, found in keys.items() if len(found) > 1}
    by_spark, by_duckdb = answers(of, statement_of("28"))
    assert by_spark == by_duckdb
    assert {row["label"]: row["messages"] for row in by_duckdb} == expected != {}


def rounded_alike(row: dict[str, Any]) -> dict[str, Any]:
    """The row, equal to one whose numbers differ by a thousandth: releases of DuckDB round halves differently."""
    return {
        name: pytest.approx(value, abs=0.00101) if isinstance(value, float) else value for name, value in row.items()
    }


@pytest.mark.parametrize("statement", DATASETS)
def test_the_dashboard_finds_something(morning: Engines, statement: str) -> None:
    by_spark, by_duckdb = answers(morning, statement)
    assert len(by_spark) == len(by_duckdb) > 0


def name_of(table: Table) -> str:
    """The name of a table as the sessions here know it."""
    return table.name


@pytest.mark.parametrize("table", TABLES, ids=name_of)
def test_keys_are_keys(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    if not any(column.nullable for column in table if column.name in table.key):
        rows = connection.table(table.name)
        assert len(rows.project(", ".join(table.key)).distinct()) == len(rows)
