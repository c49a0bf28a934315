"""Finds TCP segments, IP fragments and pings in a block of captured frames.

Link layers: Ethernet with VLAN tags, Linux cooked v1 and v2, raw IP, BSD loopback; `udfs.network.tunnels` follows other
ones, and tunnels. IPv4 [RFC 791], IPv6 with extension headers [RFC 8200] and TCP [RFC 9293]. Arrays hold one element
per frame, so that no Python object is made per frame. `udfs.ingest.defragment` reassembles the fragments.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas import wire
from schemas.ingest import MSMQ_ON_PORT, TCP_PORT, FrameReason, NotJudged, Tunnel
from udfs.arrow.buffers import Bools, Ints, read_at
from udfs.capture.records import Records
from udfs.network import checksums, tunnels

_PAD = 128
"""Bytes of padding behind a block, so that a header that goes on behind it can be read before its length is checked."""
_ETHERNET, _NULL, _LOOP, _SLL, _SLL2 = 1, 0, 108, 113, 276
_RAW = (12, 14, 101, 228, 229)
_OWN_LINK_TYPES = (_NULL, _ETHERNET, *_RAW, _LOOP, _SLL, _SLL2)
SUPPORTED_LINK_TYPES = (*_OWN_LINK_TYPES, *tunnels.LINK_TYPES)
_IPV4, _IPV6 = 0x0800, 0x86DD
_VLAN_TAGS = (0x8100, 0x88A8, 0x9100)
_VLAN_DEPTH = 4
_EXTENSION_HEADERS = (0, 43, 60)  # hop-by-hop options, routing, destination options
_EXTENSION_DEPTH = 8
_FRAGMENT_HEADER = 44
_AUTHENTICATION_HEADER = 51
_TCP = 6
_PGM, _UDP = 113, 17
_HTTP_PORT, _POST = 80, b"POST /msmq"
_MOST_PORTS = 20
_RPC_PORTS = (2101, 2103, 2105, 2107)
_MAY_LEAD_TO_TCP = (_TCP, *_EXTENSION_HEADERS, _AUTHENTICATION_HEADER, *tunnels.TUNNEL_PROTOCOLS)
_FRAGMENT = -1  # the protocol number here of an IP fragment that may belong to a TCP datagram, or to a tunnel with one
_KEY_BYTES = 37
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
WINDOW_CLOSED = 0x100
"""Beside the flags of a segment: it announces a window of 0, so its receiver must not send data."""
DAMAGED = 0x200
"""Beside them: its checksum is wrong (`checksums.find_damaged`)."""


class Segments(NamedTuple):
    """TCP segments of one block, one element each.

    `frame`: record number, from 1. `endpoints`: 36 bytes, the sending address (IPv4 mapped into IPv6) and port, then
    the receiving ones, in network order. `payload`: index in the block's buffer. `captured`: payload bytes in the
    capture. `length`: payload bytes on the wire, more than `captured` when the snap length cut the frame.
    `flags`: those of the TCP header, `WINDOW_CLOSED` and `DAMAGED`.
    `header_sum`: the 16-bit one's complement sum of pseudo header and TCP header, checksum field included;
    0 where the capture holds the header only in part.
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
    header_sum: Ints

    def take(self, index: Ints | Bools) -> "Segments":
        """Returns the segments at an index or mask."""
        return Segments(*(column[index] for column in self))  # type: ignore[arg-type] # each of its own type


class Fragments(NamedTuple):
    """IP fragments of one block that may belong to TCP datagrams or tunnels, one element each.

    `key`: 37 bytes that are the same in all fragments of a datagram ([RFC 791] 3.2, [RFC 8200] 4.5): source and
    destination address (IPv4 mapped into IPv6), identification in 4 bytes, and the protocol, which may be an IPv6
    extension header. `offset`: bytes from the start of the datagram's payload. `more`: other fragments follow this one.
    `payload`, `captured`, `length`: as in `Segments`, for the bytes behind the IP and fragment headers.
    """

    frame: Ints
    time_ns: Ints
    key: NDArray[np.uint8]
    offset: Ints
    more: Bools
    payload: Ints
    captured: Ints
    length: Ints


