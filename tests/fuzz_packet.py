"""Coverage-guided fuzzing of the packet decoder with atheris, by hand: CONTRIBUTING.md says how.

The first byte of an input says how the rest becomes a packet; then both decoding paths read it, beside a sound packet,
as it is stored with and without its body. A finding is an exception, or a value on which the two do not agree.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["schemas", "udfs"]):
    from random_packets import Stored, any_packet, batch, stored
    from worked_examples import EXAMPLES

    from schemas.messages import TABLE_OF
    from udfs.decode import Decoded
    from udfs.packet import DecodeError, decode_packet

import random

_SIGNED, _SIZED, _WITH_SESSION, _CUT_RAW, _CUT_TRAILER = (1 << bit for bit in range(5))
_SOUND: Stored = (EXAMPLES["A"], None, len(EXAMPLES["A"]))


def packet_of(data: bytes) -> bytes:
    """The packet that an input means: its version, signature and PacketSize set right unless it says otherwise."""
    how, packet = data[0], bytearray(data[1:])
    if how & _SIGNED:
        packet[0:1] = b"\x10"
        packet[4:8] = b"LIOR"
    if how & _SIZED:
        packet[8:12] = max(len(packet) - 16 * bool(how & _WITH_SESSION), 0).to_bytes(4, "little")
    return bytes(packet)


def check(data: bytes) -> None:
    """Raise unless both paths read the packet, and alike."""
    if len(data) < 2:  # noqa: PLR2004 - nothing but the byte that says how
        return
    packet = packet_of(data)
    raw, trailer, size = stored(packet)
    if data[0] & _CUT_RAW:
        raw = raw[:-1]
    if data[0] & _CUT_TRAILER:
        trailer = trailer[1:] if trailer else b""
    rows = [_SOUND, (packet, None, len(packet)), (raw, trailer, size), _SOUND]
    both = Decoded(batch(rows))
    errors = {row["first_frame"]: (row["reason"], row["detail"]) for row in both.undecodable().to_pylist()}
    found = {}
    for table in dict.fromkeys(TABLE_OF.values()):
        part = both.rows(table)
        part.validate(full=True)
        found |= {row["first_frame"]: row for row in part.to_pylist()}
    for index, row in enumerate(rows):
        one = decode_packet(*row)
        if isinstance(one, DecodeError):
            assert errors.pop(index) == (one.fault.value, one.detail), one
            continue
        columns = {name: value for name, value in one.items() if name != "packet_type"}
        if columns:
            other = found.pop(index)
            assert {name: other[name] for name in columns} == columns
    assert not errors
    assert not found


def corpus(folder: Path) -> None:
    """Write packets of every type to an empty folder, to begin from."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        return
    rng = random.Random(1)
    packets = [*EXAMPLES.values(), *(any_packet(rng) for _ in range(300))]
    for number, packet in enumerate(packets):
        for how in (0, _SIGNED | _SIZED):
            (folder / f"{number:03}-{how}").write_bytes(bytes([how]) + packet)


if __name__ == "__main__":
    # The first argument that is no option is the folder of the corpus, as libFuzzer has it.
    corpus(next(Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")))
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
