"""Labels and names are pseudonymized under a key, and text of a capture is never taken for markup or commands."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from test_delta_commits import HOSTILE

from jobs.cli import command
from jobs.cli.command import Summary
from jobs.cli.config import Config
from jobs.cli.errors import JobError, UsageError
from jobs.cli.logs import printable, progress
from jobs.engines.on_spark import OnSpark
from jobs.tables.in_folder import InFolder
from schemas.ingest import PACKETS
from schemas.messages import ACKS, HANDSHAKES, MESSAGE_FIELDS, MESSAGES, NAME_COLUMNS, STRUCTS
from udfs.decode.flow import decode_table
from udfs.msmq.pseudonyms import pseudonymize, pseudonymize_columns

KEY = "a secret of the operators"


def test_equal_names_stay_equal_and_unreadable() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "label": ["Order 1", None, "Order 2", "Order 1"],
            "multi_admin_queues": [["a", "b"], [], None, ["b"]],
            "priority": [1, 2, 3, 4],
        }
    )
    found = pseudonymize_columns(rows, NAME_COLUMNS, KEY.encode()).to_pydict()
    first, null, second, again = found["label"]
    assert (first, null) == (again, None)
    assert len({first, second}) == 2
    assert found["multi_admin_queues"] == [
        [pseudonymize("a", KEY.encode()), pseudonymize("b", KEY.encode())],
        [],
        None,
        [pseudonymize("b", KEY.encode())],
    ]
    assert found["priority"] == [1, 2, 3, 4]
    assert pseudonymize("Order 1", b"another key of the operators") != first


def test_the_hash_is_hmac_sha_256() -> None:
    """Compares with test case 2 of [RFC 4231] 4.3."""
    assert pseudonymize("what do ya want for nothing?", b"Jefe") == "hmac:5bdcc146bf60754e6a042426089575c7"


def test_every_hidden_column_is_one_of_a_table() -> None:
    assert set(NAME_COLUMNS) <= {column.name for table in (MESSAGE_FIELDS, ACKS, HANDSHAKES) for column in table}


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row of MESSAGES with a column for each field."""
    structs = {of.name: row[of.name] or dict.fromkeys(field.name for field in of.type) for of in STRUCTS}
    others = {name: value for name, value in row.items() if name not in structs}
    return others | {name: value for struct in structs.values() for name, value in struct.items()}


def test_a_night_under_a_key_decodes_the_same_but_for_names(spark: SparkSession, orders: tuple[Path, Summary]) -> None:
    engine = OnSpark(InFolder(spark, str(orders[0])))
    decoded = (decode_table(engine, engine.read(PACKETS), MESSAGES, key) for key in (KEY.encode(), None))
    found, plain = ([flat(row) for row in engine.as_spark(rows).toArrow().to_pylist()] for rows in decoded)
    assert {row["label"] for row in found} == {
        row["label"] and pseudonymize(row["label"], KEY.encode()) for row in plain
    }
    for row in found + plain:
        for name in NAME_COLUMNS:
            row.pop(name)
    assert sorted(found, key=repr) == sorted(plain, key=repr)


def test_a_key_of_any_bytes_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MSMQ_REPLAY_NAMES_KEY", raising=False)
    with pytest.raises(UsageError, match="set MSMQ_REPLAY_NAMES_KEY"):
        Config.load({"names": "hash"}, None)
    monkeypatch.setenv("MSMQ_REPLAY_NAMES_KEY", os.fsdecode(b"\xff" * 16))
    assert Config.load({"names": "hash"}, None).hiding_key == b"\xff" * 16
    assert Config.load({}, None).hiding_key is None


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_moves_the_cursor_or_forges_a_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    progress(f"ingest: {text}")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    assert printable("é <script>") == "é <script>"


def run(config: Config) -> Summary:
    progress("ingest: " + "\n".join(HOSTILE))
    if config.out == "fail":
        raise JobError("it\nfailed")
    return {"runs": HOSTILE, "books": {}}


def test_logs_are_one_json_object_a_line_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--warehouse", str(tmp_path), "--log-format", "json"]
    assert command.main_alone("night", run, asked) == 0
    progressed, done = map(json.loads, capsys.readouterr().err.splitlines())
    assert (progressed["level"], progressed["message"]) == ("info", "ingest: " + "\n".join(HOSTILE))
    assert (done["command"], done["exit_code"]) == ("night", 0)
    assert command.main_alone("night", run, [*asked, "--out", "fail"]) == 1
    failed = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (failed["level"], failed["message"], failed["exit_code"]) == ("error", "msmq-replay night: it\nfailed", 1)
    assert command.main_alone("night", run, asked[:2]) == 0
    captured = capsys.readouterr()
    assert not captured.err.startswith("{")
    assert all(line.isprintable() for line in captured.out.splitlines())
