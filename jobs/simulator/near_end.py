"""Captures the senders' end as well: the same frames before address translation, by another clock."""

import struct
from ipaddress import ip_address, ip_network
from random import Random

from jobs.simulator.capture import RingBuffer

_IP, _V4, _V6 = 14, 0x0800, 0x86DD  # offset of the IP header; EtherTypes
_SENDERS = ("10.20.0.0/16", "203.0.113.7/32", "fd00:20::/32", "2001:db8::7/128")
_NETWORKS = tuple(ip_network(text) for text in _SENDERS)
_INSIDE = {4: bytes((192, 168)), 6: bytes((0xFD, 0x77))}
"""First bytes that addresses of senders have before translation."""


class NearEnd:
    """Writes a capture at the senders' end, which may miss frames that the other end has."""

    def __init__(self, ring: RingBuffer, rng: Random, *, skew_ns: int, loss: float) -> None:
        """Writes to `ring`, by a clock that is `skew_ns` ahead; misses the share `loss` of all frames."""
        self._ring, self._rng, self._skew_ns, self._loss = ring, rng, skew_ns, loss

    def write(self, time_ns: int, frame: bytes) -> None:
        """Takes a frame that passes the other end at this time, if a sender sent or gets it."""
        inside = before_translation(frame)
        if inside is not None and self._rng.random() >= self._loss:
            self._ring.write(time_ns + self._skew_ns, inside)


def before_translation(frame: bytes) -> bytes | None:
    """Returns the frame with its sender's address as it is before translation; None where no end is a sender."""
    ether_type = int.from_bytes(frame[12:14], "big")
    version, size, first = (4, 4, _IP + 12) if ether_type == _V4 else (6, 16, _IP + 8)
    sums = (_IP + 10, _IP + 20 + 16) if version == 4 else (_IP + 40 + 16,)  # noqa: PLR2004 - the version
    for at in (first, first + size):
        if any(ip_address(frame[at : at + size]) in network for network in _NETWORKS if network.version == version):
            changed = bytearray(frame)
            changed[at : at + 2] = _INSIDE[version]
            old, new = (struct.unpack_from(">H", data, at)[0] for data in (frame, changed))
            for place in sums:
                total = (~struct.unpack_from(">H", frame, place)[0] & 0xFFFF) + (~old & 0xFFFF) + new  # [RFC 1624]
                total = (total & 0xFFFF) + (total >> 16)
                struct.pack_into(">H", changed, place, ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)
            return bytes(changed)
    return None
