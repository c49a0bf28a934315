"""Captures for tests, byte for byte: pcap and pcapng files, frames of every link layer, TCP conversations.

Every builder takes the field that a test wants to be wrong.
"""

import random
import struct
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from itertools import pairwise
from typing import NamedTuple

FIN, SYN, RST, PSH, ACK, URG = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
ETHERNET, NULL, RAW, LOOP, SLL, SLL2 = 1, 0, 101, 108, 113, 276
CLIENT, SERVER = "10.0.0.1", "10.0.0.2"
CLIENT6, SERVER6 = "fd00::1", "fd00::2"
NEW_YEAR = 1_704_067_200  # 2024-01-01, seconds
BILLION = 1_000_000_000


# --- MSMQ -------------------------------------------------------------------------------------------------------------


def base_header(
    size: int, *, flags: int = 3, version: int = 0x10, signature: bytes = b"LIOR", reserved: int = 0
) -> bytes:
    """16 bytes of BaseHeader."""
    return struct.pack("<BBH4sII", version, reserved, flags, signature, size, 0xFFFFFFFF)


def msmq(size: int, body: bytes | None = None, *, flags: int = 3, reserved: int = 0) -> bytes:
    """A packet of so many bytes whose body holds no header unless it is given one."""
    filling = body if body is not None else b"\xcd" * (size - 16)
    assert len(filling) == size - 16
    return base_header(size, flags=flags, reserved=reserved) + filling


# --- frames -----------------------------------------------------------------------------------------------------------


