"""Reads the warehouse that this one continues (`continue_from`): of it only the tables `states` and `stream_ends`."""

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from jobs.app.config import Config
from jobs.app.errors import UsageError
from jobs.warehouse.publish_lock import require_whole
from jobs.warehouse.store import Warehouse
from schemas.replay import ENDS, STATES


def tables(spark: SparkSession, config: Config) -> tuple[DataFrame | None, DataFrame | None]:
    """Reads the receivers' STATES and the streams' ENDS of the previous warehouse; two None where there is none."""
    previous = _warehouse(spark, config)
    return (previous.read(STATES), previous.read(ENDS)) if previous else (None, None)


def version(spark: SparkSession, config: Config) -> list[Any]:
    """Returns the place and the versions of these tables; an empty list where there is no previous warehouse.

    Raises:
        UsageError: the previous warehouse lacks the tables, as one of an older version does, or is this one.
    """
    previous = _warehouse(spark, config)
    if not previous:
        return []
    require_whole(previous.folder, previous.catalog_schema)
    for table in (STATES, ENDS):
        previous.require(table, "replay", " there")
    return [previous.place, previous.versions([STATES, ENDS])]


def _warehouse(spark: SparkSession, config: Config) -> Warehouse | None:
    """Returns the previous warehouse: a folder if this one is a folder, a schema if this one is a schema."""
    if not config.continue_from:
        return None
    place = config.continue_from
    options = replace(config, catalog_schema=place) if config.catalog_schema else replace(config, warehouse=place)
    previous = Warehouse.of(spark, options)
    if previous.place == Warehouse.of(spark, config).place:
        raise UsageError(f"A warehouse cannot continue itself: give --continue-from another place than {place}.")
    return previous
