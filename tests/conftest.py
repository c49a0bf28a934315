"""Starts one Spark session for all tests, configured as the product configures it, and makes tables that several read.

A test that uses the session gets the marker `spark`: all of these run in the one process that owns the JVM. A test
that starts a JVM of its own carries the marker itself. `slow` tests run in `make test-all` only.
"""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from pages import Tables, morning_tables
from pyspark.sql import SparkSession
from warehouses import CAPTURES, config

from jobs.cli.command import Summary
from jobs.cli.spark_session import FOR_FEW_ROWS, open_session
from jobs.commands import nightly
from jobs.simulator import simulate

_BOTH_COMPILERS = (
    "-XX:TieredStopAtLevel=4 -XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000"
)
"""In the hour that all tests take, the second compiler repays what it costs, but not in the minutes of a merge's; at
Java's own thresholds, it would cost a third of the JVM's CPU time, and other tests run beside it."""
_HEAP = "-Xms4g -Xmn1g"
_GIVEN = "--conf spark.sql.sources.parallelPartitionDiscovery.parallelism=3"
"""The project has another value for it, and `test_session` asks which one wins."""
_CONNECT = (
    "--conf spark.plugins=org.apache.spark.sql.connect.SparkConnectPlugin --conf spark.connect.grpc.binding.port=0"
)
"""The JVM serves clients of Spark Connect, too, at a free port; all tests over Connect are slow."""
_FORGETTING = "--conf spark.databricks.delta.delta.log.cacheSize=50 --conf spark.sql.ui.retainedExecutions=10"
"""Else hundreds of warehouses and thousands of queries fill the heap, and clearing it takes a seventh of the time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that use the Spark session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


def pytest_collection_finish() -> None:
    """Has the garbage collector leave out what was loaded with the tests: all of it is needed to the end."""
    gc.freeze()


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """The session of a small night, but with two partitions, so that rows in the wrong one show."""
    compilers, connect = ("", "") if "not slow" in pytestconfig.getoption("markexpr") else (_BOTH_COMPILERS, _CONNECT)
    heap = f"--driver-memory 4g --driver-java-options '{_HEAP} {compilers}'"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"{heap} {_GIVEN} {_FORGETTING} {connect} pyspark-shell")
        session = open_session("tests", is_short=True)
    for key, value in {**FOR_FEW_ROWS, "spark.sql.shuffle.partitions": "2"}.items():
        session.conf.set(key, value)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    """The warehouse of one capture, with its report, only to be read, and the summary of its night."""
    warehouse = tmp_path_factory.mktemp("orders") / "ware house"
    return warehouse, nightly.run(spark, config(warehouse, CAPTURES / "orders.pcapng"))


@pytest.fixture(scope="session")
def branches(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a ring buffer of three captures, only to be read."""
    warehouse = tmp_path_factory.mktemp("branches") / "[a*]"  # not a pattern of file names
    nightly.run(spark, config(warehouse, CAPTURES / "branches_*.pcap.gz"))
    return warehouse


@pytest.fixture(scope="session")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captures of the demonstration, with a clone and a stuck branch."""
    folder = tmp_path_factory.mktemp("demonstration")
    simulate(str(folder), 1, 0, is_demo=True)
    return folder


@pytest.fixture(scope="session")
def demo(spark: SparkSession, demonstration: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the demonstration, only to be read."""
    warehouse = tmp_path_factory.mktemp("demo")
    nightly.run(spark, config(warehouse, *sorted(demonstration.glob("*.pcap"))))
    return warehouse


@pytest.fixture(scope="session")
def morning(demonstration: Path) -> Tables:
    """The tables of the demonstration, made without Spark, for tests of the page."""
    return morning_tables(demonstration)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that is opened once for a module, if there is one here."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def shown(browser: Browser, file: Path) -> Iterator[Browser]:
    """The page in the `file` of the module, as it is opened; nothing in it may fail."""
    browser.open(file)
    browser.run("location.hash = ''")
    yield browser
    assert browser.complaints() == []
