"""The analysts' first page: each block runs as it stands, and finds what was lost."""

import os
import re
from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from warehouses import CAPTURES, config, new_session, rows

from jobs.commands import nightly

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "start-for-analysts.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
LOST, NIGHTS, HISTORY = BLOCKS[:4], BLOCKS[4:7], BLOCKS[7:]
RING = [CAPTURES / f"branches_0000{number}.pcap.gz" for number in range(3)]


@pytest.fixture
def asked_of(spark: SparkSession, demo: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs a block in the repository after `make run`; its session of Spark is a new one of the tests' own."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("jobs.cli.spark_session.open_session", lambda _: new_session(spark))

    def run(block: str) -> None:
        assert "out/warehouse" in block
        if engine(block) == "polars":
            pytest.importorskip("polars", reason="Polars, of the dependency group test, is not installed")
        place = os.path.relpath(demo, ROOT)  # as on the page
        exec(compile(block.replace("out/warehouse", place), PAGE.name, "exec"), {})  # noqa: S102 - the page's own

    return run


def engine(block: str) -> str:
    """What a block asks with."""
    names = {"duckdb": "duckdb", "polars": "polars", "open_session": "spark"}
    return next((name for word, name in names.items() if word in block), "pandas")


@pytest.mark.parametrize("block", [pytest.param(block, id=engine(block)) for block in LOST])
def test_five_lines_say_which_orders_were_lost(
    block: str, asked_of: Callable[[str], None], demo: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked_of(block)
    lost = [row["label"] for row in rows(demo, "outcomes") if row["lost"]]
    assert sorted(re.findall(r"\w+ order \d+", capfd.readouterr().out)) == sorted(lost)
    assert len(lost) == 21
    assert len(list(filter(None, block.splitlines()))) <= 5
    assert {engine(each) for each in LOST} == {"duckdb", "pandas", "polars", "spark"}


@pytest.fixture(scope="module")
def two_nights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse, to which somebody is adding a third night, that did not record itself yet."""
    warehouse = tmp_path_factory.mktemp("nights")
    nightly.run(spark, config(warehouse, *RING[:1]))
    nightly.run(spark, config(warehouse, *RING[:2]))
    with mock.patch("jobs.commands.nightly.record"):
        nightly.run(spark, config(warehouse, *RING))
    return warehouse


@pytest.mark.slow
@pytest.mark.parametrize("block", [pytest.param(block, id=engine(block)) for block in NIGHTS])
def test_what_became_of_messages_since_the_night_before(
    block: str, asked_of: Callable[[str], None], two_nights: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = sorted(rows(two_nights, "runs"), key=itemgetter("ended_at"))
    before, last = (outcomes(two_nights, run) for run in runs)
    expected = Counter[tuple[str | None, str]]()
    for key, (outcome, numbers) in last.items():
        was, _ = before.get(key, (None, 0))
        if was != outcome:
            expected[was, outcome] += numbers
    asked_of(block.replace("out/warehouse", os.path.relpath(two_nights, ROOT)) + f"# {'out/warehouse'}")
    counted = re.findall(r"(\w+)\s*[│┆|]\s*(\w+)\s*[│┆|]\s*(\d+)", capfd.readouterr().out)
    found = {(None if was.lower() == "null" else was, became): int(many) for was, became, many in counted}
    assert found == expected
    assert len(expected) > 2
    asked_of(block)  # of one night, none has changed
    assert not re.search(r"(delivered|lost|pending)\s*[│┆|]\s*\d", capfd.readouterr().out)


def outcomes(warehouse: Path, run: dict[str, Any]) -> dict[tuple[Any, ...], tuple[str, int]]:
    """The outcome of each message at each receiver in the versions that a run left, and how many numbers it is of."""
    versions = {one["table"]: one["version"] for one in run["tables"]}
    table = DeltaTable(str(warehouse / "message_history"), version=versions["message_history"])
    key = ("scope_key", "tx_sequence", "tx_sequence_number", "message_key")
    history = table.to_pyarrow_table(columns=[*key, "outcome", "numbers"]).to_pylist()
    return {tuple(row[name] for name in key): (row["outcome"], row["numbers"]) for row in history}


@pytest.mark.parametrize("block", [pytest.param(block, id=engine(block)) for block in HISTORY])
def test_each_table_has_its_name_and_one_says_what_became_of_all(
    block: str, asked_of: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    asked_of(block)
    counted = dict(re.findall(r"(\w+)\s*[│┆|]\s*(\d+)", capfd.readouterr().out))
    assert counted == {"delivered": "523", "pending": "125", "lost": "21", "expired": "1"}
