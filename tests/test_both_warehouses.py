"""Tables in a folder and tables through Spark have the same rows after the same calls."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from tiers import merge_needs

from jobs.cli.errors import ConflictError, UsageError
from jobs.tables import in_store, through_spark
from jobs.tables.in_catalog import InCatalog
from jobs.tables.in_folder import InFolder
from jobs.tables.in_store import InStore
from jobs.tables.layout import DECLARATION
from jobs.tables.log import SET_PROPERTIES
from jobs.tables.memory import Memory
from jobs.tables.spark_rows import collect, to_spark
from jobs.tables.through_spark import ThroughSpark
from jobs.tables.warehouse import Rows, Warehouse
from schemas.ingest import STREAM_GAPS
from schemas.table import BINARY, STRING, Column, Table
from udfs.frames.tables import schema_of

_NAME = Column("name", STRING, "Its name.", nullable=False)
_BY_THIS_PROCESS = ("in a folder", "in a store", "in a store that tasks read")
_BY_SPARK = ("at a URI", "in a catalog")
"""There, each call takes seconds."""
_KINDS = (*_BY_THIS_PROCESS, *_BY_SPARK)


@pytest.fixture(params=merge_needs(("in a folder", "at a URI"), _KINDS))
def warehouse(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Warehouse]:
    if request.param == "in a folder":
        yield InFolder(spark, str(tmp_path))
        return
    if request.param == "at a URI":
        yield ThroughSpark(spark, f"file://{tmp_path}")
        return
    if request.param != "in a catalog":
        pytest.importorskip("obstore", reason="Tables in object stores need the package obstore.")
        if request.param == "in a store that tasks read":
            monkeypatch.setattr(in_store, "is_local", lambda _: False)
        yield InStore.open(spark, f"file://{tmp_path}")
        return
    spark.sql(f"CREATE DATABASE gaps LOCATION '{tmp_path / 'gaps.db'}'")
    yield InCatalog(spark, "spark_catalog.gaps")
    spark.sql("DROP DATABASE gaps CASCADE")


def with_each_warehouse(*of_calls: bool, at_uri: bool = False) -> list[Any]:
    """Each kind of warehouse with each of two ways to call it.

    A merge needs each way once where this process commits and, if `at_uri`, the first one at a URI.
    """
    needed = list(zip(("in a folder", "in a store that tasks read"), of_calls, strict=True))
    if at_uri:
        needed.append(("at a URI", of_calls[0]))
    return merge_needs(needed, product(_KINDS, of_calls))


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The columns of each query whose rows tables through Spark bring into this process."""
    found = list[list[str]]()

    def note(rows: DataFrame) -> pl.DataFrame:
        found.append(rows.columns)
        return collect(rows)

    monkeypatch.setattr(through_spark, "collect", note)
    return found


def gaps(**lengths: int) -> pl.DataFrame:
    """A gap of each length: `a1=2` is 2 bytes of stream a, at offset 1."""
    rows = [{"stream_id": at[0], "stream_offset": int(at[1:]), "length": length} for at, length in lengths.items()]
    return pl.DataFrame(rows, schema_of(STREAM_GAPS.arrow))


def test_who_sets_a_property_is_told_by_the_commit_alone(warehouse: Warehouse) -> None:
    warehouse.create(STREAM_GAPS)
    warehouse.set_properties(STREAM_GAPS, {"msmq.test": "set"}, by="process 7 on a machine")
    newest = next(iter(warehouse.commits(STREAM_GAPS)))
    assert (newest.operation, newest.user_metadata) == (SET_PROPERTIES, "process 7 on a machine")
    assert warehouse.properties(STREAM_GAPS)["msmq.test"] == "set"
    assert "process 7" not in str(warehouse.properties(STREAM_GAPS))
    warehouse.set_properties(STREAM_GAPS, {"msmq.test": "again"})
    warehouse.forget(STREAM_GAPS)
    assert next(iter(warehouse.commits(STREAM_GAPS))).user_metadata == ""


