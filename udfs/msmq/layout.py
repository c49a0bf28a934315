"""Finds the headers of a batch of packets: where each header lies, and of which type each packet is.

Regular packets are handled with numpy, without a Python object per packet. A packet is regular if
`udfs.msmq.reference.ParsedPacket` would find neither a fault nor anything rare in it; all others are handed to that
class. Both give the same offsets.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from schemas import wire
from schemas.ingest import PacketType
from schemas.wire import MessageClass, QueueType
from udfs.arrow.buffers import Bools, Ints
from udfs.msmq import identifiers
from udfs.msmq.batch import PacketBatch, dictionary_codes, has_surrogates
from udfs.msmq.frame_size import frame_size, is_frame_size
from udfs.msmq.header_types import DTYPES, r4
from udfs.msmq.reference import INTERNAL_PACKETS, ParsedPacket

PACKET_TYPES: tuple[PacketType, ...] = tuple(PacketType)
HeaderOffsets = dict[str, Ints]
"""Offsets in their packets by name, of headers and what is in or after them, -1 when absent; one element per packet.

`packet_type`: index in PACKET_TYPES, unknown for a packet that cannot be decoded. `raw_size`, `trailer_offset`: where
raw stops when bodies are dropped, and where trailer then begins, -1 for null.
"""

_NAMES = (
    *(header.name for header in wire.HEADERS),
    *("destination_queue", "admin_queue", "response_queue", "connector_type", "body", "trailing_bytes"),
    *("packet_type", "raw_size", "trailer_offset"),
)
_TYPE = {packet_type: index for index, packet_type in enumerate(PACKET_TYPES)}
_COUNT = np.dtype([("value", "<u2")])
NAME_SIZES = np.array([*wire.QUEUE_NAME_SIZES, 0])
"""Bytes of a queue name by QueueType; a direct name has its own length."""
_LEGAL_DESTINATION = np.isin(np.arange(8), list(wire.LEGAL_DESTINATION_TYPES))
_LEGAL_ADMIN = np.isin(np.arange(8), list(wire.LEGAL_ADMIN_TYPES))


def find_headers(packets: PacketBatch) -> tuple[HeaderOffsets, dict[int, ParsedPacket]]:
    """Returns the offsets of the headers of every packet, and the packets that were parsed alone, by row."""
    offsets = {name: np.full(len(packets), -1) for name in _NAMES}
    base = _base_headers(packets, packets.stored >= wire.BASE_HEADER.size)
    offsets["BaseHeader"][:] = 0
    sound = (base["version_number"] == wire.VERSION) & (base["signature"] == wire.SIGNATURE)
    sound &= (base["packet_size"] <= wire.MAX_PACKET_SIZE) & (packets.stored <= packets.size)
    internal = flag(base, "internal")
    regular = np.zeros(len(packets), np.bool_)
    for wanted, lay_out in ((sound & internal, _lay_out_internal), (sound & ~internal, _lay_out_user_shaped)):
        rows = np.flatnonzero(wanted)
        if len(rows):
            found, regular[rows] = lay_out(packets.take(rows))
            for name, values in found.items():
                offsets[name][rows] = values
    parsed = {row: ParsedPacket.parse(*packets.one(row)) for row in np.flatnonzero(~regular).tolist()}
    for row, packet in parsed.items():
        beside = {"raw_size": packet.raw_size, "trailer_offset": packet.trailer_offset}
        known = packet.offsets | beside | {"packet_type": _TYPE[packet.packet_type]}
        for name, values in offsets.items():
            values[row] = known.get(name, -1)
    return offsets, parsed


def _base_headers(packets: PacketBatch, present: Bools | None = None) -> NDArray[np.void]:
    every = np.ones(len(packets), np.bool_) if present is None else present
    return packets.read(DTYPES["BaseHeader"], np.zeros(len(packets), np.int64), every)


def bits(headers: NDArray[np.void], column: str) -> Ints:
    """Returns the values of some bits of a flag word, by their column."""
    _, field, run = wire.BITS[column]
    values: Ints = ((headers[field.attribute] & run.mask) >> run.shift).astype(np.int64)
    return values


def flag(headers: NDArray[np.void], column: str) -> Bools:
    """Returns the values of a single bit, by its column."""
    values: Bools = bits(headers, column) != 0
    return values


def _lay_out_internal(packets: PacketBatch) -> tuple[HeaderOffsets, Bools]:
    """Returns the offsets of internal packets, and which of them are regular."""
    base = _base_headers(packets)
    after = wire.BASE_HEADER.size + wire.INTERNAL_HEADER.size
    sound = (packets.trailer_size < 0) & (packets.stored == packets.size)
    sound &= is_frame_size(packets.size, base["base_flags"], base["packet_size"])
    second = np.full(len(packets), wire.BASE_HEADER.size)
    kind = bits(packets.read(DTYPES["InternalHeader"], second, sound & (packets.size >= after)), "internal_type")
    regular = np.zeros(len(packets), np.bool_)
    offsets = {"InternalHeader": second, "raw_size": packets.size, "packet_type": np.zeros_like(kind)}
    for number, (packet_type, header) in INTERNAL_PACKETS.items():
        rows = sound & (kind == number) & (packets.size == after + header.size)
        offsets["packet_type"][rows] = _TYPE[packet_type]
        offsets[header.name] = np.where(rows, after, -1)
        regular |= rows
    return offsets, regular


def _lay_out_user_shaped(packets: PacketBatch) -> tuple[HeaderOffsets, Bools]:
    """Returns the offsets of UserMessage-shaped packets, and which of them are regular."""
    base = _base_headers(packets)
    walk = _UserShaped(packets, base["packet_size"].astype(np.int64))
    walk.regular &= packets.size == frame_size(base["base_flags"], walk.limit)
    user = walk.header("UserHeader")
    walk.regular &= flag(user, "has_message_properties")
    walk.regular &= ~flag(user, "has_soap_header") & ~flag(user, "has_multi_queue_format")
    walk.destination = walk.queue("destination_queue", user, _LEGAL_DESTINATION)
    walk.queue("admin_queue", user, _LEGAL_ADMIN)
    walk.queue("response_queue", user, np.ones(8, np.bool_))
    has_connector = flag(user, "has_connector_type")
    walk.offsets["connector_type"] = np.where(has_connector, walk.end, -1)
    walk.skip(wire.GUID_SIZE * has_connector)
    transaction = walk.header("TransactionHeader", flag(user, "transactional"))
    walk.skip(wire.GUID_SIZE * flag(transaction, "has_connector_qm_guid"))
    security = walk.header("SecurityHeader", flag(user, "has_security_header"))
    for size in wire.SECURITY_SIZES:
        walk.skip(r4(security[size].astype(np.int64)))
    properties = walk.header("MessagePropertiesHeader")
    walk.body(properties)
    has_debug = flag(base, "has_debug_header")
    debug = walk.header("DebugHeader", has_debug)
    walk.skip(wire.GUID_SIZE * (bits(debug, "debug_queue_type") == 1))
    trailing = walk.end < walk.limit
    walk.offsets["trailing_bytes"] = np.where(trailing, walk.end, -1)
    # A DebugHeader may then lie nearer, after a body of MessageSize bytes: the reference tries both sizes, A-30.
    walk.regular &= ~(trailing & has_debug & (properties["allocation_body_size"] > properties["body_size"]))
    walk.offsets["SessionHeader"] = np.where(flag(base, "has_session_header"), walk.limit, -1)
    walk.classify(properties, bits(user, "destination_queue_type"))
    return walk.offsets, walk.regular


class _UserShaped:
    """The headers of UserMessage-shaped packets, one after the other: `end` is where the next one begins."""

    def __init__(self, packets: PacketBatch, limit: Ints) -> None:
        self.packets = packets
        self.offsets: HeaderOffsets = {}
        self.limit = limit  # where the headers end
        self.bound = np.minimum(limit, packets.stored)  # where the stored ones of them end
        self.end = np.full(len(packets), wire.BASE_HEADER.size)
        self.regular = np.ones(len(packets), np.bool_)
        self.destination = self.end, self.end  # offset and length of its name

    def skip(self, size: Ints) -> None:
        """Advances by `size` bytes."""
        self.end = self.end + size
        self.regular &= self.end <= self.bound

    def read(self, layout: np.dtype[np.void], where: Bools) -> NDArray[np.void]:
        """Reads at `end`, zeros unless `where`; a packet that ends too early is not regular."""
        self.regular &= ~where | (self.end + layout.itemsize <= self.bound)
        return self.packets.read(layout, self.end, where & self.regular)

    def header(self, name: str, present: Bools | None = None) -> NDArray[np.void]:
        """Reads the next header, by default of every packet, and advances behind it."""
        where = np.ones(len(self.packets), np.bool_) if present is None else present
        headers = self.read(DTYPES[name], where)
        self.offsets[name] = np.where(where, self.end, -1)
        self.skip(where * DTYPES[name].itemsize)
        return headers

    def queue(self, column: str, user: NDArray[np.void], legal: Bools) -> tuple[Ints, Ints]:
        """Advances behind a queue name; returns where its content is, without the count of its bytes."""
        kind = bits(user, f"{column}_type")
        self.regular &= legal[kind]
        direct = kind == QueueType.DIRECT
        count = self.read(_COUNT, direct)["value"].astype(np.int64)
        self.regular &= count % 2 == 0
        start, length = self.end + 2 * direct, np.where(direct, count, NAME_SIZES[kind])
        size = np.where(direct, r4(2 + count), length)
        self.offsets[column] = np.where(size > 0, self.end, -1)
        self.skip(size)
        rows = np.flatnonzero(direct & self.regular)
        if has_surrogates(self.packets.take(rows).slices(start[rows], length[rows])):
            self.regular[rows] = False
            self.regular[self._which(rows, start, length, identifiers.is_utf16)] = True
        return start, length

    def body(self, properties: NDArray[np.void]) -> None:
        """Advances behind label, extension and body to the next header; only the body may be missing from the bytes."""
        sizes = {name: properties[name].astype(np.int64) for name in ("body_size", "allocation_body_size")}
        self.skip(2 * properties["label_length"].astype(np.int64) + properties["extension_size"])
        body, body_end = self.end, self.end + np.maximum(*sizes.values())
        self.regular &= body_end <= self.limit
        packets = self.packets
        self.regular &= np.where(
            packets.trailer_size < 0,
            packets.stored == packets.size,
            (packets.stored == body) & (body_end + packets.trailer_size == packets.size),
        )
        self.bound = self.limit
        self.end = np.minimum(r4(body_end), self.limit)
        self.offsets |= {"body": body, "raw_size": body, "trailer_offset": body_end}

    def classify(self, properties: NDArray[np.void], destination_type: Ints) -> None:
        """Sets the packet types by the rule of `ParsedPacket`, A-10 and A-14."""
        code = properties["message_class"]
        final = code >= MessageClass.MQMSG_CLASS_ACK_RECEIVE
        order = code == MessageClass.MQMSG_CLASS_ORDER_ACK
        rows = np.flatnonzero(self.regular & (final | order) & (properties["body_size"] == wire.ACK_BODY_SIZE))
        label = self.offsets["MessagePropertiesHeader"] + wire.MESSAGE_PROPERTIES_HEADER.size
        length = 2 * properties["label_length"].astype(np.int64)
        rows = self._which(rows, label, length, lambda label: identifiers.text(label) == wire.ORDER_ACK_LABEL)
        ordering = np.zeros(len(self.packets), np.bool_)
        for kind in (QueueType.DIRECT, QueueType.PRIVATE_ON_DESTINATION):
            of_kind = rows[destination_type[rows] == kind]
            ordering[self._which(of_kind, *self.destination, partial(identifiers.is_order_queue, kind))] = True
        report = (code == MessageClass.MQMSG_CLASS_REPORT) | (code == MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE)
        self.offsets["packet_type"] = np.select(
            [ordering & final, ordering, final | report],
            [_TYPE[PacketType.FINAL_ACK], _TYPE[PacketType.ORDER_ACK], _TYPE[PacketType.ADMINISTRATION]],
            _TYPE[PacketType.USER_MESSAGE],
        )
        self.regular &= ~ordering | (self.packets.trailer_size < 0)
        self.offsets["FinalAckBody"] = np.where(ordering & final, self.offsets["body"], -1)
        self.offsets["OrderAckBody"] = np.where(ordering & ~final, self.offsets["body"], -1)
        self.offsets["raw_size"] = np.where(ordering, self.packets.size, self.offsets["raw_size"])
        self.offsets["trailer_offset"] = np.where(ordering, -1, self.offsets["trailer_offset"])

    def _which(self, rows: Ints, offset: Ints, length: Ints, test: Callable[[bytes], bool]) -> Ints:
        """Returns those of the rows whose bytes pass a test, which runs once per distinct content."""
        codes, distinct = dictionary_codes(self.packets.take(rows).slices(offset[rows], length[rows]))
        return rows[np.array([test(content) for content in distinct], np.bool_)[codes]]
