"""Findings that people know of: the file, what is counted, and what does not fail a run."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from warehouses import config

from jobs.app.command import FAIL_ON_MATCHED, _exit_code
from jobs.app.config import Config
from jobs.app.errors import UsageError
from jobs.app.muted import Muted, read_muted
from jobs.engine.on_spark import OnSpark
from jobs.steps import report
from jobs.steps.summary import with_muted
from jobs.warehouse.store import Warehouse

FILE = """
[[muted]]
kind = "slow_acknowledgment"
until = 2026-03-31
why = "The disk of HQ is replaced in March."

[[muted]]
kind = "duplicates"
queue = 'DIRECT=OS:hq\\private$\\orders'
until = 2026-01-01
why = "A test."
"""


def read(folder: Path, text: str, today: date | None = None) -> list[Muted]:
    """Writes the text to a file and reads from it what is muted."""
    (folder / "muted.toml").write_text(text)
    return list(read_muted(str(folder / "muted.toml"), today))


def test_findings_are_muted_up_to_a_day(tmp_path: Path) -> None:
    assert [one.kind for one in read(tmp_path, FILE, date(2026, 1, 1))] == ["slow_acknowledgment", "duplicates"]
    assert [one.kind for one in read(tmp_path, FILE, date(2026, 1, 2))] == ["slow_acknowledgment"]
    assert read(tmp_path, FILE, date(2026, 4, 1)) == read_muted("") == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[mute]]", "it has mute, not only"),
        ("muted = [1]", "no list of tables"),
        ("muted = 1", "no list of tables"),
        (f"muted = {'[' * 5000}", "recursion"),
        ("[[muted]]\nkind = {}", "{} is no kind of findings"),
        ("[[muted]]\nkind = 'slow'", "'slow' is no kind of findings"),
        ("[[muted]]\nkind = 'duplicates'\nwhy = 'x'", "of duplicates, until is no day"),
        ("[[muted]]\nkind = 'duplicates'\nuntil = '2026-01-01'\nwhy = 'x'", "until is no day"),
        ("[[muted]]\nkind = 'duplicates'\nuntil = 2026-01-01", "why is missing"),
        ("[[muted]]\nkind = 'duplicates'\nuntil = 2026-01-01\nwhy = 'x'\nsession = 'y'", "an entry has session"),
    ],
)
def test_what_cannot_be_read_is_wrong_use(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"The file of muted findings .*{why}"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("fail_on", "muted", "fails"),
    [
        ("duplicates", {"duplicates": 2, "info": 2}, False),
        ("duplicates", {"duplicates": 1, "info": 1}, True),
        ("info", {"duplicates": 2, "info": 2}, True),  # another finding is information too
        ("error", {"duplicates": 2, "info": 2}, False),
        ("in_order", {}, True),
    ],
)
def test_muted_findings_do_not_fail_a_run(fail_on: str, muted: dict[str, int], fails: bool) -> None:
    summary: dict[str, Any] = {
        "verdicts": {"in_order": 1},
        "findings": {"duplicates": 2, "gap_expired": 1},
        "severities": {"info": 3},
        "muted": muted,
    }
    assert (_exit_code(summary, Config(fail_on=(fail_on,))) == FAIL_ON_MATCHED) is fails


def test_a_report_and_a_summary_count_what_is_muted(
    spark: SparkSession, orders: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    kind, many = next((kind, many) for kind, many in orders[1]["findings"].items() if kind != "resend_schedule")
    words = kind.replace("_", " ")
    file, page = tmp_path / "muted.toml", tmp_path / "report.html"
    file.write_text(f'[[muted]]\nkind = "{kind}"\nuntil = 9999-12-31\nwhy = "Known <here>."\n')
    given = config(
        orders[0], out=str(page), muted_file=str(file), since="all", listed_findings=25, listed_incidents=100
    )
    report.run(spark, given)
    text = page.read_text()
    assert f"<li>{words}, until 9999-12-31: Known &lt;here&gt;.</li>" in text
    counts = re.findall(rf"(\d+) findings? \(\w+\) of the kind {words}", text)
    assert sum(map(int, counts)) == many
    assert f'<th scope="row">{words}</th>' not in text
    found = with_muted({}, OnSpark(Warehouse.of(spark, given)), read_muted(str(file)))
    assert found["muted"][kind] == many
