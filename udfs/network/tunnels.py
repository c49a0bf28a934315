"""Follows the tunnels, tags and link layers between a frame's beginning and its IP packet, one header at a time.

What begins at a place has a number, its *kind*: an EtherType, or one of another list of numbers moved above all
EtherTypes. `STEPS` has a function for each kind of header that can be followed: it takes the block with some padding
behind it, where headers begin and where their frames end, and returns the kind of what follows each header, and where.
Arrays hold one element per frame, so a mirrored capture costs little more than the plain one.
"""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from schemas.ingest import NotJudged, Tunnel
from udfs.arrow.buffers import Bools, Bytes, Ints, read_at

Step = Callable[[Bytes, Ints, Ints], tuple[Ints, Ints]]

IPV4, IPV6 = 0x0800, 0x86DD
PROTOCOL, LINK = 1 << 16, 2 << 16
"""Added to an IP protocol, to a link type of capture files."""
_UDP_PORT, _PPP_PROTOCOL = 3 << 16, 4 << 16
_IP, _LLC, _ENCRYPTED = 5 << 16, 6 << 16, 7 << 16
"""IP of either version; IEEE 802.2; what MACsec encrypts."""
NOTHING, _CUT = -1, -2
"""Nothing that could hold an IP packet; the header is not captured whole."""
_ETHERNET, _PPP = 0x6558, 0x880B  # as GRE numbers them: a whole frame begins here
_MPLS, _MPLS_MULTICAST, _PPPOE, _NSH, _MACSEC = 0x8847, 0x8848, 0x8864, 0x894F, 0x88E5
_ERSPAN_2, _ERSPAN_3 = 0x88BE, 0x22EB
_UDP = PROTOCOL + 17
_HEADERS = 24
"""Most headers that are followed to one IP packet."""
IP_DEPTH = 6
"""Most IP packets in IP packets."""
_FIRST_ETHER_TYPE = 0x0600
_CONTROL_PROTOCOLS = 0x4000  # from this number on, PPP's protocols carry no packets [RFC 1661] 2
_EXTENSIONS, _ATTRIBUTES = 4, 16  # most that are passed over, of GTP-U and of NFLOG


def unwrap(data: Bytes, kind: Ints, at: Ints, end: Ints, tunnel: Ints) -> None:
    """Moves `kind` and `at` of each frame on to its IP packet, or to what cannot be followed.

    `tunnel` is set to the place in `list(Tunnel)` of the last tunnel on the way; -1: there was none.
    """
    kind[:] = _of_length(kind)
    rows = np.arange(len(kind))
    for _ in range(_HEADERS):
        rows = rows[np.isin(kind[rows], _FOLLOWED)]
        if not len(rows):
            break
        for one in np.unique(kind[rows]).tolist():
            here = rows[kind[rows] == one]
            after, place = STEPS[one](data, at[here], end[here])
            if one in _TUNNELS:
                tunnel[here] = _TUNNELS[one]
            cut = np.where(tunnel[here] >= 0, _CUT, NOTHING)
            kind[here] = np.where(place > end[here], cut, _of_length(after))
            at[here] = np.minimum(place, end[here])


def count_unread(kind: Ints) -> dict[str, int]:
    """Counts the frames in which traffic of MSMQ could hide, by what could not be followed in them.

    `kind`: where `unwrap` ended. Not counted is what cannot hold any, as ARP.
    """
    ether_type = (kind >= _FIRST_ETHER_TYPE) & (kind < PROTOCOL) & ~np.isin(kind, (IPV4, IPV6, *_ORDINARY))
    ppp = (kind >= _PPP_PROTOCOL) & (kind < _PPP_PROTOCOL + _CONTROL_PROTOCOLS)
    link = (kind >= LINK) & (kind < _UDP_PORT)
    told = ether_type | ppp | link | np.isin(kind, [*_UNREAD])
    counts: Counter[str] = Counter()
    for one, many in zip(*(found.tolist() for found in np.unique(kind[told], return_counts=True)), strict=True):
        counts[_name(one)] += many
    return dict(counts)


