"""The analysts' first page: each block runs as it stands, and finds what was lost."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from warehouses import rows

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "start-for-analysts.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
LOST, MOMENT, HISTORY = BLOCKS[:4], BLOCKS[4], BLOCKS[5:]


@pytest.fixture
def asked_of(spark: SparkSession, demo: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs a block in the repository after `make run`; its session of Spark is a new one of the tests' own."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("jobs.cli.spark_session.open_session", lambda _: spark.newSession())

    def run(block: str) -> None:
        assert "out/warehouse" in block
        if engine(block) == "polars":
            pytest.importorskip("polars", reason="Polars, of the dependency group test, is not installed")
        exec(compile(block.replace("out/warehouse", str(demo)), PAGE.name, "exec"), {})  # noqa: S102 - the page's own

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


def test_the_versions_of_the_last_run_are_read(
    asked_of: Callable[[str], None], demo: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked_of(MOMENT)
    assert capfd.readouterr().out.startswith(f"{len(rows(demo, 'outcomes'))} messages and runs of numbers")


@pytest.mark.parametrize("block", [pytest.param(block, id=engine(block)) for block in HISTORY])
def test_each_table_has_its_name_and_one_says_what_became_of_all(
    block: str, asked_of: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    asked_of(block)
    counted = dict(re.findall(r"(\w+)\s*[│┆|]\s*(\d+)", capfd.readouterr().out))
    assert counted == {"delivered": "523", "pending": "125", "lost": "21", "expired": "1"}
