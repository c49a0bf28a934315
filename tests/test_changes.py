"""Of a table that keeps changes, those since any version lead from its rows to today's; what VACUUM took is missed."""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal
from pyspark.sql import DataFrame, SparkSession

from jobs.cli.config import Config
from jobs.commands import nightly
from jobs.simulator import simulate
from jobs.tables.declared import CHANGES
from jobs.tables.in_catalog import InCatalog
from jobs.tables.in_folder import InFolder
from jobs.tables.in_store import InStore
from jobs.tables.spark_rows import with_columns_of
from jobs.tables.through_spark import ThroughSpark
from jobs.tables.warehouse import Warehouse
from schemas.ingest import STREAM_GAPS
from schemas.runs import RUNS
from schemas.tables import TABLES
from udfs.replay.order.sources import SOURCES

KEPT = replace(STREAM_GAPS, keeps_changes=True)
_OF_RUN = {"ingested_at", "run_id"}
Rows = dict[tuple[str, int], int]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [InFolder, InStore, ThroughSpark])
def test_changes_lead_from_any_version_to_the_newest(
    spark: SparkSession, tmp_path: Path, kind: type[Warehouse]
) -> None:
    place = f"file://{tmp_path}" if kind is InStore else str(tmp_path)
    opened: dict[type[Warehouse], Callable[..., Warehouse]] = {InStore: InStore.open}
    tables = opened.get(kind, kind)(spark, place)
    tables.create(KEPT)
    states: dict[int, Rows] = {}

    def gaps(*rows: tuple[str, int, int]) -> DataFrame:
        return with_columns_of(KEPT, spark.createDataFrame(rows, "stream_id string, stream_offset long, length long"))

    def stands() -> Rows:
        return {(row["stream_id"], row["stream_offset"]): row["length"] for row in tables.read(KEPT).collect()}

    def wrote() -> None:
        states[next(iter(tables.commits(KEPT))).version] = stands()

    def put(**lengths: int) -> None:
        tables.merge(KEPT, gaps(*((name, 0, n) for name, n in lengths.items())))
        wrote()

    def take(*names: str) -> None:
        keys = spark.createDataFrame([(name,) for name in names], "stream_id string")
        tables.replace_rows(KEPT, keys, tables.read_local(KEPT).clear())
        wrote()

    put(a=1, b=1, c=1)
    put(d=1)
    take("a", "d")
    before_restore = max(states)
    put(a=2, e=1)
    tables.replace(KEPT, tables.read_local(KEPT))
    wrote()
    tables.optimize(KEPT, sort=False)
    take("b", "e")
    put(b=2, f=1)
    tables.restore(KEPT, before_restore)
    wrote()
    tables.append(KEPT, gaps(("a", 0, 3), ("g", 0, 1)))
    wrote()
    tables.replace_rows(KEPT, spark.createDataFrame([("c",)], ["stream_id"]), gaps(("c", 0, 4)))
    wrote()
    now = stands()
    assert now == {("a", 0): 3, ("b", 0): 1, ("c", 0): 4, ("g", 0): 1}
    for version, there in list(states.items())[:-1]:
        changes = tables.changes(KEPT, version)
        assert changes is not None
        came, went = (
            [tuple(row[:3]) for row in rows.collect()] if isinstance(rows, DataFrame) else [] for rows in changes
        )
        left = {key: length for key, length in there.items() if key not in went}
        assert not left.keys() & {(stream, offset) for stream, offset, _ in came}
        assert len(came) == len({(stream, offset) for stream, offset, _ in came})
        assert left | {(stream, offset): length for stream, offset, length in came} == now
    tables.optimize(KEPT, sort=False)
    tables.vacuum(KEPT, 0)
    assert tables.changes(KEPT, min(states)) is None
    assert stands() == now


@pytest.mark.slow
def test_a_night_in_a_catalog_judges_what_it_brought(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its tables are those of a folder, also after a night of a version that kept no changes."""
    simulate(str(tmp_path / "captures"), 31, 400, situations=True, troubles=True)
    files = sorted(map(str, (tmp_path / "captures").glob("*.pcap")))
    spark.sql(f"CREATE DATABASE nights LOCATION '{tmp_path / 'nights.db'}'")
    catalog = InCatalog(spark, "spark_catalog.nights")
    judged = []
    for night, part in enumerate((files[:3], files[3:6], files[6:])):
        for place in ({"warehouse": str(tmp_path / "tables")}, {"catalog_schema": catalog.root}):
            caplog.clear()
            with caplog.at_level(logging.INFO):
                nightly.run(spark, Config.load({"captures": part, **place}, None))
        judged.append(re.search(r"([\d,]+) of ([\d,]+) messages are judged", caplog.text))
        here = InFolder(spark, str(tmp_path / "tables"))
        for table in set(TABLES) - {RUNS}:
            kept = [name for name in table.names if name not in _OF_RUN]
            assert_frame_equal(*(one.read_local(table).select(kept) for one in (here, catalog)), check_row_order=False)
        if night == 0:
            for table in SOURCES:
                catalog.set_properties(table, {CHANGES: "false"})
    assert [found is None for found in judged] == [True, True, False]
    assert all(int(found[1].replace(",", "")) < int(found[2].replace(",", "")) for found in judged if found)
    spark.sql("DROP DATABASE nights CASCADE")
