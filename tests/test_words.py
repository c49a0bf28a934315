"""The words of the tables on the pages: each has its place, and no page names one that does not exist."""

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path

import pytest

from jobs.cli.config import DECLARED, FAIL_ON
from jobs.commands.orders import COLUMNS
from schemas.incidents import Cause, IncidentOutcome
from schemas.ingest import QUARANTINE, CaptureReason, FrameReason, FramingReason, TcpReason
from schemas.outcomes import LOST, MEANING, Fate, Outcome
from schemas.replay import VERDICTS, FindingKind, Reason, Verdict
from schemas.tables import TABLES
from schemas.violations import Fault

DOCS = Path(__file__).parents[1] / "docs"
_SECTION = re.compile(r"^#+ (.+?)\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([a-z]+(?:_[a-z0-9]+)+)`")
UNKNOWN_REASONS = {Reason.NO_PRIOR_STATE, Reason.CAPTURE_GAP, Reason.CLOCKS_DIFFER}
STUCK = "stuck"


def sections(page: str) -> dict[str, str]:
    """The text below each heading of a page."""
    return dict(_SECTION.findall((DOCS / page).read_text()))


def first_cells(text: str) -> list[str]:
    """The first cell of each row of the tables in a text, without heads."""
    cells = re.findall(r"^\| ([^|]*?) \|", text, re.MULTILINE)
    is_head = [below == "---" for below in [*cells, ""][1:]]
    return [cell for cell, head in zip(cells, is_head, strict=True) if not head and cell != "---"]


def words(cells: Iterable[str]) -> set[str]:
    """The codes that cells name, with or without quotes, several with commas between."""
    return {part.strip(" `*").replace(" ", "_") for cell in cells for part in cell.split(",")}


REASONS_OF_QUARANTINE = {*CaptureReason, *FrameReason, *TcpReason, *FramingReason}


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Outcomes", set(Outcome)),
        ("Fates", set(Fate)),
        ("Findings", set(FindingKind)),
        ("Reasons of verdicts", set(Reason)),
        ("Reasons of quarantine", REASONS_OF_QUARANTINE),
    ],
)
def test_the_page_of_words_has_each_word_once(title: str, expected: Collection[StrEnum]) -> None:
    listed = first_cells(sections("words.md")[title])
    assert len(listed) == len(set(listed))
    assert words(listed) == {one.value for one in expected}


def test_the_page_of_words_and_that_of_faults_have_all_values_of_the_columns() -> None:
    columns = {column.name: set(map(str, column.values or ())) for column in QUARANTINE}
    faults = words(first_cells(sections("wire-format.md")["Faults"]))
    assert faults == {one.value for one in Fault}
    assert columns["reason"] == {one.value for one in REASONS_OF_QUARANTINE} | faults
    assert set(MEANING) == set(Outcome)
    assert {str(one) for column in VERDICTS if column.name == "reason" for one in column.values or ()} == set(Reason)


def test_what_to_do_names_only_what_the_report_says() -> None:
    said = {one.value for one in (*Outcome, *FindingKind, *Cause)} | {STUCK, "expired"}
    pages: Mapping[str, str] = sections("what-to-do.md")
    named = {title: words(first_cells(text)) for title, text in pages.items()}
    for title in ("Messages were lost or are stuck", "Messages were never acknowledged", "Connections and queues"):
        assert named[title]
        assert named[title] <= said
    assert named["The report says unknown"] == {one.value for one in UNKNOWN_REASONS}
    lost = {one.value for one in LOST}
    assert lost <= named["Messages were lost or are stuck"]
    about_acknowledgments = {"cannot_connect", "never_answered", *(one for one in Cause if "acknowledg" in one)}
    assert about_acknowledgments - {Cause.ACKNOWLEDGMENT} <= named["Messages were never acknowledged"]


def test_reading_the_report_explains_how_messages_are_lost_and_how_incidents_end() -> None:
    pages = sections("reading-the-report.md")
    (losses,) = (text for text in pages.values() if "| outcome |" in text)
    assert words(first_cells(losses)) == {one.value for one in LOST}
    assert words(first_cells(pages["An incident"])) == {one.value for one in IncidentOutcome} | {STUCK}


def test_the_worked_trace_has_each_verdict_and_the_reasons_of_refusals() -> None:
    text = (DOCS / "how-the-replay-decides.md").read_text()
    codes = set(re.findall(r"`(\w+)`", text))
    assert {one.value for one in Verdict} <= codes
    assert set(Reason) - UNKNOWN_REASONS <= codes


@pytest.mark.parametrize(
    "page", ["what-to-do.md", "reading-the-report.md", "how-the-replay-decides.md", "every-night.md"]
)
def test_codes_on_the_pages_exist(page: str) -> None:
    values = {str(value) for table in TABLES for column in table for value in column.values or ()}
    columns = {column.name for table in TABLES for column in table}
    lists = {*COLUMNS, *(name for of in COLUMNS.values() for name in of)}
    known = values | columns | {table.name for table in TABLES} | {*DECLARED, *FAIL_ON} | lists
    assert set(_CODE.findall((DOCS / page).read_text())) <= known
