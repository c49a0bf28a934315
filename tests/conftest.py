"""One Spark session for all tests, configured as the product configures it, and tables that several of them read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from warehouses import CAPTURES, config

from jobs import nightly
from jobs.command import Summary
from jobs.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("tests")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    """The tables of one capture, only to be read, and the summary of the run."""
    warehouse = tmp_path_factory.mktemp("orders") / "ware house"
    return warehouse, nightly.run(spark, config(warehouse, CAPTURES / "orders.pcapng"))


@pytest.fixture(scope="session")
def branches(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a ring buffer of three captures, only to be read."""
    warehouse = tmp_path_factory.mktemp("branches")
    nightly.run(spark, config(warehouse, CAPTURES / "branches_*.pcap.gz"))
    return warehouse
