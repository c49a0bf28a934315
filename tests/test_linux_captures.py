"""Captures between two TCP stacks of Linux in network namespaces, held against the bytes that were sent.

Four connections with data on their SYN, which the server acknowledges or not; and four over a wire that lost and
doubled a tenth of the frames and delayed a fifth, captured at both ends.
"""

import gzip
import random
from collections import defaultdict
from pathlib import Path

import pytest
from oracle import Key
from pipeline import WHOLE, balance, ingest
from warehouses import CAPTURES
from wiretap import msmq

CLIENT, SERVER = "10.83.0.1", ("10.83.0.2", 1801)
TEXT = random.Random(39).randbytes(257) * 200
SIZES = (16, 100, 700, 3000, 40_000)


def packets(connection: int, *, from_server: bool) -> list[bytes]:
    """The bytes that one side of a connection sent."""
    sizes = [SIZES[(7 * number + 3 * connection + from_server) % 5] for number in range(10)]
    return [msmq(size, TEXT[(29 * at + connection) % 257 :][: size - 16]) for at, size in enumerate(sizes)]


def sent() -> dict[Key, list[bytes]]:
    """The packets that each direction sent, by its addresses."""
    clients = [(CLIENT, 50_000 + number) for number in range(4)]
    there = {(*client, *SERVER): packets(at, from_server=False) for at, client in enumerate(clients)}
    return there | {(*SERVER, *client): packets(at, from_server=True) for at, client in enumerate(clients)}


@pytest.mark.parametrize(
    "names",
    [
        ["fast_open_accepted"],
        ["fast_open_refused"],
        ["bad_wire_client"],
        ["bad_wire_server"],
        ["bad_wire_client", "bad_wire_server"],
    ],
)
def test_every_byte_comes_back(names: list[str], tmp_path: Path) -> None:
    """From both ends of a bad wire at once, too: what was lost on the way came again past both."""
    for name in names:
        (tmp_path / name).write_bytes(gzip.decompress((CAPTURES / f"linux_{name}.pcap.gz").read_bytes()))
    found = ingest([tmp_path / name for name in names], WHOLE)
    balance(found)
    keys = {row["stream_id"]: (row["src_ip"], row["src_port"], row["dst_ip"], row["dst_port"]) for row in found.streams}
    came: dict[Key, list[bytes]] = defaultdict(list)
    for row in found.packets:
        came[keys[row["stream_id"]]].append(row["raw"])
    assert came == sent()
    assert (found.gaps, found.quarantine, len(found.streams)) == ([], [], 8)
    assert not any(row["conflict"] or row["mid_stream"] for row in found.streams)
