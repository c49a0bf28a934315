"""Asks what a notebook shows: by widgets on Databricks, by settings of the Spark session elsewhere."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.names import Names
from jobs.warehouse.store import Warehouse

_CHOICES: Mapping[str, tuple[str, str]] = {
    "catalog": ("", "Catalog"),
    "schema": ("", "Schema"),
    "warehouse": ("out/warehouse", "or folder of the tables"),
    "session": ("", "session_id; empty: the worst"),
    "since": ("", "Since (UTC); empty: all"),
    "names_file": ("", "TOML or CSV file of names; empty: none"),
}
"""Default and label of each choice."""


def ask(spark: SparkSession, dbutils: Any = None, *names: str) -> dict[str, str]:
    """Returns the choices of these names, and those that lead to the warehouse.

    With the `dbutils` of Databricks each is a widget; otherwise it is the setting `msmq.NAME` of the session.
    """
    chosen = {}
    for name in ("catalog", "schema", "warehouse", *names):
        default, label = _CHOICES[name]
        if dbutils is None:
            chosen[name] = spark.conf.get(f"msmq.{name}", default) or ""
        else:
            dbutils.widgets.text(name, default, label)
            chosen[name] = dbutils.widgets.get(name).strip()
    return chosen


def chosen_warehouse(spark: SparkSession, chosen: Mapping[str, str]) -> Warehouse:
    """Returns the warehouse of a catalog's schema, or that of a folder where no schema is chosen."""
    if chosen["schema"]:
        parts = [part for part in (chosen["catalog"], chosen["schema"]) if part]
        return Warehouse(spark, catalog_schema=".".join(parts))
    return Warehouse(spark, folder=chosen["warehouse"])


def with_names(rows: DataFrame, chosen: Mapping[str, str]) -> DataFrame:
    """Adds what people call queue managers and queues, from the chosen `names_file`; nothing without one."""
    names = Names.read(chosen["names_file"])
    for column, added, known in (
        ("source_queue_manager", "sender_name", names.queue_managers),
        ("sender", "sender_name", names.queue_managers),
        ("receiver", "receiver_name", names.queue_managers),
        ("destination_queue", "queue_name", names.queues),
    ):
        if known and column in rows.columns:
            by_original = F.create_map(*(F.lit(text) for pair in known.items() for text in pair))
            rows = rows.withColumn(added, by_original[F.lower(column)])
    return rows
