"""How much is held in the driver's memory, and the folder through which Spark gets many rows."""

import os
import time
from pathlib import Path

import pytest

from jobs.app.config import Config
from jobs.steps import in_memory

_MIB = 1 << 20


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A container with a GiB of memory."""
    file = tmp_path / "memory.max"
    file.write_text(f"{1024 * _MIB}\n")
    monkeypatch.setattr(in_memory, "_CONTAINER", file)
    return file


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    ("place", "bodies", "most", "limit"),
    [
        pytest.param("/tables", "drop", 1 << 40, 128 * _MIB, id="an eighth of the memory"),
        pytest.param("/tables", "keep", 1 << 40, 64 * _MIB, id="a sixteenth with bodies"),
        pytest.param("/tables", "drop", 100, 100, id="what the option says"),
        pytest.param(None, "drop", 1 << 40, 16 * _MIB, id="few where Spark cannot read files"),
        pytest.param(None, "drop", 0, 0, id="none there"),
    ],
)
def test_the_limit_follows_the_memory(place: str | None, bodies: str, most: int, limit: int) -> None:
    assert in_memory._limit(Config(bodies=bodies, in_memory_bytes=most), place) == limit


def test_a_container_may_have_no_limit_or_be_tiny(container: Path) -> None:
    config = Config(in_memory_bytes=1 << 60)
    container.write_text("max\n")
    of_machine = in_memory._limit(config, "/tables")
    container.unlink()
    assert (
        in_memory._limit(config, "/tables")
        == of_machine
        == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8
    )
    container.write_text("1000\n")
    assert in_memory._limit(config, "/tables") == in_memory.FEW_BYTES


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
