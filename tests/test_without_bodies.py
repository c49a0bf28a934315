"""A state holds no bodies, and the packets are those of a run that was never interrupted."""

import json
import random
import struct
from base64 import b64decode
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import wiretap
from growth import assert_linear
from pipeline import frames, ingest_more
from pyspark.sql import SparkSession
from random_packets import GUIDS
from table_frames import sorted_rows
from tiers import merge_needs
from warehouses import config
from wiretap import Record, Sent, conversation, ethernet, fragments4, pcap, tcp

from jobs.commands import ingest
from jobs.engines.in_process import InProcess
from jobs.simulator import build
from schemas.ingest import PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.tables import INGESTED
from udfs.ingest.options import IngestOptions
from udfs.msmq.without_bodies import drop_bodies


def nested(n: int) -> bytes:
    """A packet that lacks its last byte and holds n others, whose ProviderInfo goes up to the headers at its end."""
    properties = struct.pack("<BBH20s8I", 0, 0, 0, b"", *[0] * 8)
    size, rest = 1_000, len(properties)
    parts = [b"\x10\0\0\0LIOR" + struct.pack("<II", 17 + size * n + rest, 0)]
    for left in range(size * n, 0, -size):
        user = struct.pack("<16s16s5I", b"", b"", 1, 1, 1, 3 << 10 | 1 << 19 | 1 << 21, 4)
        headers = b"\x10\0\0\0LIOR" + struct.pack("<II", left + rest, 0) + user
        headers += struct.pack("<4H2I", 0, 0, 0, 0, 0, left - len(headers) - 16)
        parts.append(headers.ljust(size, b"P"))
    return b"".join([*parts, properties])


@pytest.mark.slow
def test_packets_in_packets_are_looked_at_in_linear_time_and_memory() -> None:
    """However far from its beginning the body of each is."""
    runs = drop_bodies(nested(3), (), synchronized=True)
    assert [run for run in runs if not isinstance(run, bytes)] == []
    assert_linear(lambda data: drop_bodies(data, (), synchronized=True), nested, 2_000)


# --- what is on disk --------------------------------------------------------------------------------------------------

MARKER = random.Random(39).randbytes(257)
"""A body repeats it; 257 is prime, so that each of its bytes is at each place of a word and of a segment."""
PIECES = frozenset((MARKER * 2)[at : at + 8] for at in range(len(MARKER)))


