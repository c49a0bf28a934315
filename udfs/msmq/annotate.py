"""One packet as annotated lines: every field with its offset, bytes, value and meaning, from the declarations."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from schemas import wire
from schemas.violations import Violation
from schemas.wire import Bits, Field, Header, Kind
from udfs.msmq.header_types import BaseHeader
from udfs.msmq.identifiers import guid_text, message_id_text
from udfs.msmq.reference import DecodeError, ParsedPacket, Part, table_row

_SESSION = wire.SESSION_HEADER.size


class Line(NamedTuple):
    """A field of a packet, or some bits of one when `mask` is set; `header` is None for what is in no header."""

    offset: int
    data: bytes
    header: Header | None
    name: str
    value: str
    meaning: str
    mask: int | None = None


class AnnotatedPacket(NamedTuple):
    """A packet: its type, its lines in wire order, what is wrong with it, and the bytes behind it."""

    packet_type: str
    size: int
    lines: list[Line]
    violations: list[Violation]
    error: DecodeError | None
    rest: int


def annotate(data: bytes) -> AnnotatedPacket:
    """What lies in the bytes of one packet or UDP ping; what is missing of it or behind it is said."""
    if len(data) == wire.PING.size and data[2:4] == wire.PING_SIGNATURE.to_bytes(2, "little"):
        return AnnotatedPacket("ping", len(data), list(_lines(data, [Part(0, len(data), wire.PING)])), [], None, 0)
    size = _frame_size(data)
    walk = ParsedPacket.parse(data[:size], None, size)
    broken: list[str] = [] if walk.error else table_row(walk).get("violations", [])
    lines = list(_lines(data[:size], sorted(walk.parts, key=lambda part: part.offset)))
    violations = [violation for violation in Violation if violation in broken]
    return AnnotatedPacket(walk.packet_type, size, lines, violations, walk.error, max(len(data) - size, 0))


def _frame_size(data: bytes) -> int:
    """Bytes that the packet takes on its stream, A-1; as many as there are when that is no packet."""
    if len(data) < wire.BASE_HEADER.size:
        return len(data)
    base = BaseHeader(data)
    announced: int = base.packet_size
    if announced > wire.MAX_PACKET_SIZE or (base.has_session_header and len(data) == announced):
        return len(data)
    return announced + _SESSION * (base.has_session_header and not base.internal)


def _lines(data: bytes, parts: list[Part]) -> Iterator[Line]:
    """The lines of the parts, and of the bytes between and behind them."""
    position = 0
    for part in parts:
        if part.offset > position:
            yield _bare(data, position, part.offset, "padding")
        if part.field is None:
            yield from _fixed(data, part)
        else:
            value = _opaque(part.size) if part.text is None else _printable(part.text)
            yield Line(part.offset, _bytes(data, part), part.header, part.field.name, value, part.field.comment)
        position = max(position, part.offset + part.size)
    if position < len(data):
        # Alignment is at most three bytes.
        yield _bare(data, position, len(data), "padding" if len(data) - position < 4 else "not decoded")  # noqa: PLR2004


def _bytes(data: bytes, part: Part) -> bytes:
    return data[part.offset : part.offset + part.size]


def _bare(data: bytes, start: int, end: int, name: str) -> Line:
    return Line(start, data[start:end], None, name, _opaque(end - start), "")


def _printable(text: str) -> str:
    """The text with nothing in it that a terminal would act on."""
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)


def _opaque(size: int) -> str:
    return f"{size} byte{'s' * (size != 1)}"


def _fixed(data: bytes, part: Part) -> Iterator[Line]:
    """The fields of a header's fixed part, and their bits."""
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
            return _opaque(len(content))
        case _:
            number = int.from_bytes(content, "little")
            return f"{number:#0{2 + 2 * field.size}x}" if field.bits else _number(field, number)


def _number(declared: Field | Bits, number: int) -> str:
    name = wire.name_of(declared.names, number)
    text = str(number) if number < 10 else f"{number} ({number:#x})"  # noqa: PLR2004 - one digit reads alike in both
    return f"{text} {name}" if name else text


_SHOWN = 8  # bytes of a field on its line


def render_tree(packet: AnnotatedPacket) -> str:
    """The packet as a person reads it: headers with their sections, a field to a line, what is wrong at the end."""
    lines = [f"{packet.packet_type}, {_opaque(packet.size)}"]
    header: Header | None = None
    for line in packet.lines:
        if line.header and (line.header is not header or line.name == line.header.fields[0].name):
            header = line.header
            lines.append(f"{header.name}, {header.section}")
        if line.mask is None:
            shown = line.data[:_SHOWN].hex(" ").upper() + (" …" if len(line.data) > _SHOWN else "")
            start = f"  0x{line.offset:04X}  {shown:<26}{line.name}"
        else:
            start = f"    {_drawn(line.data, line.mask)}  {line.name}"
        lines.append(f"{start}: {line.value}" + (f" - {line.meaning}" if line.meaning else ""))
    lines += [f"Violation {code}, {code.section}: {code.sentence}" for code in packet.violations]
    if packet.error:
        lines.append(f"Error {packet.error.fault}, {packet.error.fault.section}: {packet.error.detail}")
    if packet.rest:
        lines.append(f"{_opaque(packet.rest)} behind the packet, which ends at byte {packet.size}.")
    return "\n".join(lines)


def _drawn(content: bytes, mask: int) -> str:
    """A flag word in bits, the lowest on the right, with a dot for each one outside the mask."""
    word, count = int.from_bytes(content, "little"), 8 * len(content)
    digits = [str(word >> bit & 1) if mask >> bit & 1 else "." for bit in reversed(range(count))]
    return " ".join("".join(digits[place : place + 4]) for place in range(0, count, 4))
