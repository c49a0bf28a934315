"""Replays captures without Spark: the passes of ingest, the decoders, and the second replayer."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import plain_copies
import pyarrow as pa
import replayer
from pipeline import Ingested, ingest
from replay_tables import Replayed, Tables, fates, replay
from replayer import NULL, Fate, Key

from jobs.simulator import CAPTURE_PREFIX, TRUTH, simulate
from schemas.ingest import PACKETS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES, SESSION_ACKS
from schemas.staging import TIMES
from schemas.table import Table
from udfs.decode.packets import quarantine_packets
from udfs.ingest.options import IngestOptions
from udfs.msmq.decode import DecodedBatch

Row = dict[str, Any]
Truth = dict[tuple[str, str | None], list[Row]]
_PACKETS = PACKETS.arrow


def packets(found: Ingested) -> pa.RecordBatch:
    rows = [
        row | {"capture_id": str(row["capture"]), "captured_at": row["captured_ns"] // 1000} for row in found.packets
    ]
    return pa.RecordBatch.from_pylist(rows, _PACKETS)


def with_times(row: Row) -> Row:
    """Returns a row with the times, in µs, that tables have for its nanoseconds."""
    return row | {at: row[ns] and row[ns] // 1000 for at, ns in TIMES.items() if ns in row}


class Night:
    """The tables of some captures, ingested and decoded, and the peers of each stream."""

    def __init__(self, captures: Iterable[Path]) -> None:
        self.found = ingest(captures, IngestOptions())
        found = packets(self.found)
        decoded = DecodedBatch(found)
        broken = [row for batch in quarantine_packets(0)([found]) for row in batch.to_pylist()]

        def rows(table: Table) -> list[Row]:
            found: list[Row] = decoded.rows(table).to_pylist()
            for row in found:
                if row.get("tx_sequence_id") is not None:
                    row["tx_sequence_id"] = int(row["tx_sequence_id"])
            return found

        self.raw = {
            "streams": list(map(with_times, self.found.streams)),
            "stream_gaps": self.found.gaps,
            "quarantine": [*self.found.quarantine, *broken],
        } | {table.name: rows(table) for table in (MESSAGES, ACKS, HANDSHAKES, SESSION_ACKS)}
        self.clock_steps = {str(at): row["clock_steps"] or [] for at, row in enumerate(self.found.captures)}
        self.tables, self.own_keys = plain_copies.once(plain_copies.in_order(self.raw, self.clock_steps))
        self.ends = replayer.ends(self.tables)
        transactional = [row for row in self.tables["messages"] if row["transactional"]]
        self.messages = [row for row in transactional if not self.passes_through(row)]

    def passes_through(self, message: Row) -> bool:
        """Whether it is for another queue manager than its receiver, or may be."""
        receiver = self.ends[message["stream_id"]].receiver_guid
        return message["queue_manager_address"] not in (None, NULL, receiver)

    def unknown_legs(self) -> set[tuple[str, str | None]]:
        """Returns the scopes, as a truth file has them, with messages that may have passed through."""
        rows = [row for row in self.tables["messages"] if row["transactional"] and row["queue_manager_address"] != NULL]
        unknown = [row for row in rows if self.ends[row["stream_id"]].receiver_guid is None]
        return {(row["source_queue_manager"], queue) for row in unknown for queue in (None, row["destination_queue"])}

    def by_queue(self) -> set[str]:
        """Returns the sources with several queues that `auto` replays by queue."""
        choice = replayer.chosen(self.messages, self.ends)
        queues: dict[str, set[str]] = defaultdict(set)
        for row in self.messages:
            source = row["source_queue_manager"]
            if choice.get((self.ends[row["stream_id"]].session, source), "queue") == "queue":
                queues[source].add(row["destination_queue"])
        return {source for source, names in queues.items() if len(names) > 1}

    def fates(self) -> dict[Key, Fate]:
        """Returns the fate of each message by its key, by the second replayer."""
        return replayer.verdicts(self.tables, reading="conformant", scope="auto")

    @cached_property
    def replayed(self) -> Replayed:
        """Returns what the product's replay finds in these tables."""
        tables = Tables()
        captures = [with_times(row) | {"capture_id": str(at)} for at, row in enumerate(self.found.captures)]
        own = packets(self.found).drop_columns(["raw"]).to_pylist()
        tables.rows |= self.raw | {"captures": captures, "packets": own}
        return replay(tables.sources())

    def fates_of_product(self) -> dict[Key, Fate]:
        """Returns the fate of each message by its key, by the product's replay."""
        placed = {own: key for key, own in self.own_keys.items()}
        return {placed.get(key, key): fate for key, fate in fates(self.replayed.verdicts).items()}

    def judged(self, given: Mapping[Key, Fate]) -> list[Row]:
        """Returns each message with the fate that `given` says, in replay order."""
        assert len(given) == len(self.messages)
        rows = [row | given[row["stream_id"], row["stream_offset"]]._asdict() for row in self.messages]
        return sorted(rows, key=lambda row: int(row["replay_order"]))


