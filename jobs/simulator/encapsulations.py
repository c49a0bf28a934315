"""Writes frames in the forms in which switches, clouds and other tools record them: in tunnels, behind tags, cooked."""

import struct
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

_MACS = bytes.fromhex("0242ac110002 0242ac110003")
_SOURCE, _TARGET = bytes((172, 17, 0, 2)), bytes((172, 17, 0, 3))
_SOURCE6, _TARGET6 = (bytes.fromhex("fd0000170000000000000000000000") + bytes([last]) for last in (2, 3))
_ETHERNET, _IPV4, _IPV6, _MPLS, _PPPOE = 0x6558, 0x0800, 0x86DD, 0x8847, 0x8864
_GRE, _UDP, _IN_IP, _V6_IN_IP, _ETHERIP = 47, 17, 4, 41, 97
_HEADER, _SOURCE_PORT = 14, 49_152
_FRAME_CHECK = bytes(4)  # some readers of FabricPath expect it
_CUT_AT = 104  # bytes of payload in the first fragment


class Encapsulation(NamedTuple):
    """Says how a capture holds a frame: as one frame of this link type, or as several."""

    frames: Callable[[bytes], list[bytes]]
    link_type: int = 1


def _as(wrap: Callable[[bytes], bytes], link_type: int = 1) -> Encapsulation:
    return Encapsulation(lambda frame: [wrap(frame)], link_type)


def _packet(frame: bytes) -> bytes:
    """Returns the IP packet of a frame without tags."""
    return frame[_HEADER:]


def _type(frame: bytes) -> bytes:
    return frame[_HEADER - 2 : _HEADER]


def _tagged(tag: bytes) -> Callable[[bytes], bytes]:
    """Returns what puts a tag, with its EtherType, before the frame's own EtherType."""
    return lambda frame: frame[: _HEADER - 2] + tag + frame[_HEADER - 2 :]


def _ethernet(kind: int, payload: bytes) -> bytes:
    return _MACS + struct.pack(">H", kind) + payload


