"""Rewrites a simulated capture as other tools would have recorded the same traffic: all frames, at their true times.

Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. Keep-alives: [RFC 1122] 4.2.3.6.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from random import Random
from typing import NamedTuple

from jobs.cli.config import Form
from jobs.simulator.events import MICROSECOND, SECOND
from jobs.simulator.renumbered import behind_firewall
from schemas.wire import TCP_PORT

_MAGIC_NS = 0xA1B23C4D
_BATCH_NS = SECOND
_IDLE_NS = 2 * SECOND
"""A connection that is idle for so long sends a keep-alive."""
_KEPT_ALIVE_AFTER_NS = 300_000
_MISSED = 0.02
"""Share of the frames that each of two captures misses, and the other one has."""
_ETHERNET, _IPV4, _TCP = 14, 0x0800, 20
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16
_MODULUS = 1 << 32
_SECTION = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
_INTERFACE = struct.pack("<IIHHIHHB3xII", 1, 32, 1, 0, 1 << 18, 9, 1, 9, 0, 32)  # Ethernet, times in ns
_Files = dict[str, bytes]
"""The contents of files by what their names end in."""


class Record(NamedTuple):
    """A captured frame and its time in ns since 1970; `size`: its bytes on the wire, if it was cut."""

    time_ns: int
    frame: bytes
    size: int


class _Ends(NamedTuple):
    """Holds what a frame's headers say, and where its TCP header begins."""

    source: bytes
    target: bytes
    tcp: int
    seq: int
    ack: int
    flags: int
    length: int

    @classmethod
    def of(cls, frame: bytes) -> "_Ends":
        """Reads the headers of a frame that the simulator wrote."""
        (ether_type,) = struct.unpack_from(">H", frame, 12)
        low, tcp, size = (26, 34, 4) if ether_type == _IPV4 else (22, 54, 16)
        source, target, seq, ack, offset, flags = struct.unpack_from(">HHIIBB", frame, tcp)
        ports = source.to_bytes(2), target.to_bytes(2)
        address = frame[low : low + size], frame[low + size : low + 2 * size]
        length = len(frame) - tcp - (offset >> 4) * 4
        return cls(address[0] + ports[0], address[1] + ports[1], tcp, seq, ack, flags, length)

    @property
    def is_request(self) -> bool:
        """Tells whether it goes to a port of MSMQ."""
        return self.target[-2:] == TCP_PORT.to_bytes(2)


def rewrite(folder: Path, prefix: str, form: str, seed: int) -> None:
    """Writes each capture of a folder in a form, in place of the capture. Memory: one capture."""
    rng = Random(seed)  # noqa: S311 - reproducible traffic, no secrets
    if form in (Form.RENUMBERED, Form.RENUMBERED_TRANSLATED):
        behind_firewall(folder, prefix, rng, translates=form == Form.RENUMBERED_TRANSLATED)
        return
    for path in sorted(folder.glob(f"{prefix}_*.pcap")):
        records = list(_records(path.read_bytes()))
        path.unlink()
        for name, content in FORMS[form](records, rng).items():
            path.with_name(f"{path.stem}{name}").write_bytes(content)


def _records(data: bytes) -> Iterator[Record]:
    """Yields the records of a capture that the simulator wrote."""
    (magic,) = struct.unpack_from("<I", data)
    unit, at = (1 if magic == _MAGIC_NS else MICROSECOND), 24
    while at + 16 <= len(data):
        seconds, fraction, captured, size = struct.unpack_from("<IIII", data, at)
        yield Record(seconds * SECOND + fraction * unit, data[at + 16 : at + 16 + captured], size)
        at += 16 + captured


def _pcap(records: Iterable[Record]) -> bytes:
    parts = [struct.pack("<IHHiIII", _MAGIC_NS, 2, 4, 0, 0, 1 << 18, 1)]
    for time_ns, frame, size in records:
        parts += [struct.pack("<IIII", *divmod(time_ns, SECOND), len(frame), size), frame]
    return b"".join(parts)


def _pcapng(interfaces: int, records: Iterable[tuple[int, Record]]) -> bytes:
    """Returns a section with so many interfaces; each record comes with the number of its interface."""
    parts = [_SECTION, _INTERFACE * interfaces]
    for interface, (time_ns, frame, size) in records:
        padded = frame + bytes(-len(frame) % 4)
        length = 32 + len(padded)
        head = struct.pack("<IIIIIII", 6, length, interface, time_ns >> 32, time_ns % _MODULUS, len(frame), size)
        parts += [head, padded, struct.pack("<I", length)]
    return b"".join(parts)