def truth_of(verdict: Mapping[str, Any]) -> Row:
    """Returns a message with its fate as a row of a truth file."""
    before = verdict["incoming_tx_sequence_id"]
    return {
        "id": str(verdict["tx_sequence_id"]),
        "no": verdict["tx_sequence_number"],
        "prev": verdict["previous_tx_sequence_number"],
        "accepted": verdict["accepted"],
        "verdict": verdict["verdict"],
        "reason": verdict["reason"],
        "gap": verdict["gap_size"],
        "reject": verdict["reject_count"],
        "before": None if before is None else [str(before), verdict["incoming_tx_sequence_number"]],
        "mid": int(verdict["message_id"].rpartition("\\")[2]),
    }


def truths(verdicts: Iterable[Row], several: set[str]) -> Truth:
    """Returns verdicts in the form of truth.json, by queue for the sources that have `several` scopes."""
    found: Truth = defaultdict(list)
    for row in verdicts:
        source = row["source_queue_manager"]
        found[source, row["destination_queue"] if source in several else None].append(truth_of(row))
    return found


def expected(scopes: Iterable[Row]) -> Truth:
    return {(scope["source_queue_manager"], scope.get("destination_queue")): scope["rows"] for scope in scopes}


def variant(seed: int) -> dict[str, Any]:
    """Returns how to simulate the night of a seed: a third whole, the others with a capture that misses something."""
    rng = Random(seed)
    kind = seed % 3
    return {
        "messages": rng.choice([150, 250, 400]),
        "bodies": (0, rng.choice([200, 2_000, 6_000])),
        "disorder": rng.choice([0.02, 0.1, 0.3]),
        "nanoseconds": rng.random() < 0.8,
        "loss": rng.choice([0.001, 0.01, 0.05]) if kind == 1 else rng.choice([0, 0, 0.01]) if kind == 2 else 0.0,
        "begins_s": rng.choice([1, 3, 20, 60]) if kind == 2 else 0,
        "ends_s": rng.choice([30, 60, 300]) if kind == 2 and rng.random() < 0.7 else None,
    }


WHOLE: dict[str, Any] = {"loss": 0.0, "begins_s": 0, "ends_s": None}
"""A capture that misses nothing."""
BOTH_ENDS: dict[str, Any] = WHOLE | {"both_ends": True}
CLOCK_STEP: dict[str, Any] = {"clock_step_s": -300, "file_bytes": 1 << 40}
"""A clock that steps back, within the only file."""


def read(folder: Path) -> tuple[Night, list[Row]]:
    """Returns the captures of a simulated night, ingested and decoded, and the truth of each scope."""
    return Night(sorted(folder.glob(f"{CAPTURE_PREFIX}_*.pcap"))), json.loads((folder / TRUTH).read_text())


def simulated(seed: int, **other: Any) -> tuple[Night, list[Row]]:
    """Simulates a seed's night with `other` options; see `read`."""
    with TemporaryDirectory() as folder:
        simulate(folder, seed, **variant(seed) | other)
        return read(Path(folder))


def difference(seed: int, scopes: Iterable[Row], night: Night, given: Mapping[Key, Fate]) -> str | None:
    """Describes the first difference between replay and truth of a seed's night; None without one.

    Leaves out a sender that numbers by session if so little of it was captured that `auto` replays it by queue, and
    messages on connections that began before the capture, to an address that no handshake in it names.
    """
    truth = expected(scopes)
    found = truths(night.judged(given), {source for source, queue in truth if queue is not None})
    unknown = night.unknown_legs()
    if unknown and not variant(seed)["begins_s"]:
        return f"seed {seed} {variant(seed)}: a receiver is unknown, although the capture has the connections' set-up"
    left_out = {(source, None) for source in night.by_queue()} | unknown
    for scope in (truth.keys() | found.keys()) - left_out:
        rows, own = truth.get(scope, []), found.get(scope, [])
        if rows != own:
            at = next((i for i, (a, b) in enumerate(zip(rows, own, strict=False)) if a != b), min(len(rows), len(own)))
            return f"seed {seed} {variant(seed)} {scope} row {at}:\n{rows[at : at + 1]}, found\n{own[at : at + 1]}"
    return None


def differences(seeds: Iterable[int], **other: Any) -> list[str]:
    """Describes the first difference of each night where the truth and a replayer differ: the second, or the product's.

    `other` are options of the simulation.
    """
    found = []
    for seed in seeds:
        night, truth = simulated(seed, **other)
        found += [difference(seed, truth, night, fates) for fates in (night.fates(), night.fates_of_product())]
    return [said for said in found if said]
