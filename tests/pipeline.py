"""Whole captures through the passes of ingest, without Spark: what the tests of captures and of damage share."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from wiretap import CLIENT, SERVER, Sent, msmq

from schemas import staging
from udfs.assemble import assemble_connections
from udfs.options import IngestOptions
from udfs.records import Cursor
from udfs.scan import scan
from udfs.survey import survey_files

SURVEY, RANGES, SEGMENTS, ASSEMBLED = (
    to_arrow_schema(schema)
    for schema in (staging.SURVEY.spark, staging.RANGES.spark, staging.SEGMENTS.spark, staging.ASSEMBLED)
)
Row = dict[str, Any]


class Ingested(NamedTuple):
    """Every row that ingest makes of some captures."""

    captures: list[Row]
    streams: list[Row]
    gaps: list[Row]
    packets: list[Row]
    quarantine: list[Row]
    counts: Counter[str]

    def framed(self, source: str = "10.0.0.1") -> list[bytes]:
        """The packets that an address sent, in the order of the stream."""
        ids = [row["stream_id"] for row in self.streams if row["src_ip"] == source]
        return [row["raw"] for stream in ids for row in self.packets if row["stream_id"] == stream]

    def reasons(self) -> list[tuple[str, str, int]]:
        """Stage, code and length of what is in quarantine."""
        return [(row["stage"], row["reason"], row["length"]) for row in self.quarantine]


def ingest(uris: Iterable[Path], options: IngestOptions, *, batch: int = 1000) -> Ingested:
    """All three passes; segments go to `assemble` in batches of so many rows."""
    captures = survey_files(map(str, uris), options, RANGES, SURVEY).to_pylist()
    splits = [
        {"capture": rank, "uri": row["uri"], "compression": row["compression"], "cursor": cursor, "stop": stop}
        for rank, row in enumerate(captures)
        for cursor, stop in zip_longest(row["cursors"], map(offset, row["cursors"][1:]))
    ]
    segments = pa.Table.from_batches([], SEGMENTS)
    if splits:
        rows = pa.RecordBatch.from_pylist(
            splits,
            pa.schema(
                [
                    ("capture", pa.int64()),
                    ("uri", pa.string()),
                    ("compression", pa.string()),
                    ("cursor", pa.string()),
                    ("stop", pa.int64()),
                ]
            ),
        )
        segments = pa.Table.from_batches(scan(options, SEGMENTS)(iter([rows])), SEGMENTS)
    keys = [("connection", "ascending"), ("capture", "ascending"), ("frame", "ascending")]
    ordered = segments.sort_by(keys).combine_chunks().to_batches(max_chunksize=batch)
    out = assemble_connections(options, SEGMENTS, ASSEMBLED)(iter(ordered))
    rows_out = pa.Table.from_batches(out, ASSEMBLED).to_pylist()
    by_kind = {kind: [row[kind] for row in rows_out if row[kind] is not None] for kind in ASSEMBLED.names}
    for row in rows_out:
        assert sum(row[kind] is not None for kind in ASSEMBLED.names) == 1
    counts: Counter[str] = Counter()
    for row in by_kind["counts"]:
        counts.update({"segments": row["segments"], "others": row["others"]})

    def order(row: Row) -> tuple[Any, ...]:
        names = ("stage", "capture", "stream_id", "stream_offset", "frame_number")
        return tuple((row.get(name) is not None, row.get(name)) for name in names)

    return Ingested(
        captures,
        sorted(by_kind["stream"], key=lambda row: str(row["stream_id"])),
        sorted(by_kind["gap"], key=order),
        sorted(by_kind["packet"], key=order),
        sorted(by_kind["quarantine"], key=order),
        counts,
    )


def offset(cursor: str) -> int:
    return Cursor.from_json(cursor).offset


WHOLE = IngestOptions(keep_bodies=True)


def balance(found: Ingested) -> None:
    """The laws of conservation."""
    rejected = sum(row["stage"] == "frame" for row in found.quarantine)
    records = sum(row["packet_count"] for row in found.captures)
    assert records == found.counts["segments"] + found.counts["others"] + rejected
    for stream in found.streams:
        own = [row for row in found.packets if row["stream_id"] == stream["stream_id"]]
        lost = [r for r in found.quarantine if r["stage"] == "framing" and r["stream_id"] == stream["stream_id"]]
        gaps = [row for row in found.gaps if row["stream_id"] == stream["stream_id"]]
        assert stream["recovered_bytes"] == sum(r["size"] for r in own) + sum(r["length"] for r in lost)
        assert stream["missing_bytes"] == sum(row["length"] for row in gaps)
        parts = [(r["stream_offset"], r["size"]) for r in own] + [
            (r["stream_offset"], r["length"]) for r in lost + gaps
        ]
        at = 0
        for start, size in sorted(parts):
            assert start == at, "packets, quarantine and gaps follow one another"
            assert size > 0
            at = start + size
        assert all(len(row["raw"]) == row["size"] for row in own)
        assert all(row["last_frame"] >= row["first_frame"] >= 1 for row in own)
    known = {row["stream_id"] for row in found.streams}
    assert {row["stream_id"] for row in [*found.packets, *found.gaps]} <= known


def look(tmp_path: Path, *captures: bytes, options: IngestOptions = WHOLE) -> Ingested:
    """What is made of the captures, in the order of their names; the same when they are split."""
    uris = []
    for index, data in enumerate(captures):
        uris.append(tmp_path / f"{index}.cap")
        uris[-1].write_bytes(data)
    found = ingest(uris, options)
    balance(found)
    split = replace(options, split_bytes=20_000, batch_bytes=20_000)
    assert ingest(uris, split, batch=7) == found._replace(captures=ingest(uris, split).captures)
    return found


def stream(rng: random.Random, count: int, *, largest: int = 3000) -> tuple[bytes, list[bytes]]:
    packets = [msmq(size := rng.randrange(16, largest), rng.randbytes(size - 16)) for _ in range(count)]
    return b"".join(packets), packets


def frames(
    sent: Iterable[Sent], *, client: tuple[str, int] = (CLIENT, 50_000), server: tuple[str, int] = (SERVER, 1801)
) -> list[bytes]:
    return [s.frame(client=client, server=server) for s in sent]
