"""Writes truth.json: what a replay must say of every transactional message that the capture holds.

Of a whole capture also what became of each message, `outcomes`, what they add up to by sequence, `incidents`, which
situations of the sender must be found, `findings`, and of each sequence that asks for FinalAcks how many messages are
accepted and not read yet, and since when, `not_read`. Where messages came from more than one address, `senders` says of
each which machine it is, and what was sent from there. Where messages were not acknowledged, or an acknowledgment fell,
`cause` says why, and `trouble` what the simulation did; a sender whose receiver was replaced has a scope for each
`receiving_queue_manager`. Where a balancer split the messages over several receivers, each has a state of its own, but
the contract judges them as one queue: there stands only what one of them accepted, `delivered`, which nobody may call
lost.
"""

import json
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any, TextIO
from uuid import UUID

from jobs.simulator.branches import Trouble
from jobs.simulator.fates import DOUBTFUL, Fates
from jobs.simulator.network import Connection
from jobs.simulator.packets import Message
from schemas.replay import FindingKind

TRUTH = "truth.json"
_Pair = tuple[int, int]
Seen = dict[str, tuple[int, int]]
"""When the capture holds the first and the last message from each address, in ns."""


class Verdicts:
    """Judges the messages of one scope by the contract's table, one message after the other."""

    def __init__(self, rows: TextIO, seen: Seen, *, by_queue: bool) -> None:
        """Writes the scope's rows of truth.json, one a line; `by_queue`: each queue is a scope.

        Keeps in `seen` when each address of its sender was seen.
        """
        self._rows, self._seen = rows, seen
        self._separator = ""
        self._by_queue = by_queue
        self._before: _Pair | None = None  # IncomingTxSequenceID and IncomingTxSequenceNumber
        self._sent_before: _Pair = (0, 0)
        self._accepted: dict[int, list[list[int]]] = {}  # ranges of numbers by TxSequenceID
        self._rejects = 0
        self._judged = False
        self._missing = False  # since the state was set
        self._missing_aside = False  # on a session that may carry no message of the scope
        self._acks: list[tuple[int, _Pair, Connection, bool]] = []

    def missing(self, connection: Connection) -> None:
        """Notes that a session of the scope lacks bytes.

        One whose set-up was not captured counts only where it carries messages of the scope.
        """
        if connection.begins_captured or self._judged:
            self._missing = True
        else:
            self._missing_aside = True

    def acknowledged(self, pair: _Pair, connection: Connection, is_direct: bool, time_ns: int) -> None:
        """Notes an OrderAck, which fixes the state if no message came before it. A direct-form one names nobody."""
        if not self._judged:
            self._acks.append((time_ns, pair, connection, is_direct))

    def judge(self, message: Message, previous: int, connection: Connection, time_ns: int) -> None:
        """Judges a message that was complete in the capture at `time_ns`, and writes its row."""
        pair = sequence_id, number = message.sequence_id, message.number
        address = str(connection.initiator.address)
        first_ns, last_ns = self._seen.get(address, (time_ns, time_ns))
        self._seen[address] = min(first_ns, time_ns), max(last_ns, time_ns)
        if not self._judged:
            self._open(sequence_id, connection, time_ns)
        before = self._before
        same = before is not None and sequence_id == before[0]
        incoming = before[1] if before is not None and same else 0
        gap = number - incoming - 1
        accepted: bool | None = True
        verdict, reason = "in_order" if same else "new_sequence", None
        if before is None and previous:
            accepted, verdict, reason = None, "unknown", "no_prior_state"
        elif before is not None and pair <= before:
            accepted, reason = False, "late" if same else "stale_sequence"
        elif self._missing and before is not None and (previous > incoming or gap):
            accepted, verdict, reason = None, "unknown", "capture_gap"
        elif previous > incoming:
            accepted, reason = False, "predecessor_missing"
        elif gap:
            verdict = "gap_expired"
        if accepted is False:
            is_duplicate = self._was_accepted(pair) or pair <= self._sent_before
            verdict, reason = ("duplicate", None) if is_duplicate else ("out_of_order", reason)
            self._rejects += 1
        else:
            if accepted is None:
                self._sent_before = max(self._sent_before, (sequence_id, previous))
            self._rejects, self._before, self._missing = 0, pair, False
            self._accept(pair)
        said = "null" if accepted is None else "true" if accepted else "false"
        self._rows.write(
            f'{self._separator}{{"id": "{sequence_id}", "no": {number}, "prev": {previous}, "accepted": {said}, '
            f'"verdict": "{verdict}", "reason": {json.dumps(reason)}, '
            f'"gap": {gap if verdict == "gap_expired" else 0}, "reject": {self._rejects}, '
            f'"before": {f"""["{before[0]}", {before[1]}]""" if before else "null"}, "mid": {message.ordinal}}}'
        )
        self._separator = ",\n"

    def _accept(self, pair: _Pair) -> None:
        ranges = self._accepted.setdefault(pair[0], [])
        if ranges and ranges[-1][1] + 1 == pair[1]:
            ranges[-1][1] = pair[1]
        else:
            ranges.append([pair[1], pair[1]])

    def _was_accepted(self, pair: _Pair) -> bool:
        return any(low <= pair[1] <= high for low, high in self._accepted.get(pair[0], ()))

    def _open(self, sequence_id: int, connection: Connection, time_ns: int) -> None:
        """Takes the initial state from the last OrderAck before the scope's first message, if there is one."""
        self._judged = True
        self._missing |= self._missing_aside and not connection.begins_captured
        fixing = [
            (ack_ns, pair)
            for ack_ns, pair, on, is_direct in self._acks
            if ack_ns < time_ns
            and (not self._by_queue or pair[0] == sequence_id)
            and (not is_direct or on.begins_captured or on is connection)
        ]
        self._acks.clear()
        if fixing:
            _, self._before = max(fixing)
            self._sent_before = self._before


