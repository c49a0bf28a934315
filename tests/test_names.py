"""Names of queue managers and queues: the file, and where the names are shown."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from warehouses import config

from jobs.cli.errors import UsageError
from jobs.cli.names import Names
from jobs.commands import unchanged_run
from jobs.commands.nightly import create_names_view
from jobs.commands.summary import with_names
from jobs.tables.through_spark import InCatalog

GUID = "0a1b2c3d-0000-4000-8000-00000000000f"
QUEUE = "DIRECT=OS:hq\\private$\\Orders"
TOML = f"""
[queue_managers]
"{{{GUID.upper()}}}" = "NYC-01"
"10.0.0.7" = "HQ"
"10.0.0.8" = ""
[queues]
'{QUEUE}' = "Orders of the day"
"""
CSV = f"original,name,remark\n{GUID},NYC-01,\n10.0.0.7,HQ,x\n10.0.0.8,,\n{QUEUE},Orders of the day,\n"


def read(folder: Path, name: str, text: str) -> Names:
    """The names in a file."""
    (folder / name).write_text(text)
    return Names.read(str(folder / name))


@pytest.mark.parametrize(("name", "text"), [("names.toml", TOML), ("NAMES.CSV", CSV), ("names.csv", "\ufeff" + CSV)])
def test_both_forms_of_the_file_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    names = read(tmp_path, name, text)
    assert [names.queue_manager(one) for one in (GUID, "10.0.0.7", "10.0.0.8", None)] == ["NYC-01", "HQ", "", ""]
    assert [names.queue(one) for one in (QUEUE, QUEUE.upper(), None)] == ["Orders of the day"] * 2 + [""]
    assert names.session(f"{GUID}->10.0.0.7") == "NYC-01 → HQ"
    assert names.session(f"{GUID}->0f0f0f0f-1111") == "NYC-01 → 0f0f0f0f"
    assert names.session("10.0.0.8->10.0.0.9") == names.session(None) == ""
    assert len(list(names.rows())) == 3


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("names.toml", "[machines]\na = 'b'", "it has machines, not only queue_managers and queues"),
        ("names.toml", "queues = 7", "queues is no table"),
        ("names.toml", "[queues]\na = 7", "the name of 'a' is no text"),
        ("names.toml", "[queue_managers]\nnyc = 'x'", "'nyc' is neither a GUID nor an address"),
        ("names.toml", "[queues", "Expected"),
        ("names.toml", f"queues = {'[' * 5000}", "recursion"),
        ("names.csv", "guid,name\n", "its first line does not name the columns original and name"),
        ("names.csv", "\x00\n", "its first line does not name the columns original and name"),
        ("names.csv", f"original,name\n10.0.0.7,{'x' * 200_000}\n", "larger than field limit"),
    ],
)
def test_what_cannot_be_read_is_wrong_use(tmp_path: Path, name: str, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"The names file .* cannot be read: .*{why}"):
        read(tmp_path, name, text)


@pytest.mark.parametrize(("line", "name"), [("10.0.0.7", ""), ("10.0.0.7,a,b,c", "a"), ('"10.0.0.7,a', "")])
def test_a_line_may_have_too_few_columns_or_too_many(tmp_path: Path, line: str, name: str) -> None:
    assert read(tmp_path, "names.csv", f"original,name\n{line}\n").queue_manager("10.0.0.7") == name


def test_a_summary_has_names_beside_the_originals() -> None:
    row = {"lost": 2, "source_queue_manager": GUID, "destination_queue": QUEUE}
    named: dict[str, Any] = with_names({"lost_by": [dict(row)]}, Names({GUID: "NYC-01"}))
    assert named["lost_by"] == [row | {"sender_name": "NYC-01", "queue_name": ""}]


@pytest.mark.parametrize("substitute", ["true", "false"])
def test_names_can_be_joined_in_a_view_in_which_no_text_is_a_variable(spark: SparkSession, substitute: str) -> None:
    """Also where the platform does not let the substitution be switched off."""
    text = "direct=os:${env:path}${spark.app.name}\\${system:user.home}'\u202e𠮷\0"
    assert spark.conf.get("spark.sql.variable.substitute") == "false"
    spark.conf.set("spark.sql.variable.substitute", substitute)
    try:
        create_names_view(InCatalog(spark, "default"), Names({GUID: "NYC-01"}, {text: text.upper()}))
        rows = [("queue_manager", GUID, "NYC-01"), ("queue", text, text.upper())]
        assert [tuple(row) for row in spark.table("default.names").collect()] == rows
    finally:
        spark.conf.set("spark.sql.variable.substitute", "false")
        spark.sql("DROP VIEW IF EXISTS default.names")


def test_a_night_with_other_names_is_another_night(tmp_path: Path) -> None:
    file = tmp_path / "names.toml"
    given = config(tmp_path, names_file=str(file))
    file.write_text(f"[queue_managers]\n'{GUID}' = 'a'")
    known = unchanged_run._of(given, {})
    assert unchanged_run._of(given, {}) == known
    file.write_text(f"[queue_managers]\n'{GUID}' = 'b'")
    assert unchanged_run._of(given, {}) != known