class Pings(NamedTuple):
    """Ping Packets of [MS-MQQB] 2.2.7 in a block, one element each; the answer to a ping has its `cookie`.

    `endpoints`: as in `Segments`. A request is to UDP port 3527, an answer from there.
    """

    time_ns: Ints
    endpoints: NDArray[np.uint8]
    cookie: Ints


class Rejected(NamedTuple):
    """Frames that may have carried MSMQ and cannot be read: record number, place and length in the buffer, reason."""

    frame: Ints
    start: Ints
    captured: Ints
    reason: list[FrameReason]
    not_judged: Mapping[str, int] = MappingProxyType({})
    """Records that MSMQ may have sent and that were not read: those of `NotJudged`, and other numbers by name."""
    tunnels: Mapping[Tunnel, int] = MappingProxyType({})
    """Segments that were found in a tunnel, by the innermost one."""
    pings: Pings | None = None
    """Pings among the other traffic; None for none."""


def find_segments(records: Records, ports: Sequence[int]) -> tuple[Segments, Rejected, Fragments]:
    """Returns the TCP segments from or to one of `ports`, frames that cannot be read, and IP fragments.

    All other frames are other traffic.
    """
    data = np.concatenate([records.buffer, np.zeros(_PAD, np.uint8)])
    count = len(records.start)
    frame = records.first_frame + np.arange(count)
    end = records.start + records.captured
    ether_type, network = _network_layer(data, records)
    packets = _Packets(ether_type, network, *_transport_layer(data, ether_type, network, end), end)
    unread, tunnel = _open_tunnels(data, records, packets)
    ether_type, network, transport, protocol, datagram_end, bad_ip, end = packets
    is_tcp = (protocol == _TCP) & ~bad_ip
    at = np.where(is_tcp, transport, 0)
    header = (data[at + 12] >> 4).astype(np.int64) * 4
    bad_tcp = is_tcp & ((transport + 20 > end) | (header < 20) | (transport + header > datagram_end))  # noqa: PLR2004
    source, target = _be16(data, at), _be16(data, at + 2)
    wanted = is_tcp & ~bad_tcp & (np.isin(source, ports) | np.isin(target, ports))
    unsupported = ~np.isin(records.link_type, SUPPORTED_LINK_TYPES)

    pick = np.flatnonzero(wanted)
    at, payload, v4 = at[pick], (transport + header)[pick], ether_type == _IPV4
    endpoints, length = _endpoints(data, network[pick], at, v4[pick]), datagram_end[pick] - payload
    sums = checksums.header_sums(data, at, header[pick], endpoints, length)
    flags = data[at + 13].astype(np.int64)
    is_closed = (_be16(data, at + 14) == 0) & ((flags & (SYN | RST)) == 0)
    flags = np.where(is_closed, flags | WINDOW_CLOSED, flags)
    captured = np.maximum(np.minimum(datagram_end, end)[pick] - payload, 0)
    whole = np.flatnonzero((captured == length) & (length > 0))
    damaged = checksums.find_damaged(data, at[whole], endpoints[whole], payload[whole], length[whole], sums[whole])
    flags[whole[damaged]] |= DAMAGED
    taken = Segments(
        frame=frame[pick],
        time_ns=records.time_ns[pick],
        endpoints=endpoints,
        seq=_be32(data, at + 4),
        ack=_be32(data, at + 8),
        flags=flags,
        payload=payload,
        captured=captured,
        length=length,
        header_sum=np.where(payload <= end[pick], sums, 0),
    )
    reasons = {
        FrameReason.UNSUPPORTED_LINK_TYPE: unsupported,
        FrameReason.BAD_IP_HEADER: bad_ip & ~unsupported,
        FrameReason.BAD_TCP_HEADER: bad_tcp,
    }
    bad = np.flatnonzero(unsupported | bad_ip | bad_tcp)
    why = [next(reason for reason, where in reasons.items() if where[i]) for i in bad.tolist()]
    part = np.flatnonzero((protocol == _FRAGMENT) & ~bad_ip)
    fragments = _fragments(data, records, part, network[part], transport[part], datagram_end[part], end[part])
    other_tcp = is_tcp & ~bad_tcp & ~wanted
    is_post = _is_post(data, np.flatnonzero(other_tcp & (target == _HTTP_PORT)), transport + header, end)
    aside = {
        NotJudged.HTTP: is_post,
        NotJudged.MULTICAST: (protocol == _PGM) & ~bad_ip,
        NotJudged.RPC: other_tcp & (np.isin(source, _RPC_PORTS) | np.isin(target, _RPC_PORTS)),
    }
    counts = {what.value: int(np.count_nonzero(where)) for what, where in aside.items()} | unread
    udp = np.flatnonzero((protocol == _UDP) & ~bad_ip)
    if not len(pick):
        counts |= _other_ports(data, np.flatnonzero(other_tcp), source, target, transport + header, end)
    pings, counts[NotJudged.BAD_PING.value] = _find_pings(data, records.time_ns, end, network, transport, v4, udp)
    through = np.bincount(tunnel[pick] + 1, minlength=len(Tunnel) + 1)[1:].tolist()
    by_tunnel = {name: many for name, many in zip(Tunnel, through, strict=True) if many}
    rejects = Rejected(frame[bad], records.start[bad], records.captured[bad], why, counts, by_tunnel, pings)
    return taken, rejects, fragments


