"""A run on one machine: who can reach it over the network, and who can read its temporary files."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from warehouses import CAPTURES, config

from jobs.commands import nightly

_LISTENING = "0A"
_SAMPLES_S = 0.2


def process_tree(root: int) -> set[int]:
    """The process and all below it."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    tree, more = set(), {root}
    while more:
        tree |= more
        more = {child for child, parent in parents.items() if parent in more} - tree
    return tree


def listening(root: int) -> set[tuple[str, str]]:
    """Program and address of each socket on which the process, or one below it, takes connections."""
    addresses = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENING:
                words = bytes.fromhex(local.partition(":")[0])
                packed = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                addresses[f"socket:[{inode}]"] = ip_address(packed)
    found = set()
    for process in process_tree(root):
        for link in Path(f"/proc/{process}/fd").glob("*"):
            with suppress(OSError, KeyError):
                address = addresses[os.readlink(link)]  # noqa: PTH115 - a Path would take away slashes
                found.add((Path(f"/proc/{process}/comm").read_text().strip(), str(address)))
    return found


def is_loopback(address: str) -> bool:
    given = ip_address(address)
    mapped = given.ipv4_mapped if isinstance(given, IPv6Address) else None
    return (mapped or given).is_loopback


@contextmanager
def sampling() -> Iterator[set[tuple[str, str]]]:
    """Collects meanwhile the sockets on which this process tree listens."""
    sockets: set[tuple[str, str]] = set()
    is_over = threading.Event()

    def sample() -> None:
        while not is_over.wait(_SAMPLES_S):
            sockets.update(listening(os.getpid()))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield sockets
    finally:
        is_over.set()
        thread.join()


@pytest.mark.slow
def test_a_night_listens_on_loopback_alone_and_its_temporary_files_are_private(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its passes run in Python workers, and its tables are read by Spark."""
    jvm: Any = spark.sparkContext._jvm
    in_tasks = {"in_memory_bytes": 0, "in_memory_messages": 0}
    with sampling() as sockets:
        nightly.run(spark, config(tmp_path / "warehouse", CAPTURES / "orders.pcapng", **in_tasks))
    assert any(program.startswith("java") for program, _ in sockets)
    assert {(program, address) for program, address in sockets if not is_loopback(address)} == set()
    folder = Path(jvm.System.getProperty("java.io.tmpdir"))
    assert folder.stat().st_mode & 0o777 == 0o700
    directories = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirs()
    assert [Path(one.getPath()).parent for one in directories] == [folder]


def test_the_jvm_is_its_users_own(spark: SparkSession) -> None:
    """Also Java's counters are no file, in a folder of each user that stays."""
    context: Any = spark.sparkContext
    assert context.getConf().get("spark.authenticate") == "true"
    gateway = context._gateway.gateway_parameters
    assert ip_address(gateway.address).is_loopback
    assert gateway.auth_token
    process = context._jvm.java.lang.ProcessHandle.current().pid()
    assert list(Path("/tmp").glob(f"hsperfdata_*/{process}")) == []  # noqa: S108 - where Java puts them
