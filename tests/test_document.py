"""Compares the committed pages with the generated ones, and checks the declarations behind them."""

import re
from pathlib import Path

import pytest
from document import pages

from schemas import wire
from schemas.tables import TABLES
from schemas.violations import Fault, Violation

SECTION = re.compile(r"\[MS-(MQQB|MQMQ)\] \d+(\.\d+)+")


@pytest.mark.parametrize("name", pages())
def test_the_committed_page_is_what_the_declarations_give(name: str) -> None:
    committed = (Path(__file__).parents[1] / "docs" / name).read_text(encoding="utf-8")
    assert committed == pages()[name], "run: make docs"


@pytest.mark.parametrize("header", wire.HEADERS, ids=lambda header: header.name)
def test_a_header_has_its_section_and_every_field_a_comment(header: wire.Header) -> None:
    assert SECTION.fullmatch(header.section)
    assert header.presence
    for field in header.fields:
        assert field.comment.endswith((".", "…"))
        assert all(bits.comment.endswith(".") for bits in field.bits)


@pytest.mark.parametrize("rule", [*Fault, *Violation])
def test_a_rule_has_its_section_and_sentence(rule: Fault | Violation) -> None:
    assert SECTION.fullmatch(rule.section)
    assert rule.sentence


def test_every_table_and_column_has_a_comment() -> None:
    for table in TABLES:
        assert table.comment
        assert all(column.comment for column in table)
