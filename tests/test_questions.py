"""The questions of docs/questions.md and the dashboard's, in Spark SQL and in DuckDB over delta-rs."""

import json
import re
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from schemas.tables import TABLES

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "questions.md").read_text()
QUESTIONS = re.findall(r"^## (\d+\. .+?)\n\n```sql\n(.+?)```", TEXT, re.MULTILINE | re.DOTALL)
DASHBOARD = json.loads((ROOT / "conf" / "databricks" / "night.lvdash.json").read_text())
DATASETS = [pytest.param("".join(one["queryLines"]), id=one["name"]) for one in DASHBOARD["datasets"]]
NOTHING_TO_TELL = {"9", "11", "12", "16", "17"}
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


@pytest.mark.parametrize(("question", "statement"), QUESTIONS, ids=[question for question, _ in QUESTIONS])
def test_spark_and_duckdb_agree(
    session: SparkSession, connection: duckdb.DuckDBPyConnection, question: str, statement: str
) -> None:
    by_spark = session.sql(statement).toArrow().to_pylist()
    by_duckdb = connection.sql(statement).to_arrow_table().to_pylist()
    assert by_spark == by_duckdb
    assert bool(by_spark) == (question.partition(".")[0] not in NOTHING_TO_TELL)


@pytest.mark.parametrize("statement", DATASETS)
def test_the_dashboard_finds_something(
    session: SparkSession, connection: duckdb.DuckDBPyConnection, statement: str
) -> None:
    by_spark = session.sql(statement).toArrow().to_pylist()
    assert by_spark
    assert len(by_spark) == len(connection.sql(statement).fetchall())
