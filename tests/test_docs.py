"""The pages of docs/ say what is so: their commands, queries, Python and tables are tried."""

import doctest
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs import cli
from jobs.app.command import Summary
from jobs.app.config import DECLARED
from schemas.replay import Verdict
from udfs.msmq.acceptance import Message, State, accept, after

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_CONTENTS = (DOCS / "README.md").read_text()
PAGES = [DOCS / name for name in re.findall(r"^\d\. \[[^]]+\]\(([^)]+)\)", _CONTENTS, re.MULTILINE)]
"""The newcomer's pages in their order."""


def blocks(language: str) -> list[Any]:
    """The blocks in a language, each under the name of its page."""
    return [
        pytest.param(text, id=f"{page.stem}-{place}")
        for page in (*PAGES, ROOT / "README.md")
        for place, (kind, text) in enumerate(_BLOCK.findall(page.read_text()))
        if kind == language
    ]


@pytest.fixture(scope="module")
def at_home(orders: tuple[Path, Summary], tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """In a folder like the repository's, in which the tables of `orders.pcapng` are in `out/orders`."""
    home = tmp_path_factory.mktemp("home")
    (home / "tests").symlink_to(ROOT / "tests")
    (home / "out").mkdir()
    (home / "out" / "orders").symlink_to(orders[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        yield


@pytest.mark.usefixtures("spark", "at_home")
@pytest.mark.parametrize("text", blocks("console"))
def test_commands_print_what_the_page_shows(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked, _, shown = text.partition("\n")
    program, *arguments = shlex.split(asked.removeprefix("$ "))
    assert program == "msmq-replay"
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    assert doctest.OutputChecker().check_output(shown.replace("…", "..."), printed, _LOOSE), printed


@pytest.mark.parametrize("text", blocks("sql"))
def test_queries_run_and_find_something(spark: SparkSession, orders: tuple[Path, Summary], text: str) -> None:
    assert spark.sql(text.replace("/data/msmq", str(orders[0]))).take(1)


@pytest.mark.parametrize("text", blocks("python"))
def test_python_answers_as_the_page_shows(text: str) -> None:
    test = doctest.DocTestParser().get_doctest(text, {}, "docs", None, None)
    assert doctest.DocTestRunner().run(test).failed == 0
    assert test.examples


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *DOCS.rglob("*.md")], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


def test_each_page_names_the_next() -> None:
    for page, following in pairwise(PAGES):
        assert page.read_text().rstrip().endswith(f"]({following.name}).")


def test_the_worked_trace_is_what_the_rule_does() -> None:
    page = (DOCS / "how-the-replay-decides.md").read_text()
    rows = re.findall(r"^\| \d+ \| S(\d) \| (\d) \| (\d) \| (yes|no) \| `(\w+)` \|(.*)\|$", page, re.MULTILINE)
    assert len(rows) == 12
    state, accepted_before = State(0, 0, 0), set()
    for sequence, number, previous, accepted, verdict, why in rows:
        message = Message(int(sequence), int(number), int(previous), 0)
        skipped = message.number - (state.number if message.sequence == state.sequence else 0) - 1
        takes = accept(state, message)
        if not takes:
            expected = Verdict.DUPLICATE if message[:2] in accepted_before else Verdict.OUT_OF_ORDER
        elif skipped:
            expected = Verdict.GAP_EXPIRED
        else:
            expected = Verdict.IN_ORDER if message.sequence == state.sequence else Verdict.NEW_SEQUENCE
        assert (accepted, verdict) == ("yes" if takes else "no", expected.value)
        assert f"`gap_size` is {skipped}" in why or expected is not Verdict.GAP_EXPIRED
        accepted_before |= {message[:2]} if takes else set()
        state = after(state, message)


def test_options_on_the_pages_are_there() -> None:
    known = {"--config", "--help"} | {f"--{name.replace('_', '-')}" for name in DECLARED}
    for page in PAGES:
        own = re.sub(
            r"^(?!.*msmq-replay).*(wireshark|spark-submit|tshark).*$", "", page.read_text(), flags=re.MULTILINE
        )
        for line in own.splitlines():
            if "msmq-replay" in line or line.startswith("`--"):
                assert set(re.findall(r"(?<!-)--[a-z][a-z-]+", line)) <= known, line