class Held:
    """A lock that is held."""

    def check(self, *, surely: bool = False) -> None:
        """Nothing has taken it."""


@pytest.mark.parametrize("warehouse", merge_needs(_BY_THIS_PROCESS, _KINDS), indirect=True)
def test_a_run_knows_of_its_own_commits_and_of_others(warehouse: Warehouse) -> None:
    def own_and(other: Warehouse, **lengths: int) -> None:
        run.append(STREAM_GAPS, gaps(**lengths))
        other.set_properties(STREAM_GAPS, {"msmq.test": str(lengths)})

    def both_append() -> None:
        run.append(STREAM_GAPS, gaps(d1=2))
        warehouse.append(STREAM_GAPS, gaps(e1=2))

    run = warehouse.locked_by(Held())
    assert run.newest_entry(STREAM_GAPS) is None
    assert list(run.commits_if_any(STREAM_GAPS)) == []
    run.create(STREAM_GAPS)
    work: list[Callable[[], None]] = [
        lambda: run.append(STREAM_GAPS, gaps(a1=2)),
        lambda: run.merge(STREAM_GAPS, gaps(a1=3, b1=2)),
        lambda: run.merge(STREAM_GAPS, gaps(a1=3)),
        lambda: warehouse.append(STREAM_GAPS, gaps(c1=2)),
        lambda: run.replace_rows(STREAM_GAPS, pl.DataFrame({"stream_id": ["a"]}), gaps(a2=2)),
        both_append,
        lambda: own_and(run, f1=2),
        lambda: own_and(warehouse, g1=2),
        lambda: run.replace(STREAM_GAPS, gaps(a1=2)),
        lambda: run.restore(STREAM_GAPS, 1),
    ]
    for do in work:
        before = run.versions([STREAM_GAPS])
        do()
        run.forget(STREAM_GAPS)
        assert run.newest_entry(STREAM_GAPS) == warehouse.newest_entry(STREAM_GAPS)
        assert [one.version for one in run.commits(STREAM_GAPS)] == [
            one.version for one in warehouse.commits(STREAM_GAPS)
        ]
        assert before != run.versions([STREAM_GAPS]) == warehouse.versions([STREAM_GAPS]) or do is work[2]


@pytest.mark.parametrize(
    ("warehouse", "on_spark"), with_each_warehouse(False, True, at_uri=True), indirect=["warehouse"]
)
def test_calls_leave_the_same_rows(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path, *, on_spark: bool
) -> None:
    """As delta-rs reads them."""
    give: Callable[[pl.DataFrame], Rows] = (lambda rows: to_spark(spark, rows)) if on_spark else lambda rows: rows

    def stands(**lengths: int) -> None:
        found = pl.DataFrame(DeltaTable(str(place / STREAM_GAPS.name)).to_pyarrow_table())
        assert found.sort(STREAM_GAPS.key).equals(gaps(**lengths))

    place = tmp_path / "gaps.db" if isinstance(warehouse, InCatalog) else tmp_path
    assert not warehouse.has(STREAM_GAPS)
    assert warehouse.newest_entry(STREAM_GAPS) is None
    assert warehouse.count(STREAM_GAPS) == 0
    warehouse.create(STREAM_GAPS)
    assert warehouse.properties(STREAM_GAPS)[DECLARATION] == STREAM_GAPS.fingerprint
    assert warehouse.is_new(STREAM_GAPS)
    stands()
    warehouse.merge(STREAM_GAPS, give(gaps(a1=1, a5=1, b1=1)))
    stands(a1=1, a5=1, b1=1)
    (version,) = warehouse.versions([STREAM_GAPS]).values()
    warehouse.merge(STREAM_GAPS, give(gaps(a5=9, b2=2)))
    stands(a1=1, a5=1, b1=1, b2=2)
    warehouse.merge(STREAM_GAPS, give(gaps(a5=3, c1=3)), update=True)
    stands(a1=1, a5=3, b1=1, b2=2, c1=3)
    warehouse.delete_from_offset(STREAM_GAPS, give(pl.DataFrame({"stream_id": ["a", "b"], "from_offset": [2, -1]})))
    stands(a1=1, c1=3)
    warehouse.replace_rows(STREAM_GAPS, give(pl.DataFrame({"stream_id": ["c"]})), give(gaps(c7=4)))
    stands(a1=1, c7=4)
    warehouse.append(STREAM_GAPS, give(gaps(d1=5)))
    stands(a1=1, c7=4, d1=5)
    warehouse.replace(STREAM_GAPS, give(gaps(e1=6)))
    stands(e1=6)
    warehouse.restore(STREAM_GAPS, version)
    stands(a1=1, a5=1, b1=1)
    for read in (warehouse.read_local(STREAM_GAPS), collect(warehouse.read(STREAM_GAPS))):
        assert read.sort(STREAM_GAPS.key).equals(gaps(a1=1, a5=1, b1=1))
    assert warehouse.count(STREAM_GAPS) == 3
    assert warehouse.versions([STREAM_GAPS])[STREAM_GAPS.name] > version


