"""Parses one packet at a time, with dpkt: the reference for `udfs.msmq.layout`, which leaves rare packets to it.

A packet is `raw`, `trailer` and `size`: the bytes before the body, those after it, and the bytes on the stream. A
packet with its body has all its bytes in `raw` and no trailer. The parser needs no byte of a body except of an
acknowledgment, and compares every length with the packet before it uses it.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Self

from schemas import wire
from schemas.ingest import PacketType
from schemas.messages import HEADERS_OF
from schemas.violations import DecodeError, Fault, Violation
from schemas.wire import FormatType, Header, InternalType, MessageClass, QueueType, SectionId
from udfs.msmq import identifiers
from udfs.msmq.frame_size import announced_size, is_frame_size
from udfs.msmq.header_types import CLASSES, r4

INTERNAL_PACKETS: dict[int, tuple[PacketType, Header]] = {
    one: (PacketType[one.name], HEADERS_OF[PacketType[one.name]][2]) for one in InternalType
}
"""Packet type, and header after the InternalHeader, by `InternalHeader.Flags.PT`."""
_GUID = wire.GUID_SIZE
_LISTS = {
    SectionId.DESTINATION: "multi_destination_queues",
    SectionId.ADMINISTRATION: "multi_admin_queues",
    SectionId.RESPONSE: "multi_response_queues",
}
_FORMAT_TYPES = frozenset(FormatType)


class _Undecodable(Exception):  # noqa: N818  # never leaves this module
    def __init__(self, fault: Fault, offset: int, found: str) -> None:
        super().__init__(found)
        self.error = DecodeError(fault, offset, found)


@dataclass(slots=True)
class ParsedPacket:
    """The headers of one packet, parsed one after the other: offsets, values, violations, and the error if any."""

    raw: bytes | memoryview
    trailer: bytes | None
    size: int
    limit: int = 0  # where the headers end: PacketSize, but for a SessionHeader
    seen: int = 0  # end of the bytes that were read before the body
    packet_type: PacketType = PacketType.UNKNOWN
    error: DecodeError | None = None
    offsets: dict[str, int] = field(default_factory=dict)
    headers: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)  # values that are not in the fixed part of a header
    violations: set[Violation] = field(default_factory=set)
    ends_at_body: bool = False  # body and what follows it are not stored anywhere
    is_outline: bool = False  # what follows the headers before the body is not read

    @classmethod
    def parse_alone(cls, raw: bytes) -> Self:
        """Parses a packet of which nothing but `raw` is known: all of its bytes, or those before its body.

        What lies behind a body that is not there is not looked at, and the size is the announced one.
        """
        size = max(len(raw), announced_size(raw))
        return cls._parse(cls(raw, None, size, limit=size, ends_at_body=size > len(raw)))

    @classmethod
    def parse(cls, raw: bytes, trailer: bytes | None, size: int) -> Self:
        """Parses a packet; `error` is set if it cannot be decoded."""
        return cls._parse(cls(raw, trailer, size, limit=size))

    @classmethod
    def outline(cls, raw: memoryview, size: int) -> Self:
        """Parses the headers before the body, at the same cost however large the packet is."""
        return cls._parse(cls(raw, None, size, limit=size, is_outline=True))

    def _parse(self) -> Self:
        try:
            self.packet_type = self._packet()
        except _Undecodable as stop:
            self.error = stop.error
        return self

    @property
    def raw_size(self) -> int:
        """Bytes of raw when bodies are dropped: up to the body, or up to the error if that comes first."""
        if self.packet_type in (PacketType.USER_MESSAGE, PacketType.ADMINISTRATION):
            return self.offsets["body"]
        return self.size if self.error is None else self.offsets.get("body", self.seen)

    @property
    def trailer_offset(self) -> int:
        """Offset of trailer when bodies are dropped, -1 for null."""
        kept_whole = self.error is None and self.packet_type not in (PacketType.USER_MESSAGE, PacketType.ADMINISTRATION)
        return -1 if kept_whole or "body" not in self.offsets else self.offsets["body_end"]

    @property
    def _lacks_only_body(self) -> bool:
        return self.ends_at_body and self.offsets.get("body") == len(self.raw)

    def _take(self, offset: int, size: int, fault: Fault, what: str) -> bytes:
        """Returns the bytes at an offset.

        Raises:
            _Undecodable: `fault` if they lie beyond the headers, BYTES_MISSING if they are not stored.
        """
        end = offset + size
        if end > self.limit:
            raise _Undecodable(fault, offset, f"{what} takes {size} bytes and the packet's headers end at {self.limit}")
        if end <= len(self.raw):
            data = bytes(self.raw[offset:end])
        else:
            trailer = self.trailer or b""
            after = offset - (self.size - len(trailer))
            if after < 0:
                raise _Undecodable(Fault.BYTES_MISSING, len(self.raw), f"{what} is not among the stored bytes")
            data = trailer[after : after + size]
        if "body" not in self.offsets:
            self.seen = max(self.seen, end)
        return data

    def _header(self, header: Header, offset: int, fault: Fault = Fault.HEADER_BEYOND_PACKET) -> Any:
        packet = CLASSES[header.name](self._take(offset, header.size, fault, header.name))
        self.headers[header.name] = packet
        self.offsets[header.name] = offset
        return packet

    def _guid(self, header: Header, offset: int) -> int:
        """Reads the optional GUID at the end of a header; returns where it ends."""
        field = header.variable[-1]
        data = self._take(offset, _GUID, Fault.HEADER_BEYOND_PACKET, field.name)
        self.columns[field.attribute] = identifiers.guid_text(data)
        return offset + _GUID

    def _packet(self) -> PacketType:
        stored = len(self.raw) + len(self.trailer or b"")
        if stored > self.size:
            raise _Undecodable(Fault.SIZE_MISMATCH, self.size, f"{stored} bytes are stored of a frame of {self.size}")
        base = self._header(wire.BASE_HEADER, 0)
        if base.version_number != wire.VERSION or base.signature != wire.SIGNATURE:
            found = f"version {base.version_number:#x}, signature {base.signature:#x}"
            raise _Undecodable(Fault.BAD_SIGNATURE, 0, found)
        if base.packet_size > wire.MAX_PACKET_SIZE or not is_frame_size(self.size, base.base_flags, base.packet_size):
            found = f"PacketSize is {base.packet_size} and the frame has {self.size} bytes"
            raise _Undecodable(Fault.SIZE_MISMATCH, 8, found)
        packet_type = self._internal() if base.internal else self._user_shaped(base)
        if self.trailer is None and len(self.raw) != self.size and not self._lacks_only_body:
            found = f"{len(self.raw)} of {self.size} bytes are stored"
            raise _Undecodable(Fault.BYTES_MISSING, len(self.raw), found)
        return packet_type

    def _internal(self) -> PacketType:
        internal = self._header(wire.INTERNAL_HEADER, 16)
        if internal.internal_type not in INTERNAL_PACKETS:
            raise _Undecodable(Fault.UNKNOWN_INTERNAL_TYPE, 18, f"PT is {internal.internal_type}")
        packet_type, header = INTERNAL_PACKETS[internal.internal_type]
        self._header(header, 20)
        return packet_type

    def _user_shaped(self, base: Any) -> PacketType:
        if base.has_session_header:  # the last bytes of the frame, inside PacketSize or after it, A-1
            self.limit = self.size - wire.SESSION_HEADER.size
        user = self._header(wire.USER_HEADER, 16)
        end, destination = self._queues(user)
        if user.has_connector_type:
            self.offsets["connector_type"] = end
            end = self._guid(wire.USER_HEADER, end)
        if user.transactional:
            end = self._transaction(end)
        if user.has_security_header:
            end = self._security(end)
        if not user.has_message_properties:
            raise _Undecodable(Fault.NO_MESSAGE_PROPERTIES, 60, f"the flags are {user.user_flags:#010x}")
        properties = self._properties(end)
        if self._lacks_only_body or self.is_outline:
            return self._classify(properties, user.destination_queue_type, destination)
        self._after_properties(base, user, properties)
        if base.has_session_header:
            session, self.limit = self.limit, self.size
            self._header(wire.SESSION_HEADER, session)
        return self._classify(properties, user.destination_queue_type, destination)

    def _queues(self, user: Any) -> tuple[int, bytes]:
        """Reads the three queue names; returns where they end, and the destination's bytes."""
        if user.destination_queue_type not in wire.LEGAL_DESTINATION_TYPES:
            raise _Undecodable(Fault.ILLEGAL_DESTINATION_TYPE, 60, f"DQ is {user.destination_queue_type}")
        if user.admin_queue_type not in wire.LEGAL_ADMIN_TYPES:
            raise _Undecodable(Fault.ILLEGAL_ADMIN_TYPE, 60, f"AQ is {user.admin_queue_type}")
        hosts = {
            QueueType.PRIVATE_ON_SOURCE: user.source_queue_manager,
            QueueType.PRIVATE_ON_DESTINATION: user.queue_manager_address,
        }
        end, destination = self._queue("destination_queue", user.destination_queue_type, hosts, 64)
        end, admin = self._queue("admin_queue", user.admin_queue_type, hosts, end)
        admin_host = admin[:_GUID] if user.admin_queue_type == QueueType.PRIVATE else hosts.get(user.admin_queue_type)
        if admin_host is not None:
            hosts[QueueType.PRIVATE_ON_ADMIN_HOST] = admin_host
        end, _ = self._queue("response_queue", user.response_queue_type, hosts, end)
        if user.response_queue_type == QueueType.SAME_AS_ADMIN:
            self.columns["response_queue"] = self.columns["admin_queue"]
        return end, destination

    def _queue(self, column: str, kind: int, hosts: dict[QueueType, bytes], offset: int) -> tuple[int, bytes]:
        if kind == QueueType.DIRECT:
            count = int.from_bytes(self._take(offset, 2, Fault.NAME_BEYOND_PACKET, f"{column}'s Count"), "little")
            if count % 2:
                raise _Undecodable(Fault.NAME_ODD_LENGTH, offset, f"{column} has a Count of {count}")
            content = self._take(offset + 2, count, Fault.NAME_BEYOND_PACKET, column)
            end = offset + r4(2 + count)
        else:
            size = wire.QUEUE_NAME_SIZES[kind]
            content = self._take(offset, size, Fault.NAME_BEYOND_PACKET, column)
            end = offset + size
        try:
            self.columns[column] = identifiers.queue_name(kind, hosts.get(QueueType(kind)), content)
        except UnicodeDecodeError as error:
            raise _Undecodable(Fault.NAME_NOT_UTF16, offset, f"{column}, {error.reason}") from error
        if end > offset:
            self.offsets[column] = offset
        return end, content

    def _transaction(self, offset: int) -> int:
        transaction = self._header(wire.TRANSACTION_HEADER, offset)
        end = offset + wire.TRANSACTION_HEADER.size
        if transaction.has_connector_qm_guid:
            end = self._guid(wire.TRANSACTION_HEADER, end)
        return end

    def _security(self, offset: int) -> int:
        security = self._header(wire.SECURITY_HEADER, offset)
        sizes = [getattr(security, size) for size in wire.SECURITY_SIZES]
        end: int = offset + wire.SECURITY_HEADER.size + sum(map(r4, sizes))
        if end > self.limit:
            found = f"SecurityData would end at {end}, the headers end at {self.limit}"
            raise _Undecodable(Fault.SECURITY_BEYOND_PACKET, offset, found)
        self._take(end - r4(sizes[-1]) + sizes[-1], 0, Fault.SECURITY_BEYOND_PACKET, "SecurityData")
        return end

    def _properties(self, offset: int) -> Any:
        properties = self._header(wire.MESSAGE_PROPERTIES_HEADER, offset)
        label = offset + wire.MESSAGE_PROPERTIES_HEADER.size
        body = label + 2 * properties.label_length + properties.extension_size
        if body + properties.body_size > self.limit:
            raise _Undecodable(
                Fault.BODY_BEYOND_PACKET,
                offset,
                f"the body would end at {body + properties.body_size}, the headers end at {self.limit}",
            )
        data = self._take(label, 2 * properties.label_length, Fault.BODY_BEYOND_PACKET, "Label")
        self.columns["label"] = identifiers.text(data) if data else None
        self._take(label + len(data), properties.extension_size, Fault.BODY_BEYOND_PACKET, "ExtensionData")
        self.offsets["body"] = body
        return properties

    def _after_properties(self, base: Any, user: Any, properties: Any) -> None:
        """Reads the headers after the body, whose end is ambiguous, A-30.

        Tries the allocated size first and MessageSize next. The first size wins after which the headers end exactly at
        their limit, else the first after which they can be read.
        """
        body = self.offsets["body"]
        sizes = dict.fromkeys((max(properties.body_size, properties.allocation_body_size), properties.body_size))
        best: tuple[ParsedPacket, int] | None = None
        for size in sizes:
            self.offsets["body_end"] = body + size
            if body + size > self.limit:
                continue
            branch = replace(self, headers=dict(self.headers), columns=dict(self.columns), offsets=dict(self.offsets))
            try:
                end = branch.optional_headers(base, user, min(r4(body + size), self.limit))
            except _Undecodable as stop:
                failure = stop
                continue
            if best is None or end == self.limit:
                best = branch, end
            if end == self.limit:
                break
        if best is None:
            raise failure
        branch, end = best
        self.headers, self.columns, self.offsets = branch.headers, branch.columns, branch.offsets
        if end != self.limit:
            self.offsets["trailing_bytes"] = end
        if self.offsets["body_end"] < body + properties.allocation_body_size:
            self.violations.add(Violation.ALLOCATION_NOT_SENT)
        missing = range(len(self.raw), self.size - len(self.trailer or b""))
        if missing and (missing.start < body or missing.stop > self.offsets["body_end"]):
            raise _Undecodable(
                Fault.BYTES_MISSING, missing.start, f"bytes {missing.start} to {missing.stop} are not stored"
            )

    def optional_headers(self, base: Any, user: Any, end: int) -> int:
        """Reads DebugHeader, SoapHeader and MultiQueueFormatHeader; returns where they end."""
        if base.has_debug_header:
            debug = self._header(wire.DEBUG_HEADER, end)
            end += wire.DEBUG_HEADER.size
            if debug.debug_queue_type == 1:
                end = self._guid(wire.DEBUG_HEADER, end)
        if user.has_soap_header:
            end = self._soap(end)
        if user.has_multi_queue_format:
            end = self._multi_queue_format(end)
        return end

    def _soap(self, offset: int) -> int:
        """Reads both halves, each padded to a multiple of 4; the second may also follow without padding, A-33."""
        end = self._soap_half(wire.SOAP_HEADER, SectionId.SOAP_HEADER, (offset,))
        end = self._soap_half(wire.SOAP_BODY, SectionId.SOAP_BODY, (r4(end), end))
        return min(r4(end), self.limit)

    def _soap_half(self, header: Header, section: SectionId, offsets: tuple[int, ...]) -> int:
        """Reads a section, which begins at the first of the offsets that has its identifier; returns where it ends."""
        identifier, _, length, content = header.fields
        for offset in dict.fromkeys(offsets):
            half = self._header(header, offset, Fault.SECTION_BEYOND_PACKET)
            if (found := getattr(half, identifier.attribute)) == section:
                break
        else:
            raise _Undecodable(Fault.BAD_SECTION, offset, f"{identifier.name} is {found:#06x}")
        start = offset + header.size
        size: int = 2 * getattr(half, length.attribute)
        data = self._take(start, size, Fault.SECTION_BEYOND_PACKET, f"SoapHeader.{content.name}")
        self.columns[content.attribute] = identifiers.text(data) if data else None
        return start + size

    def _multi_queue_format(self, offset: int) -> int:
        """Reads the address headers, in order and each optional, A-32, and the signature."""
        self.offsets["MultiQueueFormatHeader"] = offset
        expected = list(_LISTS)
        while expected and offset + wire.MQF_ADDRESS_HEADER.size <= self.limit:
            header = CLASSES["MQFAddressHeader"](
                self._take(offset, wire.MQF_ADDRESS_HEADER.size, Fault.SECTION_BEYOND_PACKET, "MQFAddressHeader")
            )
            if header.header_id not in expected:
                break
            section = SectionId(header.header_id)
            expected = expected[expected.index(section) + 1 :]
            end = offset + header.header_size
            if header.header_size < wire.MQF_ADDRESS_HEADER.size or end > self.limit:
                raise _Undecodable(
                    Fault.SECTION_BEYOND_PACKET,
                    offset,
                    f"HeaderSize is {header.header_size} and the headers end at {self.limit}",
                )
            start = offset + wire.MQF_ADDRESS_HEADER.size
            self.columns[_LISTS[section]] = self._elements(start, end, header.element_count)
            offset = min(r4(end), self.limit)
        signature = self._header(wire.MQF_SIGNATURE_HEADER, offset, Fault.SECTION_BEYOND_PACKET)
        if signature.id != SectionId.SIGNATURE:
            raise _Undecodable(Fault.BAD_SECTION, offset, f"MQFSignatureHeader.ID is {signature.id:#06x}")
        last: int = offset + wire.MQF_SIGNATURE_HEADER.size + signature.multi_queue_signature_size
        if last > self.limit:
            found = f"the signature would end at {last}, the headers end at {self.limit}"
            raise _Undecodable(Fault.SECTION_BEYOND_PACKET, offset, found)
        return min(r4(last), self.limit)

    def _elements(self, offset: int, end: int, count: int) -> list[str]:
        """Returns the format names of a FormatNameList that ends at `end`."""
        data = self._take(offset, end - offset, Fault.SECTION_BEYOND_PACKET, "FormatNameList")
        elements: list[str] = []
        place = 0
        for number in range(1, count + 1):
            start = offset + place
            code = int.from_bytes(data[place : place + 2], "little")
            if place + 2 > len(data):
                raise _Undecodable(Fault.SECTION_BEYOND_PACKET, start, f"element {number} of {count} is not there")
            if code not in _FORMAT_TYPES:
                raise _Undecodable(Fault.UNKNOWN_FORMAT_TYPE, start, f"FormatType is {code}")
            kind = FormatType(code)
            if kind is FormatType.DIRECT:
                place, size = place + 2, identifiers.terminated_size(data, place + 2)
            else:
                place, size = r4(place + 2), wire.FORMAT_NAME_SIZES[kind]
            if place + size > len(data):
                raise _Undecodable(Fault.SECTION_BEYOND_PACKET, start, f"element {number} does not fit its list")
            try:
                elements.append(identifiers.ELEMENT_NAMES[kind](data[place : place + size]))
            except UnicodeDecodeError as error:
                raise _Undecodable(Fault.NAME_NOT_UTF16, start, f"a direct format name, {error.reason}") from error
            place += size
        return elements

    def _classify(self, properties: Any, destination_type: int, destination: bytes) -> PacketType:
        """Returns the packet type by A-10 and A-14; reads the body of an acknowledgment."""
        code = properties.message_class
        final = code >= MessageClass.MQMSG_CLASS_ACK_RECEIVE
        if (
            (final or code == MessageClass.MQMSG_CLASS_ORDER_ACK)
            and properties.body_size == wire.ACK_BODY_SIZE
            and self.columns["label"] == wire.ORDER_ACK_LABEL
            and identifiers.is_order_queue(destination_type, destination)
        ):
            header = wire.FINAL_ACK_BODY if final else wire.ORDER_ACK_BODY
            self._header(header, self.offsets["body"])
            return PacketType.FINAL_ACK if final else PacketType.ORDER_ACK
        if final or code in (MessageClass.MQMSG_CLASS_REPORT, MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE):
            return PacketType.ADMINISTRATION
        return PacketType.USER_MESSAGE
