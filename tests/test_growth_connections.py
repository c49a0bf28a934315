"""What a sender can multiply in TCP and IP costs no more than its bytes: time, memory and rows are linear in them."""

from collections.abc import Callable, Iterator
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

from jobs.engine.in_process import InProcess
from schemas.tables import INGESTED
from udfs.passes.options import IngestOptions
from udfs.tcp.connections import Segment
from udfs.tcp.overlap import Overlap, merge

MEMORY = 50
"""Bytes of memory that ingest may take more at its peak for each byte that a capture of small frames is longer."""
ROWS = 1 / 16
"""Rows of all tables for each byte: a record of pcap has a header of this many."""


def client(number: int) -> tuple[str, int]:
    """The number-th of many endpoints: one port each, of as many addresses as needed."""
    return f"10.{number // 60_000}.0.1", 1024 + number % 60_000


def in_data(payloads: Iterator[bytes]) -> list[bytes]:
    """A connection whose client sends these payloads in order."""
    sent, seq = handshake(1000, 5000), 1001
    for payload in payloads:
        sent.append(Sent(False, seq, 5001, ACK, payload))
        seq += len(payload)
    return frames(sent)


def single(n: int, *, of: Callable[[int], list[Sent]]) -> list[bytes]:
    """Many endpoints that each send the same segments."""
    return list(chain.from_iterable(frames(of(number), client=client(number)) for number in range(n)))


def whole_connections(n: int) -> list[bytes]:
    sent = [*handshake(1000, 5000), Sent(False, 1001, 5001, ACK, msmq(48)), *goodbye(1049, 5001)]
    return single(n, of=lambda _: sent)


def connections_on_one_port(n: int) -> list[bytes]:
    talks = (
        [*handshake(at, 5000 + at), Sent(False, at + 1, 5001 + at, ACK, msmq(48)), *goodbye(at + 49, 5001 + at)]
        for at in range(1000, 1000 + 100 * n, 100)
    )
    return frames(chain.from_iterable(talks))


def scan_over_ports(n: int) -> list[bytes]:
    return single(n, of=lambda _: handshake(1000, 5000)[:1])


def flood(n: int) -> list[bytes]:
    return frames(Sent(False, 77 * at, 0, SYN) for at in range(n))


def flood_with_answers(n: int) -> list[bytes]:
    return frames(chain.from_iterable(handshake(77 * at, 99 * at)[:2] for at in range(n)))