def message(number: int, size: int) -> bytes:
    """A transactional message whose body is the marker, again and again; every other one has headers after it."""
    body = (MARKER * (size // len(MARKER) + 1))[:size]
    queue = build.direct("OS:orders\\private$\\in")
    odd = number % 2 == 1
    return build.user_message(
        GUIDS[0],
        message_id=number,
        destination=queue,
        sequence=(1, number, number - 1),
        label="order",
        body=body,
        debug=odd,
        soap=("head", "tail") if odd else None,
    )


def sent(rng: random.Random) -> list[Sent]:
    stream = b"".join(message(number, rng.choice([9, 300, 6000])) for number in range(1, 25))
    return conversation(rng, stream, message(1, 3000), closed=False)


Change = Callable[[random.Random, list[Record]], list[Record]]


def begun_late(rng: random.Random, taken: list[Record]) -> list[Record]:
    return taken[rng.randrange(4, len(taken) // 3) :]


def with_gaps_in_it(rng: random.Random, taken: list[Record]) -> list[Record]:
    return [one for one in taken if rng.random() > 0.1]


def with_damaged_headers(rng: random.Random, taken: list[Record]) -> list[Record]:
    """Damages the length of IP or TCP headers, or sends segments far away."""
    return [
        one._replace(data=one.data[:at] + bytes([rng.randrange(256)]) + one.data[at + 1 :])
        for one in taken
        for at in [rng.choice([14, 38, 46, len(one.data) - 1])]
    ]


def in_fragments(_: random.Random, taken: list[Record]) -> list[Record]:
    """Adds fragments of which the last ones are missing."""
    parts = fragments4(tcp(MARKER * 5, seq=9000), [400, 800])[:2]
    return [*taken, *wiretap.records(map(ethernet, parts), start_ns=taken[-1].time_ns + 1000)]


CUTS: dict[str, Change] = {
    "as it was": lambda _, taken: taken,
    "begun late": begun_late,
    "gaps": with_gaps_in_it,
    "snapped": lambda _, taken: [one._replace(data=one.data[:300], original=len(one.data)) for one in taken],
    "begun late, gaps": lambda rng, taken: with_gaps_in_it(rng, begun_late(rng, taken)),
    "damaged headers": with_damaged_headers,
    "fragments": in_fragments,
}


def two_nights(rng: random.Random, folder: Path, change: str) -> list[Path]:
    """Writes a capture of each night, cut anywhere; the first ends inside a record, a third file has no header."""
    taken = CUTS[change](rng, wiretap.records(frames(sent(rng))))
    middle = rng.randrange(len(taken) // 3, 2 * len(taken) // 3)
    files = [folder / "1.pcap", folder / "2.pcap", folder / "3.pcap"]
    for file, part in zip(files, (taken[: middle + 1], taken[middle:]), strict=False):
        file.write_bytes(pcap(part))
    whole = files[0].read_bytes()
    files[0].write_bytes(whole[: -rng.randrange(1, 1 + len(taken[middle].data))])
    files[2].write_bytes(MARKER * 20)
    return files


def has_body(data: bytes) -> bool:
    return any(piece in data for piece in PIECES)


def values(value: Any) -> Iterator[bytes]:
    """Yields all bytes in a value of a table, those in a state too."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        yield value.encode()
        if value.startswith(("{", "[")):
            yield from values(json.loads(value))
    elif isinstance(value, dict):
        if set(value) == {"base64"}:
            yield b64decode(value["base64"])
        for part in value.values():
            yield from values(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from values(part)


def rows_with_bodies(table: pl.DataFrame) -> list[dict[str, Any]]:
    return [row for row in table.to_dicts() if any(map(has_body, values(row)))]


OF_EACH = [(0, "snapped"), (1, "begun late, gaps"), (2, "damaged headers"), (0, "fragments")]


@pytest.mark.parametrize(("seed", "change"), merge_needs(OF_EACH, product(range(3), CUTS)))
def test_no_table_holds_a_piece_of_a_body(seed: int, change: str, tmp_path: Path) -> None:
    files = two_nights(random.Random(seed), tmp_path, change)
    nights, once = InProcess(), InProcess()
    for file in files:
        ingest_more(nights, [str(file)], IngestOptions())
        for table in INGESTED:
            assert rows_with_bodies(nights.read(table)) == [], table.name
    ingest_more(once, map(str, files), IngestOptions())
    for table in (PACKETS, QUARANTINE):
        assert sorted_rows(nights.read(table)) == sorted_rows(once.read(table))
    kept = InProcess()
    ingest_more(kept, map(str, files), IngestOptions(keep_bodies=True))
    for table in (STREAMS, STREAM_GAPS):
        assert sorted_rows(kept.read(table)) == sorted_rows(once.read(table))
    assert rows_with_bodies(kept.read(PACKETS)) or rows_with_bodies(kept.read(QUARANTINE))


def test_a_body_of_which_a_part_was_dropped_is_dropped(tmp_path: Path) -> None:
    """Also if the next run keeps bodies."""
    taken = wiretap.records(frames(conversation(random.Random(1), message(1, 6000), closed=False)))
    night = InProcess()
    for part, keep in zip(pairwise([0, len(taken) // 2, len(taken)]), (False, True), strict=True):
        file = tmp_path / f"{keep}.pcap"
        file.write_bytes(pcap(taken[slice(*part)]))
        ingest_more(night, [str(file)], IngestOptions(keep_bodies=keep))
    (packet,) = night.read(PACKETS).to_dicts()
    assert packet["size"] == len(message(1, 6000))
    assert not has_body(packet["raw"] + packet["trailer"])
    assert message(1, 6000).startswith(packet["raw"])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("in_memory_bytes", [0, 1 << 25])
def test_no_file_of_a_warehouse_holds_a_piece_of_a_body(
    spark: SparkSession, in_memory_bytes: int, tmp_path: Path
) -> None:
    for number, change in enumerate(CUTS):
        folder = tmp_path / "captures" / str(number)
        folder.mkdir(parents=True)
        two_nights(random.Random(number), folder, change)
        tables = tmp_path / "tables" / str(number)  # of their own: all captures show the same connection
        for night in ("1.pcap", "[23].pcap"):
            ingest.run(spark, config(tables, folder / night, in_memory_bytes=in_memory_bytes))
    files = [file for file in (tmp_path / "tables").rglob("*") if file.is_file()]
    assert any(file.suffix == ".parquet" for file in files)
    for file in files:
        assert not has_body(file.read_bytes()), file
        if file.suffix == ".parquet":
            assert rows_with_bodies(pl.read_parquet(file)) == [], file
