"""Prints one packet, given as hexadecimal or in a file, as an annotated tree; needs no Spark."""

import argparse
import json
import os
import string
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs.app.errors import JobError, UsageError
from jobs.app.logs import print_result
from jobs.app.text_files import read_all, read_local
from udfs.msmq.annotate import AnnotatedPacket, annotate, render_tree

_IGNORED = string.whitespace.encode() + b":,"


def main(arguments: Sequence[str]) -> int:
    """Prints the packet; returns the exit code.

    0, also for a packet that cannot be decoded; 1 if it cannot be printed; 2 for wrong use.
    """
    program = "msmq-replay decode-packet"
    parser = argparse.ArgumentParser(
        program,
        allow_abbrev=False,
        epilog=f"examples:\n  {program} packet.bin\n  xxd -p packet.bin | {program} --json -",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
        print_result(json.dumps(_object(packet)) if options.json else render_tree(packet))
    except JobError as error:
        print(f"msmq-replay decode-packet: {error}", file=sys.stderr)  # noqa: T201 - this is the terminal's
        return error.exit_code
    return 0


def read_packet(words: Sequence[str]) -> bytes:
    """Returns the bytes of the packet that the command line names or spells out.

    Raises:
        UsageError: the words are neither a readable file nor hexadecimal, or there is no byte.
    """
    text = " ".join(words)
    content = _standard_input() if text == "-" else _of_file(text)
    if content is None:
        content = os.fsencode(text)
        if parse_hex(content) is None:
            raise UsageError(f"{text!r} is neither a file nor hexadecimal.")
    data = parse_hex(content)
    # A binary packet cannot be mistaken for digits: it begins with 0x10, which is no digit.
    data = content if data is None else data
    if not data:
        raise UsageError("There is no packet: give at least one byte.")
    return data


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise UsageError("Standard input is closed.")
    try:
        return read_all(sys.stdin.buffer)
    except OSError as error:
        raise UsageError(f"Standard input cannot be read: {error.strerror or error}.") from error


def _of_file(text: str) -> bytes | None:
    """Returns the content of the file of this name; None if there is none, or only a folder."""
    path = Path(text)
    try:
        if not path.exists() or path.is_dir():
            return None
    except OSError:  # for example a name too long: the hexadecimal of a large packet
        return None
    try:
        return read_local(path)
    except OSError as error:
        raise UsageError(f"{text!r} cannot be read: {error.strerror or error}.") from error


def parse_hex(content: bytes) -> bytes | None:
    """Returns the bytes that hexadecimal spells, ignoring blanks, colons, commas and 0x; None for any other text."""
    digits = content.replace(b"0X", b"0x").replace(b"0x", b"").translate(None, _IGNORED)
    try:
        return bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        return None


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