@pytest.mark.parametrize(("warehouse", "few"), with_each_warehouse(True, False), indirect=["warehouse"])
def test_rows_from_an_offset_on_are_replaced_and_others_are_inserted_if_they_are_not_there(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, *, few: bool
) -> None:
    def replace(rows: pl.DataFrame, **offsets: int) -> None:
        stale = pl.DataFrame({"stream_id": list(offsets), "from_offset": list(offsets.values())})
        given = (stale, rows) if few else (to_spark(warehouse.spark, one) for one in (stale, rows))
        warehouse.merge_from_offset(STREAM_GAPS, *given)

    warehouse.create(STREAM_GAPS)
    warehouse.append(STREAM_GAPS, gaps(a1=1, a5=1, b1=1, c1=1))
    replace(gaps(a1=9, a5=3, a7=2, b1=9, b2=2, c1=4), a=2, c=-1)
    expected = gaps(a1=1, a5=3, a7=2, b1=1, b2=2, c1=4)
    assert warehouse.read_local(STREAM_GAPS).sort(STREAM_GAPS.key).equals(expected)
    replace(gaps(), a=7, b=-1)
    assert warehouse.read_local(STREAM_GAPS).sort(STREAM_GAPS.key).equals(gaps(a1=1, a5=3, c1=4))
    if isinstance(warehouse, ThroughSpark):
        at_once = ThroughSpark._replace_at_once

        def lose_answer(self: ThroughSpark, *given: Any) -> None:
            at_once(self, *given)
            raise ConflictError("Something else wrote stream_gaps at the same time.")

        monkeypatch.setattr(ThroughSpark, "_replace_at_once", lose_answer)
    replace(gaps(a5=4, c1=9, d1=1), a=2)
    assert warehouse.read_local(STREAM_GAPS).sort(STREAM_GAPS.key).equals(gaps(a1=1, a5=4, c1=4, d1=1))


@pytest.mark.parametrize(("warehouse", "landed"), with_each_warehouse(True, False), indirect=["warehouse"])
def test_rows_are_replaced_once_where_a_commit_is_in_doubt(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, *, landed: bool
) -> None:
    warehouse.create(STREAM_GAPS)
    warehouse.append(STREAM_GAPS, gaps(a1=1, b1=1))
    warehouse.replace_rows(STREAM_GAPS, pl.DataFrame({"stream_id": ["a"]}), gaps(a2=2, c1=1))
    assert [commit.version for commit in warehouse.commits(STREAM_GAPS)] == [2, 1, 0]
    if isinstance(warehouse, ThroughSpark):
        at_once = ThroughSpark._replace_at_once

        def in_doubt(self: ThroughSpark, *given: Any) -> None:
            if landed:
                at_once(self, *given)
            raise ConflictError("Something else wrote stream_gaps at the same time.")

        monkeypatch.setattr(ThroughSpark, "_replace_at_once", in_doubt)
    warehouse.replace_rows(STREAM_GAPS, pl.DataFrame({"stream_id": ["a"]}), gaps(d1=2, a3=1))
    assert warehouse.read_local(STREAM_GAPS).sort(STREAM_GAPS.key).equals(gaps(a3=1, b1=1, c1=1, d1=2))


