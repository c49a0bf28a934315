"""The questions of docs/questions.md and the dashboard's, in Spark SQL and in DuckDB over delta-rs."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from asked import ASKED, PAGE, QUESTIONS
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from simulated_morning import ANSWERS, Morning
from weeks import write_nights

from schemas.history import MESSAGE_HISTORY, SQL, spark_sql
from schemas.table import Table
from schemas.tables import INTERNAL, TABLES
from udfs import functions

ROOT = Path(__file__).parents[1]
DASHBOARD = json.loads((ROOT / "conf" / "databricks" / "night.lvdash.json").read_text())
DATASETS = [pytest.param("".join(one["queryLines"]), id=one["name"]) for one in DASHBOARD["datasets"]]
ELSEWHERE = {"9", "16", "17"}
"""Numbers of the questions that the simulated morning has no rows for."""


def test_there_are_twenty() -> None:
    assert [number for number, *_ in QUESTIONS] == [str(number) for number in range(1, 21)]


def in_spark(spark: SparkSession, warehouse: Path) -> SparkSession:
    """A session that knows the tables by their names."""
    own = spark.newSession()
    for table in TABLES:
        own.read.format("delta").load(str(warehouse / table.name)).createOrReplaceTempView(table.name)
    own.sql(spark_sql()).cache().createOrReplaceTempView(MESSAGE_HISTORY.name)
    return own


def in_duckdb(warehouse: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB that knows the tables by their names."""
    found = duckdb.connect()
    found.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        found.register(table.name, DeltaTable(str(warehouse / table.name)).to_pyarrow_dataset())
    found.execute(f"CREATE VIEW {MESSAGE_HISTORY.name} AS {SQL}")
    return found


@pytest.fixture(scope="module")
def session(spark: SparkSession, branches: Path) -> SparkSession:
    return in_spark(spark, branches)


@pytest.fixture(scope="module")
def connection(branches: Path) -> duckdb.DuckDBPyConnection:
    return in_duckdb(branches)


@pytest.fixture(scope="module")
def morning(spark: SparkSession, demo: Path) -> tuple[SparkSession, duckdb.DuckDBPyConnection, Morning]:
    """The tables of a morning with a clone and a stuck branch, in both engines, and its truth."""
    return in_spark(spark, demo), in_duckdb(demo), Morning(demo)


@pytest.mark.parametrize(
    ("number", "statement", "holds"),
    [
        pytest.param(number, statement, holds, id=f"{number}. {question}")
        for (number, question, statement), holds in zip(QUESTIONS, ANSWERS, strict=True)
    ],
)
def test_the_answer_is_the_truth_in_spark_and_in_duckdb(
    morning: tuple[SparkSession, duckdb.DuckDBPyConnection, Morning],
    number: str,
    statement: str,
    holds: Callable[[Morning, list[dict[str, Any]]], None],
) -> None:
    spark, connection, truth = morning
    by_spark = spark.sql(statement).toArrow().to_pylist()
    by_duckdb = connection.sql(statement).to_arrow_table().to_pylist()
    holds(truth, by_spark)
    holds(truth, by_duckdb)
    assert by_spark == [rounded_alike(row) for row in by_duckdb]
    assert bool(by_spark) == (number not in ELSEWHERE)


def test_the_question_for_spark_alone_decodes_the_packets_of_lost_messages(
    morning: tuple[SparkSession, duckdb.DuckDBPyConnection, Morning],
) -> None:
    spark, _, truth = morning
    functions.register(spark)
    asked = re.findall(r"^## In Spark: .+?```sql\n(.+?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found = [tuple(row) for row in spark.sql(*asked).drop("sent_at", "body_type").collect()]
    lost = [message.first for message in truth.messages if message.is_lost]
    assert sorted(found) == sorted((packet["label"], True, packet["tx_sequence_number"]) for packet in lost)


@pytest.fixture(scope="module")
def weeks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[SparkSession, Any]:
    """Tables of captures with holes, and something that could not be read."""
    warehouse = tmp_path_factory.mktemp("weeks")
    write_nights(warehouse, 1)
    return in_spark(spark, warehouse), in_duckdb(warehouse)


@pytest.mark.parametrize("statement", [statement for number, _, statement in QUESTIONS if number in ELSEWHERE])
def test_what_a_clean_capture_has_no_rows_for_is_found_in_others(
    weeks: tuple[SparkSession, duckdb.DuckDBPyConnection], statement: str
) -> None:
    spark, connection = weeks
    by_spark = spark.sql(statement).toArrow().to_pylist()
    assert by_spark == connection.sql(statement).to_arrow_table().to_pylist()
    assert by_spark


def rounded_alike(row: dict[str, Any]) -> dict[str, Any]:
    """The row, equal to one whose numbers differ by a thousandth: releases of DuckDB round halves differently."""
    return {
        name: pytest.approx(value, abs=0.00101) if isinstance(value, float) else value for name, value in row.items()
    }


@pytest.mark.parametrize("statement", DATASETS)
def test_the_dashboard_finds_something(
    session: SparkSession, connection: duckdb.DuckDBPyConnection, statement: str
) -> None:
    by_spark = session.sql(statement).toArrow().to_pylist()
    assert by_spark
    assert len(by_spark) == len(connection.sql(statement).fetchall())


def name_of(table: Table) -> str:
    """The name of a table as the sessions here know it."""
    return table.name


@pytest.mark.parametrize("table", TABLES, ids=name_of)
def test_keys_are_keys(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    if not any(column.nullable for column in table if column.name in table.key):
        rows = connection.table(table.name)
        assert len(rows.project(", ".join(table.key)).distinct()) == len(rows)


def test_each_page_of_a_table_begins_with_a_question_that_runs(
    morning: tuple[SparkSession, duckdb.DuckDBPyConnection, Morning],
) -> None:
    spark, connection, _ = morning
    assert set(ASKED) == {MESSAGE_HISTORY, *TABLES} - set(INTERNAL)
    for table, (question, query) in ASKED.items():
        assert question.endswith("?")
        assert re.search(rf"\bFROM {table.name}\b", query)
        assert spark.sql(query).columns == connection.sql(query).columns
