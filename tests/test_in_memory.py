"""How much is held in the driver's memory, and the folder through which Spark gets many rows."""

import gzip
import os
import time
from pathlib import Path
from unittest import mock

import pytest

from jobs.app import memory
from jobs.app.capture_listing import stamps
from jobs.app.config import Config
from jobs.app.errors import JobError
from jobs.app.spark_session import driver_memory
from jobs.steps import in_memory
from udfs.capture.files import content_bytes

_MIB = 1 << 20
_ENOUGH = 1 << 50
"""Bytes of heap that are never the limit."""


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A container with 8 GiB of memory."""
    file = tmp_path / "memory.max"
    file.write_text(f"{8192 * _MIB}\n")
    monkeypatch.setattr(memory, "_CONTAINER", file)
    return file


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    ("place", "most", "limit"),
    [
        pytest.param("/tables", 1 << 40, 256 * _MIB, id="a part of the memory"),
        pytest.param("/tables", 100, 100, id="what the option says"),
        pytest.param(None, 1 << 40, 16 * _MIB, id="few where Spark cannot read files"),
        pytest.param(None, 0, 0, id="none there"),
    ],
)
def test_the_limit_follows_the_memory(place: str | None, most: int, limit: int) -> None:
    assert in_memory._limit(Config(in_memory_bytes=most), place, _ENOUGH) == limit


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(("heap", "limit"), [(600, 100), (1536, 256), (6 * 1024, 256), (60, 16)])
def test_captures_may_have_a_sixth_of_the_heap(heap: int, limit: int) -> None:
    """In MiB, where the machine's memory allows 256."""
    assert in_memory._limit(Config(), "/tables", heap * _MIB) == limit * _MIB


@pytest.mark.parametrize(
    ("arguments", "heap"),
    [
        pytest.param("", 3 << 30, id="the default"),
        pytest.param("--master local[2] --driver-memory 6g pyspark-shell", 6 << 30, id="an option"),
        pytest.param("--driver-memory=512M pyspark-shell", 512 << 20, id="another spelling"),
        pytest.param("--conf spark.driver.memory=2048mb pyspark-shell", 2 << 30, id="a setting"),
        pytest.param("--driver-memory 800 pyspark-shell", 800 << 20, id="without a unit"),
    ],
)
def test_the_heap_is_that_of_the_jvm_that_will_start(
    arguments: str, heap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    assert driver_memory() == heap


def test_a_wrong_heap_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory much pyspark-shell")
    with pytest.raises(JobError, match=r"spark.driver.memory is 'much': write it as in 3g or 512m"):
        driver_memory()


@pytest.mark.parametrize(("setting", "heap"), [("4g", 4 << 30), (None, 1 << 30)])
def test_the_heap_of_a_running_session_is_in_its_settings(
    setting: str | None, heap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    session = mock.Mock()
    session.conf.get.return_value = setting
    assert driver_memory(session) == heap


def test_a_container_may_have_no_limit_or_be_tiny(container: Path) -> None:
    config = Config(in_memory_bytes=1 << 60)
    container.write_text("max\n")
    of_machine = in_memory._limit(config, "/tables", _ENOUGH)
    container.unlink()
    assert (
        in_memory._limit(config, "/tables", _ENOUGH)
        == of_machine
        == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 32
    )
    container.write_text("1000\n")
    assert in_memory._limit(config, "/tables", _ENOUGH) == in_memory.FEW_BYTES


def test_fault_91_compressed_captures_count_as_what_comes_out_of_them(tmp_path: Path) -> None:
    """Also many small bombs together, whatever their names; what is beyond the limit is not expanded to its end."""
    content, zeros = bytes(range(256)) * 400, bytes(8 * _MIB)
    (tmp_path / "plain.pcap").write_bytes(content)
    (tmp_path / "honest.gz").write_bytes(gzip.compress(content))
    honest = stamps([str(tmp_path / name) for name in ("plain.pcap", "honest.gz", "gone.gz")])
    assert memory.bytes_of(honest, 1 << 40) == 2 * len(content)
    assert memory.bytes_of(honest, len(content)) > len(content)
    bombs = [tmp_path / f"{number}.pcap" for number in range(40)]
    for bomb in bombs:
        bomb.write_bytes(gzip.compress(zeros))
    found = stamps(map(str, bombs))
    assert sum(stamp.size or 0 for stamp in found.values()) < _MIB
    with mock.patch.object(memory, "content_bytes", wraps=content_bytes) as counted:
        assert memory.bytes_of(found, 16 * _MIB) > 16 * _MIB
    assert counted.call_count < len(bombs)


def test_the_folder_for_rows_goes_away_and_so_does_what_a_killed_run_left(tmp_path: Path) -> None:
    killed, running = tmp_path / "_rows-killed", tmp_path / "_rows-running"
    for folder in (killed, running):
        folder.mkdir()
        (folder / "rows.parquet").touch()
    days_ago = time.time() - 2 * 86_400
    os.utime(killed, (days_ago, days_ago))

    with in_memory._folder_beside(tmp_path / "captures") as folder:
        assert folder.is_dir()
        assert folder.parent == tmp_path
        assert not killed.exists()

    assert [path.name for path in tmp_path.iterdir()] == ["_rows-running"]
