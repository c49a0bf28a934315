"""Holds the cheap part of plain English: how docstrings begin, and words that make a reader stop."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = [path for room in ("schemas", "udfs", "jobs", "conf", "notebooks") for path in (ROOT / room).rglob("*.py")]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
_NO_VERB = re.compile(r"^(What|Whether|Where|Which|When|Who|How|Of|The same)\b")
_RIDDLES = re.compile(
    r"\b(anew|foretold|spared|as it were|in so far|lest|is told by|are told by|bears? a|whatsoever)\b"
    r"|\b(message|number|packet|row|file|finding|session)\(s\)",
    re.IGNORECASE,
)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the line and text of each docstring of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text


def test_docstrings_open_with_a_verb() -> None:
    found = ((path, *one) for path in PRODUCT for one in docstrings(path))
    assert [one for one in found if _NO_VERB.match(one[2])] == []


def test_no_word_makes_a_reader_stop() -> None:
    lines = ((path, *one) for path in PRODUCT + PAGES for one in enumerate(path.read_text().splitlines(), 1))
    assert [line for line in lines if _RIDDLES.search(line[2])] == []


def test_rooms_say_what_they_are_for() -> None:
    rooms = {path.parent for path in PRODUCT}
    said = {
        room: ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
        for room in rooms
        if room.name != "notebooks"
    }
    assert [room for room, text in said.items() if text.count(".") < 1] == []


def test_no_file_outgrows_its_room() -> None:
    rooms = (path for path in PRODUCT if path.parent.name != "schemas")
    assert [path for path in rooms if len(path.read_text().splitlines()) > 450] == []
