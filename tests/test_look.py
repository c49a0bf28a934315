"""`look`: a night's passes and sentences in one process, without Spark, tables or anything left behind."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from plain_replay import variant
from pyspark.sql import SparkSession
from warehouses import CAPTURES, LOSSES, config, looked_at
from warehouses import rows as rows_of_night

from jobs import main
from jobs.cli.capture_listing import stamps
from jobs.cli.names import Names
from jobs.commands import nightly, page
from jobs.commands.look import derive_tables
from jobs.engines.in_process import InProcess
from jobs.simulator import simulate
from schemas.incidents import INCIDENTS
from schemas.ingest import BOOKS
from schemas.ingest import CAPTURES as CAPTURES_TABLE
from schemas.outcomes import OUTCOMES
from schemas.replay import ENDS, FINDINGS, SEQUENCES, SESSIONS, TRANSACTIONS, VERDICTS
from schemas.table import Table

RESENDS = CAPTURES / "reports" / "firewall_one_way.pcap"
"""A small capture in which messages were sent again."""
JUDGED = (VERDICTS, OUTCOMES, FINDINGS, INCIDENTS, SEQUENCES, SESSIONS, TRANSACTIONS, ENDS, BOOKS, CAPTURES_TABLE)
"""The tables that a look and a night must have in common."""
_NO_SPARK = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
from jobs.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def look(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> dict[str, Any]:
    assert main.main(["look", *map(str, arguments), "--json"]) == code
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


def plain(engine: InProcess, table: Table) -> list[dict[str, Any]]:
    rows = engine.read(table).select(table.names).to_dicts()
    kept = [{name: value for name, value in row.items() if name != "ingested_at"} for row in rows]
    return sorted(kept, key=repr)


def test_it_tells_what_happened_and_proves_it(demonstration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["look", str(demonstration)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("21 messages were lost")
    assert "What to do: " in said
    assert "Proof: frame " in said
    assert "In Wireshark: wireshark -r " in said
    assert "frame.number in {" in said
    assert not any(line.startswith("report") for line in said.splitlines())


def numbers_in(value: Any) -> Iterator[float]:
    """Returns the numbers of a JSON value."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(one)
    elif isinstance(value, int | float):
        yield value


def test_all_of_it_is_one_json_object(demonstration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = look(capsys, demonstration)
    incidents = said["rows"]["incidents"]
    assert said["incidents"] == Counter(row["outcome"] for row in incidents)
    assert sum(said["findings"].values()) == len(said["rows"]["findings"])
    assert {type(row["content_hash"]) for row in said["rows"]["outcomes"]} == {str, type(None)}
    assert all(abs(number) < 1 << 53 for number in numbers_in(said)), "readers of doubles would lose digits"
    assert all(isinstance(row["tx_sequence_id"], str) for row in said["rows"]["outcomes"])
    for row, told in zip(incidents, said["worst_incidents"], strict=False):
        assert {Path(packet["uri"]).parent for packet in row["witness"]} == {demonstration}
        assert (row["incident_id"], [one["frame_number"] for one in row["witness"]]) == (
            *(told["incident_id"], [one["frame_number"] for one in told["proof"]]),
        )


def test_no_number_in_a_report_is_too_long_for_a_browser(demonstration: Path) -> None:
    asked = config(Path("w"), demonstration)
    values = page.values(looked_at(asked), asked, "", Names())
    found = list(numbers_in(values["data"]))
    assert len(found) > 1_000
    assert all(abs(number) < 1 << 53 for number in found)


def test_it_needs_no_spark_and_leaves_nothing(demonstration: Path, temporary: Path, tmp_path: Path) -> None:
    options = ["look", str(demonstration), "--out", str(tmp_path / "page.html"), "--fail-on", "lost"]
    options += ["--out-orders", str(tmp_path / "orders"), "--prometheus", str(tmp_path / "orders" / "msmq.prom")]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", _NO_SPARK, *options],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("21 messages were lost")
    page = (tmp_path / "page.html").read_text()
    assert "21 messages were lost" in page
    assert "Made of the captures alone, without tables." in page
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "orders"}
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param([LOSSES, "--fail-on", "lost"], 3, id="lost"),
        pytest.param([LOSSES, "--fail-on", "lost,gone"], 2, id="no such value"),
        pytest.param([RESENDS, "--reading", "literal", "--fail-on", "duplicate"], 3, id="literal"),
        pytest.param([LOSSES, "--scope", "session", "--ports", "1801,2801", "--overlap", "last"], 0, id="options"),
        pytest.param([LOSSES, "--ports", "99", "--fail-on", "lost"], 0, id="other ports"),
        pytest.param([LOSSES, "--names-file", "missing.toml"], 2, id="no names"),
        pytest.param([LOSSES, "/no/such/capture"], 2, id="no such capture"),
    ],
)
def test_exit_codes(arguments: Sequence[str | Path], code: int) -> None:
    assert main.main(["look", *map(str, arguments)]) == code


