"""How much is held in the driver's memory."""

import gzip
import os
import re
from pathlib import Path
from random import Random
from unittest import mock

import pytest
from test_delta_commits import any_rows
from warehouses import without_spark

from jobs.cli import capture_listing
from jobs.cli.capture_listing import stamps
from jobs.cli.config import Config
from jobs.commands import increments
from jobs.tables import delta_commits
from jobs.tables.places import open_warehouse
from schemas.ingest import PACKETS
from udfs.capture.files import content_bytes

_MIB = 1 << 20


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A container with 8 GiB of memory."""
    file = tmp_path / "memory.max"
    file.write_text(f"{8192 * _MIB}\n")
    monkeypatch.setattr(capture_listing, "_CONTAINER", file)
    return file


def limit_of(config: Config) -> int:
    """How many bytes of captures are read at a time into the tables that the options name."""
    return increments.limit(open_warehouse(None, config), config)


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    ("place", "most", "limit"),
    [
        pytest.param("/tables", 1 << 40, 8192 * _MIB // 24, id="a part of the memory"),
        pytest.param("/tables", 100, 100, id="what the option says"),
        pytest.param("hdfs://tables", 1 << 40, 16 * _MIB, id="few where Spark cannot read files"),
        pytest.param("hdfs://tables", 0, 0, id="none there"),
    ],
)
def test_the_limit_follows_the_memory(place: str, most: int, limit: int) -> None:
    assert limit_of(Config(warehouse=place, in_memory_bytes=most)) == limit


@pytest.mark.parametrize(
    ("warehouse", "most", "parts"),
    [
        pytest.param("/tables", 20, [[1], [2, 3], [50], [4]], id="as many as fit in half, and what is too large alone"),
        pytest.param("/tables", 73, [[1, 2, 3, 50, 4]], id="all just fit"),
        pytest.param("/tables", 72, [[1, 2, 3], [50], [4]], id="what is larger than half is alone, too"),
        pytest.param("/tables", 100, [[1, 2, 3, 50, 4]], id="all fit"),
        pytest.param("/tables", 0, [[1, 2, 3, 50, 4]], id="nothing is read here"),
        pytest.param("hdfs://tables", 10, [[1, 2, 3, 50, 4]], id="tables come and go through Spark"),
    ],
)
def test_increments_fit_in_memory(warehouse: str, most: int, parts: list[list[int]]) -> None:
    sizes = {1: 9, 2: 5, 3: 5, 50: 50, 4: 4}
    captures = [{"capture": one, "content_bytes": size} for one, size in sizes.items()]
    config = Config(warehouse=warehouse, in_memory_bytes=most)
    held = open_warehouse(None, config)
    found = increments.increments(held, config, captures)
    assert [[one["capture"] for one in part] for part in found] == parts
    assert increments.increments(held, config, []) == []


def test_a_container_may_have_no_limit_or_be_tiny(container: Path) -> None:
    config = Config(warehouse="/tables", in_memory_bytes=1 << 60)
    container.write_text("max\n")
    of_machine = limit_of(config)
    container.unlink()
    assert limit_of(config) == of_machine == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 24
    container.write_text("1000\n")
    assert limit_of(config) == capture_listing.FEW_BYTES


def test_few_messages_are_held_though_the_captures_are_many(tmp_path: Path) -> None:
    """A replay needs no bytes of packets; of those that are settled it needs less than of others."""
    warehouse = without_spark(tmp_path)
    place = str(tmp_path / PACKETS.name)
    delta_commits.create(place, PACKETS, {})
    delta_commits.write(place, PACKETS, any_rows(Random(1), PACKETS, 5), lambda **_: None)
    for most in (0, 1, 2, 5):
        held = increments.with_few_messages(warehouse, Config(in_memory_bytes=0, in_memory_messages=most))
        assert (held.local is not None) is (most > 1)


def test_as_many_messages_are_held_as_the_memory_is_enough_for(container: Path) -> None:
    (heap,) = re.findall(r"^spark.driver.memory +(\d+)g$", Path("conf/spark-defaults.conf").read_text(), re.MULTILINE)
    assert capture_listing.most_messages(1 << 40) == (8192 - 1024 * int(heap)) * _MIB // 2 // 4096
    assert capture_listing.most_messages(7) == 7
    container.write_text(f"{(int(heap) << 30) + 8191}\n")
    assert capture_listing.most_messages(7) == 0


def test_fault_91_compressed_captures_count_as_what_comes_out_of_them(tmp_path: Path) -> None:
    """Also many small bombs together, whatever their names; what is beyond the limit is not expanded to its end."""
    content, bomb = bytes(range(256)) * 400, gzip.compress(bytes(8 * _MIB))
    (tmp_path / "plain.pcap").write_bytes(content)
    (tmp_path / "honest.gz").write_bytes(gzip.compress(content))
    honest = stamps([str(tmp_path / name) for name in ("plain.pcap", "honest.gz", "gone.gz")])
    assert capture_listing.bytes_of(honest, 1 << 40) == 2 * len(content)
    assert capture_listing.bytes_of(honest, len(content)) > len(content)
    bombs = [tmp_path / f"{number}.pcap" for number in range(40)]
    for file in bombs:
        file.write_bytes(bomb)
    found = stamps(map(str, bombs))
    assert sum(stamp.size or 0 for stamp in found.values()) < _MIB
    with mock.patch.object(capture_listing, "content_bytes", wraps=content_bytes) as counted:
        assert capture_listing.bytes_of(found, 16 * _MIB) > 16 * _MIB
    assert counted.call_count < len(bombs)
