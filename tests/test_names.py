"""Names of queue managers and queues: the file, and where the names are shown."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession
from test_both_engines import counted, in_memory
from warehouses import config, looked_at

from jobs.cli.errors import UsageError
from jobs.cli.names import Names
from jobs.commands import unchanged_run
from jobs.commands.summary import with_names
from jobs.simulator import simulate
from schemas.names import QUEUE_MANAGERS, QUEUES
from schemas.replay import ENDS, SEQUENCES, SESSIONS
from udfs.report.naming import SOURCES, list_names

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


@pytest.mark.slow
def test_both_engines_list_machines_and_queues_with_their_names(spark: SparkSession, tmp_path: Path) -> None:
    """Each that another table names has a row; a queue's name is found in any case, with letters of any alphabet."""
    simulate(str(tmp_path), 1, 60, situations=True)
    here = looked_at(config(tmp_path, tmp_path / "*.pcap"))
    there = in_memory(spark, {table.name: here.read(table) for table in SOURCES})
    guid = here.read(SEQUENCES)["source_queue_manager"].sort()[0]
    sessions = here.read(SESSIONS)
    queue = "direct=os:hq\\private$\\STRASSE"
    sessions = sessions.with_columns(destination_queues=pl.lit([queue.replace("STRASSE", "Straße")]))
    for engine in (here, there):
        engine.replace(SESSIONS, sessions)
    names = Names._of([(False, guid, "NYC-01"), (True, queue, "Orders")])
    found, of_spark = (
        list_names(here, names.rows()),
        there.collect(**{table.name: rows for table, rows in list_names(there, names.rows()).items()}),
    )
    for table, rows in found.items():
        assert counted(of_spark[table.name]) == counted(rows)
    managers, queues = found[QUEUE_MANAGERS], found[QUEUES]
    assert queues.rows() == [(queue.replace("STRASSE", "Straße"), "Orders")]
    assert managers.filter(pl.col("name").is_not_null())["queue_manager"].to_list() == [guid]
    named = {*here.read(SEQUENCES)["source_queue_manager"], *sessions["sender"], *sessions["receiver"]}
    assert sorted(managers["queue_manager"]) == sorted(
        named | {*here.read(ENDS)["sender"], *here.read(ENDS)["receiver"]}
    )
    ends = here.read(ENDS).filter(pl.col("copy_of").is_null())
    for row in managers.to_dicts():
        own = ends.filter(pl.col("sender") == row["queue_manager"])
        assert {one["address"] for one in row["addresses"]} == {*own["address"]}
        times = [one["first_seen_at"] for one in row["addresses"]]
        assert times == sorted(times)
        assert row["first_seen_at"] == min(times, default=None)


def test_a_night_with_other_names_is_another_night(tmp_path: Path) -> None:
    file = tmp_path / "names.toml"
    given = config(tmp_path, names_file=str(file))
    file.write_text(f"[queue_managers]\n'{GUID}' = 'a'")
    known = unchanged_run._of(given, {})
    assert unchanged_run._of(given, {}) == known
    file.write_text(f"[queue_managers]\n'{GUID}' = 'b'")
    assert unchanged_run._of(given, {}) != known
