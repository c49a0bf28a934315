"""Captures that are read again give what they would have given the first time."""

import gzip
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
from histories import cut, simulated
from pyspark.sql import SparkSession
from tiers import seeds
from warehouses import CAPTURES, all_rows, config

from jobs.cli.config import DEFAULTS
from jobs.commands import ingest, nightly
from jobs.engines.in_process import InProcess
from schemas.ingest import CAPTURES as CAPTURES_TABLE
from schemas.ingest import INTERNAL_CONNECTIONS
from schemas.tables import INGESTED
from udfs.ingest import flow
from udfs.report import period
from udfs.report.flow import read_few

ELSEWHERE = replace(DEFAULTS.ingest, ports=(9999,))
"""Options under which nothing is found."""
STATES = ("first_instance", "tails", "state")
RING = [CAPTURES / f"branches_0000{number}.pcap.gz" for number in range(3)]


def read_in(engine: InProcess, captures: Sequence[Path], again: Sequence[Path] = (), **options: Any) -> None:
    """Reads captures into the tables of an engine."""
    named, given = [str(one) for one in again], options.get("options", DEFAULTS.ingest)
    new = flow.find_new_captures(engine, [str(one) for one in captures], given, named)
    if new:
        flow.ingest(engine, new, given, lambda: None)


def tables(engine: InProcess) -> dict[str, list[str]]:
    """Returns the rows of the tables, without what each run leaves of its own."""
    found = {}
    for table in INGESTED:
        left_out = ["ingested_at", *(STATES if table == INTERNAL_CONNECTIONS else ())]
        rows: pl.DataFrame = engine.read(table).drop(left_out, strict=False)
        found[table.name] = sorted(map(repr, rows.to_dicts()))
    return found


def fresh(nights: Sequence[Sequence[Path]], **options: Any) -> dict[str, list[str]]:
    """Returns the tables of captures that were read once."""
    engine = InProcess()
    for night in nights:
        read_in(engine, night, **options)
    return tables(engine)


@pytest.mark.parametrize("seed", seeds(range(2), range(40)))
def test_what_some_captures_gave_is_replaced_by_the_same(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"again {seed}")
    captures = simulated(tmp_path, seed)
    nights, engine = cut(rng, captures), InProcess()
    for night in nights:
        read_in(engine, night)
    again = rng.sample(captures, rng.randint(1, len(captures)))
    read_in(engine, captures, again)
    assert tables(engine) == fresh(nights)


def test_a_capture_that_was_read_while_it_was_written_lacks_nothing_once_it_is_read_in_whole(tmp_path: Path) -> None:
    engine, written = InProcess(), tmp_path / "ring.pcap"
    data = gzip.decompress(RING[0].read_bytes())
    for size, broken in ((len(data) // 2, 1), (len(data) - 9, 1), (len(data), 0)):
        written.write_bytes(data[:size])
        read_in(engine, [written])
        few = read_few(engine, CAPTURES_TABLE)
        assert [row["size_bytes"] for row in few["captures"].to_dicts()] == [size]
        assert period.broken(few["captures"]) == broken


@pytest.mark.parametrize("seed", seeds(range(2), range(40)))
def test_captures_of_which_nothing_was_read_are_read_and_the_other_way_round(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"ports {seed}")
    captures = simulated(tmp_path, seed)
    engine, some = InProcess(), set(rng.sample(captures, rng.randint(1, len(captures))))
    for capture in captures:
        read_in(engine, [capture], options=ELSEWHERE if capture in some else DEFAULTS.ingest)
    read_in(engine, captures, sorted(some))
    assert tables(engine) == fresh([captures])
    read_in(engine, captures, captures, options=ELSEWHERE)
    assert tables(engine) == fresh([captures], options=ELSEWHERE)


@pytest.mark.parametrize("name", ["a", "z"])
def test_a_copy_of_a_capture_is_enough_to_read_it_again(tmp_path: Path, name: str) -> None:
    """Whatever its name: files with the same content are read once, the first by name if none is to be read again."""
    copy = tmp_path / name
    original = tmp_path / "m"
    for one in (copy, original):
        one.write_bytes(RING[0].read_bytes())
    engine = InProcess()
    read_in(engine, [original, *RING[1:]])
    read_in(engine, [original, *RING[1:], copy], [copy])
    assert sorted(engine.read(CAPTURES_TABLE)["uri"].to_list()) == sorted(map(str, [copy, *RING[1:]]))


@pytest.mark.parametrize("in_memory_bytes", [pytest.param(0, marks=pytest.mark.slow, id="in tasks"), 1 << 30])
def test_a_night_reads_again_what_it_is_told_to(
    spark: SparkSession, branches: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], in_memory_bytes: int
) -> None:
    """On a warehouse of which one capture was read with other ports; the next night has nothing to do."""

    def run(command: ModuleType, *captures: Path, **options: Any) -> None:
        command.run(spark, config(tmp_path, *captures, in_memory_bytes=in_memory_bytes, **options))

    run(ingest, RING[0])
    run(ingest, RING[1], ports=[9999])
    run(ingest, RING[2])
    assert all_rows(tmp_path, INGESTED) != all_rows(branches, INGESTED)
    capsys.readouterr()
    run(ingest, *RING)
    assert "1 capture was read with --ports 9999, this run has 1801: nightly --again FILE" in capsys.readouterr().err
    run(nightly, *RING, again=[str(RING[1])])
    assert "1 new captures, 1 of them read before" in capsys.readouterr().err
    assert all_rows(tmp_path) == all_rows(branches)
    run(nightly, *RING)
    said = capsys.readouterr().err
    assert "ingest: nothing new" in said
    assert "--again" not in said