def test_a_table_that_is_held_in_memory_is_read_by_two_queries_at_most(
    spark: SparkSession, tmp_path: Path, collected: list[list[str]]
) -> None:
    """The second one reads all columns but those with bytes, which are large."""
    wide = replace(STREAM_GAPS, columns=(*STREAM_GAPS.columns, Column("raw", BINARY, "Bytes.")))
    warehouse = replace(ThroughSpark(spark, f"file://{tmp_path}"), local=Memory(1))
    warehouse.create(wide)
    warehouse.append(wide, gaps(a1=1, b2=3).with_columns(raw=pl.lit(b"1")))
    assert warehouse.read_local(wide, "length").sum().rows() == [(4,)]
    for _ in range(2):
        assert sorted(warehouse.read_local(wide, "stream_id", "length").rows()) == [("a", 1), ("b", 3)]
        assert warehouse.read_local(wide, "stream_offset").sum().rows() == [(3,)]
    assert collected == [["length"], ["length", *(name for name in STREAM_GAPS.names if name != "length")]]
    assert warehouse.read_local(wide, "raw")["raw"].to_list() == [b"1", b"1"]


def test_a_run_reads_a_small_table_once_until_it_is_written_to(
    spark: SparkSession, tmp_path: Path, collected: list[list[str]]
) -> None:
    run = ThroughSpark(spark, f"file://{tmp_path}").locked_by(Held())
    run.create(STREAM_GAPS)
    run.append(STREAM_GAPS, gaps(a1=1))
    for held in (run, replace(run, local=Memory(1))):
        for _ in range(2):
            assert held.read_local(STREAM_GAPS).equals(gaps(a1=1))
            assert run.read_if_small(STREAM_GAPS, 1) is not None, "it is known, so nobody asks for its size"
    assert len(collected) == 1
    run.append(STREAM_GAPS, gaps(b1=1))
    assert run.read_if_small(STREAM_GAPS, 1) is None
    assert run.read_local(STREAM_GAPS).height == 2
    assert len(collected) == 2