def _directions(records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Returns the records of frames to a port of MSMQ, and those of the others."""
    both: tuple[list[Record], list[Record]] = [], []
    for record in records:
        both[not _Ends.of(record.frame).is_request].append(record)
    return both


# --- forms ------------------------------------------------------------------------------------------------------------


def _sections(records: Sequence[Record], _: Random) -> _Files:
    return {".pcapng": b"".join(_pcapng(1, ((0, one) for one in side)) for side in _directions(records))}


def _taps(records: Sequence[Record], _: Random) -> _Files:
    return {".pcapng": 2 * _pcapng(1, ((0, one) for one in records))}


def _interfaces(records: Sequence[Record], _: Random) -> _Files:
    in_turn: list[tuple[int, Record]] = []
    for _, batch in groupby(records, lambda record: record.time_ns // _BATCH_NS):
        for interface, side in enumerate(_directions(list(batch))):
            in_turn += [(interface, record) for record in side]
    return {".pcapng": _pcapng(2, in_turn)}


def _files(records: Sequence[Record], _: Random) -> _Files:
    requests, answers = _directions(records)
    return {"_requests.pcap": _pcap(requests), "_answers.pcap": _pcap(answers)}


def _appended(records: Sequence[Record], _: Random) -> _Files:
    requests, answers = _directions(records)
    return {".pcap": _pcap([*requests, *answers])}


def _hosts(records: Sequence[Record], _: Random) -> _Files:
    of_host: dict[bytes, list[Record]] = defaultdict(list)
    for record in records:
        ends = _Ends.of(record.frame)
        of_host[(ends.source if ends.is_request else ends.target)[:-2]].append(record)
    return {f"_host{at:03}.pcap": _pcap(of_host[host]) for at, host in enumerate(sorted(of_host))}


def _keep_alives(records: Sequence[Record], rng: Random) -> _Files:
    """Has idle connections send keep-alives with a byte of garbage; two captures each miss some frames."""
    captures: tuple[list[Record], list[Record]] = [], []
    for record in _with_keep_alives(records):
        draw = rng.random()
        for at, capture in enumerate(captures):
            if not at * _MISSED <= draw < (at + 1) * _MISSED:
                capture.append(record)
    return {"_a.pcap": _pcap(captures[0]), "_b.pcap": _pcap(captures[1])}


FORMS: Mapping[str, Callable[[Sequence[Record], Random], _Files]] = {
    Form.SECTIONS: _sections,
    Form.TAPS: _taps,
    Form.INTERFACES: _interfaces,
    Form.DIRECTIONS: _files,
    Form.APPENDED: _appended,
    Form.HOSTS: _hosts,
    Form.KEEP_ALIVES: _keep_alives,
}
"""How to write the records of a capture in a form.

`sections`: a section for each direction, one behind the other. `taps`: two sections with all frames each. `interfaces`:
an interface for each direction, in turns of a second. `directions`: a file for each. `appended`: one direction behind
the other without sections. `hosts`: a file for each machine that connects. `keep_alives`: two captures that each miss
some frames, with keep-alives of one byte of garbage.
"""


# --- keep-alives ------------------------------------------------------------------------------------------------------


class _Side(NamedTuple):
    """Holds the last frame that one side of a connection sent, and the sequence number that follows."""

    frame: bytes
    next_seq: int


def _with_keep_alives(records: Sequence[Record]) -> list[Record]:
    """Returns the records, and a keep-alive and its answer where a connection was idle after all was acknowledged."""
    sides: dict[tuple[bytes, bytes], _Side] = {}
    last_ns: dict[frozenset[bytes], int] = {}
    found: list[Record] = []
    for record in records:
        ends = _Ends.of(record.frame)
        own, other, both = (ends.source, ends.target), (ends.target, ends.source), frozenset((ends.source, ends.target))
        idle_ns = record.time_ns - last_ns.get(both, record.time_ns)
        if idle_ns > _IDLE_NS and own in sides and other in sides and not ends.flags & _SYN:
            found += _keep_alive(sides[own], sides[other], record.time_ns - 2 * _KEPT_ALIVE_AFTER_NS)
        found.append(record)
        last_ns[both] = record.time_ns
        if ends.flags & (_SYN | _FIN | _RST):
            sides.pop(own, None)
            sides.pop(other, None)
            if ends.flags & _SYN:
                sides[own] = _Side(b"", (ends.seq + 1) % _MODULUS)
        elif own in sides:
            end = (ends.seq + ends.length) % _MODULUS
            is_newer = (end - sides[own].next_seq) % _MODULUS < _MODULUS // 2
            sides[own] = _Side(record.frame, end if is_newer else sides[own].next_seq)
    return found


def _keep_alive(side: _Side, other: _Side, time_ns: int) -> Iterator[Record]:
    """Yields a keep-alive and its answer, if both sides have sent something and all is acknowledged."""
    if not side.frame or not other.frame:
        return
    acked = [_Ends.of(one.frame).ack for one in (side, other)]
    if acked != [other.next_seq, side.next_seq]:
        return
    probe = _frame(side.frame, (side.next_seq - 1) % _MODULUS, other.next_seq, b"\0")
    answer = _frame(other.frame, other.next_seq, side.next_seq, b"")
    yield Record(time_ns, probe, len(probe))
    yield Record(time_ns + _KEPT_ALIVE_AFTER_NS, answer, len(answer))


def _frame(like: bytes, seq: int, ack: int, payload: bytes) -> bytes:
    """Returns a frame between the same ends as another one, with right checksums."""
    tcp = _Ends.of(like).tcp
    is_ipv4 = tcp == 34  # noqa: PLR2004 - behind a header without options
    head = bytearray(like[: tcp + _TCP])
    struct.pack_into(">IIBB", head, tcp + 4, seq, ack, _TCP // 4 << 4, _ACK)
    struct.pack_into(">H", head, tcp + 16, 0)
    struct.pack_into(">H", head, 16 if is_ipv4 else 18, _TCP + len(payload) + (20 if is_ipv4 else 0))
    if is_ipv4:
        struct.pack_into(">H", head, 24, 0)
        struct.pack_into(">H", head, 24, _checksum(bytes(head[_ETHERNET:tcp])))
    segment = bytes(head[tcp:]) + payload
    pseudo = bytes(head[26 if is_ipv4 else 22 : tcp]) + struct.pack(">II", 6, len(segment))
    struct.pack_into(">H", head, tcp + 16, _checksum(pseudo + segment))
    return bytes(head) + payload


def _checksum(data: bytes) -> int:
    padded = data + bytes(len(data) % 2)
    total: int = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
