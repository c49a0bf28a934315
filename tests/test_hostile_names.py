"""Names from captures that are lines, quotes or variables to some reader: all works, and hashed they are gone.

Readers other than Spark find rows by such names in tests/test_delta_commits.py.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pyarrow.parquet as pq
import pytest
import wiretap
from deltalake import DeltaTable
from oracle import summed
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from test_delta_commits import HOSTILE
from warehouses import config, rows

from jobs.cli.capture_listing import capture_files, stamps
from jobs.commands import maintain, nightly, repair, report, status, unchanged_run
from jobs.simulator import build
from schemas.messages import MESSAGES
from schemas.tables import TABLES

MARK = "Zebra7"
NAMES = ("plain", *HOSTILE)
KEY = "a secret of the operators"


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A capture of one connection, with messages whose label and queues have each of the names."""
    sender = UUID(int=7)
    packets = [
        build.user_message(
            sender,
            message_id=number,
            sequence=(5, number, number - 1),
            destination=build.direct(f"OS:{MARK}{name}\\private$\\q"),
            admin_queue=build.direct(f"OS:{MARK}{name}\\private$\\admin"),
            response_queue=build.direct(f"OS:{MARK}{name}\\private$\\response"),
            label=f"{MARK}{name}",
            body=b"body",
        )
        for number, name in enumerate(NAMES, 1)
    ]
    sent = wiretap.conversation(random.Random(1), b"".join(packets))
    path = tmp_path / "names.pcap"
    path.write_bytes(wiretap.pcap(wiretap.records([summed(one.frame()) for one in sent])))
    return path


def queue(name: str) -> str:
    """Returns the destination queue as the tables name it."""
    return f"DIRECT=OS:{MARK}{name}\\private$\\q"


def texts(warehouse: Path) -> Iterator[tuple[str, str]]:
    """Yields the path and the content of every file: of Parquet its rows and statistics, but no bytes of packets."""
    for path in sorted(path for path in warehouse.rglob("*") if path.is_file()):
        yield str(path), path.read_bytes().decode("utf-8", "replace")
        if path.suffix == ".parquet":
            file = pq.ParquetFile(path)
            yield str(path), file.metadata.to_dict().__repr__()
            yield str(path), str(file.read().to_pylist())


def found(warehouse: Path) -> set[str]:
    """Names the files in which a name is found."""
    return {path.removeprefix(f"{warehouse}/") for path, text in texts(warehouse) if MARK in text}


@pytest.mark.slow
def test_names_of_any_kind_are_found_and_hashed_they_are_in_no_file(
    spark: SparkSession, tmp_path: Path, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = tmp_path / "tables"
    night = config(warehouse, capture)
    first = nightly.run(spark, night)
    assert first["transactional_messages"] == len(NAMES)
    assert nightly.run(spark, night) == first
    assert maintain.run(spark, night)["rows_new"] == {}
    assert unchanged_run.recall(night, stamps(capture_files(night.captures))) == first
    assert nightly.run(spark, night) == first
    assert repair.run(spark, night)["derived_again"] == []
    assert status.run(spark, night)["pending"] == {"captures": 0}
    report.run(spark, night)
    messages = spark.read.format("delta").load(str(warehouse / MESSAGES.name))
    assert [messages.where(F.col("destination_queue") == queue(name)).count() for name in NAMES] == [1] * len(NAMES)
    assert {row["label"] for row in rows(warehouse, "messages")} == {f"{MARK}{name}" for name in NAMES}
    assert any(path.endswith(".json") for path in found(warehouse)), "statistics hold names, so this test finds them"

    monkeypatch.setenv("MSMQ_REPLAY_NAMES_KEY", KEY)
    hashed = config(warehouse, capture, names="hash", vacuum_hours=0)
    nightly.run(spark, hashed)
    assert found(warehouse)
    states = maintain.run(spark, hashed)["states_removed"]
    assert (states, found(warehouse)) == (0, set())
    for table in TABLES:
        assert DeltaTable(str(warehouse / table.name)).version() >= 0
    assert status.run(spark, hashed)["pending"] == {"captures": 0}
    assert repair.run(spark, hashed)["derived_again"] == []
    assert found(warehouse) == set()
