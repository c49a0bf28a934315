"""Asks what a notebook shows, by widgets on Databricks or by settings of the session, and counts what it draws."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.cli.config import Config
from jobs.cli.names import Names
from jobs.tables.places import open_warehouse
from jobs.tables.warehouse import Warehouse
from schemas.outcomes import Fate

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
        return open_warehouse(spark, Config(catalog_schema=".".join(parts)))
    return open_warehouse(spark, Config(warehouse=chosen["warehouse"]))


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


def over_time(history: DataFrame, unit: str) -> DataFrame:
    """Returns how many messages of `message_history` first arrived in each `unit`, such as hour or day, by their fate.

    Beside `time`, its beginning, that is `delivered`, `lost`, `pending` and `in_doubt`: unconfirmed or unknown.
    `median_ms` and `p95_ms` are of the times to an acknowledgment. Numbers that were never seen have no time, so they
    are not among these.
    """
    fate, in_doubt = F.col("fate"), (Fate.UNCONFIRMED.value, Fate.UNKNOWN.value)
    seen = history.where("first_seen_at IS NOT NULL").groupBy(F.date_trunc(unit, "first_seen_at").alias("time"))
    return seen.agg(
        *(F.count_if(fate == one.value).alias(one.value) for one in (Fate.DELIVERED, Fate.LOST, Fate.PENDING)),
        F.count_if(fate.isin(*in_doubt)).alias("in_doubt"),
        F.percentile("ack_latency_ms", F.lit(0.5)).alias("median_ms"),
        F.percentile("ack_latency_ms", F.lit(0.95)).alias("p95_ms"),
    ).orderBy("time")