def test_rows_are_appended_once_if_the_answer_is_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the log remembers one writer, however often it has appended."""
    warehouse = ThroughSpark(spark, f"file://{tmp_path}")
    warehouse.create(STREAM_GAPS)
    warehouse.replace(STREAM_GAPS, gaps(a1=1))
    warehouse.optimize(STREAM_GAPS, sort=False)
    save, answers = ThroughSpark._save, iter([ConflictError("Something else wrote it.")])

    def lose_answer(self: ThroughSpark, *given: Any) -> None:
        save(self, *given)
        if (error := next(answers, None)) is not None:
            raise error

    monkeypatch.setattr(ThroughSpark, "_save", lose_answer)
    warehouse.append(STREAM_GAPS, gaps(b1=1))
    assert next(answers, None) is None
    warehouse.append(STREAM_GAPS, gaps(c1=1))
    assert warehouse.read_local(STREAM_GAPS).sort(STREAM_GAPS.key).equals(gaps(a1=1, b1=1, c1=1))
    entries = sorted((tmp_path / STREAM_GAPS.name / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for entry in entries for line in entry.read_text().splitlines()]
    (writer,) = {action["txn"]["appId"] for action in actions if "txn" in action}
    numbers = [action["txn"]["version"] for action in actions if "txn" in action]
    assert writer
    assert len(numbers) == 3
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("warehouse", merge_needs(["in a folder"], _KINDS), indirect=True)
def test_few_bytes_are_told_from_many(warehouse: Warehouse) -> None:
    raw = Table("raw", "Bytes.", ("name",), (_NAME, Column("raw", BINARY, "Bytes.")), keeps_changes=True)
    warehouse.create(raw)
    assert warehouse.read_if_small(raw, 1 << 20) is not None
    warehouse.append(raw, pl.DataFrame({"name": ["x", "y"], "raw": [b"1" * 1000, b"2" * 1000]}))
    assert warehouse.read_if_small(raw, 1) is None
    small = warehouse.read_if_small(raw, 1 << 20, "name")
    assert small is not None
    assert sorted(small["name"]) == ["x", "y"]
    warehouse.replace_rows(raw, pl.DataFrame({"name": ["x"]}), pl.DataFrame({"name": ["z"], "raw": [b"3" * 1000]}))
    (version,) = (commit.version for commit in list(warehouse.commits(raw))[-2:-1])
    assert warehouse.differences(raw, version, raw.names, 1 << 20) is not None
    found = warehouse.differences(raw, 0, raw.names, 1 << 20)
    assert found is not None
    assert [sorted(rows["name"]) for rows in found] == [["y", "z"], []]
    assert warehouse.differences(raw, 0, raw.names, 1) is None


def test_a_catalog_without_the_schema_is_one_sentence(spark: SparkSession) -> None:
    for name in ("spark_catalog.nowhere", "nowhere.msmq"):
        with pytest.raises(UsageError, match=f"There is no schema {name}, .*: CREATE SCHEMA {name}"):
            InCatalog(spark, name).create(STREAM_GAPS)


def test_what_needs_spark_is_not_told_without(spark: SparkSession, tmp_path: Path) -> None:
    here, there = InFolder(spark, str(tmp_path)), ThroughSpark(spark, f"file://{tmp_path}")
    here.create(STREAM_GAPS)
    here.append(STREAM_GAPS, gaps(a1=1, a2=2))
    found = here.differences(STREAM_GAPS, 0, STREAM_GAPS.names)
    assert found is not None
    assert [rows.height for rows in found] == [2, 0]
    assert here.read_if_small(STREAM_GAPS, 1) is None
    small = here.read_if_small(STREAM_GAPS, 1 << 20, "length")
    assert small is not None
    assert small.to_dict(as_series=False) == {"length": [1, 2]}
    assert here.scan_if_many(STREAM_GAPS, 2) is None
    many = here.scan_if_many(STREAM_GAPS, 1, "length")
    assert many is not None
    assert many.collect().equals(small)
    assert there.differences(STREAM_GAPS, 0, STREAM_GAPS.names) is None
    assert there.scan_if_many(STREAM_GAPS, 1) is None
    assert not there.own_logs
    assert isinstance(there.read(STREAM_GAPS), DataFrame)
    assert [here.path("x"), there.path("x"), InCatalog(spark, "a.b").path("x")] == [
        f"{tmp_path}/x",
        f"file://{tmp_path}/x",
        None,
    ]


def test_a_table_of_an_earlier_version_gets_what_it_lacks(warehouse: Warehouse) -> None:
    """A column and a word; older rows have no value there, and newer ones may have both."""
    kind, colour = Column("kind", STRING, "Its kind.", values=("a", "b")), Column("colour", STRING, "Its colour.")
    earlier = Table("things", "Things.", ("name",), (_NAME, kind))
    wider = replace(earlier, columns=(_NAME, colour, replace(kind, values=("a", "b", "c"))))
    warehouse.create(earlier)
    warehouse.append(earlier, pl.DataFrame({"name": ["x"], "kind": ["a"]}))
    for _ in range(2):
        warehouse.create(wider)
        warehouse.forget(wider)
    assert warehouse.properties(wider)[DECLARATION] == wider.fingerprint
    warehouse.append(wider, pl.DataFrame({"name": ["y"], "colour": ["red"], "kind": ["c"]}))
    found = collect(warehouse.read(wider).select(*wider.names)).sort("name").rows()
    assert found == [("x", None, "a"), ("y", "red", "c")]
    assert warehouse.read_local(wider).select(wider.names).sort("name").rows() == found
    with pytest.raises(Exception, match="kind"):
        warehouse.append(wider, pl.DataFrame({"name": ["z"], "colour": ["red"], "kind": ["d"]}))
