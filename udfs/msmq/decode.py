"""Batches of `packets` in, batches of the decoded tables out, and what cannot be decoded explained.

Every column is built across the batch; text is made once per distinct value. Rows that `udfs.msmq.layout` handed to
`udfs.msmq.reference` get their columns there as well.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas import wire
from schemas.messages import (
    ACKS,
    COPIED_COLUMNS,
    DECODED_ALONE,
    DECODED_TABLES,
    HANDSHAKES,
    MESSAGES,
    SESSION_ACKS,
    TABLE_OF,
)
from schemas.table import Table
from schemas.violations import Violation
from schemas.wire import Header, Kind, QueueType, SenderIdType
from udfs.arrow.buffers import fixed_binary
from udfs.msmq import identifiers
from udfs.msmq.batch import Bools, Ints, PacketBatch, binary_array, dictionary_codes, has_surrogates, take_records
from udfs.msmq.header_types import DTYPES
from udfs.msmq.layout import PACKET_TYPES, HeaderOffsets, Headers, find_headers
from udfs.msmq.reference import table_row
from udfs.msmq.violations import RULES_BY_TABLE

_MESSAGE_HEADERS = (
    wire.BASE_HEADER,
    wire.USER_HEADER,
    wire.TRANSACTION_HEADER,
    wire.SECURITY_HEADER,
    wire.MESSAGE_PROPERTIES_HEADER,
    wire.DEBUG_HEADER,
    wire.SESSION_HEADER,
)
_HEADERS: dict[str, tuple[Header, ...]] = {
    MESSAGES.name: _MESSAGE_HEADERS,
    ACKS.name: (*_MESSAGE_HEADERS, wire.FINAL_ACK_BODY),
    HANDSHAKES.name: (
        wire.BASE_HEADER,
        wire.INTERNAL_HEADER,
        wire.ESTABLISH_CONNECTION_HEADER,
        wire.CONNECTION_PARAMETERS_HEADER,
    ),
    SESSION_ACKS.name: (wire.BASE_HEADER, wire.INTERNAL_HEADER, wire.SESSION_HEADER),
}
_TABLES = {table.name: table for table in DECODED_TABLES}
_CARRIED = [column.name for column in COPIED_COLUMNS]
_BESIDE = {*_CARRIED, DECODED_ALONE.name}  # columns that do not come from the packet's bytes
_MICROSECONDS = 1_000_000
_COUNT = np.dtype([("value", "<u2")])
_IDENTIFIER = np.dtype([("value", "u1", (4,))])
_PROVIDER_TYPE = np.dtype([("value", "<u4")])
_GUID = np.dtype([("value", "u1", (wire.GUID_SIZE,))])
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), "<u2")
_GUID_ORDER = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15]
_DASHES = [8, 13, 18, 23]
_DIGITS = [place for place in range(36) if place not in _DASHES]
_BEYOND_ASCII = 0x80  # the first code point of two bytes in UTF-8, and of three
_BEYOND_TWO_BYTES = 0x800


class DecodedBatch:
    """A batch of `packets` once its headers are found: its rows in each table, and those that are in none."""

    def __init__(self, packets: pa.RecordBatch) -> None:
        self.packets = packets
        self.stored = PacketBatch.from_columns(packets["raw"], packets["trailer"], packets["size"])
        self.offsets, self.parsed, self.read = find_headers(self.stored)

    def rows(self, table: Table, schema: pa.Schema) -> pa.RecordBatch:
        """The rows of one table, in the packets' order and in the table's Arrow schema."""
        table = _TABLES[table.name]  # a worker is sent a copy, and here they are told apart by identity
        of_table = np.array([TABLE_OF.get(packet_type) is table for packet_type in PACKET_TYPES])
        wanted = of_table[self.offsets["packet_type"]] & (self.offsets["fault"] == 0)
        fast = np.flatnonzero(wanted & ~self.offsets["scalar"])
        slow = np.flatnonzero(wanted & self.offsets["scalar"])
        decoded = pa.schema([field for field in schema if field.name not in _BESIDE])
        if len(fast) == len(wanted):
            part, offsets, read = self.stored, self.offsets, self.read
        else:
            part, offsets, read = self.stored.take(fast), take_records(self.offsets, fast), {}
        built = _Columns(part, offsets, read, table).arrays if len(fast) else {}
        arrays = [built[f.name] if f.name in built else pa.nulls(len(fast), f.type) for f in decoded]
        values = pa.RecordBatch.from_arrays(arrays, schema=decoded)
        if len(slow):
            alone = pa.RecordBatch.from_pylist([table_row(self.parsed[index]) for index in slow.tolist()], decoded)
            order = np.argsort(np.concatenate((fast, slow)))
            values = pa.concat_batches((values, alone)).take(pa.array(order))
        rows = self.packets.select(_CARRIED)
        if not wanted.all():
            rows = rows.take(pa.array(np.flatnonzero(wanted)))
        beside = {name: rows[name] for name in _CARRIED} | {
            DECODED_ALONE.name: pa.array(self.offsets["scalar"][wanted])
        }
        return pa.RecordBatch.from_arrays(
            [beside[field.name].cast(field.type) if field.name in beside else values[field.name] for field in schema],
            schema=schema,
        )

    def undecodable(self) -> pa.RecordBatch:
        """The packets that cannot be decoded, with `reason`, a code, and `detail`, a sentence with the offset."""
        errors = {index: packet.error for index, packet in self.parsed.items() if packet.error}
        return (
            self.packets.take(pa.array(errors, pa.int64()))
            .append_column("reason", pa.array([error.fault.value for error in errors.values()], pa.string()))
            .append_column("detail", pa.array([error.detail for error in errors.values()], pa.string()))
        )


def _once(values: NDArray[np.uint8], make: Callable[[NDArray[np.uint8]], pa.Array]) -> pa.Array:
    """What `make` makes of the rows of bytes, made once per distinct row."""
    count, width = values.shape
    content = pa.py_buffer(np.ascontiguousarray(values))
    codes = pa.Array.from_buffers(pa.binary(width), count, [None, content]).dictionary_encode()
    if 2 * len(codes.dictionary) > count:
        return make(values)
    distinct = np.frombuffer(codes.dictionary.buffers()[1], np.uint8, len(codes.dictionary) * width)
    return make(distinct.reshape(-1, width)).take(codes.indices)


def guid_texts(guids: NDArray[np.uint8]) -> pa.Array:
    """GUIDs, one to a row of 16 bytes, as lower-case text."""
    return _once(guids, _guid_texts)


def _guid_texts(guids: NDArray[np.uint8]) -> pa.Array:
    texts = np.full((len(guids), 36), ord("-"), np.uint8)
    texts[:, _DIGITS] = _HEX[np.take(guids, _GUID_ORDER, axis=1)].view(np.uint8).reshape(len(guids), 32)
    return fixed_binary(texts).view(pa.string())


def _message_ids(guids: pa.Array, ordinals: NDArray[np.uint32]) -> pa.Array:
    return pc.binary_join_element_wise(guids, pa.array(ordinals).cast(pa.string()), "\\")


def message_identifiers(values: NDArray[np.uint8]) -> pa.Array:
    """MessageIdentifiers, one to a row of 20 bytes, as text."""
    return _once(values, lambda each: _message_ids(_guid_texts(each[:, :16]), each[:, 16:].copy().view("<u4")[:, 0]))


def utf16_texts(contents: pa.Array) -> pa.Array:
    """UTF-16LE up to its terminator, as `identifiers.text` reads it; by distinct content where there are surrogates."""
    _, offsets, data = contents.buffers()
    bounds = np.frombuffer(offsets, np.int64) // 2
    units = np.frombuffer(data, "<u2")
    terminated = np.zeros(len(contents), np.int64)
    filled = np.diff(bounds) > 0
    terminated[filled] = units[bounds[1:][filled] - 1] == 0
    if (units < _BEYOND_ASCII).all() and np.count_nonzero(units == 0) == terminated.sum():
        bounds[1:] -= np.cumsum(terminated)
        return _texts(units.astype(np.uint8)[units != 0], bounds)
    if has_surrogates(contents):
        codes, distinct = dictionary_codes(contents)
        return pa.array(map(identifiers.text, distinct), pa.string()).take(pa.array(codes))
    # A unit is kept when no NUL stands before it in its text.
    nuls = np.concatenate(([0], np.cumsum(units == 0)))
    kept = nuls[1:] == np.repeat(nuls[bounds[:-1]], np.diff(bounds))
    two, three = units >= _BEYOND_ASCII, units >= _BEYOND_TWO_BYTES
    lead = np.where(three, 0xE0 | units >> 12, np.where(two, 0xC0 | units >> 6, units))
    every = np.stack((lead, 0x80 | units >> 6 & 0x3F, 0x80 | units & 0x3F), axis=1).astype(np.uint8)
    ends = np.concatenate(([0], np.cumsum(kept * (1 + two + three))))
    return _texts(every[np.stack((kept, kept & three, kept & two), axis=1)], ends[bounds])


def _texts(utf8: NDArray[np.uint8], bounds: Ints) -> pa.Array:
    """The runs of valid UTF-8 between the bounds as text."""
    return binary_array(utf8, bounds).view(pa.large_string()).cast(pa.string())


def _mapped(values: pa.Array, texts: Mapping[int, str]) -> pa.Array:
    """The text of every value, null where it has none."""
    codes = values.dictionary_encode()
    return pa.array(map(texts.get, codes.dictionary.to_pylist()), pa.string()).take(codes.indices)


@cache
def _signed(width: int) -> str:
    """The signed numpy type of the column for an unsigned number of so many bits."""
    return next(code for code, limit in (("i2", 8), ("i4", 16), ("i8", 32)) if width <= limit)


def _masked(values: pa.Array, present: Bools) -> pa.Array:
    return values if present.all() else pc.if_else(pa.array(present), values, None)


def _merged(parts: list[pa.Array], count: int) -> pa.Array:
    """The texts of parts that are null where another is not."""
    if len(parts) == 1:
        return parts[0]
    return pc.coalesce(*parts) if parts else pa.nulls(count, pa.string())


class _Numbers(dict[str, NDArray[Any]]):
    """The numbers of packets by column, in its signed type; 0 where a header is absent."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.zeros = np.zeros(count, np.int64)

    def __missing__(self, column: str) -> Ints:
        return self.zeros


