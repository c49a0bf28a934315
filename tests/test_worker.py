"""The importers and modules that a Python worker does not visit again at each task."""

import gc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile
from zipimport import zipimporter

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from schemas.table import LONG, row
from udfs.on_spark import map_arrow, reduce_overhead
from udfs.passes.options import Batches

COUNTS = row(finders=LONG, frozen=LONG)


def of_zips() -> list[str]:
    return [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "modules.zip"
    with ZipFile(path, "w") as modules:
        modules.writestr("of_a_zip.py", "NUMBER = 1")
        modules.writestr("of_a_zip_later.py", "NUMBER = 2")
    monkeypatch.syspath_prepend(path)
    yield path
    gc.unfreeze()
    for name in ("of_a_zip", "of_a_zip_later"):
        sys.modules.pop(name, None)


def test_zips_are_not_read_again_and_can_be_imported_from(archive: Path) -> None:
    assert importlib.import_module("of_a_zip").NUMBER == 1
    assert str(archive) in of_zips()
    reduce_overhead()
    assert not of_zips()
    importlib.invalidate_caches()
    assert importlib.import_module("of_a_zip_later").NUMBER == 2


def test_every_pass_reduces_its_workers_overhead(spark: SparkSession) -> None:
    def counts(batches: Batches) -> Batches:
        for _ in batches:
            finders = [finder for finder in sys.path_importer_cache.values() if isinstance(finder, zipimporter)]
            yield pa.RecordBatch.from_pylist([{"finders": len(finders), "frozen": gc.get_freeze_count()}])

    tasks = map_arrow(spark.range(0, 4, numPartitions=4), counts, COUNTS).collect()
    assert [row["finders"] for row in tasks] == [0] * 4
    assert all(row["frozen"] > 0 for row in tasks)
