"""`export` writes each message, finding and incident as a line that other programs read, and nothing else."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from pyspark.sql import SparkSession
from table_frames import rows_of
from test_monitoring import HOSTILE
from warehouses import config, looked_at, without_spark

from jobs import main
from jobs.commands import export
from jobs.engines.on_spark import OnSpark
from jobs.simulator import simulate
from jobs.tables.in_folder import InFolder
from schemas.history import MESSAGE_HISTORY
from schemas.incidents import INCIDENTS
from schemas.replay import FINDINGS, SEQUENCES
from schemas.tables import TABLES
from schemas.terms import EXPORTED, LEFT_OUT, TERMS
from udfs.report.lines import message_lines

Line = dict[str, Any]
AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a simulated day with all that goes wrong, without a JVM."""
    folder = tmp_path_factory.mktemp("export")
    simulate(str(folder / "captures"), 3, 400, situations=True, troubles=True)
    engine = looked_at(config(folder, folder / "captures" / "*.pcap"))
    tables = without_spark(folder / "tables")
    for table in TABLES:
        tables.create(table)
        if table.name in engine.tables:
            tables.append(table, engine.read(table).select(table.names))
    return folder / "tables"


def exported(warehouse: Path, folder: Path, *options: str) -> list[Line]:
    file = folder / "export.ndjson"
    assert main.main(["export", "--warehouse", str(warehouse), "--out", str(file), *options]) == 0
    return [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]