class _Columns:
    """The columns of packets that `udfs.msmq.layout` took, all for one table.

    `arrays` holds them by name, a column whose header no packet has left out; `ints` the numbers among them, as the
    rules want them.
    """

    def __init__(self, packets: PacketBatch, offsets: HeaderOffsets, read: Headers, table: Table) -> None:
        self.packets = packets
        self.offsets = offsets
        self.read = read
        self.arrays: dict[str, pa.Array] = {}
        self.ints = _Numbers(len(packets))
        self.headers = {header.name: self._header(header) for header in _HEADERS[table.name]}
        if table is HANDSHAKES:
            self.arrays["handshake_type"] = self._packet_types()
        if table in (MESSAGES, ACKS):
            self._user_shaped()
        if table is MESSAGES:
            self._message()
        if table is ACKS:
            self._ack()
        self.arrays["violations"] = self._violations(table)

    def _offset(self, name: str) -> Ints:
        offsets: Ints = self.offsets[name].astype(np.int64)
        return offsets

    def _header(self, header: Header) -> NDArray[np.void]:
        """Read a header and add its columns."""
        # The two bodies begin alike, and the longer reading is masked below.
        offset = self._offset("body" if header is wire.FINAL_ACK_BODY else header.name)
        present = offset >= 0
        values = self.read.get(header.name)
        if values is None:
            values = self.packets.read(DTYPES[header.name], offset, present)
        if not present.any():
            return values
        absent = None if present.all() else ~present
        for field in header.fixed:
            if not field.column:
                continue
            value = values[field.attribute]
            if value.ndim > 1:
                make = guid_texts if field.kind is Kind.GUID else message_identifiers
                self.arrays[field.column] = _masked(make(value), present)
                continue
            value = np.ascontiguousarray(value).astype(_signed(8 * field.size))  # numpy casts slowly out of records
            self.ints[field.column] = value
            if field.kind is Kind.TIME:
                times = pa.array((value * _MICROSECONDS).view("M8[us]"), mask=absent)
                self.arrays[field.column] = times.cast(pa.timestamp("us", "UTC"))
            else:
                self.arrays[field.column] = pa.array(value, mask=absent)
            for bits in field.bits:
                part = value & bits.mask
                part = part != 0 if bits.width == 1 else (part >> bits.shift).astype(_signed(bits.width))
                self.ints[bits.column] = part.view(np.int8) if bits.width == 1 else part
                self.arrays[bits.column] = pa.array(part, mask=absent)
        return values

    def _packet_types(self) -> pa.Array:
        return pa.array(PACKET_TYPES, pa.string()).take(pa.array(self.offsets["packet_type"]))

    def _guid(self, offset: Ints, present: Bools) -> pa.Array:
        if not present.any():
            return pa.nulls(len(present), pa.string())
        return _masked(guid_texts(self.packets.read(_GUID, offset, present)["value"]), present)

    def _distinct(self, rows: Ints, contents: pa.Array, convert: Callable[[bytes], str | None]) -> pa.Array:
        """The text of each row's content, made once per distinct content; null in all other rows."""
        codes, distinct = dictionary_codes(contents)
        texts = pa.array(map(convert, distinct), pa.string())
        if len(rows) == len(self.packets):
            return texts.take(pa.array(codes))
        place = np.full(len(self.packets), -1)
        place[rows] = codes
        return texts.take(pa.array(place, mask=place < 0))

    def _slices(self, rows: Ints, offset: Ints, length: Ints) -> pa.Array:
        return self.packets.take(rows).slices(offset[rows], length[rows])

    def _user_shaped(self) -> None:
        user = self.headers["UserHeader"]
        ints = self.ints
        ints["null_address"] = np.where(user["queue_manager_address"].any(axis=1), 0, 1)
        self.arrays["message_id"] = _message_ids(self.arrays["source_queue_manager"], user["message_id_ordinal"])
        hosts = {
            QueueType.PRIVATE_ON_SOURCE: user["source_queue_manager"],
            QueueType.PRIVATE_ON_DESTINATION: user["queue_manager_address"],
        }
        self._queue("destination_queue", hosts)
        self._queue("admin_queue", hosts)
        kind = ints["admin_queue_type"]
        if (ints["response_queue_type"] == QueueType.PRIVATE_ON_ADMIN_HOST).any():
            own = self.packets.read(_GUID, self._offset("admin_queue"), kind == QueueType.PRIVATE)["value"]
            admin_host = np.select([(kind == each)[:, None] for each in hosts], list(hosts.values()), own)
            hosts[QueueType.PRIVATE_ON_ADMIN_HOST] = admin_host
        self._queue("response_queue", hosts, np.isin(kind, [*hosts, QueueType.PRIVATE]))
        if (same := ints["response_queue_type"] == QueueType.SAME_AS_ADMIN).any():
            self.arrays["response_queue"] = pc.if_else(
                pa.array(same), self.arrays["admin_queue"], self.arrays["response_queue"]
            )
        connector = self._offset("connector_type")
        self.arrays["connector_type"] = self._guid(connector, connector >= 0)
        label = self._offset("MessagePropertiesHeader") + wire.MESSAGE_PROPERTIES_HEADER.size
        labels = utf16_texts(self.packets.slices(label, 2 * ints["label_length"]))
        self.arrays["label"] = _masked(labels, ints["label_length"] > 0)
        self.arrays["message_class_name"] = _mapped(self.arrays["message_class"], wire.MESSAGE_CLASS_NAMES)
        if "tx_sequence_ordinal" in self.arrays:
            self._sequence_id()

    def _sequence_id(self) -> None:
        """TxSequenceID as an exact decimal: its 64 bits are the low half of Arrow's 128."""
        words = np.zeros((len(self.packets), 2), np.uint64)
        words[:, 0] = self.ints["tx_sequence_timestamp"].astype(np.uint64) << np.uint64(32)
        words[:, 0] |= self.ints["tx_sequence_ordinal"].astype(np.uint64)
        values = pa.Array.from_buffers(pa.decimal128(20, 0), len(words), [None, pa.py_buffer(words)])
        present = self.arrays["tx_sequence_ordinal"].is_valid()
        self.arrays["tx_sequence_id"] = pc.if_else(present, values, None)

    def _queue(self, column: str, hosts: Mapping[QueueType, NDArray[np.uint8]], known: Bools | None = None) -> None:
        """Add a queue name; `known` says in which rows the admin queue's host is."""
        kind = self.ints[f"{column}_type"]
        offset = self._offset(column)
        parts = []
        for number in np.flatnonzero(np.bincount(kind)).tolist():
            queue_type = QueueType(number)
            rows = np.flatnonzero(kind == number)
            start = offset[rows]
            part = self.packets.take(rows)
            every = np.ones(len(rows), np.bool_)
            convert: Callable[[bytes], str] = identifiers.private_name
            match queue_type:
                case QueueType.NONE | QueueType.SAME_AS_ADMIN:
                    continue
                case QueueType.DIRECT:
                    count = part.read(_COUNT, start, every)["value"].astype(np.int64)
                    contents, convert = part.slices(start + 2, count), identifiers.direct_name
                case QueueType.PUBLIC:
                    contents, convert = part.slices(start, np.full(len(rows), wire.GUID_SIZE)), identifiers.public_name
                case QueueType.PRIVATE:
                    contents = part.slices(start, np.full(len(rows), wire.QUEUE_NAME_SIZES[number]))
                case _:
                    identifier = part.read(_IDENTIFIER, start, every)["value"]
                    contents = fixed_binary(np.concatenate((hosts[queue_type][rows], identifier), axis=1))
            if queue_type is QueueType.PRIVATE_ON_ADMIN_HOST and known is not None:
                contents = contents.filter(pa.array(known[rows]))
                rows = rows[known[rows]]
            parts.append(self._distinct(rows, contents, convert))
        self.arrays[column] = _merged(parts, len(kind))

    def _message(self) -> None:
        ints = self.ints
        self.arrays["body_type_name"] = _mapped(self.arrays["body_type"], wire.BODY_TYPE_NAMES)
        self.arrays["delivery_mode_name"] = _mapped(self.arrays["delivery_mode"], wire.DELIVERY_MODE_NAMES)
        self.arrays["body_offset"] = pa.array(self._offset("body"))
        transaction = self._offset("TransactionHeader")
        self.arrays["connector_qm_guid"] = self._guid(
            transaction + wire.TRANSACTION_HEADER.size, ints["has_connector_qm_guid"] == 1
        )
        debug = self._offset("DebugHeader") + wire.DEBUG_HEADER.size
        self.arrays["debug_queue"] = self._guid(debug, ints["debug_queue_type"] == 1)
        self._security()

    def _security(self) -> None:
        ints = self.ints
        sender_id = self._offset("SecurityHeader") + wire.SECURITY_HEADER.size
        parts = []
        for sender_id_type in (SenderIdType.SID, SenderIdType.QUEUE_MANAGER):
            rows = np.flatnonzero((ints["sender_id_type"] == sender_id_type) & (ints["has_security_header"] == 1))
            if len(rows):
                contents = self._slices(rows, sender_id, ints["sender_id_size"])
                convert = partial(identifiers.sender_id_text, sender_id_type)
                parts.append(self._distinct(rows, contents, convert))
        self.arrays["sender_id"] = _merged(parts, len(self.packets))
        *others, size = (ints[name] for name in wire.SECURITY_SIZES)
        present = size >= _PROVIDER_TYPE.itemsize
        if not present.any():
            return
        provider = sender_id + sum((each + 3) & ~3 for each in others)
        rows = np.flatnonzero(present)
        contents = self._slices(rows, provider, size)
        self.arrays["provider_name"] = self._distinct(rows, contents, lambda data: identifiers.provider(data)[1])
        kind = self.packets.read(_PROVIDER_TYPE, provider, present)["value"]
        self.arrays["provider_type"] = pa.array(kind.astype(np.int64), mask=~present)

    def _ack(self) -> None:
        self.arrays["ack_type"] = self._packet_types()
        final = self.offsets["FinalAckBody"] >= 0
        for column in ("source_guid", "acknowledged_message_id_ordinal"):
            self.arrays[column] = _masked(self.arrays[column], final)
        self.arrays["acknowledged_message_id"] = pc.binary_join_element_wise(
            self.arrays["source_guid"], self.arrays["acknowledged_message_id_ordinal"].cast(pa.string()), "\\"
        )

    def _violations(self, table: Table) -> pa.Array:
        """The codes of the rules that each packet breaks, in their declared order."""
        count = len(self.packets)
        rules = RULES_BY_TABLE[table.name]
        codes = [violation for violation in Violation if violation in rules]
        breakers = [np.flatnonzero(rules[code](self.ints)) for code in codes]
        packets = np.concatenate(breakers)
        order = np.argsort(packets, kind="stable")
        numbers = np.repeat(np.arange(len(codes)), [len(each) for each in breakers])[order]
        bounds = np.concatenate(([0], np.cumsum(np.bincount(packets, minlength=count))))
        values = pa.array([code.value for code in codes]).take(pa.array(numbers))
        return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), values)
