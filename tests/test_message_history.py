"""One row per message, told by three engines from the same tables."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession
from tiers import merge_needs
from warehouses import in_duckdb, rows

from schemas.history import MESSAGE_HISTORY, SOURCES, SQL, spark_sql
from schemas.outcomes import DELIVERED, OUTCOMES, Outcome

Row = dict[str, Any]


def by_spark(spark: SparkSession, warehouse: Path) -> list[Row]:
    asked = spark.sql(spark_sql(lambda table: f"delta.`{warehouse / table.name}`"))
    declared = [(f.name, f.dataType) for f in MESSAGE_HISTORY.spark]
    assert [(field.name, field.dataType) for field in asked.schema] == declared
    return list(asked.toArrow().to_pylist())


def by_duckdb(warehouse: Path) -> list[Row]:
    return list(in_duckdb(warehouse).table(MESSAGE_HISTORY.name).to_arrow_table().to_pylist())


def by_polars(warehouse: Path) -> list[Row]:
    tables = {table.name: pl.read_delta(str(warehouse / table.name)) for table in SOURCES}
    return list(pl.SQLContext(tables).execute(SQL, eager=True).to_dicts())


def in_order(found: list[Row]) -> list[Row]:
    return sorted(found, key=lambda row: repr([row[name] for name in MESSAGE_HISTORY.key]))


@pytest.mark.parametrize("night", merge_needs(["demo"], ["demo", "branches"]))
def test_three_engines_tell_the_same(spark: SparkSession, night: str, request: pytest.FixtureRequest) -> None:
    warehouse = request.getfixturevalue(night)
    by_one = in_order(by_duckdb(warehouse))
    assert in_order(by_spark(spark, warehouse)) == by_one
    assert in_order(by_polars(warehouse)) == by_one


def test_each_message_is_one_row_with_its_arrivals_in_order(branches: Path) -> None:
    arrivals = defaultdict(list)
    for arrival in sorted(rows(branches, "verdicts"), key=lambda row: row["replay_order"]):
        arrivals[tuple(arrival[name] for name in MESSAGE_HISTORY.key)].append(arrival)
    outcomes = {tuple(row[name] for name in OUTCOMES.key): row for row in rows(branches, "outcomes")}
    uris = {row["capture_id"]: row["uri"] for row in rows(branches, "captures")}
    history = {tuple(row[name] for name in MESSAGE_HISTORY.key): row for row in by_duckdb(branches)}
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
        assert row["first_src_ip"] == (came[0]["stream_id"].partition(":")[0] if came else None)
        judged = accepted or [arrival for arrival in came if arrival["accepted"] is None]
        assert row["ack_latency_ms"] == (judged[0]["ack_latency_ms"] if judged else None)
        acknowledged = [judged[0]["acknowledged_at"]] if judged else []
        if outcome["outcome"] in (*DELIVERED, Outcome.NOT_READ):
            acknowledged += sorted(filter(None, (arrival["acknowledged_at"] for arrival in came)))
        assert row["acknowledged_at"] == next(filter(None, acknowledged), None)