def _name(kind: int) -> str:
    """Returns what is told of a kind that cannot be followed."""
    if kind in _UNREAD:
        return _UNREAD[kind]
    if kind in STEPS:
        return NotJudged.DEEP
    number = kind & 0xFFFF
    return (
        f"link_type_{number}"
        if kind & ~0xFFFF == LINK
        else f"ethertype_0x{number:04x}"
        if kind < PROTOCOL
        else f"ppp_0x{number:04x}"
    )


def be16(data: Bytes, at: Ints) -> Ints:
    """Returns the numbers of two bytes at these places, in network order."""
    return read_at(data, ">u2", at).astype(np.int64)


def _byte(data: Bytes, at: Ints) -> Ints:
    return data[at].astype(np.int64)


def _of_length(kind: Ints) -> Ints:
    """Returns the kinds, LLC for a length in the place of an EtherType [IEEE 802.3] 3.2.6."""
    return np.where((kind >= 0) & (kind < _FIRST_ETHER_TYPE), _LLC, kind)


def _followed_by(kind: int, size: int = 0) -> Step:
    """Returns the step over a header of `size` bytes that this kind follows."""
    return lambda _, at, __: (np.full_like(at, kind), at + size)


def _typed(type_at: int) -> Step:
    """Returns the step over a header that ends with an EtherType, at its byte `type_at`."""
    return lambda data, at, _: (be16(data, at + type_at), at + type_at + 2)


