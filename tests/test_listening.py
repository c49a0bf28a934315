"""A run on one machine: who can reach it over the network, and who can read its temporary files."""

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

import pytest
from pyspark import StorageLevel
from pyspark.sql import SparkSession
from warehouses import CAPTURES, config

from jobs.steps import nightly

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


def test_the_jvm_has_no_file_outside_its_private_folder(spark: SparkSession) -> None:
    """Java's counters are one, in a folder of each user, which stays."""
    jvm: Any = spark.sparkContext._jvm
    process = jvm.java.lang.ProcessHandle.current().pid()
    assert list(Path("/tmp").glob(f"hsperfdata_*/{process}")) == []  # noqa: S108 - where Java puts them


def framed(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


def test_a_block_is_not_given_to_who_does_not_know_the_secret(spark: SparkSession) -> None:
    """OpenBlocks of Spark's block transfer, as another user of this machine can send it."""
    context: Any = spark.sparkContext
    kept = context.parallelize([b"captured"], 1).persist(StorageLevel.MEMORY_ONLY)
    kept.count()
    environment = context._jvm.org.apache.spark.SparkEnv.get()
    block = f"rdd_{kept.id()}_0"
    body = b"\0" + framed(context.applicationId) + framed("driver") + struct.pack(">i", 1) + framed(block)
    request = struct.pack(">BQi", 3, 7, len(body)) + body
    with socket.create_connection(("127.0.0.1", environment.blockManager().blockTransferService().port()), 20) as peer:
        peer.sendall(struct.pack(">Q", len(request) + 8) + request)
        answer = b""
        while len(answer) < 9 and (more := peer.recv(1 << 16)):
            answer += more
    kept.unpersist()
    rpc_response = 4
    assert answer[8:9] != bytes([rpc_response])


def test_who_does_not_know_the_token_cannot_speak_to_the_gateway(spark: SparkSession) -> None:
    gateway: Any = spark.sparkContext._gateway
    assert ip_address(gateway.gateway_parameters.address).is_loopback
    assert gateway.gateway_parameters.auth_token
    with socket.create_connection(("127.0.0.1", gateway.gateway_parameters.port), 20) as peer:
        peer.sendall(b"c\nz:java.lang.System\ngetProperty\nsjava.version\ne\n")
        success = b"!y"
        assert not peer.recv(1 << 16).startswith(success)
