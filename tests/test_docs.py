"""The pages of docs/ say what is so: their commands, queries, Python and tables are tried."""

import doctest
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_nights import BYTES_PER_MESSAGE, HEADING
from document import pages
from pyspark.sql import SparkSession
from test_replay import fates_in_order, sent_in_order

from jobs import main
from jobs.cli.command import Summary
from jobs.cli.command_line import command_parser
from jobs.cli.config import DECLARED, DEFAULTS
from schemas import wire
from schemas.tables import TABLES
from schemas.violations import Fault, Violation
from udfs.capture.files import EXPANSION_LIMIT
from udfs.replay.order import acks, marks
from udfs.replay.order.copies import MOST_ALIKE

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SQL = re.compile(r"^```sql\n.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_PATH = re.compile(r"`((?:conf|docs|jobs|notebooks|schemas|tests|udfs)/[\w./-]+)`")
_TEST = re.compile(r"`(test_\w+)`")
_NAMED = re.compile(r"\b(?:docs/[\w/-]+\.md|[A-Z]{6,}\.md)\b")
_NUMBERED = re.compile(r"\b(?:DECISIONS|[Dd]ecisions?) \d+(?:(?:, | and )\d+)*")
_DECISION = re.compile(r"^(\d+)\. \*\*.*(?:\n    .*)*$", re.MULTILINE)
_LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_MOST_WORDS = 13_750
GENERATED = {DOCS / name for name in pages()}
WRITTEN = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "tests").rglob("*.md")} - GENERATED)
TRIED_ELSEWHERE = {"questions.md", "start-for-analysts.md"}
PAGES = [page for page in WRITTEN if page.parent == DOCS and page.name not in TRIED_ELSEWHERE]
"""Pages whose blocks are tried here."""
SOURCES = [
    *(
        path
        for room in ("conf", "jobs", "notebooks", "schemas", "tests", "udfs")
        for path in (ROOT / room).rglob("*.py")
    ),
    *(ROOT / name for name in ("Makefile", "pyproject.toml", "databricks.yml", "conf/spark-defaults.conf", ".ci/run")),
]


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
    assert main.main(arguments) == 0
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


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    titles = _HEADING.findall(page.read_text())
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*WRITTEN, *sorted(GENERATED)], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_files_and_targets_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    for target, anchor in _LINK.findall(text):
        there = page.parent / target if target else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), f"{target}#{anchor}"
    named = [*_PATH.findall(text), *(f"tests/{name}.py" for name in _TEST.findall(text))]
    assert [path for path in named if not (ROOT / path).exists()] == []
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in re.findall(r"^make ([a-z -]+)|`make ([a-z -]+)", text, re.MULTILINE):
        assert set("".join(command).split()) <= targets, command


def test_pages_and_decisions_that_the_code_names_are_there() -> None:
    known = {int(entry[1]) for entry in _DECISION.finditer((ROOT / "DECISIONS.md").read_text())}
    for path in SOURCES:
        text = path.read_text()
        assert [page for page in _NAMED.findall(text) if not (ROOT / page).exists()] == [], path
        for sentence in _NUMBERED.finditer(text):
            assert {int(number) for number in re.findall(r"\d+", sentence[0])} <= known, (path, sentence[0])


def test_the_map_names_every_page() -> None:
    linked = {(DOCS / target).resolve() for target, _ in _LINK.findall((DOCS / "README.md").read_text())}
    assert {page for page in WRITTEN if page.parent == DOCS} - linked == {DOCS / "README.md"}


def test_pages_stay_short_together() -> None:
    """SQL and the words that `make bench` writes do not count, nor the changelog, which grows with each release."""
    pages_to_read = (page.read_text().partition(HEADING)[0] for page in WRITTEN if page.name != "CHANGELOG.md")
    written = (_SQL.sub("", text) for text in pages_to_read)
    words = (word for text in written for word in text.split() if re.search(r"\w", word))
    assert sum(1 for _ in words) <= _MOST_WORDS


