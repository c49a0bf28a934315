"""Annotates one packet: every field with its offset, bytes, value and meaning, from the declarations."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa

from schemas import wire
from schemas.ingest import PACKETS
from schemas.messages import TABLE_OF
from schemas.table import Table
from schemas.violations import DecodeError, Violation
from schemas.wire import Bits, Field, Header, Kind
from udfs.msmq.decode import DecodedBatch
from udfs.msmq.frame_size import announced_size
from udfs.msmq.identifiers import guid_text, message_id_text
from udfs.msmq.reference import ParsedPacket, Part


class Line(NamedTuple):
    """A field of a packet, or some of its bits if `mask` is set; `header` is None for bytes outside all headers."""

    offset: int
    data: bytes
    header: Header | None
    name: str
    value: str
    meaning: str
    mask: int | None = None


class AnnotatedPacket(NamedTuple):
    """A packet: type, size, lines in wire order, violations, decoding error, and number of bytes after it."""

    packet_type: str
    size: int
    lines: list[Line]
    violations: list[Violation]
    error: DecodeError | None
    rest: int


def annotate(data: bytes) -> AnnotatedPacket:
    """Annotates the bytes of one packet or UDP ping; they may be truncated, and more bytes may follow."""
    if len(data) == wire.PING.size and data[2:4] == wire.PING_SIGNATURE.to_bytes(2, "little"):
        return AnnotatedPacket("ping", len(data), list(_lines(data, [Part(0, len(data), wire.PING)])), [], None, 0)
    size = announced_size(data)
    parsed = ParsedPacket.parse(data[:size], None, size)
    lines = list(_lines(data[:size], sorted(parsed.parts, key=lambda part: part.offset)))
    violations = [] if parsed.error else _violations(data[:size], TABLE_OF[parsed.packet_type])
    return AnnotatedPacket(parsed.packet_type, size, lines, violations, parsed.error, max(len(data) - size, 0))


def _violations(packet: bytes, table: Table) -> list[Violation]:
    stored = pa.RecordBatch.from_pylist([{"raw": packet, "size": len(packet)}], PACKETS.arrow)
    (codes,) = DecodedBatch(stored).rows(table)["violations"].to_pylist()
    return [violation for violation in Violation if violation in codes]


def _lines(data: bytes, parts: list[Part]) -> Iterator[Line]:
    """Yields the lines of the parts, and of the bytes between and after them."""
    position = 0
    for part in parts:
        if part.offset > position:
            yield _bare_line(data, position, part.offset, "padding")
        if part.field is None:
            yield from _fixed_lines(data, part)
        else:
            value = _byte_count(part.size) if part.text is None else _escape(part.text)
            yield Line(part.offset, _bytes(data, part), part.header, part.field.name, value, part.field.comment)
        position = max(position, part.offset + part.size)
    if position < len(data):
        # Alignment is at most three bytes.
        yield _bare_line(data, position, len(data), "padding" if len(data) - position < 4 else "not decoded")  # noqa: PLR2004


def _bytes(data: bytes, part: Part) -> bytes:
    return data[part.offset : part.offset + part.size]


def _bare_line(data: bytes, start: int, end: int, name: str) -> Line:
    return Line(start, data[start:end], None, name, _byte_count(end - start), "")


def _escape(text: str) -> str:
    """Escapes characters that a terminal would interpret."""
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)


def _byte_count(size: int) -> str:
    return f"{size} byte{'s' * (size != 1)}"


def _fixed_lines(data: bytes, part: Part) -> Iterator[Line]:
    """Yields the fields of a header's fixed part, and their bits."""
    offset = part.offset
    for field in part.header.fixed:
        content = data[offset : offset + field.size]
        yield Line(offset, content, part.header, field.name, _value(field, content), field.comment)
        word = int.from_bytes(content, "little") if field.bits else 0
        for bits in field.bits:
            number = (word & bits.mask) >> bits.shift
            yield Line(offset, content, part.header, bits.name, _number(bits, number), bits.comment, bits.mask)
        offset += field.size


def _value(field: Field, content: bytes) -> str:
    match field.kind:
        case Kind.GUID:
            return guid_text(content)
        case Kind.MESSAGE_ID:
            return message_id_text(content)
        case Kind.TIME:
            return f"{datetime.fromtimestamp(int.from_bytes(content, 'little'), UTC):%Y-%m-%d %H:%M:%S} UTC"
        case Kind.OPAQUE:
            return _byte_count(len(content))
        case _:
            number = int.from_bytes(content, "little")
            return f"{number:#0{2 + 2 * field.size}x}" if field.bits else _number(field, number)


def _number(declared: Field | Bits, number: int) -> str:
    name = wire.name_of(declared.names, number)
    text = str(number) if number < 10 else f"{number} ({number:#x})"  # noqa: PLR2004 - one digit reads alike in both
    return f"{text} {name}" if name else text


_SHOWN = 8  # bytes of a field on its line


def render_tree(packet: AnnotatedPacket) -> str:
    """Prints a packet as text: headers with their sections, one field per line, violations and errors at the end."""
    lines = [f"{packet.packet_type}, {_byte_count(packet.size)}"]
    header: Header | None = None
    for line in packet.lines:
        if line.header and (line.header is not header or line.name == line.header.fields[0].name):
            header = line.header
            lines.append(f"{header.name}, {header.section}")
        if line.mask is None:
            shown = line.data[:_SHOWN].hex(" ").upper() + (" …" if len(line.data) > _SHOWN else "")
            start = f"  0x{line.offset:04X}  {shown:<26}{line.name}"
        else:
            start = f"    {_draw_bits(line.data, line.mask)}  {line.name}"
        lines.append(f"{start}: {line.value}" + (f" - {line.meaning}" if line.meaning else ""))
    lines += [f"Violation {code}, {code.section}: {code.sentence}" for code in packet.violations]
    if packet.error:
        lines.append(f"Error {packet.error.fault}, {packet.error.fault.section}: {packet.error.detail}")
    if packet.rest:
        lines.append(f"{_byte_count(packet.rest)} after the packet, which ends at byte {packet.size}.")
    return "\n".join(lines)


def _draw_bits(content: bytes, mask: int) -> str:
    """Prints a flag word in bits, the lowest on the right, with a dot for each bit outside the mask."""
    word, count = int.from_bytes(content, "little"), 8 * len(content)
    digits = [str(word >> bit & 1) if mask >> bit & 1 else "." for bit in reversed(range(count))]
    return " ".join("".join(digits[place : place + 4]) for place in range(0, count, 4))
