"""The header walk over a batch of packets: where each header lies, and which packet each one is.

The common packets are taken with numpy, no Python object per packet. A row is taken under the conditions under which
`udfs.msmq.reference.Walk` finds nothing to remark; every other row is handed to it. Both give the same outline.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas import wire
from schemas.ingest import PacketType
from schemas.violations import Fault
from schemas.wire import Header, InternalType, MessageClass, QueueType
from udfs.msmq import identifiers
from udfs.msmq.batch import Bools, Ints, PacketBatch, dictionary_codes, has_surrogates, put_records, take_records
from udfs.msmq.header_types import DTYPES
from udfs.msmq.reference import ParsedPacket

PACKET_TYPES: tuple[PacketType, ...] = tuple(PacketType)
FAULTS: tuple[Fault, ...] = tuple(Fault)
OFFSETS: tuple[str, ...] = (
    *(header.name for header in wire.HEADERS),
    *("destination_queue", "admin_queue", "response_queue", "connector_type", "body", "body_end"),
)
HeaderOffsets = NDArray[np.void]
"""An array of OUTLINE, one element per packet."""
Headers = dict[str, NDArray[np.void]]
"""The fixed parts of headers by their name, one element per packet, zeros where it has none."""
HEADER_OFFSETS = np.dtype(
    [
        ("packet_type", "u1"),  # index in PACKET_TYPES
        ("fault", "u1"),  # 0, or 1 + index in FAULTS
        ("scalar", "?"),  # whether udfs.msmq.reference took it
        ("fault_offset", "i4"),
        ("raw_size", "i4"),  # where raw stops when bodies are dropped
        ("trailer_offset", "i4"),  # where trailer then begins, -1 for null
        *((name, "i4") for name in OFFSETS),  # offsets in the packet, -1 when absent
    ]
)
LONGEST_NAME = 1024
"""Bytes of a direct name above which a row goes to `udfs.msmq.reference`: memory stays bounded whatever packets say."""

_TYPE = {packet_type: index for index, packet_type in enumerate(PACKET_TYPES)}
_COUNT = np.dtype([("value", "<u2")])
_NAME_SIZES = np.array([*wire.QUEUE_NAME_SIZES, 0])
_LEGAL_DESTINATION = np.isin(np.arange(8), list(wire.LEGAL_DESTINATION_TYPES))
_LEGAL_ADMIN = np.isin(np.arange(8), list(wire.LEGAL_ADMIN_TYPES))
_IDENTIFIER = np.dtype([("value", "<u4")])
_INTERNAL: dict[InternalType, tuple[PacketType, Header]] = {
    InternalType.SESSION_ACK: (PacketType.SESSION_ACK, wire.SESSION_HEADER),
    InternalType.ESTABLISH_CONNECTION: (PacketType.ESTABLISH_CONNECTION, wire.ESTABLISH_CONNECTION_HEADER),
    InternalType.CONNECTION_PARAMETERS: (PacketType.CONNECTION_PARAMETERS, wire.CONNECTION_PARAMETERS_HEADER),
}


def find_offsets(packets: PacketBatch) -> HeaderOffsets:
    """Type, fault and header offsets of every packet, and where raw and trailer divide when its body is dropped."""
    return find_headers(packets).offsets


class FoundHeaders(NamedTuple):
    """The layout, the walks of the rows that were handed to `udfs.msmq.reference`, and the headers of every packet.

    These are right in the rows that were not handed over.
    """

    offsets: HeaderOffsets
    parsed: dict[int, ParsedPacket]
    headers: Headers


def find_headers(packets: PacketBatch) -> FoundHeaders:
    """Walk the headers of every packet."""
    result = np.full(len(packets) * HEADER_OFFSETS.itemsize, -1, np.int8).view(HEADER_OFFSETS)
    for name in ("packet_type", "fault", "scalar", "fault_offset"):
        result[name] = 0
    first = np.zeros(len(packets), np.int64)
    base = packets.read(DTYPES["BaseHeader"], first, packets.stored >= wire.BASE_HEADER.size)
    result["BaseHeader"] = 0
    sound = (base["version_number"] == wire.VERSION) & (base["signature"] == wire.SIGNATURE)
    sound &= (base["packet_size"] <= wire.MAX_PACKET_SIZE) & (packets.stored <= packets.size)
    internal = flag(base, "internal")
    taken = np.zeros(len(packets), np.bool_)
    headers: Headers = {"BaseHeader": base}
    for rows, take in (
        (np.flatnonzero(sound & internal), _internal),
        (np.flatnonzero(sound & ~internal), _user_shaped),
    ):
        if 0 < len(rows) == len(packets):
            taken, further = take(packets, base, result)
            headers |= further
        elif len(rows):
            part = take_records(result, rows)
            taken[rows], _ = take(packets.take(rows), take_records(base, rows), part)
            put_records(result, rows, part)
    parsed = {row: ParsedPacket.parse(*packets.one(row)) for row in np.flatnonzero(~taken).tolist()}
    for row, packet in parsed.items():
        result[row] = _scalar(packet)
    return FoundHeaders(result, parsed, headers)


def _scalar(packet: ParsedPacket) -> tuple[int | bool, ...]:
    """The outline of one walk."""
    fault, fault_offset = (
        (0, 0) if packet.error is None else (1 + FAULTS.index(packet.error.fault), packet.error.offset)
    )
    return (
        _TYPE[packet.packet_type],
        fault,
        True,
        fault_offset,
        packet.raw_size,
        packet.trailer_offset,
        *(packet.offsets.get(name, -1) for name in OFFSETS),
    )


def _r4(size: Ints) -> Ints:
    return (size + 3) & ~3


def bits(headers: NDArray[np.void], column: str) -> Ints:
    """The values of a run of bits in headers that were read, by its column."""
    _, field, run = wire.BITS[column]
    values: Ints = ((headers[field.attribute] & run.mask) >> run.shift).astype(np.int64)
    return values


def flag(headers: NDArray[np.void], column: str) -> Bools:
    """The values of a single bit in headers that were read, by its column."""
    values: Bools = bits(headers, column) != 0
    return values


def _internal(packets: PacketBatch, base: NDArray[np.void], result: HeaderOffsets) -> tuple[Bools, Headers]:
    """Fill in the internal packets that are exactly what the documents say; return which ones, and headers read."""
    extra = packets.size - base["packet_size"]
    sound = (packets.trailer_size < 0) & (packets.stored == packets.size)
    sound &= (extra == 0) | (flag(base, "has_session_header") & (extra == wire.SESSION_HEADER.size))
    second = np.full(len(packets), wire.BASE_HEADER.size)
    after = wire.BASE_HEADER.size + wire.INTERNAL_HEADER.size
    kind = bits(packets.read(DTYPES["InternalHeader"], second, sound & (packets.size >= after)), "internal_type")
    taken = np.zeros(len(packets), np.bool_)
    for number, (packet_type, header) in _INTERNAL.items():
        rows = sound & (kind == number) & (packets.size == after + header.size)
        result["packet_type"][rows] = _TYPE[packet_type]
        result[header.name][rows] = after
        taken |= rows
    result["InternalHeader"] = wire.BASE_HEADER.size
    result["raw_size"] = packets.size
    return taken, {}


def _user_shaped(packets: PacketBatch, base: NDArray[np.void], result: HeaderOffsets) -> tuple[Bools, Headers]:
    """Fill in the UserMessage-shaped packets that have nothing unusual; return which ones, and headers read."""
    has_session = flag(base, "has_session_header")
    packet = _Batch(packets, base, result)
    packet.taken &= packets.size == packet.limit + wire.SESSION_HEADER.size * has_session
    user = packet.header("UserHeader")
    packet.taken &= flag(user, "has_message_properties")
    packet.taken &= ~flag(user, "has_soap_header") & ~flag(user, "has_multi_queue_format")
    packet.queue("destination_queue", user, _LEGAL_DESTINATION)
    packet.queue("admin_queue", user, _LEGAL_ADMIN)
    packet.queue("response_queue", user, np.ones(8, np.bool_))
    has_connector = flag(user, "has_connector_type")
    result["connector_type"] = np.where(has_connector, packet.end, -1)
    packet.skip(wire.GUID_SIZE * has_connector)
    transaction = packet.header("TransactionHeader", flag(user, "transactional"))
    packet.skip(wire.GUID_SIZE * flag(transaction, "has_connector_qm_guid"))
    security = packet.header("SecurityHeader", flag(user, "has_security_header"))
    for size in wire.SECURITY_SIZES:
        packet.skip(_r4(security[size].astype(np.int64)))
    properties = packet.header("MessagePropertiesHeader")
    packet.body(properties)
    debug = packet.header("DebugHeader", flag(base, "has_debug_header"))
    packet.skip(wire.GUID_SIZE * (bits(debug, "debug_queue_type") == 1))
    packet.taken &= packet.end == packet.limit
    result["SessionHeader"] = np.where(has_session, packet.limit, -1)
    packet.classify(properties, bits(user, "destination_queue_type"))
    return packet.taken, packet.headers


class _Batch:
    """UserMessage-shaped packets on the way through their headers: where each one stands, and which are still taken."""

    def __init__(self, packets: PacketBatch, base: NDArray[np.void], result: HeaderOffsets) -> None:
        self.packets = packets
        self.result = result
        self.limit: Ints = base["packet_size"].astype(np.int64)  # where the headers end
        self.bound = np.minimum(self.limit, packets.stored)  # where what can be read of them ends
        self.end = np.full(len(packets), wire.BASE_HEADER.size)
        self.taken = np.ones(len(packets), np.bool_)
        self.headers: Headers = {}

    def skip(self, size: Ints) -> None:
        """Step over so many bytes."""
        self.end = self.end + size
        self.taken &= self.end <= self.bound

    def read(self, layout: np.dtype[np.void], where: Bools) -> NDArray[np.void]:
        """What lies ahead, zeros where it is not wanted; a packet that ends before it is no longer taken."""
        self.taken &= ~where | (self.end + layout.itemsize <= self.bound)
        return self.packets.read(layout, self.end, where & self.taken)

    def header(self, name: str, present: Bools | None = None) -> NDArray[np.void]:
        """The next header, by default of every packet."""
        where = np.ones(len(self.packets), np.bool_) if present is None else present
        headers = self.headers[name] = self.read(DTYPES[name], where)
        self.result[name] = np.where(where, self.end, -1)
        self.skip(where * DTYPES[name].itemsize)
        return headers

    def queue(self, column: str, user: NDArray[np.void], legal: Bools) -> None:
        """Step over a queue name."""
        kind = bits(user, f"{column}_type")
        self.taken &= legal[kind]
        direct = kind == QueueType.DIRECT
        size = _NAME_SIZES[kind]
        if direct.any():
            count = self.read(_COUNT, direct)["value"].astype(np.int64)
            self.taken &= (count % 2 == 0) & (count <= LONGEST_NAME)
            size = np.where(direct, _r4(2 + count), size)
        start = self.end
        self.result[column] = np.where(size > 0, start, -1)
        self.skip(size)
        rows = np.flatnonzero(direct & self.taken)
        if len(rows):
            contents = self.packets.take(rows).slices(start[rows] + 2, count[rows])
            if has_surrogates(contents):
                codes, distinct = dictionary_codes(contents)
                self.taken[rows] = np.array([identifiers.is_utf16(content) for content in distinct], np.bool_)[codes]

    def body(self, properties: NDArray[np.void]) -> None:
        """Step over label, extension and body, of which nothing else may be missing, and to the next header."""
        sizes = {name: properties[name].astype(np.int64) for name in ("body_size", "allocation_body_size")}
        self.skip(2 * properties["label_length"].astype(np.int64) + properties["extension_size"])
        body, body_end = self.end, self.end + np.maximum(*sizes.values())
        self.taken &= body_end <= self.limit
        packets = self.packets
        self.taken &= np.where(
            packets.trailer_size < 0,
            packets.stored == packets.size,
            (packets.stored == body) & (body_end + packets.trailer_size == packets.size),
        )
        self.bound = self.limit
        self.end = np.minimum(_r4(body_end), self.limit)
        for name, offset in (("body", body), ("body_end", body_end), ("raw_size", body), ("trailer_offset", body_end)):
            self.result[name] = offset

    def classify(self, properties: NDArray[np.void], destination_type: Ints) -> None:
        """Name the packets, as `udfs.msmq.reference.Walk` does."""
        code = properties["message_class"]
        final = code >= MessageClass.MQMSG_CLASS_ACK_RECEIVE
        order = code == MessageClass.MQMSG_CLASS_ORDER_ACK
        ordering = self.taken & (final | order) & (properties["body_size"] == wire.ACK_BODY_SIZE)
        rows = np.flatnonzero(ordering)
        if len(rows):
            label = self.result["MessagePropertiesHeader"][rows] + np.int64(wire.MESSAGE_PROPERTIES_HEADER.size)
            length = 2 * properties["label_length"][rows].astype(np.int64)
            ordering[rows] = self._distinct(
                rows, label, length, lambda label: identifiers.text(label) == wire.ORDER_ACK_LABEL
            )
            ordering[ordering] = self._for_order_queue(np.flatnonzero(ordering), destination_type)
        report = (code == MessageClass.MQMSG_CLASS_REPORT) | (code == MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE)
        self.result["packet_type"] = np.select(
            [ordering & final, ordering, final | report],
            [_TYPE[PacketType.FINAL_ACK], _TYPE[PacketType.ORDER_ACK], _TYPE[PacketType.ADMINISTRATION]],
            _TYPE[PacketType.USER_MESSAGE],
        )
        self.taken &= ~ordering | (self.packets.trailer_size < 0)
        for header, rows in ((wire.FINAL_ACK_BODY, ordering & final), (wire.ORDER_ACK_BODY, ordering & ~final)):
            self.result[header.name] = np.where(rows, self.result["body"], -1)
        self.result["raw_size"][ordering] = self.packets.size[ordering]
        self.result["trailer_offset"][ordering] = -1

    def _for_order_queue(self, rows: Ints, destination_type: Ints) -> Bools:
        """Which of the rows are addressed to the order queue."""
        kind = destination_type[rows]
        start = self.result["destination_queue"][rows].astype(np.int64)
        packets = self.packets.take(rows)
        private = kind == QueueType.PRIVATE_ON_DESTINATION
        found: Bools = private & (packets.read(_IDENTIFIER, start, private)["value"] == wire.ORDER_QUEUE_ID)
        direct = kind == QueueType.DIRECT
        count = packets.read(_COUNT, start, direct)["value"].astype(np.int64)
        named = partial(identifiers.is_order_queue, QueueType.DIRECT)
        found[direct] = self._distinct(rows[direct], start[direct] + 2, count[direct], named)
        return found

    def _distinct(self, rows: Ints, offset: Ints, length: Ints, test: Callable[[bytes], bool]) -> Bools:
        """Whether the bytes of each row pass a test, which is made once per distinct content."""
        codes, distinct = dictionary_codes(self.packets.take(rows).slices(offset, length))
        passed: Bools = np.array([test(content) for content in distinct], np.bool_)[codes]
        return passed
