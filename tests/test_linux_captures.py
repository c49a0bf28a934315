"""Captures between two TCP stacks of Linux in network namespaces, held against the bytes that were sent.

Four connections with data on their SYN, which the server acknowledges or not; and four over a wire that lost and
doubled a tenth of the frames and delayed a fifth, captured at both ends.
"""

import gzip
import random
from collections import defaultdict
from pathlib import Path

import pytest
from oracle import Key, away, back, heard
from pipeline import WHOLE, balance, ingest
from wiretap import SYN, msmq, records_of

CAPTURES = Path(__file__).with_name("captures")
CLIENT, SERVER = "10.83.0.1", ("10.83.0.2", 1801)
LARGEST_FRAME = 1514
ON_SYN = 1000
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


def recorded(name: str) -> bytes:
    return gzip.decompress((CAPTURES / f"linux_{name}.pcap.gz").read_bytes())


@pytest.mark.parametrize(("name", "acknowledged"), [("fast_open_accepted", ON_SYN), ("fast_open_refused", 0)])
def test_the_captures_hold_data_on_the_syn_and_segments_beyond_the_mtu(name: str, acknowledged: int) -> None:
    """[RFC 7413]: a server with Fast Open acknowledges the data, another one does not, and it is sent again."""
    frames = records_of(recorded(name))
    assert max(map(len, frames)) > LARGEST_FRAME
    syns = {one.key: one for frame in frames if (one := heard(frame)) and one.flags & SYN}
    opening = [one for one in syns.values() if one.key[2:] == SERVER]
    assert [one.length for one in opening] == [ON_SYN] * 4
    assert [away(syns[back(one.key)].ack, one.seq + 1) for one in opening] == [acknowledged] * 4


def test_the_captures_of_a_bad_wire_miss_different_frames() -> None:
    """It lost and doubled a tenth of the frames and let a fifth be overtaken."""
    seen = [set(records_of(recorded(f"bad_wire_{end}"))) for end in ("client", "server")]
    assert seen[0] - seen[1]
    assert seen[1] - seen[0]


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
        (tmp_path / name).write_bytes(recorded(name))
    found = ingest([tmp_path / name for name in names], WHOLE)
    balance(found)
    keys = {row["stream_id"]: (row["src_ip"], row["src_port"], row["dst_ip"], row["dst_port"]) for row in found.streams}
    came: dict[Key, list[bytes]] = defaultdict(list)
    for row in found.packets:
        came[keys[row["stream_id"]]].append(row["raw"])
    assert came == sent()
    assert (found.gaps, found.quarantine, len(found.streams)) == ([], [], 8)
    assert not any(row["conflict"] or row["mid_stream"] for row in found.streams)
