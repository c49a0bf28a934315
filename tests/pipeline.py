"""Whole captures through the passes of ingest, without Spark: what the tests of captures and of damage share."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from wiretap import CLIENT, SERVER, Sent, msmq

from schemas import staging
from udfs.capture.records import Cursor
from udfs.passes import preframe
from udfs.passes.assemble import assemble_connections
from udfs.passes.defragment import defragment
from udfs.passes.extract import extract_splits
from udfs.passes.index import index_files
from udfs.passes.options import CaptureFile, IngestOptions

INDEX, FRAGMENTS, SEGMENTS = (
    to_arrow_schema(table.spark) for table in (staging.INDEX, staging.FRAGMENTS, staging.SEGMENTS)
)
EXTRACTED, ASSEMBLED = to_arrow_schema(staging.EXTRACTED), to_arrow_schema(staging.ASSEMBLED)
PACKET, FRAMED_PACKETS = to_arrow_schema(staging.PACKET), to_arrow_schema(staging.FRAMED_PACKETS)
Row = dict[str, Any]


class Ingested(NamedTuple):
    """Every row that ingest makes of some captures."""

    captures: list[Row]
    streams: list[Row]
    gaps: list[Row]
    packets: list[Row]
    quarantine: list[Row]
    counts: Counter[str]
    framed_runs: int
    needs_payload: int

    def framed(self, source: str = "10.0.0.1") -> list[bytes]:
        """The packets that an address sent, in the order of the stream."""
        ids = [row["stream_id"] for row in self.streams if row["src_ip"] == source]
        return [row["raw"] for stream in ids for row in self.packets if row["stream_id"] == stream]

    def reasons(self) -> list[tuple[str, str, int]]:
        """Stage, code and length of what is in quarantine."""
        return [(row["stage"], row["reason"], row["length"]) for row in self.quarantine]


def index_captures(uris: Iterable[Path], options: IngestOptions) -> list[Row]:
    """The rows of INDEX, in the order of the files."""
    files = pa.RecordBatch.from_pydict({"uri": list(map(str, uris))})
    return pa.Table.from_batches(index_files(options, INDEX)([files]), INDEX).to_pylist()  # type: ignore[no-any-return]


def ingest(uris: Iterable[Path], options: IngestOptions, *, batch: int = 1000) -> Ingested:
    """All three passes; segments go to `assemble` in batches of so many rows."""
    captures = index_captures(uris, options)
    names = {rank: row["capture_id"] for rank, row in enumerate(captures)}
    files = {rank: CaptureFile(row["capture_id"], row["uri"]) for rank, row in enumerate(captures)}
    extracted = extract_captures(captures, options)
    rows = assemble(extracted, files, options, batch=batch, final=False)
    if needs_payload := [row["needs_payload"]["packed"] for row in rows if row["needs_payload"] is not None]:
        bad = {row["endpoints"] for row in rows if row["needs_payload"] is not None}
        rows = [row for row in rows if row["endpoints"] not in bad]
        rows += assemble(
            extract_captures(captures, options, only=needs_payload), files, options, batch=batch, final=True
        )
    runs = kind_of(rows, "framed_run")
    packets = kind_of(rows, "packet") + unpack_runs(extracted, runs, files)
    counts: Counter[str] = Counter({"segments": 0, "others": 0})
    for row in reassemble_datagrams(extracted, options).to_pylist() + extracted.to_pylist():
        counts.update({name: row[name] for name in ("segments", "others") if row[name]})
    counts["segments"] += sum(row["seq"] is not None for row in reassemble_datagrams(extracted, options).to_pylist())
    faults = [
        {name: row[name] for name in ("stage", "reason", "detail", "length")}
        | {"capture_id": names[row["capture"]], "frame_number": row["frame"] or None, "stream_id": None}
        | {"stream_offset": row["offset"], "raw": row["payload"]}
        for row in extracted.to_pylist() + reassemble_datagrams(extracted, options).to_pylist()
        if row["stage"] is not None
    ]
    rank = {name: at for at, name in names.items()}
    quarantine = kind_of(rows, "quarantine") + faults
    for row in packets + quarantine:
        row["capture"] = rank[row.pop("capture_id")]

    def order(row: Row) -> tuple[Any, ...]:
        names = ("stage", "stream_id", "stream_offset", "frame_number")
        return row.get("capture", 0), *((row.get(name) is not None, row.get(name)) for name in names)

    return Ingested(
        captures,
        sorted(kind_of(rows, "stream"), key=lambda row: str(row["stream_id"])),
        sorted(kind_of(rows, "gap"), key=order),
        sorted(packets, key=order),
        sorted(quarantine, key=order),
        counts,
        len(runs),
        len(needs_payload),
    )


SPLIT = pa.schema(
    [
        ("capture", pa.int64()),
        ("uri", pa.string()),
        ("compression", pa.string()),
        ("cursor", pa.string()),
        ("stop", pa.int64()),
        ("only", pa.list_(pa.binary())),
    ]
)


def extract_captures(
    captures: list[Row], options: IngestOptions, only: list[bytes] | None = None, *, first: int = 0
) -> pa.Table:
    """What the splits of the captures hold, which are ranked from `first` on."""
    splits = [
        {"capture": rank, "cursor": cursor, "stop": stop, "only": only} | {n: row[n] for n in ("uri", "compression")}
        for rank, row in enumerate(captures, first)
        for cursor, stop in zip_longest(row["cursors"], map(offset, row["cursors"][1:]))
    ]
    rows = (
        extract_splits(options, EXTRACTED, FRAMED_PACKETS)(iter([pa.RecordBatch.from_pylist(splits, SPLIT)]))
        if splits
        else []
    )
    return pa.Table.from_batches(rows, EXTRACTED)


def reassemble_datagrams(extracted: pa.Table, options: IngestOptions) -> pa.Table:
    """Segments out of IP fragments."""
    found = [row["fragment"] for row in extracted.to_pylist() if row["fragment"] is not None]
    found.sort(key=lambda row: (row["key"], row["capture"], row["frame"]))
    fragments = pa.Table.from_pylist(found, FRAGMENTS).to_batches()
    return pa.Table.from_batches(defragment(options, SEGMENTS)(iter(fragments)), SEGMENTS)


def assemble(
    extracted: pa.Table,
    files: dict[int, CaptureFile],
    options: IngestOptions,
    *,
    batch: int,
    final: bool,
    states: Mapping[bytes, str] = MappingProxyType({}),
) -> list[Row]:
    """The connections in what was extracted, put together from the states that some of them were in."""
    segments = pa.concat_tables([extracted.select(SEGMENTS.names), reassemble_datagrams(extracted, options)])
    segments = segments.filter(pc.field("seq").is_valid())
    begun = [{"connection": packed, "capture": -1, "frame": 0, "state": state} for packed, state in states.items()]
    segments = pa.concat_tables([segments, pa.Table.from_pylist(begun, SEGMENTS)])
    keys = [("connection", "ascending"), ("capture", "ascending"), ("frame", "ascending")]
    ordered = segments.sort_by(keys).combine_chunks().to_batches(max_chunksize=batch)
    passed = assemble_connections(options, files, ASSEMBLED, final=final)(iter(ordered))
    rows: list[Row] = pa.Table.from_batches(passed, ASSEMBLED).to_pylist()
    assert all(sum(value is not None for value in row.values()) == 2 for row in rows), "endpoints and one kind"
    return rows


def unpack_runs(extracted: pa.Table, places: list[Row], files: Mapping[int, CaptureFile]) -> list[Row]:
    """The packets of these framed runs of what was extracted."""
    held = extracted.filter(pc.field("packets").is_valid()).select(["capture", "frame", "packets"]).to_pylist()
    packets = {(row["capture"], row["frame"]): row["packets"] for row in held}
    rows = [
        {"stream_id": place["stream_id"], "stream_offset": place["stream_offset"]}
        | {"capture_id": files[place["capture"]].capture_id, "packets": packets[place["capture"], place["frame"]]}
        for place in places
    ]
    batches = pa.Table.from_pylist(rows).to_batches() if rows else []
    found: list[Row] = pa.Table.from_batches(preframe.unpack(PACKET)(batches), PACKET).to_pylist()
    return found


def kind_of(rows: list[Row], kind: str) -> list[Row]:
    """The rows of one kind."""
    return [row[kind] for row in rows if row[kind] is not None]


def offset(cursor: str) -> int:
    return Cursor.from_json(cursor).offset


RUNS: list[tuple[int, int]] = []


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
    for preframing in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if preframing:
                patch.setattr(preframe, "RUN_BYTES", 60)
                patch.setattr(preframe, "TAIL_BYTES", 30)
            for given in (options, split):
                again = ingest(uris, given, batch=7)
                assert again == found._replace(
                    captures=again.captures, framed_runs=again.framed_runs, needs_payload=again.needs_payload
                )
                RUNS.append((again.framed_runs, again.needs_payload))
    return found


def stream(rng: random.Random, count: int, *, largest: int = 3000) -> tuple[bytes, list[bytes]]:
    packets = [msmq(size := rng.randrange(16, largest), rng.randbytes(size - 16)) for _ in range(count)]
    return b"".join(packets), packets


def frames(
    sent: Iterable[Sent], *, client: tuple[str, int] = (CLIENT, 50_000), server: tuple[str, int] = (SERVER, 1801)
) -> list[bytes]:
    return [s.frame(client=client, server=server) for s in sent]