def test_nothing_to_judge_is_not_taken_for_nothing_lost(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "night.etl"
    trace.write_text("a trace of another format")
    said = look(capsys, trace)
    assert said["headline"].startswith("No transactional message was found, so there is nothing to judge. ")
    assert said["unfit_captures"] == {
        "many": 1,
        "last": [
            {"uri": str(trace), "first_captured_at": None, "last_captured_at": None, "amiss": ["not read: bad magic"]}
        ],
    }


def test_captures_have_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["look"]) == 2
    assert "Name what to look at" in capsys.readouterr().err


def test_captures_stand_before_between_and_behind_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    one, two, three = sorted((CAPTURES / "reports").glob("[en]*.pcap"))
    said = look(capsys, one, "--scope", "auto", two, "--out", tmp_path / "page.html", three)
    assert said["captures"] == {"ok": 3}
    said = look(capsys, str(CAPTURES / "reports" / "[en]*.pcap"), "--captures", two)
    assert said["captures"] == {"ok": 3}


@pytest.mark.parametrize("packed", [False, True])
def test_captures_that_memory_cannot_hold_are_for_nightly(
    packed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = tmp_path / "a.pcap"
    capture.write_bytes(gzip.compress(bytes(3_000)) if packed else bytes(3_000))
    assert main.main(["look", str(capture), "--in-memory-bytes", "2999"]) == 2
    said = capsys.readouterr().err
    assert "msmq-replay nightly --captures FILE --warehouse FOLDER" in said
    assert "in memory" in said


def test_a_capture_that_grows_is_read_as_it_was(
    demonstration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = tmp_path / "now.pcap"
    shutil.copy(min(demonstration.glob("*.pcap*")), capture)
    options = config(Path(), capture)
    files = stamps([str(capture)])
    with capture.open("ab") as file:
        file.write(bytes(7))
    derive_tables(files, options)
    assert "grew while it was read" in capsys.readouterr().err


def require_equal(spark: SparkSession, captures: Path, warehouse: Path, **options: Any) -> None:
    """Requires of a look the rows of a night on Spark, and what its summary says."""
    given = config(warehouse, captures, **options)
    nightly.run(spark, given)
    engine = looked_at(given)
    for table in JUDGED:
        assert plain(engine, table) == rows_of_night(warehouse, table.name), table.name


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(200))
def test_it_says_what_a_night_on_spark_says(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    options = variant(seed) | {"situations": True}
    simulate(str(tmp_path / "captures"), seed, **options)
    require_equal(spark, tmp_path / "captures", tmp_path / "tables")


@pytest.mark.spark
def test_it_says_what_a_night_says_of_the_captures_of_the_tests(spark: SparkSession, tmp_path: Path) -> None:
    require_equal(spark, CAPTURES, tmp_path / "tables")
