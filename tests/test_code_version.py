"""A night derives its tables again after a change of a rule, and after no other change of the code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.cli.code_version import RESULTS, results_hash, without_words

ROOT = Path(__file__).parents[1]
DERIVING = ("udfs.decode.flow", "udfs.replay.flow", "udfs.replay.fitness.flow", "udfs.report.balancing")
"""The pages that say how tables are derived."""
FILES = [path for part in RESULTS for path in ([ROOT / part] if part.endswith(".py") else (ROOT / part).rglob("*.py"))]


def imported(module: str) -> Iterator[str]:
    """Names the modules of the program that a module imports, itself included."""
    place = ROOT / module.replace(".", "/")
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not path.exists():
        return
    yield module
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] in ("schemas", "udfs", "jobs")
        ):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_all_code_that_derived_tables_depend_on_counts() -> None:
    found, asked = set[str](), list(DERIVING)
    while asked:
        module = asked.pop()
        if module not in found and (named := list(imported(module))):
            found.add(module)
            asked += named
    assert len(found) > 50
    parts = [part.removesuffix(".py").replace("/", ".") for part in RESULTS]
    logs = {"udfs.logs", "udfs.report"}  # what they say is in no table
    assert [one for one in found - logs if not any(f"{one}.".startswith(f"{part}.") for part in parts)] == []


def stripped(code: str) -> str:
    """The syntax of code in which texts that stand alone are left out."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_code_says_does_not_count_and_all_else_does(path: Path) -> None:
    """No text in the code is taken for a docstring or a comment."""
    code = path.read_text()
    kept = without_words(code.encode()).decode()
    # A function with nothing but a docstring is left without a body.
    complete = "\n".join(f"{line} ..." if _has_no_body(line, after) else line for line, after in _pairs(kept))
    assert stripped(complete).replace("Expr(value=Constant(value=Ellipsis))", "") == stripped(code)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    lines = text.split("\n")
    yield from zip(lines, [*lines[1:], ""], strict=True)


def _has_no_body(line: str, after: str) -> bool:
    """Whether a line opens a block that the next line is not in."""
    return line.endswith(":") and len(after) - len(after.lstrip()) <= len(line) - len(line.lstrip())


def test_a_comment_changes_nothing_and_a_rule_does() -> None:
    code = (
        b'"""Doc."""\n\nA = 1  # of old\n\n\ndef f() -> int:\n    """Returns 1.\n\n    More.\n    """\n    return A\n'
    )
    other = b'"""Other."""\nA = 1\n# new\ndef f() -> int:\n    """Returns one."""\n    return A\n'
    assert without_words(code).split() == without_words(other).split()
    assert without_words(code) != without_words(code.replace(b"A = 1", b"A = 2"))
    assert len(results_hash()) == 64
