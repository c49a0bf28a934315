"""The questions of docs/questions.md and the dashboard's, in Spark SQL and in DuckDB over delta-rs."""

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.warehouse.catalog import REFERENCES, has_key, statements
from schemas.table import Table
from schemas.tables import TABLES

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "questions.md").read_text()
QUESTIONS = re.findall(r"^## (\d+\. .+?)\n\n```sql\n(.+?)```", TEXT, re.MULTILINE | re.DOTALL)
DASHBOARD = json.loads((ROOT / "conf" / "databricks" / "night.lvdash.json").read_text())
DATASETS = [pytest.param("".join(one["queryLines"]), id=one["name"]) for one in DASHBOARD["datasets"]]
NOTHING_TO_TELL = {"9", "11", "16", "17"}
"""Numbers of the questions that these captures have no rows for."""


def test_there_are_twenty() -> None:
    assert [question.partition(".")[0] for question, _ in QUESTIONS] == [str(number) for number in range(1, 21)]


@pytest.fixture(scope="module")
def session(spark: SparkSession, branches: Path) -> SparkSession:
    """A session that knows the tables by their names."""
    own = spark.newSession()
    for table in TABLES:
        own.read.format("delta").load(str(branches / table.name)).createOrReplaceTempView(table.name)
    return own


@pytest.fixture(scope="module")
def connection(branches: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB that knows the tables by their names."""
    found = duckdb.connect()
    found.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        found.register(table.name, DeltaTable(str(branches / table.name)).to_pyarrow_dataset())
    return found


def rounded_alike(row: dict[str, Any]) -> dict[str, Any]:
    """The row, equal to one whose numbers differ by a thousandth: releases of DuckDB round halves differently."""
    return {
        name: pytest.approx(value, abs=0.00101) if isinstance(value, float) else value for name, value in row.items()
    }


@pytest.mark.parametrize(("question", "statement"), QUESTIONS, ids=[question for question, _ in QUESTIONS])
def test_spark_and_duckdb_agree(
    session: SparkSession, connection: duckdb.DuckDBPyConnection, question: str, statement: str
) -> None:
    by_spark = session.sql(statement).toArrow().to_pylist()
    by_duckdb = connection.sql(statement).to_arrow_table().to_pylist()
    assert by_spark == [rounded_alike(row) for row in by_duckdb]
    assert bool(by_spark) == (question.partition(".")[0] not in NOTHING_TO_TELL)


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
def test_keys_are_keys_and_references_lead_somewhere(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    key = ", ".join(table.key)
    rows = connection.table(table.name)
    if has_key(table):
        assert len(rows.project(key).distinct()) == len(rows)
    for parent in REFERENCES.get(table, ()):
        asked = rows.project(", ".join(parent.key)).filter(" AND ".join(f"{name} IS NOT NULL" for name in parent.key))
        there = connection.table(parent.name).project(", ".join(parent.key))
        assert has_key(parent)
        assert asked.distinct().except_(there).fetchall() == []


def test_what_unity_catalog_is_told_is_in_an_order_that_it_takes() -> None:
    told = list(statements(name_of))
    assert len({name for name, _ in told}) == len(told)
    keys = [re.search(r"TABLE (\w+) .* PRIMARY", statement) for _, statement in told]
    known = [found[1] for found in keys if found]
    for _, statement in told[len(known) :]:
        referred = re.search(r"REFERENCES (\w+)$", statement)
        assert referred is None or referred[1] in known
    assert "ALTER TABLE outcomes ALTER COLUMN `label` SET TAGS ('msmq_replay' = 'names')" in dict(told).values()
