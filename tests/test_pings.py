"""UDP pings: which datagrams are taken for one, and what is read of them."""

from uuid import UUID

import pytest
import wiretap
from pipeline import block_of
from wiretap import ethernet, ipv4, ipv6, udp

from udfs.msmq.ping import find_pings
from udfs.network.dissect import find_segments

GUID = UUID("11223344-5566-7788-99aa-bbccddeeff00")
PING = (
    b"\x03\x80"  # Flags: RC, RF, a garbage bit
    b"\x48\x55"  # Signature
    b"\x0d\xf0\xad\x8b"  # Cookie
    b"\x44\x33\x22\x11\x66\x55\x88\x77\x99\xaa\xbb\xcc\xdd\xee\xff\x00"  # QMGuid
)
FRAME = ethernet(ipv4(udp(PING), protocol=17))


def pings(frames: list[bytes]) -> list[dict[str, object]]:
    _, _, _, datagrams = find_segments(block_of(frames, wiretap.ETHERNET), (1801,))
    return list(find_pings(datagrams))


def test_a_ping_reads_field_by_field() -> None:
    assert pings([FRAME]) == [
        {
            "frame_number": 1,
            "captured_ns": 0,
            "src_ip": "10.0.0.1",
            "src_port": 50_000,
            "dst_ip": "10.0.0.2",
            "dst_port": 3527,
            "is_response": False,
            "ping_flags": 0x8003,
            "client_class": True,
            "refused": True,
            "cookie": 0x8BADF00D,
            "queue_manager": str(GUID),
        }
    ]
    (answer,) = pings([ethernet(ipv6(udp(PING, ports=(3527, 50_000)), protocol=17))])
    assert (answer["src_ip"], answer["is_response"]) == ("fd00::1", True)


@pytest.mark.parametrize(
    "frame",
    [
        ethernet(ipv4(udp(PING, ports=(1, 2)), protocol=17)),  # another port
        ethernet(ipv4(udp(PING[:2] + b"\x55\x48" + PING[4:]), protocol=17)),  # another signature
        ethernet(ipv4(udp(b"\0" + PING), protocol=17)),  # longer
        ethernet(ipv4(udp(PING[1:]), protocol=17)),  # shorter
        ethernet(ipv4(udp(PING), protocol=6)),  # no UDP
        ethernet(wiretap.tcp(PING)),  # no IP
        b"",
        b"\x48\x55",
    ],
)
def test_what_is_no_ping_is_other_traffic(frame: bytes) -> None:
    assert pings([frame]) == []
    assert [row["frame_number"] for row in pings([frame, FRAME, frame])] == [2]


def test_a_ping_cut_anywhere_is_other_traffic() -> None:
    cuts = [FRAME[:size] for size in range(len(FRAME))]
    assert pings(cuts) == pings([]) == []
    assert [row["frame_number"] for row in pings([each for cut in cuts for each in (cut, FRAME)])] == [
        2 * number for number in range(1, len(cuts) + 1)
    ]
