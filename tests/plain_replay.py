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
from pipeline import Ingested, ingest
from pyspark.sql.pandas.types import to_arrow_schema
from test_replay import NULL, History, Stream, replayed

from schemas.ingest import PACKETS
from udfs import decode
from udfs.options import IngestOptions
from udfs.simulation import CAPTURE_PREFIX, TRUTH, simulate

Row = dict[str, Any]
_PACKETS = to_arrow_schema(PACKETS.spark)
_TX = "tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number"
_MESSAGE = "stream_id", "stream_offset", "captured_ns", "message_id", "source_queue_manager", "destination_queue"
_MORE = "queue_manager_address", "transactional", "hop_count", "tx_final_ack_required"
_ACK = (
    "stream_id",
    "captured_ns",
    "source_queue_manager",
    "queue_manager_address",
    "ack_type",
    "acknowledged_message_id",
)
_HANDSHAKE = "stream_id", "client_guid", "server_guid"


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
        batch = packets(self.found)
        assert len(decode.explain(batch)) == 0
        self.every_message = decode.messages(batch).select([*_MESSAGE, *_MORE, *_TX]).to_pylist()
        self.acks = decode.acks(batch).select([*_ACK, *_TX[:2]]).to_pylist()
        self.streams = {row["stream_id"]: row for row in self.found.streams}
        clients: dict[str, str] = {}
        servers: dict[str, str] = {}
        for row in decode.handshakes(batch).select(_HANDSHAKE).to_pylist():
            stream = self.streams[row["stream_id"]]
            if row["client_guid"] is not None:
                clients[stream["connection_id"]] = row["client_guid"]
                if not stream["from_initiator"]:
                    servers[stream["connection_id"]] = row["server_guid"]
        for row in self.streams.values():
            ends = clients.get(row["connection_id"]), servers.get(row["connection_id"])
            source, target = ends if row["from_initiator"] else ends[::-1]
            row["ends"] = source or row["src_ip"], target or row["dst_ip"]
            row["receiver_guid"] = target
        self.messages = [row for row in self.every_message if row["transactional"] and not self.passes_through(row)]
        self.missing: dict[str, list[int]] = defaultdict(list)
        for row in [*self.found.gaps, *(row for row in self.found.quarantine if row["stage"] == "framing")]:
            self.missing[row["stream_id"]].append(row["stream_offset"])

    def passes_through(self, message: Row) -> bool:
        """Whether it is for another queue manager than the one it came to."""
        receiver = self.streams[message["stream_id"]]["receiver_guid"]
        return message["queue_manager_address"] != NULL and receiver not in (None, message["queue_manager_address"])

    def session(self, row: Row) -> tuple[str, str]:
        """Who sends and who receives on its stream."""
        ends: tuple[str, str] = self.streams[row["stream_id"]]["ends"]
        return ends

    def by_session(self) -> set[tuple[str, str]]:
        """The sessions under which more messages find their predecessor than under their queues."""
        queues: dict[str, set[str]] = defaultdict(set)
        for row in self.messages:
            queues[row["source_queue_manager"]].add(row["destination_queue"])
        several = [row for row in self.messages if len(queues[row["source_queue_manager"]]) > 1]
        sent = {
            (scope, row["tx_sequence_id"], row["tx_sequence_number"]) for row in several for scope in self.scopes(row)
        }
        found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for row in several:
            for kind, scope in enumerate(self.scopes(row)):
                found[self.session(row)][kind] += (scope, row["tx_sequence_id"], row[_TX[2]]) in sent
        return {session for session, (in_session, in_queue) in found.items() if in_session > in_queue}

    def scopes(self, row: Row) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the message's state belongs to, by session and by queue."""
        source = row["source_queue_manager"]
        return (*self.session(row), source), (source, row["destination_queue"])

    def order_acks(self, source: str, streams: Iterable[str]) -> list[tuple[int, int, int]]:
        """The OrderAcks to a sender from who receives on these streams: (ns, id, number)."""
        sessions = {self.streams[name]["ends"] for name in streams}
        receivers = {target for _, target in sessions}
        return [
            (row["captured_ns"], int(row["tx_sequence_id"]), row["tx_sequence_number"])
            for row in self.acks
            if row["ack_type"] == "order_ack"
            and receivers & {self.session(row)[0], row["source_queue_manager"]}
            and (
                row["queue_manager_address"] == source
                if row["queue_manager_address"] != NULL
                else self.session(row)[::-1] in sessions
            )
        ]

    def verdicts(self) -> list[tuple[Row, tuple[Any, ...]]]:
        """Every message with its fate, by scope and in replay order."""
        chosen = self.by_session()
        scoped: dict[tuple[str, ...], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
        for row in self.messages:
            by_session, by_queue = self.scopes(row)
            scoped[by_session if self.session(row) in chosen else by_queue][row["stream_id"]].append(row)
        judged = []
        for scope, rows in scoped.items():
            source = next(iter(rows.values()))[0]["source_queue_manager"]
            sessions = {self.streams[name]["ends"] for name in rows}
            names = [name for name, stream in self.streams.items() if stream["ends"] in sessions]
            names = [name for name in names if name in rows or self.missing[name]]
            on_streams = [self.on_stream(name, rows[name]) for name in names]
            history = History(
                [self.stream(name, own) for name, own in zip(names, on_streams, strict=True)],
                self.order_acks(source, rows),
            )
            if len(scope) == 2:  # a queue's: only an OrderAck of its first sequence is sure to be its own
                first = min(filter(None, (item for stream in history.streams for item in stream.items)))
                history.acks = [ack for ack in history.acks if ack[1] == first[1]]
            fates = sorted(replayed(history, literal=False).items(), key=lambda item: item[1][0])
            judged += [(row, fate) for (stream, item), fate in fates if (row := on_streams[stream][item])]
        return judged

    def on_stream(self, name: str, messages: list[Row]) -> list[Row | None]:
        """The messages on a stream and None for each run of missing bytes, by their offset."""
        runs: list[tuple[int, Row | None]] = [(at, None) for at in self.missing[name]]
        runs += [(row["stream_offset"], row) for row in messages]
        return [row for _, row in sorted(runs, key=lambda run: run[0])]

    def stream(self, name: str, rows: list[Row | None]) -> Stream:
        """What the plain loop is told of a stream."""
        stream = self.streams[name]
        items = [row and (row["captured_ns"], int(row[_TX[0]]), row[_TX[1]], row[_TX[2]]) for row in rows]
        return Stream(items, stream["first_ns"] // 1000 * 1000, stream["mid_stream"])  # type: ignore[arg-type]


def truth_of(message: Row, fate: tuple[Any, ...]) -> Row:
    """A row of a truth file."""
    _, before, incoming, accepted, verdict, reason, gap, reject = fate
    identity, number, previous = (message[name] for name in _TX)
    return {
        "id": str(identity),
        "no": number,
        "prev": previous,
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
