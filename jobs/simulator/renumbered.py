"""Writes captures again as two taps see them, inside and outside a firewall that draws new TCP sequence numbers.

Each tap misses some frames, but none that the other one misses too: together, the taps hold all.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from struct import Struct, pack_into, unpack_from

from jobs.simulator.near_end import before_translation
from udfs.network.dissect import ACK, SYN

INSIDE, OUTSIDE = "inside", "outside"
_LOSS = 0.02
_DELAY_NS = 90_000
_FILE_HEADER, _RECORD_HEADER = 24, 16
_NANOSECONDS = 0xA1B23C4D
_IP, _V4 = 14, b"\x08\x00"
_MASK = 0xFFFFFFFF
_RECORD = Struct("<IIII")
_SECOND = 1_000_000_000


class Firewall:
    """Draws other sequence numbers for each direction of each connection, as some firewalls do against prediction."""

    def __init__(self, rng: Random, *, translates: bool) -> None:
        """Begins without connections; it `translates` the addresses of senders, too."""
        self._rng, self._translates = rng, translates
        self._added: dict[bytes, int] = {}

    def outward(self, frame: bytes) -> bytes:
        """Returns a frame as it is on the inner side; frames that are not TCP stay as they are."""
        changed = bytearray((self._translates and before_translation(frame)) or frame)
        is_v4 = frame[12:14] == _V4
        tcp = _IP + (20 if is_v4 else 40)
        addresses = frame[_IP + 12 : tcp] if is_v4 else frame[_IP + 8 : tcp]
        half = len(addresses) // 2
        ports = frame[tcp : tcp + 4]
        forth = addresses + ports
        back = addresses[half:] + addresses[:half] + ports[2:] + ports[:2]
        flags = frame[tcp + 13]
        if flags & SYN:  # a new connection, also on known endpoints
            self._added[forth] = self._rng.randrange(_MASK)
        self._add(changed, tcp, tcp + 4, forth)
        if flags & ACK:
            self._add(changed, tcp, tcp + 8, back)
        return bytes(changed)

    def _add(self, frame: bytearray, tcp: int, at: int, direction: bytes) -> None:
        """Adds to the number at a place what was drawn for the direction, and corrects the checksum [RFC 1624]."""
        added = self._added.setdefault(direction, self._rng.randrange(_MASK))
        old = unpack_from(">I", frame, at)[0]
        new = (old + added) & _MASK
        pack_into(">I", frame, at, new)
        total = ~unpack_from(">H", frame, tcp + 16)[0] & 0xFFFF
        total += (~old & 0xFFFF) + (~(old >> 16) & 0xFFFF) + (new & 0xFFFF) + (new >> 16)
        while total > 0xFFFF:  # noqa: PLR2004 - 16 bits
            total = (total & 0xFFFF) + (total >> 16)
        pack_into(">H", frame, tcp + 16, ~total & 0xFFFF)


def behind_firewall(folder: Path, prefix: str, rng: Random, *, translates: bool, skew_ns: int = 0) -> None:
    """Replaces the captures `<prefix>_*.pcap` by those of two taps; the inner one's clock is `skew_ns` ahead."""
    firewall = Firewall(rng, translates=translates)
    for capture in sorted(folder.glob(f"{prefix}_*.pcap")):
        whole = capture.read_bytes()
        capture.unlink()
        unit_ns = 1 if int.from_bytes(whole[:4], "little") == _NANOSECONDS else 1000
        taps = {name: [whole[:_FILE_HEADER]] for name in (INSIDE, OUTSIDE)}
        for time_ns, header, frame in _records(whole, unit_ns):
            lost_by = rng.choice((INSIDE, OUTSIDE)) if _may_be_lost(frame) and rng.random() < _LOSS else None
            if lost_by != OUTSIDE:
                taps[OUTSIDE].append(header + frame)
            if lost_by != INSIDE:
                seconds, ns = divmod(time_ns + skew_ns + _DELAY_NS, _SECOND)
                sizes = _RECORD.unpack(header)[2:]
                taps[INSIDE].append(_RECORD.pack(seconds, ns // unit_ns, *sizes) + firewall.outward(frame))
        for name, records in taps.items():
            capture.with_name(capture.name.replace(prefix, f"{prefix}_{name}", 1)).write_bytes(b"".join(records))


def _may_be_lost(frame: bytes) -> bool:
    """Tells whether a tap may miss a frame: no set-up of a connection, so that who talks stays known."""
    tcp = _IP + (20 if frame[12:14] == _V4 else 40)
    return not frame[tcp + 13] & SYN


def _records(capture: bytes, unit_ns: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields the time, the header and the frame of each record."""
    at = _FILE_HEADER
    while at < len(capture):
        header = capture[at : at + _RECORD_HEADER]
        seconds, fraction, size, _ = _RECORD.unpack(header)
        at += _RECORD_HEADER + size
        yield seconds * _SECOND + fraction * unit_ns, header, capture[at - size : at]