def _other_ports(
    data: NDArray[np.uint8], part: Ints, source: Ints, target: Ints, payload: Ints, end: Ints
) -> dict[str, int]:
    """Counts the records `part` by TCP port, and those of them that begin as packets of MSMQ do; the most frequent.

    Of the two ports, the lower one counts: clients get high ones.
    """
    port, at = np.minimum(source, target)[part], payload[part]
    signature = read_at(data, "<u4", np.where(at + 8 <= end[part], at, 0) + 4)
    is_packet = (at + 8 <= end[part]) & (signature == wire.SIGNATURE)
    found: dict[str, int] = {}
    for name, ports in ((TCP_PORT, port), (MSMQ_ON_PORT, port[is_packet])):
        counts = np.bincount(ports)
        most = np.argsort(-counts, kind="stable")[:_MOST_PORTS]
        found |= {f"{name}{each}": int(counts[each]) for each in most.tolist() if counts[each]}
    return found


def _find_pings(
    data: NDArray[np.uint8], time_ns: Ints, end: Ints, network: Ints, transport: Ints, v4: Bools, udp: Ints
) -> tuple[Pings | None, int]:
    """Returns the pings in the records `udp`, and how many datagrams to their port are none.

    Only what is captured of a packet is looked at, up to the cookie. Where less is, nobody knows.
    """
    udp = udp[transport[udp] + 8 <= end[udp]]
    at = transport[udp]
    from_port, to_port = (_be16(data, at + place) == wire.PING_PORT for place in (0, 2))
    may_be = _be16(data, at + 4) == 8 + wire.PING_BYTES
    is_cut = at + 16 > end[udp]
    is_ping = may_be & ~is_cut & (read_at(data, "<u2", at + 10) == wire.PING_SIGNATURE)
    pick = udp[is_ping & (to_port | from_port)]
    bad = int(np.count_nonzero(to_port & ~is_ping & ~(may_be & is_cut)))
    if not len(pick):
        return None, bad
    at = transport[pick]
    cookie = read_at(data, "<u4", at + 12).astype(np.int64)
    return Pings(time_ns[pick], _endpoints(data, network[pick], at, v4[pick]), cookie), bad


class _Packets(NamedTuple):
    """The IP packet of each frame, as `_network_layer` and `_transport_layer` find it; `end`: of what is captured."""

    ether_type: Ints
    network: Ints
    transport: Ints
    protocol: Ints
    datagram_end: Ints
    bad: Bools
    end: Ints


