"""One Spark session for all tests, configured as the product configures it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import nightly
from jobs.command import Summary
from jobs.config import Config
from jobs.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("tests")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    """The warehouse of one capture, with its report, and the summary of its night."""
    warehouse = tmp_path_factory.mktemp("orders") / "ware house"
    capture = Path(__file__).parent / "captures" / "orders.pcapng"
    given = {"captures": [str(capture)], "warehouse": str(warehouse)}
    return warehouse, nightly.run(spark, Config.load(given, None))