def test_figures_on_pages_are_those_of_the_program() -> None:
    assert (DEFAULTS.claim_seconds, DEFAULTS.vacuum_hours) == (3_600, 7 * 24)
    said = {
        "docs/every-night.md": (
            "`claim_seconds` (an hour)",
            "`vacuum_hours` (a week)",
            f"`state_days` ({DEFAULTS.state_days})",
        ),
        "docs/how-the-replay-decides.md": (
            f"more than {acks.MOST_SENDERS} senders",
            f"more than {marks.MOST_PAIRS:,} pairs",
            f"more than {MOST_ALIKE} connections",
            f"more than {DEFAULTS.window_bytes >> 20} MiB behind",
        ),
        "docs/speed-and-cost.md": (
            f"{DEFAULTS.in_memory_bytes >> 30} GiB (`in_memory_bytes`)",
            f"({BYTES_PER_MESSAGE:,} bytes a message)",
        ),
        "SECURITY.md": (f"at most {EXPANSION_LIMIT} times its own",),
        "DECISIONS.md": (f"{wire.LATEST_ORDER_ACK_MS / 1_000} s later",),
    }
    for name, parts in said.items():
        page = " ".join((ROOT / name).read_text().replace("**", "").split())
        assert [part for part in parts if part not in page] == [], name


def test_the_worked_trace_is_what_the_replay_does() -> None:
    page = (DOCS / "how-the-replay-decides.md").read_text()
    rows = re.findall(r"^\| \d+ \| S(\d) \| (\d) \| (\d) \| (yes|no) \| `(\w+)` \|(.*)\|$", page, re.MULTILINE)
    assert len(rows) == 12
    sent = ((int(sequence), int(number), int(previous)) for sequence, number, previous, *_ in rows)
    fates = fates_in_order(sent_in_order(*sent))
    for (*_, accepted, verdict, why), (*_, takes, found, _, skipped, _) in zip(rows, fates, strict=True):
        assert (accepted, verdict) == ("yes" if takes else "no", found)
        assert not skipped or f"`gap_size` is {skipped}" in why


def test_options_on_the_pages_are_there() -> None:
    known = {"--config", "--help"} | {f"--{name.replace('_', '-')}" for name in DECLARED}
    for page in PAGES:
        own = re.sub(
            r"^(?!.*msmq-replay).*(wireshark|spark-submit|tshark).*$", "", page.read_text(), flags=re.MULTILINE
        )
        for line in own.splitlines():
            if "msmq-replay" in line or line.startswith("`--"):
                assert set(re.findall(r"(?<!-)--[a-z][a-z-]+", line)) <= known, line


# --- the lines for cron and systemd in docs/every-night.md, run as they stand there ----------------------------------

EVERY_NIGHT = (DOCS / "every-night.md").read_text()
PROGRAM = "/opt/msmq-replay/.venv/bin/msmq-replay"


def cron_command() -> str:
    """The command of the line for cron; it has no `%`, which cron would read as a newline."""
    (line,) = re.findall(r"^30 6 \* \* \* msmq (.*)$", EVERY_NIGHT, re.MULTILINE)
    assert "%" not in line
    return str(line)


def test_both_examples_fail_on_what_an_operator_must_see() -> None:
    (cron,) = re.findall(r"\$\((.*?) 2>", cron_command())
    (unit,) = re.findall(rf"^ExecStart=({PROGRAM}.*)$", EVERY_NIGHT, re.MULTILINE)
    assert cron == unit
    program, command, *options = shlex.split(cron)
    assert (program, command) == (PROGRAM, "nightly")
    fail_on = vars(command_parser("nightly").parse_args(options))["fail_on"]
    assert fail_on == "anything"


@pytest.mark.parametrize(("code", "mail"), [(0, ""), (3, "2 messages were lost\nthe log\n")])
def test_cron_mails_what_a_run_that_fails_found_and_the_end_of_its_log(tmp_path: Path, code: int, mail: str) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho '2 messages were lost'\necho 'the log' >&2\nexit {code}\n")
    program.chmod(0o755)
    command = cron_command().replace(PROGRAM, str(program)).replace("/data/msmq", str(tmp_path / "msmq"))
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (mail, "")


# --- generated pages --------------------------------------------------------------------------------------------------


SECTION = re.compile(r"\[MS-(MQQB|MQMQ)\] \d+(\.\d+)+")


@pytest.mark.parametrize("name", pages())
def test_the_committed_page_is_what_the_declarations_give(name: str) -> None:
    committed = (DOCS / name).read_text(encoding="utf-8")
    assert committed == pages()[name], "run: make docs"


def test_all_that_is_declared_has_its_section_and_its_comment() -> None:
    for table in TABLES:
        assert table.comment
        assert all(column.comment for column in table)
    for header in wire.HEADERS:
        assert SECTION.fullmatch(header.section)
        for field in header.fields:
            assert all((field.comment, *(bits.comment for bits in field.bits)))
    for rule in (*Fault, *Violation):
        assert SECTION.fullmatch(rule.section)
        assert rule.sentence
