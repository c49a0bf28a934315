"""The warehouse that another goes on from (`continue_from`): of it only the table `states` is read."""

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from jobs.config import Config
from jobs.errors import UsageError
from jobs.transforms.scopes import going_on
from jobs.warehouse import Warehouse
from schemas.replay import STATES


def states(spark: SparkSession, config: Config) -> DataFrame | None:
    """The STATES that the warehouse goes on from; None where it begins anew."""
    earlier = _warehouse(spark, config)
    return going_on(earlier.read(STATES)) if earlier else None


def version(spark: SparkSession, config: Config) -> list[Any]:
    """Where these lie, and which version they are of; nothing where it begins anew.

    Raises:
        UsageError: they are not there, or are its own.
    """
    earlier = _warehouse(spark, config)
    if not earlier:
        return []
    earlier.require(STATES, "replay")
    return [earlier.place, earlier.versions([STATES])]


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
