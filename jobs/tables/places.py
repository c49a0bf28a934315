"""Chooses how the tables at a place are read and written."""

from typing import cast

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from jobs.cli.config import Config
from jobs.cli.errors import UsageError
from jobs.tables.in_catalog import InCatalog
from jobs.tables.in_folder import InFolder
from jobs.tables.in_store import InStore
from jobs.tables.through_spark import ThroughSpark
from jobs.tables.warehouse import Warehouse
from udfs.capture.stores import in_store


def needs_spark(config: Config) -> bool:
    """Returns whether only Spark can read and write the tables that the options name (`open_warehouse`)."""
    return open_warehouse(None, config).needs_spark


def open_warehouse(spark: SparkSession | None, config: Config) -> Warehouse:
    """Returns the warehouse that the options name; without Spark, for what can be done before that has started.

    Raises:
        UsageError: they name none, or two.
    """
    if bool(config.warehouse) == bool(config.catalog_schema):
        raise UsageError("Give the tables one place: --warehouse URI or --catalog-schema CATALOG.SCHEMA.")
    session = cast(SparkSession, spark)
    if config.catalog_schema:
        return InCatalog(session, config.catalog_schema)
    if in_store(config.warehouse):
        return InStore.open(session, config.warehouse)
    # A Connect client's folders are those of the server.
    is_local = not ("://" in config.warehouse or is_remote())
    return (InFolder if is_local else ThroughSpark)(session, config.warehouse)