def segments(n: int) -> list[bytes]:
    return in_data(bytes([at]) for at in (msmq(16) * (n // 16 + 1))[:n])


def small_segments_under_large_ones(n: int) -> list[bytes]:
    large = [Sent(False, 1001 + at, 5001, ACK, b"\xcd" * min(1400, n - at)) for at in range(0, n, 1400)]
    return [*frames([*handshake(1000, 5000), *large]), *segments(n)[3:]]


def conflicts(n: int) -> list[bytes]:
    sent = ([Sent(False, 1001 + 2 * at, 5001, ACK, byte * 2) for byte in (b"a", b"b")] for at in range(n))
    return frames([*handshake(1000, 5000), *chain.from_iterable(sent)])


def conflicts_over_one_byte(n: int) -> list[bytes]:
    sent = (Sent(False, 1001, 5001, ACK, b"a" + bytes([at % 256])) for at in range(n))
    return frames([*handshake(1000, 5000), *sent])


def packets_a_keep_alive_and_a_copy(n: int) -> list[bytes]:
    end = 1001 + 48 * n
    more = [Sent(False, end - 1, 5001, ACK, b"\0"), Sent(False, end - 48, 5001, ACK, msmq(48))]
    return [*in_data(msmq(48) for _ in range(n)), *frames(more)]


def gaps(n: int) -> list[bytes]:
    return frames([*handshake(1000, 5000), *(Sent(False, 1001 + 2 * at, 5001, ACK, b"L") for at in range(n))])


def gaps_backwards(n: int) -> list[bytes]:
    return [*gaps(0), *gaps(n)[:2:-1]]


def resets_between_data(n: int) -> list[bytes]:
    sent = ([Sent(False, at, 5001, ACK, msmq(48)), Sent(True, 5001, 0, RST)] for at in range(1001, 1001 + 48 * n, 48))
    return frames([*handshake(1000, 5000), *chain.from_iterable(sent)])


def finishes(n: int) -> list[bytes]:
    return [*in_data(iter([msmq(48)])), *frames(Sent(False, 1049 + at, 5001, FIN | ACK) for at in range(n))]


def strays(n: int) -> list[bytes]:
    sent = (Sent(False, 1049 + (at % 2 + 1 << 30), 5001, ACK, b"?") for at in range(n))
    return [*in_data(iter([msmq(48)])), *frames(sent)]


def acknowledgments(n: int) -> list[bytes]:
    return [*in_data(iter([msmq(48)])), *frames(Sent(True, 5001, 1049, ACK, window=at % 2) for at in range(n))]


def fragments_without_an_end(n: int) -> list[bytes]:
    datagrams = (fragments4(tcp(b"?" * 12), [8, 16, 24], identification=at % 60_000)[:3] for at in range(n // 3))
    return [ethernet(one) for one in chain.from_iterable(datagrams)]


def fragments_of_one_datagram(n: int) -> list[bytes]:
    return [ethernet(fragments4(b"?" * 60_000, [8 * at, 8 * at + 8])[1]) for at in (1 + k % 7000 for k in range(n))]


def fragments_of_segments(n: int) -> list[bytes]:
    whole = (tcp(msmq(48), seq=1001 + 48 * at, flags=ACK) for at in range(n // 2))
    return [ethernet(one) for at, segment in enumerate(whole) for one in fragments4(segment, [40], identification=at)]


MANY: dict[Callable[[int], list[bytes]], int] = {
    case: n
    for n, cases in {
        200: (whole_connections, connections_on_one_port),
        1000: (scan_over_ports, flood, flood_with_answers),
        5000: (conflicts,),
        2500: (
            segments,
            small_segments_under_large_ones,
            conflicts_over_one_byte,
            packets_a_keep_alive_and_a_copy,
            gaps,
            gaps_backwards,
            resets_between_data,
            finishes,
            strays,
            acknowledgments,
            fragments_without_an_end,
            fragments_of_one_datagram,
            fragments_of_segments,
        ),
    }.items()
    for case in cases
}


@pytest.mark.parametrize("many", MANY, ids=lambda many: many.__name__)
def test_costs_are_those_of_the_bytes(many: Callable[[int], list[bytes]], tmp_path: Path) -> None:
    def capture(n: int) -> Path:
        file = tmp_path / f"{n}.pcap"
        file.write_bytes(pcap(records(many(n))))
        return file

    def rows(file: Path) -> int:
        engine = InProcess()
        ingest_more(engine, [str(file)], IngestOptions())
        return sum(engine.read(table).num_rows for table in INGESTED)

    small, large = assert_linear(rows, capture, MANY[many])
    sizes = [capture(n).stat().st_size for n in (MANY[many], 2 * MANY[many])]
    assert large.peak_bytes - small.peak_bytes < MEMORY * (sizes[1] - sizes[0])
    assert large.result < ROWS * sizes[1]


def placed(at: int, payload: bytes, *, intact: bool) -> tuple[int, Segment]:
    header_sum = 0xFFFF if intact else 0  # right for zeros
    segment = Segment(
        from_b=False, seq=at, ack=0, flags=ACK, length=len(payload), payload=payload, header_sum=header_sum
    )
    assert segment.intact is intact
    return at, segment


@pytest.mark.parametrize("overlap", Overlap)
@pytest.mark.parametrize("large", [False, True])
def test_a_conflict_among_many_segments(large: bool, overlap: Overlap) -> None:
    """Also if one segment with a right checksum covers all of them, so that each may win."""

    def segments(n: int) -> list[tuple[int, Segment]]:
        small = [placed(at, b"\0", intact=True) for at in range(n)]
        copy = placed(n // 2, b"?", intact=False)
        return [placed(0, bytes(n), intact=True), *small, copy] if large else [*small, copy]

    def pieces(segments: list[tuple[int, Segment]]) -> int:
        found, conflict = merge(segments, overlap)
        assert conflict
        return len(found)

    n = 8_000
    _, cost = assert_linear(pieces, segments, n)
    assert cost.result <= 2 * n
