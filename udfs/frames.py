"""TCP segments out of captured frames, a block of frames at a time.

Link layers: Ethernet with VLAN tags, Linux cooked v1 and v2, raw IP, BSD loopback. IPv4 [RFC 791], IPv6 with extension
headers [RFC 8200], TCP [RFC 9293]. The arrays hold one element per frame; nothing here makes a Python object per frame.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.ingest import FrameReason
from udfs.records import Records

Ints = NDArray[np.int64]

_PAD = 128
"""Bytes of padding behind a block, so that a header cut by its end can be looked at before it is judged."""
_ETHERNET, _NULL, _LOOP, _SLL, _SLL2 = 1, 0, 108, 113, 276
_RAW = (12, 14, 101, 228, 229)
SUPPORTED_LINK_TYPES = (_NULL, _ETHERNET, *_RAW, _LOOP, _SLL, _SLL2)
_IPV4, _IPV6 = 0x0800, 0x86DD
_VLAN_TAGS = (0x8100, 0x88A8, 0x9100)
_VLAN_DEPTH = 4
_EXTENSION_HEADERS = (0, 43, 60)  # hop-by-hop options, routing, destination options
_EXTENSION_DEPTH = 8
_FRAGMENT_HEADER = 44
_AUTHENTICATION_HEADER = 51
_TCP = 6
_FRAGMENT = -1  # stands for TCP in an IP fragment
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10


class Segments(NamedTuple):
    """TCP segments of one block, one element each. `payload` is an index in the block's buffer.

    `frame`: record number, from 1. `captured`: payload bytes in the capture. `length`: payload bytes on the wire, more
    than `captured` where the snap length cut the frame. `endpoints`: 36 bytes, the sending address (IPv4 mapped into
    IPv6) and port, then the receiving ones, in network order.
    """

    frame: Ints
    time_ns: Ints
    endpoints: NDArray[np.uint8]
    seq: Ints
    ack: Ints
    flags: Ints
    payload: Ints
    captured: Ints
    length: Ints


class Rejected(NamedTuple):
    """Frames that may have carried MSMQ and cannot be read: number, position and length in the buffer, why."""

    frame: Ints
    start: Ints
    captured: Ints
    reason: list[FrameReason]


def segments(records: Records, ports: Sequence[int]) -> tuple[Segments, Rejected]:
    """The TCP segments from or to one of `ports`, and the frames that cannot be read.

    Every other frame is other traffic: its number is the rest.
    """
    data = np.concatenate([records.buffer, np.zeros(_PAD, np.uint8)])
    count = len(records.start)
    frame = records.first_frame + np.arange(count)
    end = records.start + records.captured
    ether_type, network = _network_layer(data, records)
    transport, protocol, datagram_end, bad_ip = _transport_layer(data, ether_type, network, end)
    fragment = protocol == _FRAGMENT
    is_tcp = (protocol == _TCP) & ~bad_ip
    at = np.where(is_tcp, transport, 0)
    header = (data[at + 12] >> 4).astype(np.int64) * 4
    bad_tcp = is_tcp & ((transport + 20 > end) | (header < 20) | (transport + header > datagram_end))  # noqa: PLR2004
    source, target = _be16(data, at), _be16(data, at + 2)
    wanted = is_tcp & ~bad_tcp & (np.isin(source, ports) | np.isin(target, ports))
    unsupported = ~np.isin(records.link_type, SUPPORTED_LINK_TYPES)

    pick = np.flatnonzero(wanted)
    at, payload = at[pick], (transport + header)[pick]
    taken = Segments(
        frame=frame[pick],
        time_ns=records.time_ns[pick],
        endpoints=_endpoints(data, network[pick], at, ether_type[pick] == _IPV4),
        seq=_be32(data, at + 4),
        ack=_be32(data, at + 8),
        flags=data[at + 13].astype(np.int64),
        payload=payload,
        captured=np.maximum(np.minimum(datagram_end, end)[pick] - payload, 0),
        length=datagram_end[pick] - payload,
    )
    reasons = {
        FrameReason.UNSUPPORTED_LINK_TYPE: unsupported,
        FrameReason.BAD_IP_HEADER: bad_ip & ~unsupported,
        FrameReason.BAD_TCP_HEADER: bad_tcp,
        FrameReason.IP_FRAGMENT: fragment,
    }
    bad = np.flatnonzero(unsupported | bad_ip | bad_tcp | fragment)
    why = [next(reason for reason, where in reasons.items() if where[i]) for i in bad.tolist()]
    return taken, Rejected(frame[bad], records.start[bad], records.captured[bad], why)


def _be16(data: NDArray[np.uint8], at: Ints) -> Ints:
    return data[at].astype(np.int64) << 8 | data[at + 1]


def _be32(data: NDArray[np.uint8], at: Ints) -> Ints:
    return _be16(data, at) << 16 | _be16(data, at + 2)


def _network_layer(data: NDArray[np.uint8], records: Records) -> tuple[Ints, Ints]:
    """EtherType (0 when the frame holds no IP) and where the network layer begins."""
    start, end = records.start, records.start + records.captured
    link = records.link_type
    header = np.select([link == _ETHERNET, link == _SLL, link == _SLL2], [14, 16, 20], 0)
    type_at = np.select([link == _ETHERNET, link == _SLL, link == _SLL2], [12, 14, 0], 0)
    network = start + header
    ether_type = np.where(header > 0, _be16(data, start + type_at), 0)
    loopback = (link == _NULL) | (link == _LOOP)
    network = np.where(loopback, start + 4, network)
    for _ in range(_VLAN_DEPTH):
        tagged = np.isin(ether_type, _VLAN_TAGS) & (network + 4 <= end)
        if not tagged.any():
            break
        ether_type = np.where(tagged, _be16(data, np.where(tagged, network + 2, 0)), ether_type)
        network = np.where(tagged, network + 4, network)
    # Without an EtherType the IP version speaks for itself; the address family of a loopback header does not matter.
    version = data[np.minimum(network, end)] >> 4
    by_version = np.select([version == 4, version == 6], [_IPV4, _IPV6], 0)  # noqa: PLR2004
    ether_type = np.where(loopback | np.isin(link, _RAW), by_version, ether_type)
    return np.where(network < end, ether_type, 0), network


def _transport_layer(
    data: NDArray[np.uint8], ether_type: Ints, network: Ints, end: Ints
) -> tuple[Ints, Ints, Ints, NDArray[np.bool_]]:
    """Where the transport layer begins, its protocol (0: none), where the datagram ends on the wire, bad headers."""
    v4, v6 = ether_type == _IPV4, ether_type == _IPV6
    at = np.where((v4 & (network + 20 <= end)) | (v6 & (network + 40 <= end)), network, 0)
    version, low = data[at] >> 4, (data[at] & 15).astype(np.int64) * 4
    total = _be16(data, at + 2)
    v6_length = _be16(data, at + 4)
    bad = (v4 & ((network + 20 > end) | (version != 4) | (low < 20) | ((total != 0) & (total < low)))) | (  # noqa: PLR2004
        v6 & ((network + 40 > end) | (version != 6))  # noqa: PLR2004
    )
    transport = np.where(v4, network + low, network + 40)
    protocol = np.where(v4, data[at + 9], np.where(v6, data[at + 6], 0)).astype(np.int64)
    # Segmentation offload writes a total length of 0: then the datagram is what was captured.
    datagram_end = np.where(
        v4, np.where(total == 0, end, network + total), np.where(v6_length == 0, end, network + 40 + v6_length)
    )
    for _ in range(_EXTENSION_DEPTH):
        more = v6 & ~bad & (np.isin(protocol, _EXTENSION_HEADERS) | (protocol == _AUTHENTICATION_HEADER))
        more &= transport + 2 <= end
        if not more.any():
            break
        here = np.where(more, transport, 0)
        units = data[here + 1].astype(np.int64)
        size = np.where(protocol == _AUTHENTICATION_HEADER, (units + 2) * 4, (units + 1) * 8)
        protocol = np.where(more, data[here], protocol)
        transport = np.where(more, np.minimum(transport + size, end), transport)
    in_fragment = np.where(protocol == _FRAGMENT_HEADER, data[np.where(v6, transport, 0)], protocol) == _TCP
    fragment = (v4 & ((_be16(data, at + 6) & 0x3FFF) != 0)) | (v6 & (protocol == _FRAGMENT_HEADER))
    protocol = np.where(fragment, np.where(in_fragment, _FRAGMENT, 0), protocol)
    return transport, np.where(v4 | v6, protocol, 0), datagram_end, bad


def _endpoints(data: NDArray[np.uint8], network: Ints, transport: Ints, v4: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The 36 bytes of source address and port, destination address and port, of each segment."""
    out = np.zeros((len(network), 36), np.uint8)
    for column, (at4, at6, port) in ((0, (12, 8, 0)), (18, (16, 24, 2))):
        address6 = data[network[:, None] + at6 + np.arange(16)]
        address4 = np.zeros_like(address6)
        address4[:, 10:12] = 0xFF
        address4[:, 12:] = data[network[:, None] + at4 + np.arange(4)]
        out[:, column : column + 16] = np.where(v4[:, None], address4, address6)
        out[:, column + 16 : column + 18] = data[transport[:, None] + port + np.arange(2)]
    return out
