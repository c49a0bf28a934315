"""The questions of docs/questions.md and the dashboard's, in Spark SQL and in DuckDB over delta-rs."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dpkt
import duckdb
import pytest
from pyspark.sql import SparkSession
from warehouses import in_duckdb, rows
from weeks import write_nights

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
    "6": (3, {"messages": 619, "sent_again": 219 + 3 + 2}),
    "7": (2, {"messages": 670, "sent_again": 224, "bytes": 489_837, "share_delivered": 407 / 553 + 116 / 117}),
    "8": (3, {"messages": 668, "never": 145, "most_ms": 31_547.409}),
    "9": (0, {}),
    "10": (49, {}),
    "11": (4, {"torn": 1, "messages": 9, "accepted_messages": 5, "lost_messages": 3, "pending": 1}),
    "12": (2, {"messages": 219 + 2}),
    "13": (
        3,
        {"connections": 4, "transactional_messages": 892, "out_of_order": 343, "duplicate": 26, "lost_messages": 21},
    ),
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
}
"""How many rows answer each question of the demonstration's morning, and sums of their columns: as its truth has it.

Of 670 messages, 523 were delivered, 21 lost and 1 expired; 124 are pending and 1 is awaited. 49 came from the clone.
"""
CUT = "TIMESTAMP '2026-03-03 08:24:30'"
"""A time within the morning, at which the clone has begun to send."""
OF_ALL_TIMES = "18"
"""The question that no period is asked of."""
NOT_ADDED_UP = {"6": {"messages"}, "7": {"share_delivered"}, "8": {"most_ms"}}
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
}
"""Questions that the morning has no rows for: the times of what they count, and the column that adds up."""


def test_they_are_numbered() -> None:
    assert [number for number, *_ in QUESTIONS] == [str(number) for number in range(1, 24)]


def test_incidents_are_ranked_as_in_the_report() -> None:
    """On the page, on the dashboard and wherever else SQL ranks them."""
    order = ", ".join(f"{name} DESC" for name in WORST_FIRST)
    statements = [statement for *_, statement in QUESTIONS] + [one.values[0] for one in DATASETS]
    ranking = [one for one in statements if re.search(r"FROM incidents\b.*ORDER BY", one, re.DOTALL)]
    assert len(ranking) == 3
    assert all(f"ORDER BY {order}, began_at" in one for one in ranking)


Engines = tuple[SparkSession, duckdb.DuckDBPyConnection]


def answers(engines: Engines, statement: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the answers of Spark and of DuckDB."""
    spark, connection = engines
    return spark.sql(statement).toArrow().to_pylist(), connection.sql(statement).to_arrow_table().to_pylist()


def in_spark(spark: SparkSession, warehouse: Path) -> SparkSession:
    """A session that knows the tables by their names."""
    own = spark.newSession()
    for table in TABLES:
        own.read.format("delta").load(str(warehouse / table.name)).createOrReplaceTempView(table.name)
    return own


@pytest.fixture(scope="module")
def connection(branches: Path) -> duckdb.DuckDBPyConnection:
    return in_duckdb(branches)


@pytest.fixture(scope="module")
def morning(spark: SparkSession, demo: Path) -> Engines:
    """The tables of a morning with a clone and a stuck branch, in both engines."""
    return in_spark(spark, demo), in_duckdb(demo)


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
    [pytest.param(number, of, id=number) for number, _, of in QUESTIONS if number not in {OF_ALL_TIMES, *ELSEWHERE}],
)
def test_a_period_drops_nothing(morning: Engines, number: str, statement: str) -> None:
    """What was before a time and what came from then on are all there is, and both engines tell the same."""
    by_spark, later = answers(morning, in_period(statement, ">="))
    assert by_spark == [rounded_alike(row) for row in later]
    earlier = morning[1].sql(in_period(statement, "<")).to_arrow_table().to_pylist()
    many, sums = ANSWERS[number]
    for name in sums.keys() - NOT_ADDED_UP.get(number, set()):
        assert sum(row[name] for row in (*earlier, *later)) == pytest.approx(sums[name], abs=0.01)
    assert len(earlier) + len(later) >= many
    assert earlier or number == "13", "the one session of each sender lasts"
    if many >= 20:
        assert 0 < len(later) < many


def test_the_frames_of_a_lost_message_hold_its_label(morning: Engines) -> None:
    for row in morning[1].sql(QUESTIONS[1][2]).to_arrow_table().to_pylist():
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
    functions.register(morning[0])
    asked = re.findall(r"^## In Spark: .+?```sql\n(.+?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found = [tuple(row) for row in morning[0].sql(*asked).drop("sent_at", "body_type").collect()]
    lost = [(row["label"], True, row["tx_sequence_number"]) for row in rows(demo, "outcomes") if row["lost"]]
    assert sorted(found) == sorted(lost)


@pytest.fixture(scope="module")
def weeks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Engines:
    """Tables of two nights with holes in their captures, and with something that could not be read."""
    warehouse = tmp_path_factory.mktemp("weeks")
    write_nights(warehouse, 2)
    return in_spark(spark, warehouse), in_duckdb(warehouse)


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
    ((latest,),) = weeks[1].sql(f"SELECT CAST(max(t) AS VARCHAR) FROM ({times})").fetchall()  # noqa: S608 - its own
    cut = f"TIMESTAMP '{latest.removesuffix('+00')}'"
    by_spark, later = answers(weeks, in_period(statement, ">=", cut))
    assert by_spark == later
    earlier = weeks[1].sql(in_period(statement, "<", cut)).to_arrow_table().to_pylist()
    everything = weeks[1].sql(statement).to_arrow_table().to_pylist()
    assert later
    assert earlier
    assert sum(row[column] for row in (*earlier, *later)) == sum(row[column] for row in everything) > 0


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
