"""What a sender can multiply in TCP and IP costs no more than its bytes: time, memory and rows are linear in them."""

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

import pytest
from growth import assert_linear
from pipeline import frames, ingest_more
from wiretap import (
    ACK,
    FIN,
    RST,
    SYN,
    Sent,
    ethernet,
    fragments4,
    goodbye,
    handshake,
    msmq,
    pcap,
    records,
    tcp,
)

from jobs.engines.in_process import InProcess
from schemas.tables import INGESTED
from udfs.ingest.options import IngestOptions
from udfs.tcp.delivery import Overlap

MEMORY = 50
"""Bytes of memory that ingest may take more at its peak for each byte that a capture of small frames is longer."""
ROWS = 1 / 16
"""Rows of all tables for each byte: a record of pcap has a header of this many."""


def client(number: int) -> tuple[str, int]:
    """The number-th of many endpoints: one port each, of as many addresses as needed."""
    return f"10.{number // 60_000}.0.1", 1024 + number % 60_000


OPEN = handshake(1000, 5000)


def data(seq: int, payload: bytes) -> Sent:
    return Sent(False, seq, 5001, ACK, payload)


def connection(at: int) -> list[Sent]:
    """A connection with one packet."""
    return [*handshake(at, 5000 + at), Sent(False, at + 1, 5001 + at, ACK, msmq(48)), *goodbye(at + 49, 5001 + at)]


def packets(n: int) -> list[Sent]:
    return [data(1001 + 48 * at, msmq(48)) for at in range(n)]


def bytes_alone(n: int) -> list[Sent]:
    return [data(1001 + at, bytes([byte])) for at, byte in enumerate((msmq(16) * (n // 16 + 1))[:n])]


def gaps(n: int) -> list[Sent]:
    return [data(1001 + 2 * at, b"L") for at in range(n)]


TALKS: dict[str, tuple[int, Callable[[int], Iterable[Sent]]]] = {
    "connections on one port": (
        200,
        lambda n: chain.from_iterable(connection(at) for at in range(1000, 1000 + 100 * n, 100)),
    ),
    "SYNs": (1000, lambda n: (Sent(False, 77 * at, 0, SYN) for at in range(n))),
    "SYNs and answers": (1000, lambda n: chain.from_iterable(handshake(77 * at, 99 * at)[:2] for at in range(n))),
    "bytes alone": (2500, lambda n: [*OPEN, *bytes_alone(n)]),
    "bytes alone under large segments": (
        2500,
        lambda n: [
            *OPEN,
            *(data(1001 + at, b"\xcd" * min(1400, n - at)) for at in range(0, n, 1400)),
            *bytes_alone(n),
        ],
    ),
    "conflicts": (
        5000,
        lambda n: [*OPEN, *(data(1001 + 2 * at, byte * 2) for at in range(n) for byte in (b"a", b"b"))],
    ),
    "conflicts over one byte": (2500, lambda n: [*OPEN, *(data(1001, b"a" + bytes([at % 256])) for at in range(n))]),
    "packets, a keep-alive and a copy": (
        2500,
        lambda n: [*OPEN, *packets(n), data(1000 + 48 * n, b"\0"), data(953 + 48 * n, msmq(48))],
    ),
    "gaps": (2500, lambda n: [*OPEN, *gaps(n)]),
    "gaps backwards": (2500, lambda n: [*OPEN, *gaps(n)[::-1]]),
    "resets between data": (
        2500,
        lambda n: [*OPEN, *(one for packet in packets(n) for one in (packet, Sent(True, 5001, 0, RST)))],
    ),
    "FINs": (2500, lambda n: [*OPEN, *packets(1), *(Sent(False, 1049 + at, 5001, FIN | ACK) for at in range(n))]),
    "strays": (2500, lambda n: [*OPEN, *packets(1), *(data(1049 + (at % 2 + 1 << 30), b"?") for at in range(n))]),
    "acknowledgments": (
        2500,
        lambda n: [*OPEN, *packets(1), *(Sent(True, 5001, 1049, ACK, window=at % 2) for at in range(n))],
    ),
}
"""Segments between two endpoints, by how many are made; and a number that takes long enough to be measured."""


def from_many(n: int, sent: list[Sent]) -> list[bytes]:
    """The same segments from many endpoints."""
    return list(chain.from_iterable(frames(sent, client=client(number)) for number in range(n)))


def fragments_without_an_end(n: int) -> list[bytes]:
    datagrams = (fragments4(tcp(b"?" * 12), [8, 16, 24], identification=at % 60_000)[:3] for at in range(n // 3))
    return [ethernet(one) for one in chain.from_iterable(datagrams)]


def fragments_of_one_datagram(n: int) -> list[bytes]:
    return [ethernet(fragments4(b"?" * 60_000, [8 * at, 8 * at + 8])[1]) for at in (1 + k % 7000 for k in range(n))]


def fragments_of_segments(n: int) -> list[bytes]:
    whole = (tcp(msmq(48), seq=1001 + 48 * at, flags=ACK) for at in range(n // 2))
    return [ethernet(one) for at, segment in enumerate(whole) for one in fragments4(segment, [40], identification=at)]


FRAMES: dict[str, tuple[int, Callable[[int], list[bytes]]]] = {
    "connections of many endpoints": (200, lambda n: from_many(n, connection(1000))),
    "a scan over ports": (1000, lambda n: from_many(n, OPEN[:1])),
    "fragments without an end": (2500, fragments_without_an_end),
    "fragments of one datagram": (2500, fragments_of_one_datagram),
    "fragments of segments": (2500, fragments_of_segments),
}


CASES = [(what, Overlap.FIRST) for what in (*TALKS, *FRAMES)]
CASES += [("conflicts over one byte", overlap) for overlap in list(Overlap)[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(("what", "overlap"), CASES)
def test_costs_are_those_of_the_bytes(what: str, overlap: Overlap, tmp_path: Path) -> None:
    many = TALKS[what][0] if what in TALKS else FRAMES[what][0]

    def capture(n: int) -> Path:
        file = tmp_path / f"{n}.pcap"
        file.write_bytes(pcap(records(frames(TALKS[what][1](n)) if what in TALKS else FRAMES[what][1](n))))
        return file

    def rows(file: Path) -> int:
        engine = InProcess()
        ingest_more(engine, [str(file)], IngestOptions(overlap=overlap))
        return sum(engine.read(table).height for table in INGESTED)

    small, large = assert_linear(rows, capture, many)
    sizes = [(tmp_path / f"{n}.pcap").stat().st_size for n in (many, 2 * many)]
    assert large.peak_bytes - small.peak_bytes < MEMORY * (sizes[1] - sizes[0])
    assert large.result < ROWS * sizes[1]