@pytest.fixture(scope="module")
def lines(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    return exported(warehouse, tmp_path_factory.mktemp("lines"), "--since", "all")


def at_path(line: Line, name: str) -> Any:
    """The value of a name with dots."""
    for part in name.split("."):
        line = line[part]
    return line


def as_written(value: Any) -> Any:
    """A value of a table as JSON has it."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"
    if isinstance(value, list):
        return [as_written(one) for one in value]
    return {name: as_written(one) for name, one in value.items()} if isinstance(value, dict) else value


def test_each_line_holds_its_row(warehouse: Path, lines: list[Line]) -> None:
    assert [*dict.fromkeys(line["event"]["dataset"] for line in lines)] == [of.dataset for of in EXPORTED.values()]
    for table, of in EXPORTED.items():
        rows = without_spark(warehouse).read_local(table).drop(LEFT_OUT, strict=False).to_dicts()
        own = [line for line in lines if line["event"]["dataset"] == of.dataset]
        assert len(own) == len(rows) > 10
        assert {line["event"]["kind"] for line in own} == {of.kind}
        assert len({json.dumps(line["event"]["id"]) for line in own}) == len(rows)
        assert len({tuple(line["msmq"]) for line in own}) == 1
        for line, row in zip(own, rows, strict=True):
            found = line["msmq"] | {column: at_path(line, name) for column, name in of.moved.items()}
            assert found == as_written(row)
            assert AT.fullmatch(line["@timestamp"])


def test_no_line_is_without_a_time_and_fates_are_outcomes(warehouse: Path, lines: list[Line]) -> None:
    of_messages = [line for line in lines if line["event"]["dataset"] == "msmq.message"]
    never_seen = [line for line in of_messages if line["msmq"]["first_seen_at"] is None]
    assert never_seen
    last = {
        (row["scope_key"], row["tx_sequence"]): as_written(row["last_captured_at"])
        for row in without_spark(warehouse).read_local(SEQUENCES).to_dicts()
    }
    for line in never_seen:
        assert line["@timestamp"] == last[line["msmq"]["scope_key"], line["msmq"]["tx_sequence"]]
    pairs = {(line["msmq"]["fate"], line["event"]["outcome"]) for line in of_messages}
    assert {("delivered", "success"), ("lost", "failure"), ("unknown", "unknown"), ("pending", "unknown")} >= pairs - {
        ("unconfirmed", "unknown"),
        ("expired", "failure"),
    }


def test_duckdb_and_polars_read_the_lines(warehouse: Path, tmp_path: Path) -> None:
    exported(warehouse, tmp_path, "--since", "all")
    file = tmp_path / "export.ndjson"
    expected = Counter(without_spark(warehouse).read_local(MESSAGE_HISTORY)["fate"])
    asked = f"FROM read_json('{file}', sample_size = -1) WHERE event.dataset = 'msmq.message' GROUP BY ALL"
    by_duckdb = duckdb.sql(f"SELECT msmq.fate, count(*) {asked}").fetchall()
    types = duckdb.sql(f'SELECT typeof("@timestamp"), typeof(source.ip) {asked}').fetchall()
    read = pl.scan_ndjson(file, infer_schema_length=None).filter(
        pl.col("event").struct.field("dataset") == "msmq.message"
    )
    by_polars = read.group_by(pl.col("msmq").struct.field("fate")).len().collect()
    assert dict(by_duckdb) == dict(by_polars.rows()) == expected
    assert types[0][0].startswith("TIMESTAMP")


def test_a_period_has_what_was_captured_in_it(warehouse: Path, lines: list[Line], tmp_path: Path) -> None:
    times = sorted(line["@timestamp"] for line in lines)
    cut = times[len(times) // 2]
    later, earlier = (exported(warehouse, tmp_path, "--since", *of) for of in ([cut], ["all", "--until", cut]))
    ids = [{line["event"]["id"] for line in some} for some in (later, earlier, lines)]
    assert ids[0] | ids[1] == ids[2]
    assert {line["event"]["id"] for line in lines if line["@timestamp"] >= cut} <= ids[0]
    assert {line["event"]["id"] for line in lines if line["@timestamp"] < cut} == ids[1]
    decided = {
        line["event"]["id"]
        for line in lines
        if max(line["msmq"].get(name) or "" for name in ("last_seen_at", "decided_at", "acknowledged_at")) >= cut
    }
    assert decided - {line["event"]["id"] for line in lines if line["@timestamp"] >= cut}
    assert decided <= ids[0] < ids[2]


def test_the_last_run_is_the_default(warehouse: Path, lines: list[Line], tmp_path: Path) -> None:
    """The only run brought all captures."""
    assert len(exported(warehouse, tmp_path)) == len(lines)


@pytest.mark.parametrize("text", [*HOSTILE, "\u009b31m\u202e\u2028\U000e0041\x7f\n\x1b]0;x\x07", '","event":{"id":"'])
def test_no_text_forges_a_line_or_moves_a_cursor(text: str) -> None:
    row = {"scope_key": "s", "label": text, "destination_queue": text, "first_uri": text, "verdicts": [text]}
    rows = rows_of(MESSAGE_HISTORY, row | {"message_id": text, "fate": "lost"})
    (line,) = message_lines(rows, rows_of(SEQUENCES))["line"]
    assert line.isprintable()
    read = json.loads(line)
    assert read["msmq"]["label"] == read["messaging"]["message"]["id"] == read["msmq"]["verdicts"][0] == text
    assert read["event"]["kind"] == "event"


def test_what_fails_leaves_the_file_as_it_was(
    warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "export.ndjson").write_text("before")

    def failing(*_: object) -> Any:
        yield ["{}"]
        raise OSError("no space left")

    monkeypatch.setattr(export, "_messages", failing)
    file = tmp_path / "export.ndjson"
    assert main.main(["export", "--warehouse", str(warehouse), "--out", str(file)]) == 1
    assert "no space left" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("export.ndjson", "before")]


@pytest.mark.parametrize("out", [[], ["--out", "-"]])
def test_lines_go_to_stdout_and_what_was_done_to_stderr(
    warehouse: Path, lines: list[Line], out: list[str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main.main(["export", "--warehouse", str(warehouse), "--since", "all", "--json", *out]) == 0
    printed, said = capfdbinary.readouterr()
    assert [json.loads(line) for line in printed.split(b"\n")[:-1]] == lines
    assert sum(json.loads(said.splitlines()[-1])["exported"].values()) == len(lines)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--until", "yesterday"], 2, "The option until cannot be 'yesterday': give a time of ISO 8601."),
        (["--since", "x"], 2, "The option since cannot be 'x'"),
        (["--out", "/dev/null"], 1, "/dev/null cannot be written"),
    ],
)
def test_wrong_use_is_said(
    warehouse: Path, options: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["export", "--warehouse", str(warehouse), *options]) == code
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_folder_needs_no_java(warehouse: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jobs.export", "--warehouse", str(warehouse), "--since", "all"],
        env=os.environ | {"JAVA_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=True,
    )
    assert done.stdout.count(b"\n") > 400


def test_terms_name_columns_and_a_name_has_one_type() -> None:
    assert [term for term in TERMS if term.column not in term.table.names] == []
    assert all(term.opentelemetry or term.ecs or term.zeek or term.suricata for term in TERMS)
    types: dict[str, set[str]] = {}
    for table in EXPORTED:
        for column in table:
            types.setdefault(column.name, set()).add(str(column.type))
    assert {name: of for name, of in types.items() if len(of) > 1} == {}
    for of in EXPORTED.values():
        assert len(set(of.moved.values())) == len(of.moved)


def test_spark_makes_the_same_lines(spark: SparkSession, warehouse: Path, lines: list[Line]) -> None:
    tables = InFolder(spark, str(warehouse))
    sequences = tables.read_local(SEQUENCES, "scope_key", "tx_sequence_id", "last_captured_at")
    parts = export._messages(tables, OnSpark(tables), partial(message_lines, since=None, until=None), sequences)
    found = [json.loads(line) for part in parts for line in part]
    expected = [line for line in lines if line["event"]["dataset"] == "msmq.message"]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert {FINDINGS, INCIDENTS} < {*EXPORTED}