class Truth:
    """Collects the verdicts of all scopes, each in a file of its own until they are joined."""

    def __init__(self, folder: Path) -> None:
        """Keeps the rows in the folder."""
        self._folder = folder
        self._scopes: list[tuple[dict[str, str], TextIO, Verdicts]] = []
        self._fates: dict[int, list[Fates]] = defaultdict(list)
        self._findings: dict[int, set[FindingKind] | None] = defaultdict(set)
        self._seen: dict[UUID, Seen] = defaultdict(dict)
        self._troubles: dict[int, Trouble] = {}
        self._copies: set[tuple[str, str]] = set()
        self.files = ExitStack()

    def verdicts(
        self, source: UUID, destination_queue: str | None, *, by_queue: bool, receiver: UUID | None = None
    ) -> Verdicts:
        """Returns the verdicts of a scope.

        `destination_queue` and `receiver` are given where the sender has several scopes because it has several of them.
        """
        scope = {"source_queue_manager": str(source)}
        if destination_queue is not None:
            scope["destination_queue"] = destination_queue
        if receiver is not None:
            scope["receiving_queue_manager"] = str(receiver)
        rows = self.files.enter_context(TemporaryFile("w+", dir=self._folder))  # noqa: SIM115 - the stack closes it
        verdicts = Verdicts(rows, self._seen[source], by_queue=by_queue)
        self._scopes.append((scope, rows, verdicts))
        return verdicts

    def copied(self, source: UUID, address: str) -> None:
        """Notes that the machine at an address is a copy of another one with the same GUID."""
        self._copies.add((str(source), address))

    def fates(self, verdicts: Verdicts, fates: Fates) -> None:
        """Adds what became of a scope's messages at one receiver; `write` adds it where the capture is whole."""
        self._fates[id(verdicts)].append(fates)

    def find(self, verdicts: Verdicts, kind: FindingKind | None) -> None:
        """Notes a finding on a scope's sender; None says that more may be found of it, until the next call."""
        found = self._findings[id(verdicts)] or set()
        self._findings[id(verdicts)] = None if kind is None else found | {kind}

    def is_in(self, trouble: Trouble, verdicts: Verdicts) -> None:
        """Notes why the messages of a scope are not acknowledged, or less than before, or not read."""
        self._troubles[id(verdicts)] = trouble

    def _reached(self, verdicts: Verdicts) -> list[Fates]:
        """Returns what became of a scope's messages at each receiver that got some."""
        return [fates for fates in self._fates[id(verdicts)] if fates.arrivals]

    def _found(self, verdicts: Verdicts) -> dict[str, Any]:
        """Returns what must be found of a scope's sender, if a reader can know it."""
        found = self._findings[id(verdicts)]
        if found is None:
            return {}
        split = {FindingKind.SEVERAL_RECEIVERS} if len(self._reached(verdicts)) > 1 else set()
        return {"findings": sorted(found | split)}

    def _became(self, verdicts: Verdicts) -> dict[str, Any]:
        """Returns what became of a scope's messages, as far as a reader can know it."""
        reached = self._reached(verdicts)
        if len(reached) > 1:
            return {"delivered": sorted(set().union(*(fates.delivered() for fates in reached)))}
        if not (reached and reached[0].is_exact):
            return {}
        outcomes = reached[0].outcomes()
        words = {row["outcome"] for row in outcomes}
        trouble = self._troubles.get(id(verdicts), Trouble.NO_QUEUE if "unacknowledged" in words else None)
        # What a sender in trouble gave up long before the end has no incident.
        cause = trouble.cause if trouble and words.intersection(DOUBTFUL) else None
        became: dict[str, Any] = {
            "outcomes": outcomes,
            "incidents": reached[0].incidents(),
            "not_read": reached[0].not_read_yet(),
        }
        became |= {"trouble": trouble.name} if id(verdicts) in self._troubles and trouble else {}
        return became | ({} if cause is None else {"cause": cause})

    def _sent_by(self, source: str, verdicts: Verdicts, *, with_outcomes: bool) -> dict[str, Any]:
        """Returns the machines that sent the messages of a scope, if there are several, the one seen first first.

        `sequences` holds by TxSequenceID how many messages each sent, and how many were accepted and lost.
        """
        seen = self._seen[UUID(source)]
        if len(seen) == 1:
            return {}
        reached = self._reached(verdicts)
        is_told = with_outcomes and len(reached) == 1 and reached[0].is_exact
        figures = reached[0].senders() if is_told else {}
        return {
            "senders": [
                {"address": address, "is_copy": (source, address) in self._copies}
                | {"first_ns": first_ns, "last_ns": last_ns}
                | (_summed(figures[address]) if address in figures else {})
                for address, (first_ns, last_ns) in sorted(seen.items(), key=lambda item: item[1])
            ]
        }

    def write(self, *, with_outcomes: bool, with_findings: bool) -> None:
        """Writes all scopes in which a message arrived; with outcomes and findings, where these are known exactly."""
        with (self._folder / TRUTH).open("w", encoding="utf-8") as file:
            separator = "[\n"
            file.write(separator * (not any(rows.tell() for _, rows, _ in self._scopes)))
            for scope, rows, verdicts in self._scopes:
                if rows.tell():
                    file.write(f'{separator}{json.dumps(scope)[:-1]}, "rows": [\n')
                    rows.seek(0)
                    copyfileobj(rows, file)
                    file.write("\n]")
                    told = self._found(verdicts) if with_findings else {}
                    told |= self._became(verdicts) if with_outcomes else {}
                    told |= self._sent_by(scope["source_queue_manager"], verdicts, with_outcomes=with_outcomes)
                    for name, value in told.items():
                        file.write(f', "{name}": {json.dumps(value)}')
                    file.write("}")
                    separator = ",\n"
            file.write("\n]\n")


def _summed(sequences: dict[str, list[int]]) -> dict[str, Any]:
    """Returns the figures of an address by sequence, and their sums."""
    sums = [sum(counts) for counts in zip(*sequences.values(), strict=True)]
    return dict(zip(("messages", "accepted", "lost"), sums, strict=True)) | {"sequences": sequences}