def _open_tunnels(data: NDArray[np.uint8], records: Records, packets: _Packets) -> tuple[dict[str, int], Ints]:
    """Replaces packets that carry another one, or none that was found, by the innermost ones in their frames.

    Returns counts of frames that cannot be followed (`tunnels.count_unread`), and the tunnel of each frame.
    """
    link, tunnel = records.link_type, np.full(len(packets.end), -1)
    is_own = np.isin(link, _OWN_LINK_TYPES)
    plain = (packets.protocol == _TCP) | (packets.protocol == _FRAGMENT) | packets.bad
    rows = np.flatnonzero(~plain & (packets.network < packets.end) & ((packets.ether_type > 0) | ~is_own))
    if not len(rows):
        return {}, tunnel
    is_ip = packets.protocol[rows] > 0
    kind = np.where(is_own, packets.ether_type, tunnels.LINK + link)[rows]
    kind = np.where(is_ip, tunnels.PROTOCOL + packets.protocol[rows], kind)
    at = np.where(is_ip, packets.transport[rows], packets.network[rows])
    end = np.where(is_ip, np.minimum(packets.end, packets.datagram_end)[rows], packets.end[rows])
    at, through = np.minimum(at, end), tunnel[rows]
    inside = np.arange(len(rows))
    for _ in range(tunnels.IP_DEPTH):
        found = [column[inside] for column in (kind, at, end, through)]
        tunnels.unwrap(data, *found)
        kind[inside], at[inside], _, through[inside] = found
        inside = inside[np.isin(kind[inside], (_IPV4, _IPV6))]
        if not len(inside):
            break
        ether_type, network, captured_end = kind[inside], at[inside], end[inside]
        transport, protocol, datagram_end, bad = _transport_layer(data, ether_type, network, captured_end)
        inner = _Packets(ether_type, network, transport, protocol, datagram_end, bad, captured_end)
        for column, values in zip(packets, inner, strict=True):
            column[rows[inside]] = values
        end[inside] = np.minimum(captured_end, datagram_end)
        at[inside] = np.minimum(transport, end[inside])
        kind[inside] = np.where(bad | (protocol < 0), tunnels.NOTHING, tunnels.PROTOCOL + protocol)
    tunnel[rows] = through
    return tunnels.count_unread(kind), tunnel


def _is_post(data: NDArray[np.uint8], rows: Ints, payload: Ints, end: Ints) -> Bools:
    """Returns for each of these rows whether its payload begins with a request of SRMP, in any case of letters."""
    whole = rows[payload[rows] + len(_POST) <= end[rows]]
    text = data[payload[whole, None] + np.arange(len(_POST))] | 0x20
    found: Bools = (text == np.frombuffer(_POST, np.uint8) | 0x20).all(axis=1)
    return found


def connection_keys(endpoints: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], Bools]:
    """Returns a key of 36 bytes that both directions of a connection share, and whether the higher endpoint sent.

    `endpoints` are those of `Segments`; the key has the lower endpoint first.
    """
    source, target = endpoints[:, :18], endpoints[:, 18:]
    differ = (source != target).argmax(axis=1)
    rows = np.arange(len(differ))
    from_b = source[rows, differ] > target[rows, differ]
    return np.where(from_b[:, None], np.concatenate([target, source], axis=1), endpoints), from_b


def target_ports(endpoints: NDArray[np.uint8]) -> Ints:
    """Returns the port to which each of the `endpoints` of `Segments` sent."""
    ports: Ints = endpoints[:, 34].astype(np.int64) << 8 | endpoints[:, 35]
    return ports


def _be16(data: NDArray[np.uint8], at: Ints) -> Ints:
    return read_at(data, ">u2", at).astype(np.int64)


def _be32(data: NDArray[np.uint8], at: Ints) -> Ints:
    return read_at(data, ">u4", at).astype(np.int64)


def _network_layer(data: NDArray[np.uint8], records: Records) -> tuple[Ints, Ints]:
    """Returns the EtherType (0 when the frame ends before the network layer) and where the network layer begins."""
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
    # Without an EtherType, the IP version counts; the address family of a loopback header is not used.
    version = data[np.minimum(network, end)] >> 4
    by_version = np.select([version == 4, version == 6], [_IPV4, _IPV6], 0)  # noqa: PLR2004
    ether_type = np.where(loopback | np.isin(link, _RAW), by_version, ether_type)
    return np.where(network < end, ether_type, 0), network