def tcp(
    payload: bytes = b"",
    *,
    seq: int = 1000,
    ack: int = 0,
    flags: int = ACK,
    ports: tuple[int, int] = (50_000, 1801),
    options: bytes = b"",
    header: int | None = None,
    window: int = 8192,
) -> bytes:
    """A TCP segment; `header` is the header's length to claim."""
    length = 20 + len(options) if header is None else header
    fields = (*ports, seq % 2**32, ack % 2**32, length // 4 << 4, flags, window, 0, 0)
    return struct.pack(">HHIIBBHHH", *fields) + options + payload


def udp(payload: bytes, *, ports: tuple[int, int] = (50_000, 3527)) -> bytes:
    """A UDP datagram without a checksum."""
    return struct.pack(">HHHH", *ports, 8 + len(payload), 0) + payload


def ipv4(
    payload: bytes,
    *,
    hosts: tuple[str, str] = (CLIENT, SERVER),
    protocol: int = 6,
    options: bytes = b"",
    total: int | None = None,
    version: int = 4,
    header: int | None = None,
    identification: int = 1,
    fragment: int = 0,
    sums: bool = False,
) -> bytes:
    """An IPv4 datagram; `total` and `header` are the lengths to claim; with `sums` the TCP checksum is made right."""
    length = 20 + len(options) if header is None else header
    size = 20 + len(options) + len(payload) if total is None else total
    fields = (version << 4 | length // 4, 0, size, identification, fragment, 64, protocol, 0)
    addresses = b"".join(ip_address(host).packed for host in hosts)
    segment = with_checksum(payload, addresses) if sums else payload
    return struct.pack(">BBHHHBBH", *fields) + addresses + options + segment


def ipv6(
    payload: bytes,
    *,
    hosts: tuple[str, str] = (CLIENT6, SERVER6),
    protocol: int = 6,
    extensions: Sequence[tuple[int, bytes]] = (),
    length: int | None = None,
    sums: bool = False,
) -> bytes:
    """An IPv6 packet; an extension is its number and all of its bytes after the first; `sums` as for `ipv4`."""
    numbers = [number for number, _ in extensions] + [protocol]
    headers = b"".join(bytes([after]) + rest for after, (_, rest) in zip(numbers[1:], extensions, strict=True))
    size = len(headers) + len(payload) if length is None else length
    fixed = struct.pack(">IHBB", 6 << 28, size, numbers[0], 64)
    addresses = b"".join(ip_address(host).packed for host in hosts)
    return fixed + addresses + headers + (with_checksum(payload, addresses) if sums else payload)


def with_checksum(segment: bytes, addresses: bytes) -> bytes:
    """The TCP segment with the right checksum between these two addresses."""
    blank = segment[:16] + bytes(2) + segment[18:]
    pseudo = addresses + struct.pack(">II", len(segment), 6)
    return segment[:16] + struct.pack(">H", 0xFFFF - ones_sum(pseudo + blank)) + segment[18:]


def ones_sum(data: bytes) -> int:
    """The one's complement sum of 16-bit words [RFC 1071], word by word."""
    total = 0
    for (word,) in struct.iter_unpack(">H", data + bytes(len(data) % 2)):
        total += word
        total = (total & 0xFFFF) + (total >> 16)
    return total


def fragments4(payload: bytes, cuts: Sequence[int], *, identification: int = 1, protocol: int = 6) -> list[bytes]:
    """The payload of an IPv4 datagram in fragments, cut at these multiples of 8."""
    return [
        ipv4(part, identification=identification, fragment=at // 8 | more << 13, protocol=protocol)
        for at, more, part in _cut(payload, cuts)
    ]


def fragments6(payload: bytes, cuts: Sequence[int], *, identification: int = 1, protocol: int = 6) -> list[bytes]:
    """The fragmentable part of an IPv6 packet in fragments, cut at these multiples of 8."""
    return [
        ipv6(part, extensions=[(44, struct.pack(">BHI", 0, at | more, identification))], protocol=protocol)
        for at, more, part in _cut(payload, cuts)
    ]


def _cut(payload: bytes, cuts: Sequence[int]) -> list[tuple[int, bool, bytes]]:
    return [
        (start, end < len(payload), payload[start:end]) for start, end in pairwise([0, *sorted(cuts), len(payload)])
    ]


def option_header(units: int = 0) -> bytes:
    """The rest of a hop-by-hop, routing or destination header of 8 bytes and `units` times 8 more."""
    return bytes([units]) + bytes(6 + 8 * units)


def ethernet(packet: bytes, *, kind: int | None = None, tags: Sequence[int] = (), trailer: bytes = b"") -> bytes:
    """An Ethernet frame with VLAN tags of the given types."""
    vlans = b"".join(struct.pack(">HH", tag, 7) for tag in tags)
    return (
        bytes(range(12)) + vlans + struct.pack(">H", _ether_type(packet) if kind is None else kind) + packet + trailer
    )


def cooked(packet: bytes) -> bytes:
    """A Linux cooked frame, version 1."""
    return struct.pack(">HHH8sH", 0, 1, 6, bytes(8), _ether_type(packet)) + packet


def cooked2(packet: bytes) -> bytes:
    """A Linux cooked frame, version 2."""
    return struct.pack(">HHIHBB8s", _ether_type(packet), 0, 1, 1, 0, 6, bytes(8)) + packet


def loopback(packet: bytes, *, order: str = "<", family: int = 2) -> bytes:
    """A frame of the BSD loopback device."""
    return struct.pack(order + "I", family) + packet


def _ether_type(packet: bytes) -> int:
    return 0x86DD if packet[:1] and packet[0] >> 4 == 6 else 0x0800


# --- files ------------------------------------------------------------------------------------------------------------


class Record(NamedTuple):
    """A frame, its time, and the length it had on the wire when the capture cut it."""

    data: bytes
    time_ns: int = NEW_YEAR * BILLION
    original: int | None = None


def records(frames: Iterable[bytes], *, step_ns: int = 1_000_000, start_ns: int = NEW_YEAR * BILLION) -> list[Record]:
    """The frames, one every `step_ns`."""
    return [Record(frame, start_ns + index * step_ns) for index, frame in enumerate(frames)]


def pcap_header(
    *, order: str = "<", ns: bool = False, modified: bool = False, snap: int = 262_144, link: int = ETHERNET
) -> bytes:
    """The 24 bytes at the start of a pcap file."""
    magic = 0xA1B2CD34 if modified else 0xA1B23C4D if ns else 0xA1B2C3D4
    return struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snap, link)


def pcap_record(record: Record, *, order: str = "<", ns: bool = False, modified: bool = False) -> bytes:
    """A record with its header."""
    seconds, fraction = divmod(record.time_ns, BILLION)
    original = len(record.data) if record.original is None else record.original
    fields = (seconds, fraction if ns else fraction // 1000, len(record.data), original)
    return struct.pack(order + "IIII", *fields) + bytes(8 * modified) + record.data


def pcap(
    content: Iterable[Record],
    *,
    order: str = "<",
    ns: bool = False,
    modified: bool = False,
    snap: int = 262_144,
    link: int = ETHERNET,
) -> bytes:
    """A pcap file."""
    head = pcap_header(order=order, ns=ns, modified=modified, snap=snap, link=link)
    return head + b"".join(pcap_record(record, order=order, ns=ns, modified=modified) for record in content)


def block(kind: int, body: bytes, *, order: str = "<") -> bytes:
    """A pcapng block."""
    body += bytes(-len(body) % 4)
    size = 12 + len(body)
    return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)


def option(code: int, value: bytes, *, order: str = "<") -> bytes:
    """A pcapng option."""
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(*, order: str = "<", options: bytes = b"") -> bytes:
    """A Section Header Block."""
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + options, order=order)


def interface(
    *, link: int = ETHERNET, snap: int = 0, order: str = "<", resolution: int | None = None, offset: int | None = None
) -> bytes:
    """An Interface Description Block; `resolution` is the byte of if_tsresol."""
    options = b""
    if resolution is not None:
        options += option(9, bytes([resolution]), order=order)
    if offset is not None:
        options += option(14, struct.pack(order + "q", offset), order=order)
    if options:
        options += option(0, b"", order=order)
    return block(1, struct.pack(order + "HHI", link, 0, snap) + options, order=order)


def enhanced(
    data: bytes,
    stamp: int = NEW_YEAR * 1_000_000,
    *,
    number: int = 0,
    original: int | None = None,
    captured: int | None = None,
    order: str = "<",
    options: bytes = b"",
) -> bytes:
    """An Enhanced Packet Block; `stamp` is in the units of its interface."""
    lengths = (len(data) if captured is None else captured, len(data) if original is None else original)
    head = struct.pack(order + "IIIII", number, stamp >> 32, stamp & 0xFFFFFFFF, *lengths)
    return block(6, head + data + bytes(-len(data) % 4) + options, order=order)


def simple(data: bytes, *, original: int | None = None, order: str = "<") -> bytes:
    """A Simple Packet Block."""
    return block(3, struct.pack(order + "I", len(data) if original is None else original) + data, order=order)


def obsolete(data: bytes, stamp: int) -> bytes:
    """A Packet Block as it was before the Enhanced one."""
    head = struct.pack("<HHIIII", 0, 0, stamp >> 32, stamp & 0xFFFFFFFF, len(data), len(data))
    return block(2, head + data)


def pcapng(content: Iterable[Record], *, order: str = "<") -> bytes:
    """A pcapng file of one section with one Ethernet interface and microseconds."""
    blocks = [enhanced(r.data, r.time_ns // 1000, original=r.original, order=order) for r in content]
    return section(order=order) + interface(order=order) + b"".join(blocks)


# --- conversations ----------------------------------------------------------------------------------------------------


class Sent(NamedTuple):
    """A segment on its way: by the server or by the client, with sequence numbers as they are on the wire."""

    by_server: bool
    seq: int
    ack: int
    flags: int
    payload: bytes = b""
    window: int = 8192

    def frame(
        self,
        *,
        client: tuple[str, int] = (CLIENT, 50_000),
        server: tuple[str, int] = (SERVER, 1801),
        options: bytes = b"",
    ) -> bytes:
        """The segment as an Ethernet frame between two endpoints."""
        source, target = (server, client) if self.by_server else (client, server)
        segment = tcp(
            self.payload,
            seq=self.seq,
            ack=self.ack,
            flags=self.flags,
            ports=(source[1], target[1]),
            options=options,
            window=self.window,
        )
        hosts = (source[0], target[0])
        return ethernet(ipv6(segment, hosts=hosts) if ":" in source[0] else ipv4(segment, hosts=hosts))


def pieces(rng: random.Random, data: bytes, largest: int = 1460) -> list[tuple[int, bytes]]:
    """The data cut at random: offset and bytes."""
    cuts = []
    at = 0
    while at < len(data):
        size = rng.randint(1, largest)
        cuts.append((at, data[at : at + size]))
        at += size
    return cuts


def handshake(client_isn: int, server_isn: int) -> list[Sent]:
    """The three segments that open a connection."""
    return [
        Sent(False, client_isn, 0, SYN),
        Sent(True, server_isn, client_isn + 1, SYN | ACK),
        Sent(False, client_isn + 1, server_isn + 1, ACK),
    ]


def goodbye(client_next: int, server_next: int) -> list[Sent]:
    """The segments that close a connection in order."""
    return [
        Sent(False, client_next, server_next, FIN | ACK),
        Sent(True, server_next, client_next + 1, FIN | ACK),
        Sent(False, client_next + 1, server_next + 1, ACK),
    ]


def conversation(
    rng: random.Random,
    request: bytes,
    response: bytes = b"",
    *,
    client_isn: int = 1000,
    server_isn: int = 5000,
    largest: int = 1460,
    opened: bool = True,
    closed: bool = True,
) -> list[Sent]:
    """A connection on which client and server send these bytes, in random pieces, taking turns at random."""
    ahead = {False: pieces(rng, request, largest), True: pieces(rng, response, largest)}
    done = {False: 0, True: 0}
    isn = {False: client_isn, True: server_isn}
    sent = handshake(client_isn, server_isn) if opened else []
    while ahead[False] or ahead[True]:
        by_server = not ahead[False] or (bool(ahead[True]) and rng.random() < 0.5)
        offset, data = ahead[by_server].pop(0)
        seq, ack = isn[by_server] + 1 + offset, isn[not by_server] + 1 + done[not by_server]
        sent.append(Sent(by_server, seq, ack, ACK | PSH, data))
        done[by_server] = offset + len(data)
        if rng.random() < 0.5:
            sent.append(Sent(not by_server, ack, isn[by_server] + 1 + done[by_server], ACK))
    if closed:
        sent += goodbye(client_isn + 1 + len(request), server_isn + 1 + len(response))
    return sent


def fast_open(request: bytes, response: bytes, size: int, acknowledged: int) -> list[Sent]:
    """A connection whose SYN carries `size` bytes, of which the SYN/ACK acknowledges so many [RFC 7413]."""
    end, answered = 1001 + len(request), 5001 + len(response)
    return [
        Sent(False, 1000, 0, SYN, request[:size]),
        Sent(True, 5000, 1001 + acknowledged, SYN | ACK),
        *([Sent(False, 1001 + acknowledged, 5001, ACK, request[acknowledged:size])] if acknowledged < size else []),
        Sent(True, 5001, 1001 + size, ACK, response),
        Sent(False, 1001 + size, answered, ACK, request[size:]),
        *goodbye(end, answered),
    ]


def damaged(rng: random.Random, data: bytes, *, times: int, kinds: int, longest: int) -> bytes:
    """The data with bytes missing, too many, zero or changed; of `kinds`, all from the third on change a single bit."""
    out = bytearray(data)
    for _ in range(times):
        at = rng.randrange(len(out))
        match rng.randrange(kinds):
            case 0:
                del out[at : at + rng.randrange(1, longest)]
            case 1:
                out[at:at] = rng.randbytes(rng.randrange(1, longest))
            case 2:
                out[at : at + 64] = bytes(len(out[at : at + 64]))
            case _:
                out[at] ^= 1 << rng.randrange(8)
        if len(out) < 2:
            break
    return bytes(out)
