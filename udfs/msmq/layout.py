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
from udfs.msmq.batch import Bools, Ints, Packets, encoded, has_surrogates, picked, put
from udfs.msmq.header_types import DTYPES
from udfs.msmq.reference import Walk

PACKET_TYPES: tuple[PacketType, ...] = tuple(PacketType)
FAULTS: tuple[Fault, ...] = tuple(Fault)
OFFSETS: tuple[str, ...] = (
    *(header.name for header in wire.HEADERS),
    *("destination_queue", "admin_queue", "response_queue", "connector_type", "body", "body_end"),
)
Outline = NDArray[np.void]
"""An array of OUTLINE, one element per packet."""
Headers = dict[str, NDArray[np.void]]
"""The fixed parts of headers by their name, one element per packet, zeros where it has none."""
OUTLINE = np.dtype(
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


def outline(packets: Packets) -> Outline:
    """Type, fault and header offsets of every packet, and where raw and trailer divide when its body is dropped."""
    return walked(packets).lines


class Walked(NamedTuple):
    """The layout, the walks of the rows that were handed to `udfs.msmq.reference`, and the headers of every packet.

    These are right in the rows that were not handed over.
    """

    lines: Outline
    walks: dict[int, Walk]
    headers: Headers


def walked(packets: Packets) -> Walked:
    """Walk the headers of every packet."""
    result = np.full(len(packets) * OUTLINE.itemsize, -1, np.int8).view(OUTLINE)
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
            part = picked(result, rows)
            taken[rows], _ = take(packets.take(rows), picked(base, rows), part)
            put(result, rows, part)
    walks = {row: Walk.over(*packets.one(row)) for row in np.flatnonzero(~taken).tolist()}
    for row, walk in walks.items():
        result[row] = _scalar(walk)
    return Walked(result, walks, headers)


def _scalar(walk: Walk) -> tuple[int | bool, ...]:
    """The outline of one walk."""
    fault, fault_offset = (0, 0) if walk.error is None else (1 + FAULTS.index(walk.error.fault), walk.error.offset)
    return (
        _TYPE[walk.packet_type],
        fault,
        True,
        fault_offset,
        walk.raw_size,
        walk.trailer_offset,
        *(walk.offsets.get(name, -1) for name in OFFSETS),
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


def _internal(packets: Packets, base: NDArray[np.void], result: Outline) -> tuple[Bools, Headers]:
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


def _user_shaped(packets: Packets, base: NDArray[np.void], result: Outline) -> tuple[Bools, Headers]:
    """Fill in the UserMessage-shaped packets that have nothing unusual; return which ones, and headers read."""
    has_session = flag(base, "has_session_header")
    walk = _Batch(packets, base, result)
    walk.taken &= packets.size == walk.limit + wire.SESSION_HEADER.size * has_session
    user = walk.header("UserHeader")
    walk.taken &= flag(user, "has_message_properties")
    walk.taken &= ~flag(user, "has_soap_header") & ~flag(user, "has_multi_queue_format")
    walk.queue("destination_queue", user, _LEGAL_DESTINATION)
    walk.queue("admin_queue", user, _LEGAL_ADMIN)
    walk.queue("response_queue", user, np.ones(8, np.bool_))
    has_connector = flag(user, "has_connector_type")
    result["connector_type"] = np.where(has_connector, walk.end, -1)
    walk.skip(wire.GUID_SIZE * has_connector)
    transaction = walk.header("TransactionHeader", flag(user, "transactional"))
    walk.skip(wire.GUID_SIZE * flag(transaction, "has_connector_qm_guid"))
    security = walk.header("SecurityHeader", flag(user, "has_security_header"))
    for size in wire.SECURITY_SIZES:
        walk.skip(_r4(security[size].astype(np.int64)))
    properties = walk.header("MessagePropertiesHeader")
    walk.body(properties)
    debug = walk.header("DebugHeader", flag(base, "has_debug_header"))
    walk.skip(wire.GUID_SIZE * (bits(debug, "debug_queue_type") == 1))
    walk.taken &= walk.end == walk.limit
    result["SessionHeader"] = np.where(has_session, walk.limit, -1)
    walk.classify(properties, bits(user, "destination_queue_type"))
    return walk.taken, walk.headers


class _Batch:
    """UserMessage-shaped packets on the way through their headers: where each one stands, and which are still taken."""

    def __init__(self, packets: Packets, base: NDArray[np.void], result: Outline) -> None:
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
                codes, distinct = encoded(contents)
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
        codes, distinct = encoded(self.packets.take(rows).slices(offset, length))
        passed: Bools = np.array([test(content) for content in distinct], np.bool_)[codes]
        return passed
