"""Ingests captures in this process: what the tests of captures and of damage share."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from wiretap import CLIENT, ETHERNET, SERVER, Sent, msmq

from jobs.engines.in_process import InProcess
from schemas.ingest import CAPTURES, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.table import Table
from udfs.capture.records import Records
from udfs.ingest import flow, preframe
from udfs.ingest.options import IngestOptions

COUNTS = {"segments": "segment_count", "others": "other_count"}
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
    """Connections that were assembled again."""

    @property
    def found(self) -> tuple[object, ...]:
        """All rows and counts, except rows of captures, which say where these are split."""
        return self[1:6]

    def framed(self, source: str = "10.0.0.1") -> list[bytes]:
        """The packets that an address sent, in the order of the stream."""
        ids = [row["stream_id"] for row in self.streams if row["src_ip"] == source]
        return [row["raw"] for stream in ids for row in self.packets if row["stream_id"] == stream]

    def reasons(self) -> list[tuple[str, str, int]]:
        """Stage, code and length of what is in quarantine."""
        return [(row["stage"], row["reason"], row["length"]) for row in self.quarantine]


def index_captures(uris: Iterable[Path | str], options: IngestOptions) -> list[Row]:
    """Returns rows of INDEX in the order of the files."""
    return flow.index_captures(InProcess(), [str(uri) for uri in uris], options)


def ingest(uris: Iterable[Path], options: IngestOptions, *, batch: int = 1000) -> Ingested:
    """Ingests captures into new tables; rows name captures by their place in `uris`.

    Sorted rows go to a pass in batches of so many.
    """
    given = [str(uri) for uri in uris]
    found = ingest_more(InProcess(batch_rows=batch), given, options)
    captures = sorted(found.captures, key=lambda row: given.index(row["uri"]))
    ranks = {row["capture_id"]: at for at, row in enumerate(captures)}

    def order(row: Row) -> tuple[Any, ...]:
        names = ("capture", "stage", "stream_id", "stream_offset", "frame_number")
        return tuple((row.get(name) is not None, row.get(name)) for name in names)

    for row in found.packets + found.quarantine:
        row["capture"] = ranks[row.pop("capture_id")]
    return found._replace(
        captures=captures,
        streams=sorted(found.streams, key=lambda row: str(row["stream_id"])),
        gaps=sorted(found.gaps, key=order),
        packets=sorted(found.packets, key=order),
        quarantine=sorted(found.quarantine, key=order),
    )


@dataclass(frozen=True)
class Recorder(InProcess):
    """Keeps the rows that were written last, as they were made."""

    added: dict[str, pl.DataFrame] = field(default_factory=dict)

    def write(
        self, table: Table, rows: pl.DataFrame, *, update: bool = False, stale: pl.DataFrame | None = None
    ) -> None:
        """Writes rows and keeps them."""
        self.added[table.name] = rows
        super().write(table, rows, update=update, stale=stale)


def ingest_more(engine: InProcess, uris: Iterable[str], options: IngestOptions) -> Ingested:
    """Ingests the captures that are new into the engine's tables; returns the rows that were added."""
    engine = Recorder(engine.batch_rows, engine.load, engine.tables)
    captures = flow.find_new_captures(engine, list(uris), options)
    found = flow.extract(engine, captures, options)
    assembled = flow.assemble(engine, found, options)
    flow.write(engine, found, assembled, options)
    rows = assembled.rows.to_dicts()
    assert all(sum(value is not None for value in row.values()) == 2 for row in rows), "endpoints and one kind"
    streams, gaps, packets, quarantine = (
        engine.added[table.name].to_dicts() for table in (STREAMS, STREAM_GAPS, PACKETS, QUARANTINE)
    )
    counts = {kind: sum(engine.added[CAPTURES.name][name].to_list()) for kind, name in COUNTS.items()}
    framed = sum(row["framed_run"] is not None for row in rows)
    return Ingested(
        *(captures, streams, gaps, packets, quarantine),
        *(Counter(counts), framed, assembled.repeated.height),
    )


WHOLE = IngestOptions(keep_bodies=True)


def balance(found: Ingested) -> None:
    """The sums that the books hold."""
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
            assert ingest(uris, split, batch=7).found == found.found
    return found


def stream(rng: random.Random, count: int, *, largest: int = 3000) -> tuple[bytes, list[bytes]]:
    packets = [msmq(size := rng.randrange(16, largest), rng.randbytes(size - 16)) for _ in range(count)]
    return b"".join(packets), packets


def frames(
    sent: Iterable[Sent], *, client: tuple[str, int] = (CLIENT, 50_000), server: tuple[str, int] = (SERVER, 1801)
) -> list[bytes]:
    return [s.frame(client=client, server=server) for s in sent]


def block_of(frames: Sequence[bytes], links: int | Sequence[int] = ETHERNET, *, before: bytes = b"") -> Records:
    """The frames in one buffer, all at time 0, each behind bytes that belong to none."""
    sizes = np.array([len(frame) for frame in frames], np.int64)
    starts = np.cumsum(sizes + len(before)) - sizes
    buffer = np.frombuffer(b"".join(before + frame for frame in frames), np.uint8)
    of_frames = np.full(len(frames), links, np.int64) if isinstance(links, int) else np.array(links, np.int64)
    return Records(buffer, starts, sizes, np.zeros(len(frames), np.int64), of_frames, 1)
