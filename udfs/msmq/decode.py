"""Decodes batches of `packets` into batches of the decoded tables.

Every column is built across the batch, from where `udfs.msmq.layout` found the headers.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas import wire
from schemas.ingest import PacketType
from schemas.messages import (
    ACKS,
    DECODED_TABLES,
    HANDSHAKES,
    HEADERS_OF,
    MESSAGES,
    NOT_IN_RAW,
    SESSION_ACKS,
    TABLE_OF,
    flat_schema,
)
from schemas.table import Table
from schemas.violations import Violation
from schemas.wire import Header, Kind, QueueType
from udfs.arrow.buffers import Bools, Bytes, Ints, fixed_binary, record_batch
from udfs.msmq import identifiers
from udfs.msmq.batch import PacketBatch
from udfs.msmq.header_types import DTYPES, r4
from udfs.msmq.layout import NAME_SIZES, PACKET_TYPES, HeaderOffsets, find_headers
from udfs.msmq.reference import ParsedPacket
from udfs.msmq.violations import RULES

_RARE_COLUMNS = [
    field.column
    for header in (wire.SOAP_HEADER, wire.SOAP_BODY, wire.MULTI_QUEUE_FORMAT_HEADER)
    for field in header.variable
    if field.column
]
"""Columns of headers that only `udfs.msmq.reference` reads."""
_HEADERS: dict[str, tuple[Header, ...]] = {
    MESSAGES.name: (
        *(one for one in HEADERS_OF[PacketType.USER_MESSAGE] if one is not wire.MULTI_QUEUE_FORMAT_HEADER),
        wire.MQF_SIGNATURE_HEADER,
    ),
    ACKS.name: (*HEADERS_OF[PacketType.FINAL_ACK], wire.SESSION_HEADER),
    HANDSHAKES.name: (*HEADERS_OF[PacketType.ESTABLISH_CONNECTION], wire.CONNECTION_PARAMETERS_HEADER),
    SESSION_ACKS.name: HEADERS_OF[PacketType.SESSION_ACK],
}
_TABLES = {table.name: table for table in DECODED_TABLES}
_MICROSECONDS = 1_000_000
_BEYOND_ASCII = 0x80
_COUNT = np.dtype([("value", "<u2")])
_PROVIDER_TYPE = np.dtype([("value", "<u4")])
_GUID = np.dtype([("value", "u1", (wire.GUID_SIZE,))])


class DecodedBatch:
    """A batch of `packets` whose headers are found: its rows in each table."""

    def __init__(self, packets: pa.RecordBatch) -> None:
        self.packets = packets
        self.stored = PacketBatch.from_columns(packets["raw"], packets["trailer"], packets["size"])
        self.offsets, self.parsed = find_headers(self.stored)

    def rows(self, table: Table) -> pa.RecordBatch:
        """Returns the rows of one table, in the order of the packets, with a column for each field."""
        table = _TABLES[table.name]  # a Python worker has a copy, and tables are compared by identity below
        schema = flat_schema(table)
        of_table = np.array([TABLE_OF.get(packet_type) is table for packet_type in PACKET_TYPES])
        rows = np.flatnonzero(of_table[self.offsets["packet_type"]])
        packets = self.packets if len(rows) == len(self.packets) else self.packets.take(pa.array(rows))
        copied = (field for field in schema if field.name in NOT_IN_RAW)
        columns = {field.name: packets[field.name].cast(field.type) for field in copied}
        if len(rows):
            alone = {at: self.parsed[row] for at, row in enumerate(rows.tolist()) if row in self.parsed}
            offsets = {name: values[rows] for name, values in self.offsets.items()}
            columns |= _Columns(self.stored.take(rows), offsets, alone, table).arrays
        return record_batch(columns, len(rows), schema)


def texts_of(values: pa.Array, text: Callable[[Any], str | None]) -> pa.Array:
    """Returns the text of each value, made once per distinct value."""
    codes = values.dictionary_encode()
    return pa.array(map(text, codes.dictionary.to_pylist()), pa.string()).take(codes.indices)


def guid_texts(guids: Bytes) -> pa.Array:
    """Returns GUIDs, one per row of 16 bytes, as lower-case text."""
    return texts_of(fixed_binary(guids), identifiers.guid_text)


def message_ids(guids: pa.Array, ordinals: pa.Array) -> pa.Array:
    r"""Returns message identifiers, <guid>\<ordinal>; null if either part is."""
    return pc.binary_join_element_wise(guids, ordinals.cast(pa.string()), "\\")


def message_identifiers(values: Bytes) -> pa.Array:
    """Returns MessageIdentifiers, one per row of 20 bytes, as text."""
    return message_ids(guid_texts(values[:, :16]), pa.array(values[:, 16:].copy().view("<u4")[:, 0]))


def sequence_texts(sequences: NDArray[np.uint64]) -> pa.Array:
    """Returns TxSequenceIDs as text."""
    return texts_of(pa.array(sequences), identifiers.sequence_text)


def utf16_texts(contents: pa.Array) -> pa.Array:
    """Returns UTF-16LE up to its terminator as text, equal to `identifiers.text`."""
    _, offsets, data = contents.buffers()
    units = np.frombuffer(data or b"", "<u2")
    if (units < _BEYOND_ASCII).all():
        bounds = np.frombuffer(offsets, np.int32) // 2
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(units.astype(np.uint8))]
        texts = pc.ascii_rtrim(pa.Array.from_buffers(pa.string(), len(contents), buffers), characters="\0")
        if not pc.any(pc.match_substring(texts, "\0")).as_py():
            return texts
    return texts_of(contents, identifiers.text)


@cache
def _signed(width: int) -> str:
    """Returns the signed numpy type of the column for an unsigned number of `width` bits."""
    return next(code for code, limit in (("i2", 8), ("i4", 16), ("i8", 32)) if width <= limit)


def _also(absent: Bools | None, value: NDArray[Any], null: int | bytes | None) -> Bools | None:
    """Returns which rows have no value, those with the value that stands for none among them."""
    if null is None:
        return absent
    is_none: Bools = value == null
    return is_none if absent is None else absent | is_none


def _masked(values: pa.Array, present: Bools) -> pa.Array:
    return values if present.all() else pc.if_else(pa.array(present), values, None)


def _joined(before: Bytes, contents: pa.Array) -> pa.Array:
    """Returns the contents, each after its row of bytes."""
    return pc.binary_join_element_wise(fixed_binary(before), contents, b"")


class _Columns:
    """The columns of one table, for packets whose headers `udfs.msmq.layout` found.

    `alone`: those of the packets, by row, that `udfs.msmq.reference` parsed.
    `arrays` holds the columns by name, without those whose header no packet has. `ints` holds the numbers among them,
    in the column's signed type, for `udfs.msmq.violations`; 0 for a header that a packet does not have.
    """

    def __init__(
        self, packets: PacketBatch, offsets: HeaderOffsets, alone: dict[int, ParsedPacket], table: Table
    ) -> None:
        self.packets = packets
        self.offsets = offsets
        self.alone = alone
        self.arrays: dict[str, pa.Array] = {}
        zeros = np.zeros(len(packets), np.int64)
        self.ints: dict[str, NDArray[Any]] = defaultdict(lambda: zeros)
        self.headers = {header.name: self._add_header(header) for header in _HEADERS[table.name]}
        if table is HANDSHAKES:
            self.arrays["handshake_type"] = self._packet_types()
        if table in (MESSAGES, ACKS):
            ordinals = self.arrays["message_id_ordinal"]
            self.arrays["message_id"] = message_ids(self.arrays["source_queue_manager"], ordinals)
        if "tx_sequence_ordinal" in self.arrays:
            self._add_sequence_id()
        if table is MESSAGES:
            self._add_message()
        if table is ACKS:
            self._add_ack()

    def _add_header(self, header: Header) -> NDArray[np.void]:
        """Reads a header and adds its columns."""
        # Both bodies begin with the same fields; `_add_ack` masks the fields that only a FinalAck has.
        offset = self.offsets["body" if header is wire.FINAL_ACK_BODY else header.name]
        present = offset >= 0
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
                is_none = field.null == bytes(field.size)  # no other value of bytes stands for none
                self.arrays[field.column] = _masked(make(value), present & value.any(axis=1) if is_none else present)
                continue
            value = np.ascontiguousarray(value).astype(_signed(8 * field.size))  # numpy casts slowly out of records
            self.ints[field.column] = value
            if field.kind is Kind.TIME:
                times = pa.array((value * _MICROSECONDS).view("M8[us]"), mask=absent)
                self.arrays[field.column] = times.cast(pa.timestamp("us", "UTC"))
            else:
                self.arrays[field.column] = pa.array(value, mask=_also(absent, value, field.null))
            for bits in field.bits:
                part = value & bits.mask
                part = part != 0 if bits.width == 1 else (part >> bits.shift).astype(_signed(bits.width))
                self.ints[bits.column] = part.view(np.int8) if bits.width == 1 else part
                self.arrays[bits.column] = pa.array(part, mask=absent)
        return values

    def _packet_types(self) -> pa.Array:
        return pa.array(PACKET_TYPES, pa.string()).take(pa.array(self.offsets["packet_type"]))

    def _read_guids(self, offset: Ints, present: Bools) -> pa.Array:
        if not present.any():
            return pa.nulls(len(present), pa.string())
        return _masked(guid_texts(self.packets.read(_GUID, offset, present)["value"]), present)

    def _texts_of(self, rows: Ints, contents: pa.Array, convert: Callable[[bytes], str | None]) -> pa.Array:
        """Returns the text of each row's content; null in all other rows."""
        texts = texts_of(contents, convert)
        if len(rows) == len(self.packets):
            return texts
        place = np.full(len(self.packets), -1)
        place[rows] = np.arange(len(rows))
        return texts.take(pa.array(place, mask=place < 0))

    def _slices(self, rows: Ints, offset: Ints, length: Ints) -> pa.Array:
        return self.packets.take(rows).slices(offset[rows], length[rows])

    def _add_queues(self) -> None:
        user = self.headers["UserHeader"]
        ints = self.ints
        hosts = {
            QueueType.PRIVATE_ON_SOURCE: user["source_queue_manager"],
            QueueType.PRIVATE_ON_DESTINATION: user["queue_manager_address"],
        }
        self._add_queue("destination_queue", hosts)
        self._add_queue("admin_queue", hosts)
        kind = ints["admin_queue_type"]
        if (ints["response_queue_type"] == QueueType.PRIVATE_ON_ADMIN_HOST).any():
            own = self.packets.read(_GUID, self.offsets["admin_queue"], kind == QueueType.PRIVATE)["value"]
            admin_host = np.select([(kind == each)[:, None] for each in hosts], list(hosts.values()), own)
            hosts[QueueType.PRIVATE_ON_ADMIN_HOST] = admin_host
        self._add_queue("response_queue", hosts, np.isin(kind, [*hosts, QueueType.PRIVATE]))
        if (same := ints["response_queue_type"] == QueueType.SAME_AS_ADMIN).any():
            self.arrays["response_queue"] = pc.if_else(
                pa.array(same), self.arrays["admin_queue"], self.arrays["response_queue"]
            )

    def _add_sequence_id(self) -> None:
        """Adds TxSequenceID as an exact decimal: its 64 bits are the low half of Arrow's 128."""
        words = np.zeros((len(self.packets), 2), np.uint64)
        words[:, 0] = self.ints["tx_sequence_timestamp"].astype(np.uint64) << np.uint64(32)
        words[:, 0] |= self.ints["tx_sequence_ordinal"].astype(np.uint64)
        values = pa.Array.from_buffers(pa.decimal128(20, 0), len(words), [None, pa.py_buffer(words)])
        present = self.arrays["tx_sequence_ordinal"].is_valid()
        self.arrays["tx_sequence_id"] = pc.if_else(present, values, None)
        self.arrays["tx_sequence"] = pc.if_else(present, sequence_texts(words[:, 0]), None)

    def _add_queue(self, column: str, hosts: Mapping[QueueType, NDArray[np.uint8]], known: Bools | None = None) -> None:
        """Adds a queue name; `known` says in which rows the host of the administration queue is known."""
        kind, offset = self.ints[f"{column}_type"], self.offsets[column]
        named = offset >= 0
        if known is not None:
            named &= known | (kind != QueueType.PRIVATE_ON_ADMIN_HOST)
        rows = np.flatnonzero(named)
        packets, kind, offset = self.packets.take(rows), kind[rows], offset[rows]
        direct = kind == QueueType.DIRECT
        count = packets.read(_COUNT, offset, direct)["value"].astype(np.int64)
        contents = packets.slices(offset + 2 * direct, np.where(direct, count, NAME_SIZES[kind]))
        before = np.zeros((len(rows), 1 + wire.GUID_SIZE), np.uint8)
        before[:, 0] = kind
        for queue_type, host in hosts.items():
            of_type = kind == queue_type
            before[of_type, 1:] = host[rows[of_type]]
        self.arrays[column] = self._texts_of(
            rows, _joined(before, contents), lambda key: identifiers.queue_name(key[0], key[1:17], key[17:])
        )

    def _add_message(self) -> None:
        ints = self.ints
        ints["null_address"] = np.where(self.headers["UserHeader"]["queue_manager_address"].any(axis=1), 0, 1)
        self._add_queues()
        connector = self.offsets["connector_type"]
        self.arrays["connector_type"] = self._read_guids(connector, connector >= 0)
        label = self.offsets["MessagePropertiesHeader"] + wire.MESSAGE_PROPERTIES_HEADER.size
        labels = utf16_texts(self.packets.slices(label, 2 * ints["label_length"]))
        self.arrays["label"] = _masked(labels, ints["label_length"] > 0)
        self.arrays["body_offset"] = pa.array(self.offsets["body"])
        transaction = self.offsets["TransactionHeader"]
        self.arrays["connector_qm_guid"] = self._read_guids(
            transaction + wire.TRANSACTION_HEADER.size, ints["has_connector_qm_guid"] == 1
        )
        debug = self.offsets["DebugHeader"] + wire.DEBUG_HEADER.size
        self.arrays["debug_queue"] = self._read_guids(debug, ints["debug_queue_type"] == 1)
        self._add_security()
        if self.alone:
            for column in _RARE_COLUMNS:
                values = {row: packet.columns.get(column) for row, packet in self.alone.items()}
                self.arrays[column] = pa.array(
                    map(values.get, range(len(self.packets))), flat_schema(MESSAGES).field(column).type
                )
        self.arrays["violations"] = self._find_violations()

    def _add_security(self) -> None:
        ints = self.ints
        sender_id = self.offsets["SecurityHeader"] + wire.SECURITY_HEADER.size
        rows = np.flatnonzero(ints["has_security_header"])
        contents = self._slices(rows, sender_id, ints["sender_id_size"])
        kind = ints["sender_id_type"][rows].astype(np.uint8)[:, None]
        self.arrays["sender_id"] = self._texts_of(
            rows, _joined(kind, contents), lambda key: identifiers.sender_id_text(key[0], key[1:])
        )
        *others, size = (ints[name] for name in wire.SECURITY_SIZES)
        present = size >= _PROVIDER_TYPE.itemsize
        if not present.any():
            return
        provider = sender_id + sum(r4(each) for each in others)
        rows = np.flatnonzero(present)
        contents = self._slices(rows, provider, size)
        self.arrays["provider_name"] = self._texts_of(rows, contents, lambda data: identifiers.text(data[4:]))
        provider_type = self.packets.read(_PROVIDER_TYPE, provider, present)["value"]
        self.arrays["provider_type"] = pa.array(provider_type.astype(np.int64), mask=~present)

    def _add_ack(self) -> None:
        self.arrays["ack_type"] = self._packet_types()
        final = self.offsets["FinalAckBody"] >= 0
        for column in ("source_guid", "acknowledged_message_id_ordinal"):
            self.arrays[column] = _masked(self.arrays[column], final)
        self.arrays["acknowledged_message_id"] = message_ids(
            self.arrays["source_guid"], self.arrays["acknowledged_message_id_ordinal"]
        )

    def _find_violations(self) -> pa.Array:
        """Returns the codes of the rules that each message breaks, in their declared order."""
        count = len(self.packets)
        broken = {code: rule(self.ints) for code, rule in RULES.items()}
        broken[Violation.TRAILING_BYTES] = self.offsets["trailing_bytes"] >= 0
        for row, packet in self.alone.items():
            for code in packet.violations:
                broken.setdefault(code, np.zeros(count, np.bool_))[row] = True
        codes = [violation for violation in Violation if violation in broken]
        breakers = [np.flatnonzero(broken[code]) for code in codes]
        packets = np.concatenate(breakers)
        order = np.argsort(packets, kind="stable")
        numbers = np.repeat(np.arange(len(codes)), [len(each) for each in breakers])[order]
        bounds = np.concatenate(([0], np.cumsum(np.bincount(packets, minlength=count))))
        values = pa.array([code.value for code in codes]).take(pa.array(numbers))
        return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), values)
