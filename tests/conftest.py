"""Starts one Spark session for all tests, configured as the product configures it, and makes tables that several read.

A test that uses the session gets the marker `spark`: all of these run in the one process that owns the JVM. A test
that starts a JVM of its own carries the marker itself. `slow` tests run in `make test-all` only.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from warehouses import CAPTURES, config, night_of_orders

from jobs.app.command import Summary
from jobs.app.spark_session import open_session
from jobs.steps import nightly

INTERPRETED = "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.codegen.factoryMode=NO_CODEGEN"
ONE_COMPILER = "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m'"  # its own is soon full
BRIEF = f"{ONE_COMPILER} {INTERPRETED} pyspark-shell"
"""Arguments of a Spark for hundreds of small queries, where compiling each costs more than running it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that use the Spark session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", BRIEF)
    session = open_session("tests")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    """The warehouse of one capture, with its report, only to be read, and the summary of its night."""
    warehouse = tmp_path_factory.mktemp("orders") / "ware house"
    return warehouse, nightly.run(spark, night_of_orders(warehouse))


@pytest.fixture(scope="session")
def branches(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a ring buffer of three captures, only to be read."""
    warehouse = tmp_path_factory.mktemp("branches")
    nightly.run(spark, config(warehouse, CAPTURES / "branches_*.pcap.gz"))
    return warehouse
