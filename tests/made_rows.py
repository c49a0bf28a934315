"""Makes the tables of a night with so many messages and scopes, which a benchmark of the replay reads.

One connection is ingested and decoded. Of its messages one is not captured, one comes twice, one comes too early and
then again, and one number has expired. The tables hold copies of its rows: each copy is another connection, with a
sender or a sequence of its own.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import polars as pl
from deltalake import write_deltalake
from warehouses import derived
from wiretap import ACK, Sent, handshake, pcap, records

from jobs.simulator import build
from schemas.ingest import CAPTURES, INTERNAL_CONNECTIONS, QUARANTINE
from schemas.messages import DECODED_TABLES
from schemas.tables import INGESTED
from udfs.derive.columns import UTC
from udfs.derive.frames import Frames, to_arrow

_MOST = 500  # messages of a connection
_ACKNOWLEDGED = 20  # messages per OrderAck
_AT_ONCE = 500_000  # messages
_RECEIVERS = 50
_SENDER, _RECEIVER = (UUID(f"{letter}0000000-1234-5678-9abc-def012345678") for letter in "ab")
_CLIENT = "10.0.0.1:50000"
_SEQUENCE = 7 << 60
_SPACING_NS = 10_000_000


def _numbers(count: int) -> list[int]:
    """Returns the numbers of the messages in the order in which they are sent."""
    numbers = list(range(1, count + 1))
    if count >= _MOST:
        numbers.remove(300)
        numbers[200:202] = [202, 201, 202]  # refused, and sent again
        numbers.insert(120, numbers[100])
    return numbers


def _packets(count: int) -> Iterator[tuple[bool, bytes]]:
    """Yields who sends what: the server, or the client."""
    yield False, build.establish_connection(_SENDER)
    yield True, build.establish_connection(_SENDER, _RECEIVER)
    numbers = _numbers(count)
    for sent, number in enumerate(numbers, 1):
        message = build.user_message(
            _SENDER,
            message_id=number,
            destination=build.direct("OS:server\\private$\\orders"),
            sequence=(_SEQUENCE, number, number - 1 if number - 1 in (0, *numbers) else number - 2),
            transaction_id=number,
            label=f"order {number}",
            body=b"body",
        )
        yield False, message
        if sent % _ACKNOWLEDGED == 0:
            of = {"message_id": number, "sequence_id": _SEQUENCE, "number": max(numbers[:sent])}
            yield True, build.order_ack(_RECEIVER, sender=_SENDER, **of)  # type: ignore[arg-type] # all are int


def _connection(count: int) -> Frames:
    """Returns the tables of one connection."""
    sent, place = handshake(1000, 5000), {False: 1001, True: 5001}
    for by_server, packet in _packets(count):
        sent.append(Sent(by_server, place[by_server], place[not by_server], ACK, packet))
        place[by_server] += len(packet)
    if count >= _MOST:
        del sent[400]
    with TemporaryDirectory() as folder:
        capture = Path(folder, "one.pcap")
        capture.write_bytes(pcap(records((one.frame() for one in sent), step_ns=_SPACING_NS)))
        return derived(capture)


def write_warehouse(folder: Path, messages: int, scopes: int) -> None:
    """Writes a warehouse as `decode` leaves it, with about so many messages."""
    count = max(min(_MOST, messages // scopes), 1)
    made = _connection(count)
    copies = pl.select(copy=pl.int_range(messages // count)).with_columns(
        scope=pl.col("copy") % scopes, turn=pl.col("copy") // scopes
    )
    for table in chain(INGESTED, DECODED_TABLES):
        rows = made[table.name].select(pl.lit(b"").alias(name) if name == "raw" else name for name in table.names)
        once = table in (CAPTURES, INTERNAL_CONNECTIONS, QUARANTINE)
        for part in (copies.head(table is CAPTURES),) if once else copies.iter_slices(max(_AT_ONCE // count, 1)):
            copied = to_arrow(_copied(rows, part, 2 * count * _SPACING_NS)).cast(table.arrow)
            write_deltalake(str(folder / table.name), copied, mode="append")


def _copied(rows: pl.DataFrame, copies: pl.DataFrame, lasting_ns: int) -> pl.DataFrame:
    """Returns the rows once for each copy, under the names, at the time and with the sequence of the copy."""
    scope, turn = pl.col("scope"), pl.col("turn")
    later_us = turn * lasting_ns // 1000 + scope
    names = {
        str(_SENDER): pl.format("a{}" + str(_SENDER)[8:], scope.cast(pl.String).str.zfill(7)),
        str(_RECEIVER): pl.format("b{}" + str(_RECEIVER)[8:], (scope % _RECEIVERS).cast(pl.String).str.zfill(7)),
        _CLIENT: pl.format("10.0.{}.1:{}", scope, 50_000 + turn),
    }
    columns = []
    ordinal = pl.col("message_id").str.extract(r"(\d+)$").cast(pl.Int64) + turn * _MOST
    for name, of in rows.schema.items():
        column = pl.col(name)
        if of == pl.String:
            for old, new in names.items():
                column = column.str.replace(old, new, literal=True)
            if name == "message_id":
                column = pl.concat_str(column.str.head(36), ordinal.cast(pl.String), separator="\\")
        elif of == UTC:
            column = column + pl.duration(microseconds=later_us)
        elif name.endswith("_ns"):
            column = column + later_us * 1000
        elif name == "message_id_ordinal":
            column = ordinal
        elif name == "tx_sequence_id":
            column = column + (turn.cast(pl.UInt64) * (1 << 32))
        elif name == "initial_seq":
            column = column + pl.col("copy")
        columns.append(column.alias(name))
    return rows.join(copies, how="cross").select(columns)