def _ip(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    version = data[at] >> 4
    return np.select([version == 4, version == 6], [IPV4, IPV6], NOTHING), at  # noqa: PLR2004


def _llc(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    """Steps over IEEE 802.2: SNAP with an EtherType [RFC 1042], or IP's own SAP."""
    saps = be16(data, at) << 8 | data[at + 2]
    snap = (saps == 0xAAAA03) & (be16(data, at + 3) == 0) & (data[at + 5] == 0)  # noqa: PLR2004
    kind = np.where(snap, be16(data, at + 6), np.where(saps == 0x060603, IPV4, NOTHING))  # noqa: PLR2004
    return kind, at + np.where(snap, 8, 3)


def _trustsec(data: Bytes, at: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Steps over Cisco's metadata: version, number of options of four bytes, the options, an EtherType."""
    place = np.minimum(at + 2 + 4 * _byte(data, at + 1), end)
    return be16(data, place), place + 2


def _trill(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    return np.full_like(at, _ETHERNET), at + 6 + 4 * (be16(data, at) >> 6 & 31)  # [RFC 6325] 3


def _macsec(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    """Steps over a tag of IEEE 802.1AE where the frame is only authenticated."""
    flags = data[at]
    place = at + np.where(flags & 0x20, 14, 6)
    return np.where(flags & 0x0C, _ENCRYPTED, be16(data, place)), place + 2


def _mpls(data: Bytes, at: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Steps over a label [RFC 3032]. Nothing says what follows the last: IP, or Ethernet, also behind a control word.

    So the first half byte decides as [RFC 4928] 3 says, unless what lies there looks as if it were another one.
    """
    place = np.minimum(at + 4, end)
    first = data[place] >> 4
    words = read_at(data, "V20", place).view(">u2").reshape(-1, 10).sum(axis=1, dtype=np.int64)
    is_sum_right = ((words & 0xFFFF) + (words >> 16)) % 0xFFFF == 0
    surely_ip = (first == 4) & is_sum_right  # noqa: PLR2004
    ethernet = _looks_like_ethernet(data, place)
    behind_word = (first == 0) & _looks_like_ethernet(data, place + 4)
    perhaps_behind = (first == 0) & ~ethernet & np.isin(be16(data, place + 16), (*_FOLLOWED, *_ORDINARY))
    kind = np.select(
        [(data[at + 2] & 1) == 0, surely_ip, behind_word, ethernet, perhaps_behind, (first == 4) | (first == 6)],  # noqa: PLR2004
        [_MPLS, _IP, _ETHERNET, _ETHERNET, _ETHERNET, _IP],
        np.where(first == 1, NOTHING, _ETHERNET),
    )
    has_word = (kind == _ETHERNET) & ~surely_ip & (behind_word | perhaps_behind)
    return kind, at + np.where(has_word, 8, 4)


def _looks_like_ethernet(data: Bytes, at: Ints) -> Bools:
    """Returns whether an Ethernet frame with an IP packet may begin here."""
    kind, version = be16(data, at + 12), data[at + 14] >> 4
    found: Bools = ((kind == IPV4) & (version == 4)) | ((kind == IPV6) & (version == 6))  # noqa: PLR2004
    return found


def _pppoe(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    return np.where(data[at + 1] == 0, _PPP, NOTHING), at + 6  # [RFC 2516] 4


def _ppp(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    """Steps over address and control, if they are there, and the protocol in one byte or two ([RFC 1661] 2, 6.5)."""
    place = at + np.where(be16(data, at) == 0xFF03, 2, 0)  # noqa: PLR2004
    is_short = (data[place] & 1) == 1
    protocol = np.where(is_short, data[place], be16(data, place))
    return _PPP_PROTOCOL + protocol, place + np.where(is_short, 1, 2)


def _serial(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    """Steps over Cisco's HDLC, which has an EtherType; everything else is PPP."""
    is_cisco = np.isin(data[at], (0x0F, 0x8F))
    return np.where(is_cisco, be16(data, at + 2), _PPP), at + np.where(is_cisco, 4, 0)


def _nflog(data: Bytes, at: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Passes over the attributes before the packet; they are in the byte order of the machine that captured."""
    place, found = at + 4, np.zeros(len(at), bool)
    for _ in range(_ATTRIBUTES):
        here = np.minimum(place, end)
        little, big = (read_at(data, f"{order}u2", np.stack([here, here + 2])).astype(np.int64) for order in "<>")
        size, what = np.where(little[1] < big[1], little, big)
        found |= what == 9  # noqa: PLR2004 - NFULA_PAYLOAD
        place = np.where(found, place, here + (np.maximum(size, 4) + 3) // 4 * 4)
    return np.where(found, _IP, NOTHING), place + 4


def _gre(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    """Steps over GRE [RFC 2784, RFC 2890], also that of PPTP [RFC 2637], which has an acknowledgment number."""
    flags, kind = be16(data, at), be16(data, at + 2)
    checksum, key, number = ((flags & bit) != 0 for bit in (0x8000, 0x2000, 0x1000))
    version = flags & 7
    acknowledgment = (version == 1) & ((flags & 0x0080) != 0)
    without_header = (kind == _ERSPAN_2) & ~number  # type I
    kind = np.where(without_header, _ETHERNET, np.where((version == 0) | (kind == _PPP), kind, NOTHING))
    return kind, at + 4 + 4 * (checksum.astype(np.int64) + key + number + acknowledgment)


def _erspan(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    """Steps over the header of type II, or of type III with what it may have besides (draft-foschiano-erspan)."""
    version, last = data[at] >> 4, be16(data, at + 10)
    content = np.select([last >> 10 & 31 == 0, last >> 10 & 31 == 2], [_ETHERNET, _IP], NOTHING)  # noqa: PLR2004
    kind = np.select([version == 1, version == 2], [_ETHERNET, content], NOTHING)  # noqa: PLR2004
    return kind, at + np.where(version == 1, 8, 12 + 8 * (last & 1))


def _udp(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    """Steps over UDP to a port of a tunnel, or of one that is told."""
    source, target = be16(data, at), be16(data, at + 2)
    port = np.where(np.isin(source, _TOLD_PORTS), source, target)
    known = np.isin(target, TUNNEL_PORTS) | np.isin(port, _TOLD_PORTS)
    return np.where(known, _UDP_PORT + np.where(np.isin(target, TUNNEL_PORTS), target, port), NOTHING), at + 8


def _vxlan(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    return np.where(data[at] & 8, _ETHERNET, NOTHING), at + 8  # [RFC 7348] 5


def _next_protocol(number: Ints) -> Ints:
    """Returns the kind of a protocol that NSH and VXLAN-GPE number [RFC 8300] 2.2."""
    return np.select([number == n for n in range(1, 6)], [IPV4, IPV6, _ETHERNET, _NSH, _MPLS], NOTHING)


def _vxlan_gpe(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    return np.where(data[at] & 4, _next_protocol(_byte(data, at + 3)), _ETHERNET), at + 8


def _nsh(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    return _next_protocol(_byte(data, at + 3)), at + 4 * (_byte(data, at + 1) & 63)


def _geneve(data: Bytes, at: Ints, _: Ints) -> tuple[Ints, Ints]:
    first = _byte(data, at)
    return np.where(first >> 6 == 0, be16(data, at + 2), NOTHING), at + 8 + 4 * (first & 63)  # [RFC 8926] 3.4


def _gtp(data: Bytes, at: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Steps over GTP-U and its extension headers [3GPP TS 29.281] 5."""
    flags = data[at]
    place = at + np.where(flags & 7, 12, 8)
    following = np.where(flags & 4, data[at + 11], 0)
    for _ in range(_EXTENSIONS):
        here = np.minimum(place, end)
        place = np.where(following, here + 4 * _byte(data, here), place)
        following = np.where(following, data[np.minimum(place, end) - 1], 0)
    is_packet = (flags >> 4 == 3) & (data[at + 1] == 255) & (following == 0)  # noqa: PLR2004 - a G-PDU of version 1
    return np.where(is_packet, _IP, NOTHING), place


STEPS: Mapping[int, Step] = {
    **dict.fromkeys((0x8100, 0x88A8, 0x9100, 0x9200, 0x9300), _typed(2)),
    _ETHERNET: _typed(12),
    0x893F: _typed(6),  # E-Tag of IEEE 802.1BR
    0x8926: _typed(4),  # VN-Tag
    0x892F: _typed(4),  # HSR
    0x8903: _followed_by(_ETHERNET, 2),  # FabricPath: a frame's first header has it for its type
    0x88E7: _followed_by(_ETHERNET, 4),  # IEEE 802.1ah
    0x22F3: _trill,
    0x8909: _trustsec,
    _MACSEC: _macsec,
    _MPLS: _mpls,
    _MPLS_MULTICAST: _mpls,
    _PPPOE: _pppoe,
    _PPP: _ppp,
    _NSH: _nsh,
    _ERSPAN_2: _erspan,
    _ERSPAN_3: _erspan,
    _IP: _ip,
    _LLC: _llc,
    _PPP_PROTOCOL + 0x21: _followed_by(IPV4),
    _PPP_PROTOCOL + 0x57: _followed_by(IPV6),
    **dict.fromkeys((_PPP_PROTOCOL + 0x281, _PPP_PROTOCOL + 0x283), _followed_by(_MPLS)),
    **dict.fromkeys((PROTOCOL + 4, PROTOCOL + 94), _followed_by(IPV4)),
    PROTOCOL + 41: _followed_by(IPV6),
    PROTOCOL + 47: _gre,
    PROTOCOL + 97: _followed_by(_ETHERNET, 2),  # [RFC 3378]
    PROTOCOL + 137: _followed_by(_MPLS),
    PROTOCOL + 143: _followed_by(_ETHERNET),  # [RFC 8986]
    _UDP: _udp,
    **dict.fromkeys((_UDP_PORT + 4789, _UDP_PORT + 8472), _vxlan),
    _UDP_PORT + 4790: _vxlan_gpe,
    _UDP_PORT + 6081: _geneve,
    _UDP_PORT + 2152: _gtp,
    _UDP_PORT + 4754: _gre,  # [RFC 8086]
    _UDP_PORT + 6635: _followed_by(_MPLS),  # [RFC 7510]
    **dict.fromkeys((LINK + 9, LINK + 50, LINK + 166), _serial),
    LINK + 51: _followed_by(_PPPOE),
    LINK + 104: _typed(2),  # Cisco's HDLC
    LINK + 204: _followed_by(_PPP, 1),
    LINK + 219: _followed_by(_MPLS),
    LINK + 239: _nflog,
}
"""Steps over each kind of header."""
_FOLLOWED = np.array(sorted(STEPS))
LINK_TYPES = tuple(kind - LINK for kind in STEPS if kind & ~0xFFFF == LINK)
"""Link types of capture files whose headers are followed."""
TUNNEL_PORTS = tuple(kind - _UDP_PORT for kind in STEPS if kind & ~0xFFFF == _UDP_PORT)
"""UDP ports of tunnels that are followed."""
TUNNEL_PROTOCOLS = tuple(kind - PROTOCOL for kind in STEPS if kind & ~0xFFFF == PROTOCOL)
"""IP protocols that may carry another packet; UDP is one."""
_TUNNELS = {
    kind: list(Tunnel).index(tunnel)
    for tunnel, kinds in {
        Tunnel.SNAP: (_LLC,),
        Tunnel.E_TAG: (0x893F,),
        Tunnel.VN_TAG: (0x8926,),
        Tunnel.FABRICPATH: (0x8903,),
        Tunnel.TRUSTSEC: (0x8909,),
        Tunnel.TRILL: (0x22F3,),
        Tunnel.PBB: (0x88E7,),
        Tunnel.MPLS: (_MPLS, _MPLS_MULTICAST),
        Tunnel.PPP: (_PPP,),
        Tunnel.NSH: (_NSH,),
        Tunnel.GRE: (PROTOCOL + 47, _UDP_PORT + 4754),
        Tunnel.ERSPAN: (_ERSPAN_2, _ERSPAN_3),
        Tunnel.IP: (PROTOCOL + 4, PROTOCOL + 41, PROTOCOL + 94),
        Tunnel.ETHERNET_IN_IP: (PROTOCOL + 97, PROTOCOL + 143),
        Tunnel.VXLAN: (_UDP_PORT + 4789, _UDP_PORT + 8472, _UDP_PORT + 4790),
        Tunnel.GENEVE: (_UDP_PORT + 6081,),
        Tunnel.GTP: (_UDP_PORT + 2152,),
    }.items()
    for kind in kinds
}
_UNREAD = {
    _CUT: NotJudged.CUT,
    _ENCRYPTED: NotJudged.MACSEC,
    **dict.fromkeys((PROTOCOL + 50, PROTOCOL + 51, _UDP_PORT + 4500), NotJudged.IPSEC),
    **dict.fromkeys((PROTOCOL + 115, _UDP_PORT + 1701), NotJudged.L2TP),
    _UDP_PORT + 51820: NotJudged.WIREGUARD,
    _UDP_PORT + 1194: NotJudged.OPENVPN,
    _UDP_PORT + 37008: NotJudged.TZSP,
    **dict.fromkeys((LINK + 105, LINK + 119, LINK + 127, LINK + 163, LINK + 192), NotJudged.WIFI),
    **dict.fromkeys([kind for kind in STEPS if kind >= PROTOCOL], NotJudged.DEEP),
}
"""What cannot be followed, of other lists than the EtherTypes."""
_TOLD_PORTS = tuple(
    kind - _UDP_PORT for kind in _UNREAD if kind & ~0xFFFF == _UDP_PORT and kind - _UDP_PORT not in TUNNEL_PORTS
)
_ORDINARY = (
    *(0x0600, 0x0806, 0x0842, 0x8035, 0x809B, 0x80F3, 0x8137, 0x9000, 0x6002, 0x6003, 0x6004),  # ARP, IPX, DEC, …
    *(0x8808, 0x8809, 0x8863, 0x888E, 0x88C7, 0x88CC, 0x88D9, 0x88F5, 0x88F6, 0x88F7, 0x8902),  # of links and switches
    *(0x22EA, 0x22F0, 0x22F4, 0x887B, 0x8899, 0x88E1, 0x88FB, 0x890D, 0x893A, 0x8912, 0x88A2),  # of networks at home, …
    *(0x8892, 0x88A4, 0x88AB, 0x88B8, 0x88B9, 0x88BA, 0x88CD, 0x88E3, 0x8906, 0x8914, 0x8915),  # of plants and storage
)
"""EtherTypes that carry neither IP packets nor frames."""
