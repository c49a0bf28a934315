"""The warehouse that another goes on from (`continue_from`): of it only the tables `states` and `ends` are read."""

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from jobs.app.config import Config
from jobs.app.errors import UsageError
from jobs.transforms.replay.scopes import resumable_states
from jobs.warehouse.store import Warehouse
from schemas.replay import ENDS, STATES


def tables(spark: SparkSession, config: Config) -> tuple[DataFrame | None, DataFrame | None]:
    """The STATES that the warehouse goes on from, and the ENDS of the streams then; two None where it begins anew."""
    earlier = _warehouse(spark, config)
    return (resumable_states(earlier.read(STATES)), earlier.read(ENDS)) if earlier else (None, None)


def version(spark: SparkSession, config: Config) -> list[Any]:
    """Where these lie, and which versions they are of; nothing where it begins anew.

    Raises:
        UsageError: they are not there, or are its own.
    """
    earlier = _warehouse(spark, config)
    if not earlier:
        return []
    for table in (STATES, ENDS):
        earlier.require(table, "replay")
    return [earlier.place, earlier.versions([STATES, ENDS])]


def _warehouse(spark: SparkSession, config: Config) -> Warehouse | None:
    """The warehouse, in a place of the same kind as this one's."""
    if not config.continue_from:
        return None
    place = config.continue_from
    options = replace(config, catalog_schema=place) if config.catalog_schema else replace(config, warehouse=place)
    earlier = Warehouse.of(spark, options)
    if earlier.place == Warehouse.of(spark, config).place:
        raise UsageError(f"A warehouse cannot go on from itself: give --continue-from another place than {place}.")
    return earlier
