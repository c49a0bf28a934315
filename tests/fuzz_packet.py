"""Fuzzes the packet decoder with atheris, guided by coverage; run by hand as CONTRIBUTING.md describes.

The first byte of an input selects how the rest becomes a packet and which of its bytes are stored. The packet is
decoded alone, with and without its body; batches of fifty go through the batch decoder. A finding is an exception or a
difference between the decoders; the message shows the packets.
"""

import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=[
        "udfs.msmq.identifiers",
        "udfs.msmq.reference",
        "udfs.msmq.violations",
    ]
):
    from one_packet import decode_packet
    from random_packets import Stored, any_packet, stored, tables
    from worked_examples import EXAMPLES

    from schemas.violations import DecodeError

_SIGNED, _SIZED, _WITH_SESSION, _CUT_RAW, _CUT_TRAILER = (1 << bit for bit in range(5))
_BATCH = 50
_waiting: list[Stored] = []


def packet_of(data: bytes) -> bytes:
    """Returns the packet of an input; its first byte may ask for correct version, signature and PacketSize."""
    how, packet = data[0], bytearray(data[1:])
    if how & _SIGNED:
        packet[0:1] = b"\x10"
        packet[4:8] = b"LIOR"
    if how & _SIZED:
        packet[8:12] = max(len(packet) - 16 * bool(how & _WITH_SESSION), 0).to_bytes(4, "little")
    return bytes(packet)


def check(data: bytes) -> None:
    """Raises unless all decoders agree on the packet."""
    if not data:
        return
    packet = packet_of(data)
    whole = packet, None, len(packet)
    raw, trailer, size = stored(packet)
    assert decode_packet(raw, trailer, size) == decode_packet(*whole), packet.hex()
    if data[0] & _CUT_RAW:
        raw = raw[:-1]
    if data[0] & _CUT_TRAILER:
        trailer = trailer[1:] if trailer else b""
    _waiting.extend((whole, (raw, trailer, size)))
    if len(_waiting) < _BATCH:
        return
    found = tables(_waiting)
    alone = [decode_packet(*each) for each in _waiting]
    expected = [
        (one.fault.value, one.detail) if isinstance(one, DecodeError) else {name: one[name] for name in row}
        for one, row in zip(alone, found, strict=True)
    ]
    assert found == expected, [each for each, one, other in zip(_waiting, found, expected, strict=True) if one != other]
    _waiting.clear()


def corpus(folder: Path) -> None:
    """Writes packets of every type to an empty folder, as the initial corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        return
    rng = random.Random(1)
    packets = [*EXAMPLES.values(), *(any_packet(rng) for _ in range(300))]
    for number, packet in enumerate(packets):
        for how in (0, _SIGNED | _SIZED):
            (folder / f"{number:03}-{how}").write_bytes(bytes([how]) + packet)


if __name__ == "__main__":
    # As in libFuzzer, the first argument that is not an option is the corpus folder.
    corpus(next(Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")))
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
