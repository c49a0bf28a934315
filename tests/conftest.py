"""One Spark session for all tests, configured as the product configures it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from jobs.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("tests")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()
