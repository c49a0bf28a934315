"""Whole captures replayed without Spark: ingest's passes, the decoders, and the plain loop of the contract.

`python tests/plain_replay.py 1000` holds it to the truth of so many simulated nights, in all their variants.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import replayer
from pipeline import Ingested, ingest
from pyspark.sql.pandas.types import to_arrow_schema
from replayer import NULL, Fate

from schemas.ingest import PACKETS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES
from schemas.table import Table
from udfs.decode import Decoded
from udfs.options import IngestOptions
from udfs.simulation import CAPTURE_PREFIX, TRUTH, simulate

Row = dict[str, Any]
_PACKETS = to_arrow_schema(PACKETS.spark)


def packets(found: Ingested) -> pa.RecordBatch:
    """The table `packets`."""
    rows = [
        row | {"capture_id": str(row["capture"]), "captured_at": row["captured_ns"] // 1000} for row in found.packets
    ]
    return pa.RecordBatch.from_pylist(rows, _PACKETS)


class Night:
    """What was ingested and decoded of some captures, and who talks to whom in it."""

    def __init__(self, captures: Iterable[Path]) -> None:
        self.found = ingest(captures, IngestOptions())
        decoded = Decoded(packets(self.found))
        assert len(decoded.undecodable()) == 0

        def rows(table: Table) -> list[Row]:
            found: list[Row] = decoded.rows(table, to_arrow_schema(table.spark)).to_pylist()
            for row in found:
                if row.get("tx_sequence_id") is not None:
                    row["tx_sequence_id"] = int(row["tx_sequence_id"])
            return found

        self.tables = {
            "streams": [row | {"first_captured_at": row["first_ns"] // 1000} for row in self.found.streams],
            "stream_gaps": self.found.gaps,
            "quarantine": self.found.quarantine,
        } | {table.name: rows(table) for table in (MESSAGES, ACKS, HANDSHAKES)}
        self.every_message, self.acks = self.tables["messages"], self.tables["acks"]
        self.ends = replayer.ends(self.tables)
        self.messages = [row for row in self.every_message if row["transactional"] and not self.passes_through(row)]

    def passes_through(self, message: Row) -> bool:
        """Whether it is for another queue manager than the one it came to."""
        receiver = self.ends[message["stream_id"]].receiver_guid
        return message["queue_manager_address"] != NULL and receiver not in (None, message["queue_manager_address"])

    def verdicts(self) -> list[tuple[Row, Fate]]:
        """Every message with its fate, by scope and in replay order."""
        fates = replayer.verdicts(self.tables, reading="conformant", scope="auto")
        judged = [(row, fates[row["stream_id"], row["stream_offset"]]) for row in self.messages]
        return sorted(judged, key=lambda pair: pair[1].replay_order)


def truth_of(message: Row, fate: Fate) -> Row:
    """A row of a truth file."""
    _, before, incoming, accepted, verdict, reason, gap, reject = fate
    return {
        "id": str(message["tx_sequence_id"]),
        "no": message["tx_sequence_number"],
        "prev": message["previous_tx_sequence_number"],
        "accepted": accepted,
        "verdict": verdict,
        "reason": reason,
        "gap": gap,
        "reject": reject,
        "before": None if before is None else [str(before), incoming],
        "mid": int(message["message_id"].rpartition("\\")[2]),
    }


def truths(night: Night, several: set[str]) -> dict[tuple[str, str | None], list[Row]]:
    """The night's verdicts in the form of truth.json, by queue for the sources that have `several` scopes."""
    found: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
    for message, fate in night.verdicts():
        source = message["source_queue_manager"]
        found[source, message["destination_queue"] if source in several else None].append(truth_of(message, fate))
    return found


def expected(folder: Path) -> dict[tuple[str, str | None], list[Row]]:
    """The truth beside the captures."""
    return {
        (scope["source_queue_manager"], scope.get("destination_queue")): scope["rows"]
        for scope in json.loads((folder / TRUTH).read_text())
    }


def variant(seed: int) -> dict[str, Any]:
    """How the night of a seed is simulated: a third whole, the others with a capture that misses something."""
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


def differences(seed: int, folder: Path) -> str | None:
    """Where replay and truth of a seed's night differ first."""
    simulate(str(folder), seed, **variant(seed))
    truth = expected(folder)
    night = Night(sorted(folder.glob(f"{CAPTURE_PREFIX}_*.pcap")))
    found = truths(night, {source for source, queue in truth if queue is not None})
    for scope in truth.keys() | found.keys():
        rows, own = truth.get(scope, []), found.get(scope, [])
        if rows != own:
            at = next((i for i, (a, b) in enumerate(zip(rows, own, strict=False)) if a != b), min(len(rows), len(own)))
            return f"seed {seed} {variant(seed)} {scope} row {at}:\n{rows[at : at + 1]}, found\n{own[at : at + 1]}"
    return None


def _look(seed: int) -> str | None:
    with TemporaryDirectory() as folder:
        try:
            return differences(seed, Path(folder))
        except Exception as error:  # noqa: BLE001 - the seed is to be named
            return f"seed {seed} {variant(seed)}: {type(error).__name__} {error}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    wrong = 0
    with ProcessPoolExecutor(options.processes) as pool:
        for said in pool.map(_look, range(options.first, options.first + options.count)):
            if said is not None:
                wrong += 1
                print(said, flush=True)  # noqa: T201 - the result
    print(f"{options.count} nights, {wrong} differ")  # noqa: T201
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