def _ipv4(protocol: int, payload: bytes, *, identification: int = 7, fragment: int = 0) -> bytes:
    """Returns a packet between two machines of the tunnel, with its checksum."""
    fields = 0x45, 0, 20 + len(payload), identification, fragment, 64, protocol, 0
    head = struct.pack(">BBHHHBBH", *fields) + _SOURCE + _TARGET
    total = sum(word for (word,) in struct.iter_unpack(">H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + head[12:] + payload


def _ipv6(protocol: int, payload: bytes) -> bytes:
    return struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64) + _SOURCE6 + _TARGET6 + payload


def _in_ip(protocol: int, head: bytes = b"") -> Callable[[bytes], bytes]:
    """Returns what puts a frame into a packet of this protocol, behind `head`."""
    return lambda frame: _ethernet(_IPV4, _ipv4(protocol, head + frame))


def _udp(port: int, payload: bytes) -> bytes:
    return struct.pack(">HHHH", _SOURCE_PORT, port, 8 + len(payload), 0) + payload


def _in_udp(port: int, head: bytes) -> Callable[[bytes], bytes]:
    return lambda frame: _ethernet(_IPV4, _ipv4(_UDP, _udp(port, head + frame)))


def _gre(flags: int, kind: int, rest: bytes = b"") -> bytes:
    return struct.pack(">HH", flags, kind) + rest


def _gre_packet(frame: bytes) -> bytes:
    """Returns the IP packet in GRE with a checksum's field, a key and a sequence number."""
    head = struct.pack(">H", 0xB000) + _type(frame) + struct.pack(">HHII", 0, 0, 7, 9)
    return _ethernet(_IPV4, _ipv4(_GRE, head + _packet(frame)))


def _in_packet(frame: bytes) -> bytes:
    protocol = _IN_IP if _type(frame) == struct.pack(">H", _IPV4) else _V6_IN_IP
    return _ethernet(_IPV4, _ipv4(protocol, _packet(frame)))


def _gtp(frame: bytes) -> bytes:
    extension = bytes((0, 9, 0, 0x85, 1, 0, 1, 0))  # sequence number, N-PDU, a PDU session container
    content = extension + _packet(frame)
    head = struct.pack(">BBHI", 0x36, 255, len(content), 7)
    return _ethernet(_IPV4, _ipv4(_UDP, _udp(2152, head + content)))


def _label(number: int, *, is_last: bool) -> bytes:
    return struct.pack(">I", number << 12 | is_last << 8 | 64)


def _ppp_type(frame: bytes) -> bytes:
    return b"\x00\x21" if _type(frame) == struct.pack(">H", _IPV4) else b"\x00\x57"


def _pppoe(frame: bytes) -> bytes:
    content = _ppp_type(frame) + _packet(frame)
    return _ethernet(_PPPOE, struct.pack(">BBHH", 0x11, 0, 7, len(content)) + content)


def _snap(frame: bytes) -> bytes:
    content = bytes.fromhex("aaaa03000000") + frame[_HEADER - 2 :]
    return frame[: _HEADER - 2] + struct.pack(">H", len(content)) + content


def _nflog(frame: bytes) -> bytes:
    family = 2 if _type(frame) == struct.pack(">H", _IPV4) else 10
    packet = _packet(frame)
    attributes = ((1, struct.pack(">HBB", 0x0800, 3, 0)), (10, b"a prefix\0"), (9, packet))
    written = (struct.pack("<HH", 4 + len(value), kind) + value + bytes(-len(value) % 4) for kind, value in attributes)
    return struct.pack(">BBH", family, 0, 5) + b"".join(written)


def _outer_fragments(frame: bytes) -> list[bytes]:
    """Returns the frame in VXLAN whose outer packets are fragments, the later one first."""
    whole = _udp(4789, _VXLAN + frame)
    cuts = [cut for cut in (0, _CUT_AT, len(whole)) if cut <= len(whole)]
    parts = []
    for low, high in pairwise(dict.fromkeys(cuts)):
        fragment = low // 8 | (high < len(whole)) << 13
        packet = _ipv4(_UDP, whole[low:high], identification=_identification(frame), fragment=fragment)
        parts.append(_ethernet(_IPV4, packet))
    return parts[::-1]


def _identification(frame: bytes) -> int:
    """Returns a number that its fragments have, and hardly those of another frame."""
    return crc32(frame) & 0xFFFF


def _inner_fragments(frame: bytes) -> list[bytes]:
    """Returns fragments of the frame's packet, of IPv4 without options alone, each in GENEVE."""
    if _type(frame) != struct.pack(">H", _IPV4):
        return [_geneve(frame)]
    (total,) = struct.unpack_from(">H", frame, _HEADER + 2)  # padding follows
    head, payload = bytearray(frame[_HEADER : _HEADER + 20]), frame[_HEADER + 20 : _HEADER + total]
    parts = []
    for low, high in ((0, 16), (16, len(payload))):
        struct.pack_into(">H", head, 2, 20 + high - low)
        struct.pack_into(">HH", head, 4, _identification(frame), low // 8 | (high < len(payload)) << 13)
        parts.append(_geneve(frame[:_HEADER] + bytes(head) + payload[low:high]))
    return parts


_VXLAN = struct.pack(">II", 8 << 24, 7 << 8)
_VXLAN_GPE = struct.pack(">II", 0x0C << 24 | 3, 7 << 8)
_GENEVE = struct.pack(">BBHI", 2, 0, _ETHERNET, 7 << 8) + bytes.fromhex("0102010100000007")
_ERSPAN_2 = _gre(0x1000, 0x88BE, struct.pack(">I", 5)) + struct.pack(">HHI", 1 << 12 | 1, 7, 0)
_ERSPAN_3 = _gre(0x1000, 0x22EB, struct.pack(">I", 5)) + struct.pack(">HHIHH", 2 << 12 | 1, 7, 99, 0, 0)
_ERSPAN_3_MORE = _ERSPAN_3[:-1] + b"\x01" + bytes(8)
_geneve = _in_udp(6081, _GENEVE)
_in_vxlan = _in_udp(4789, _VXLAN)
_MAC_IN_MAC = struct.pack(">HI", 0x88E7, 7)

ENCAPSULATIONS: Mapping[str, Encapsulation] = {
    "plain": _as(lambda frame: frame),
    "vlan": _as(_tagged(bytes.fromhex("81000007"))),
    "qinq": _as(_tagged(bytes.fromhex("88a80007 81000009"))),
    "snap": _as(_snap),
    "vxlan": _as(_in_vxlan),
    "vxlan_8472": _as(_in_udp(8472, _VXLAN)),
    "vxlan_gpe": _as(_in_udp(4790, _VXLAN_GPE)),
    "vxlan_ipv6": _as(lambda frame: _ethernet(_IPV6, _ipv6(_UDP, _udp(4789, _VXLAN + frame)))),
    "vxlan_fragments": Encapsulation(_outer_fragments),
    "vxlan_and_plain": Encapsulation(lambda frame: [_in_vxlan(frame), frame]),
    "geneve": _as(_geneve),
    "geneve_fragments": Encapsulation(_inner_fragments),
    "gre": _as(_in_ip(_GRE, _gre(0, _ETHERNET))),
    "gre_packet": _as(_gre_packet),
    "nvgre": _as(_in_ip(_GRE, _gre(0x2000, _ETHERNET, struct.pack(">I", 7 << 8)))),
    "erspan_1": _as(_in_ip(_GRE, _gre(0, 0x88BE))),
    "erspan_2": _as(_in_ip(_GRE, _ERSPAN_2)),
    "erspan_3": _as(_in_ip(_GRE, _ERSPAN_3)),
    "erspan_3_subheader": _as(_in_ip(_GRE, _ERSPAN_3_MORE)),
    "ip_in_ip": _as(_in_packet),
    "etherip": _as(_in_ip(_ETHERIP, b"\x30\0")),
    "gtp": _as(_gtp),
    "mpls": _as(lambda frame: _ethernet(_MPLS, _label(17, is_last=False) + _label(18, is_last=True) + _packet(frame))),
    "pseudowire": _as(lambda frame: _ethernet(_MPLS, _label(17, is_last=True) + frame)),
    "pseudowire_control_word": _as(lambda frame: _ethernet(_MPLS, _label(17, is_last=True) + bytes(4) + frame)),
    "mpls_in_udp": _as(
        lambda frame: _ethernet(_IPV4, _ipv4(_UDP, _udp(6635, _label(17, is_last=True) + _packet(frame))))
    ),
    "pppoe": _as(_pppoe),
    "e_tag": _as(_tagged(bytes.fromhex("893f 000700090000"))),
    "vn_tag": _as(_tagged(bytes.fromhex("8926 00070009"))),
    "fabricpath": _as(lambda frame: _ethernet(0x8903, b"\x00\x45" + frame + _FRAME_CHECK)),
    "trustsec": _as(_tagged(bytes.fromhex("8909 0101 0001 0007"))),
    "trill": _as(lambda frame: _ethernet(0x22F3, bytes.fromhex("000500010002") + frame)),
    "mac_in_mac": _as(lambda frame: _MACS + _MAC_IN_MAC + frame),
    "macsec_without_encryption": _as(
        lambda frame: frame[:12] + bytes.fromhex("88e5 0000 00000009") + frame[_HEADER - 2 :] + bytes(16)
    ),
    "gre_in_mpls": _as(
        lambda frame: _ethernet(
            _MPLS,
            _label(17, is_last=True) + _ipv4(_GRE, _gre(0, _ETHERNET) + _tagged(bytes.fromhex("81000007"))(frame)),
        )
    ),
    "cooked": _as(lambda frame: struct.pack(">HHH8s", 0, 1, 6, frame[6:12]) + frame[_HEADER - 2 :], 113),
    "cooked_2": _as(
        lambda frame: _type(frame) + struct.pack(">HIHBB8s", 0, 3, 1, 0, 6, frame[6:12]) + _packet(frame), 276
    ),
    "raw_ip": _as(_packet, 101),
    "loopback": _as(lambda frame: struct.pack("<I", 2 if _ppp_type(frame) == b"\0!" else 24) + _packet(frame), 0),
    "ppp": _as(lambda frame: b"\xff\x03" + _ppp_type(frame) + _packet(frame), 9),
    "cisco_hdlc": _as(lambda frame: b"\x0f\0" + frame[_HEADER - 2 :], 104),
    "nflog": _as(_nflog, 239),
}
"""Forms in which a capture may hold its frames. All keep every packet and its time."""
