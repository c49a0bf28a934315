"""Captures between two TCP stacks of the kernel, in network namespaces, held against the bytes that were sent.

The wire between them is a script (`wire.py`), which needs no kernel module and knows what it did. A frame that it lost
is in the sender's capture only; the retransmission that makes up for it is in both.
"""

import itertools
import os
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
from oracle import Key, away, back, heard
from pipeline import WHOLE, Ingested, balance, ingest
from wire import FIRST_PORT, PORT
from wiretap import SYN, msmq

WIRE = Path(__file__).with_name("wire.py")
CLIENT, SERVER = "10.83.0.1", "10.83.0.2"
LARGEST_FRAME = 1514
CONNECTIONS = 4


# --- namespaces -------------------------------------------------------------------------------------------------------


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)  # noqa: S607 - wherever it is


def why_not() -> str | None:
    """Why no namespaces can be made here; None when they can."""
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    if shutil.which("ip") is None:
        return "needs the command ip"
    name = f"msmq-{uuid4().hex[:8]}"
    try:
        ip("netns", "add", name)
        try:
            ip("-n", name, "link", "add", "name", "left", "type", "veth", "peer", "name", "right")
        finally:
            ip("netns", "delete", name)
    except subprocess.CalledProcessError as error:
        return f"cannot make a network namespace: {error.stderr.decode().strip()}"
    return None


@pytest.fixture(scope="module", autouse=True)
def _namespaces_can_be_made() -> None:
    if reason := why_not():
        pytest.skip(reason)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextmanager
def running(namespace: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """The script while it is needed; its input ends afterwards, which ends it."""
    command = ["ip", "netns", "exec", namespace, sys.executable, str(WIRE), *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert said(process) == "ready"
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@contextmanager
def namespaces(count: int) -> Iterator[list[str]]:
    """So many, in a row, each joined to the next: the first with address CLIENT, the last with SERVER."""
    names = [f"msmq-{uuid4().hex[:8]}" for _ in range(count)]
    with ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
        for left, right in itertools.pairwise(names):
            ip("-n", left, "link", "add", "name", "right", "type", "veth", "peer", "name", "left", "netns", right)
            ip("-n", left, "link", "set", "right", "up")
            ip("-n", right, "link", "set", "left", "up")
        for name, interface, address in ((names[0], "right", CLIENT), (names[-1], "left", SERVER)):
            ip("-n", name, "address", "add", f"{address}/24", "dev", interface)
        yield names


# --- what is sent -----------------------------------------------------------------------------------------------------


Packets = dict[Key, list[bytes]]
"""What each direction sends."""


def conversations(rng: random.Random, folder: Path, *, bulk: int) -> Packets:
    """Packets for both directions of every connection, and the files they are sent from."""
    out: Packets = {}
    for i in range(CONNECTIONS):
        for role in ("client", "server"):
            sizes = [rng.choice([16, 100, 700, 3000, 40_000]) for _ in range(bulk)]
            packets = [msmq(size, rng.randbytes(size - 16)) for size in sizes]
            ends = (CLIENT, FIRST_PORT + i), (SERVER, PORT)
            source, target = ends if role == "client" else ends[::-1]
            out[*source, *target] = packets
            (folder / f"{i}.{role}").write_bytes(b"".join(packets))
    return out


def talk(names: Sequence[str], folder: Path, *, on_syn: int = 0) -> None:
    """Let the ends talk, until everything has arrived; `on_syn`: bytes that a client sends with its SYN."""
    with ExitStack() as stack:
        roles = ((names[-1], "server"), (names[0], "client"))
        ends = [stack.enter_context(running(name, role, SERVER, CONNECTIONS, folder, on_syn)) for name, role in roles]
        assert [end.wait(timeout=60) for end in ends] == [0, 0]
    for i in range(CONNECTIONS):
        for role, other in (("client", "server"), ("server", "client")):
            assert (folder / f"{i}.{role}.heard").read_bytes() == (folder / f"{i}.{other}").read_bytes()


class Bad(NamedTuple):
    """A conversation over a bad wire, as captured beside the client and beside the server."""

    sent: Packets
    captures: tuple[Path, Path]


@pytest.fixture(scope="module", params=[0.02, 0.1])
def bad_wire(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bad:
    """Two and ten per cent of all frames lost, as many doubled, twice as many overtaken."""
    folder = tmp_path_factory.mktemp("bad")
    captures = folder / "client.pcap", folder / "server.pcap"
    bulk = 60 if request.param < 0.05 else 12
    sent = conversations(random.Random(1), folder, bulk=bulk)
    with namespaces(3) as names:
        for name, interface in ((names[0], "right"), (names[2], "left")):
            with running(name, "plain", interface) as plain:
                assert plain.wait(timeout=20) == 0
        with running(names[1], "relay", "left", "right", *captures, 7, request.param):
            talk(names, folder)
    total = sum(len(data) for packets in sent.values() for data in packets)
    seen = [frames_of(path) for path in captures]
    for frames, others in (seen, seen[::-1]):  # else the tests say nothing
        assert sum(s.length for frame in frames if (s := heard(frame))) > total
        assert max(map(len, frames)) <= LARGEST_FRAME
        assert set(frames) - set(others)
    return Bad(sent, captures)


# --- what is found ----------------------------------------------------------------------------------------------------


def require_whole(found: Ingested, sent: Packets) -> None:
    """Every packet came back, and nothing else."""
    balance(found)
    keys = {row["stream_id"]: (row["src_ip"], row["src_port"], row["dst_ip"], row["dst_port"]) for row in found.streams}
    out: dict[Key, list[tuple[int, bytes]]] = defaultdict(list)
    for row in found.packets:
        out[keys[row["stream_id"]]].append((row["stream_offset"], row["raw"]))
    assert {key: [raw for _, raw in sorted(rows)] for key, rows in out.items()} == sent
    assert (found.gaps, found.quarantine, len(found.streams)) == ([], [], 2 * CONNECTIONS)
    assert not any(row["conflict"] or row["mid_stream"] for row in found.streams)


def frames_of(path: Path) -> list[bytes]:
    """The frames of a pcap file of ours."""
    data = path.read_bytes()
    at, out = 24, []
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "little")
        out.append(data[at + 16 : at + 16 + size])
        at += 16 + size
    return out


@contextmanager
def tapped(capture: Path) -> Iterator[Sequence[str]]:
    """Two namespaces, captured in the second; skips the test if the kernel drops frames before they are captured."""
    with namespaces(2) as names, running(names[1], "tap", "left", capture) as tap:
        yield names
        assert tap.stdin is not None
        tap.stdin.close()
        missed = int(said(tap))
    if missed:
        pytest.skip(f"the kernel dropped {missed} frames before they were captured")


def allow_fast_open(namespace: str, bits: int) -> None:
    """Set the TCP Fast Open of a namespace's kernel, as `net.ipv4.tcp_fastopen` describes its bits."""
    command = ["ip", "netns", "exec", namespace, "sh", "-c", f"echo {bits} > /proc/sys/net/ipv4/tcp_fastopen"]
    subprocess.run(command, check=True, timeout=20)


@pytest.mark.parametrize("accepted", [True, False])
def test_every_byte_comes_back_from_segments_larger_than_the_mtu_and_data_on_the_syn(
    accepted: bool, tmp_path: Path
) -> None:
    """[RFC 7413]: a server with Fast Open acknowledges the data, another one does not, and it is sent again."""
    capture, on_syn = tmp_path / "tap.pcap", 1000
    sent = conversations(random.Random(3), tmp_path, bulk=60)
    with tapped(capture) as names:
        allow_fast_open(names[0], 0x1 | 0x4)  # a client, also without a cookie
        allow_fast_open(names[1], 0x2 | 0x200 if accepted else 0)  # a server that asks for no cookie
        talk(names, tmp_path, on_syn=on_syn)
    assert max(map(len, frames_of(capture))) > LARGEST_FRAME
    syns = {s.key: s for frame in frames_of(capture) if (s := heard(frame)) and s.flags & SYN}
    opening = [s for s in syns.values() if s.key[2:] == (SERVER, PORT)]
    assert [s.length for s in opening] == [on_syn] * CONNECTIONS
    answered = [away(syns[back(s.key)].ack, s.seq + 1) for s in opening]
    assert answered == [on_syn if accepted else 0] * CONNECTIONS
    require_whole(ingest([capture], WHOLE), sent)


@pytest.mark.parametrize("places", [[0], [1], [0, 1]], ids=["client", "server", "both"])
def test_every_byte_comes_back_from_a_wire_that_loses_doubles_and_reorders(bad_wire: Bad, places: list[int]) -> None:
    """Beside either end, and from both captures at once: what was lost on the way came again past both places."""
    require_whole(ingest([bad_wire.captures[place] for place in places], WHOLE), bad_wire.sent)
