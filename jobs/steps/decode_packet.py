"""One packet, given as hexadecimal or in a file, as an annotated tree; needs no Spark."""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs.app.errors import JobError, UsageError
from udfs.msmq.annotate import AnnotatedPacket, annotate, render_tree


def main(arguments: Sequence[str]) -> int:
    """Print the packet; returns the exit code: 0, also for a packet that cannot be decoded, and 2 for wrong use."""
    parser = argparse.ArgumentParser("msmq-replay decode-packet", allow_abbrev=False)
    parser.add_argument(
        "packet",
        nargs="+",
        metavar="HEX|FILE",
        help="the packet's bytes as hexadecimal, with blanks, colons or 0x if you like; a file of them or of the bytes "
        "themselves; - for standard input",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    try:
        packet = annotate(read_packet(options.packet))
    except JobError as error:
        print(f"msmq-replay decode-packet: {error}", file=sys.stderr)  # noqa: T201 - this is the terminal's
        return error.exit_code
    print(json.dumps(_object(packet)) if options.json else render_tree(packet))  # noqa: T201 - the result
    return 0


def read_packet(words: Sequence[str]) -> bytes:
    """The packet's bytes that the words of the command line mean.

    Raises:
        UsageError: they are neither a readable file nor hexadecimal, or there is no byte.
    """
    text = " ".join(words)
    if text == "-":
        content = sys.stdin.buffer.read()
    else:
        try:
            content = Path(text).read_bytes() if Path(text).exists() else text.encode()
        except OSError:  # also of a name that is too long: the hexadecimal of a large packet
            content = text.encode()
        if content == text.encode() and parse_hex(content) is None:
            raise UsageError(f"{text!r} is neither a file nor hexadecimal.")
    data = parse_hex(content)
    # A packet begins with 0x10 and its signature is no hexadecimal: bytes cannot be taken for digits.
    data = content if data is None else data
    if not data:
        raise UsageError("There is no packet: give at least one byte.")
    return data


def parse_hex(content: bytes) -> bytes | None:
    """The bytes that hexadecimal digits mean, blanks, colons, commas and 0x left out; None when it is no such text."""
    digits = re.sub(rb"0[xX]|[\s:,]", b"", content)
    return bytes.fromhex(digits.decode()) if re.fullmatch(rb"(?:[0-9a-fA-F]{2})*", digits) else None


def _object(packet: AnnotatedPacket) -> dict[str, Any]:
    error = packet.error
    return {
        "packet_type": packet.packet_type,
        "size": packet.size,
        "fields": [
            {
                "offset": line.offset,
                "bytes": line.data.hex(),
                "header": line.header.name if line.header else None,
                "section": line.header.section if line.header else None,
                "name": line.name,
                "mask": line.mask,
                "value": line.value,
                "meaning": line.meaning,
            }
            for line in packet.lines
        ],
        "violations": [
            {"code": code.value, "section": code.section, "sentence": code.sentence} for code in packet.violations
        ],
        "error": {"code": error.fault, "section": error.fault.section, "offset": error.offset, "sentence": error.detail}
        if error
        else None,
        "bytes_behind": packet.rest,
    }