def _transport_layer(
    data: NDArray[np.uint8], ether_type: Ints, network: Ints, end: Ints
) -> tuple[Ints, Ints, Ints, Bools]:
    """Returns where the transport layer begins, its protocol, where the datagram ends on the wire, and bad headers.

    `ether_type`, `network`: as `_network_layer` returns them. `end`: where the frame ends. Protocol 0: no IP datagram,
    or a fragment that cannot belong to TCP.
    """
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
    # Segmentation offload writes a total length of 0: the datagram then ends with the frame.
    datagram_end = np.where(
        v4, np.where(total == 0, end, network + total), np.where(v6_length == 0, end, network + 40 + v6_length)
    )
    for _ in range(_EXTENSION_DEPTH):
        more = v6 & ~bad & np.isin(protocol, (*_EXTENSION_HEADERS, _AUTHENTICATION_HEADER, _FRAGMENT_HEADER))
        more &= transport + np.where(protocol == _FRAGMENT_HEADER, 8, 2) <= end
        here = np.where(more, transport, 0)
        more &= (protocol != _FRAGMENT_HEADER) | ((_be16(data, here + 2) & 0xFFF9) == 0)  # atomic fragment [RFC 6946]
        if not more.any():
            break
        units = np.where(protocol == _FRAGMENT_HEADER, 0, data[here + 1]).astype(np.int64)
        size = np.where(protocol == _AUTHENTICATION_HEADER, (units + 2) * 4, (units + 1) * 8)
        protocol = np.where(more, data[here], protocol)
        transport = np.where(more, np.minimum(transport + size, end), transport)
    v6_fragment = v6 & ~bad & (protocol == _FRAGMENT_HEADER)
    bad |= v6_fragment & (transport + 8 > np.minimum(end, datagram_end))
    v6_tcp = v6_fragment & np.isin(data[np.where(v6_fragment, transport, 0)], _MAY_LEAD_TO_TCP)
    v4_fragment = v4 & ((_be16(data, at + 6) & 0x3FFF) != 0)
    of_tcp = v6_tcp | (v4_fragment & np.isin(protocol, (_TCP, *tunnels.TUNNEL_PROTOCOLS)))
    protocol = np.where(of_tcp, _FRAGMENT, np.where(v6_fragment, 0, protocol))
    return transport, np.where(v4 | v6, protocol, 0), datagram_end, bad


def _fragments(
    data: NDArray[np.uint8], records: Records, part: Ints, network: Ints, transport: Ints, datagram_end: Ints, end: Ints
) -> Fragments:
    """Returns the fragments in the records `part`; the other arrays have one element for each of these."""
    v4 = data[network] >> 4 == 4  # noqa: PLR2004
    word = np.where(v4, _be16(data, network + 6), _be16(data, transport + 2))
    key = np.zeros((len(network), _KEY_BYTES), np.uint8)
    key[:, :32] = _addresses(data, network, v4)
    identification = data[np.where(v4, network + 2, transport + 4)[:, None] + np.arange(4)]
    key[:, 32:36] = np.where(v4[:, None] & (np.arange(4) < 2), 0, identification)  # noqa: PLR2004
    key[:, 36] = data[np.where(v4, network + 9, transport)]
    payload = np.where(v4, transport, transport + 8)
    return Fragments(
        frame=records.first_frame + part,
        time_ns=records.time_ns[part],
        key=key,
        offset=np.where(v4, (word & 0x1FFF) * 8, word & 0xFFF8),
        more=(word & np.where(v4, 0x2000, 1)) != 0,
        payload=payload,
        captured=np.maximum(np.minimum(datagram_end, end) - payload, 0),
        length=datagram_end - payload,
    )


def _addresses(data: NDArray[np.uint8], network: Ints, v4: Bools) -> NDArray[np.uint8]:
    """Returns source and destination address of each datagram, 32 bytes, IPv4 mapped into IPv6."""
    out = np.zeros((len(network), 2, 16), np.uint8)
    four, six = np.flatnonzero(v4), np.flatnonzero(~v4)
    out[six] = read_at(data, "V32", network[six] + 8).view(np.uint8).reshape(-1, 2, 16)
    out[four, :, 10:12] = 0xFF
    out[four, :, 12:] = read_at(data, "V8", network[four] + 12).view(np.uint8).reshape(-1, 2, 4)
    return out.reshape(-1, 32)


def _endpoints(data: NDArray[np.uint8], network: Ints, transport: Ints, v4: Bools) -> NDArray[np.uint8]:
    """Returns source address and port, destination address and port of each datagram, 36 bytes."""
    addresses = _addresses(data, network, v4)
    ports = read_at(data, "V4", transport).view(np.uint8).reshape(-1, 4)
    return np.concatenate([addresses[:, :16], ports[:, :2], addresses[:, 16:], ports[:, 2:]], axis=1)
