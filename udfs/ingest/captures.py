"""Decides about capture files: which are new, their order, how they are split, and their rows in the tables."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from operator import itemgetter
from typing import Any, NamedTuple, Self

from schemas.ingest import MSMQ_ON_PORT, PINGS, TCP_PORT, CaptureStatus, Stage, Tunnel
from schemas.staging import Counted
from udfs.network.endpoints import unpack_address

Row = dict[str, Any]
_KINDS = 20
"""Most kinds of records that `not_judged` names."""
_RARELY = 4
"""If more than one in so many segments has a wrong checksum, that is no damage: addresses were rewritten, perhaps."""
_PORTS = 5
"""Most TCP ports that it names."""


class Place(NamedTuple):
    """A capture's place in the order of captures: first and last record time, in ns since 1970, then identifier."""

    first_ns: int | None
    last_ns: int | None
    capture_id: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Reads the place from a row with these columns."""
        return cls(row["first_ns"], row["last_ns"], row["capture_id"])

    @property
    def key(self) -> tuple[tuple[bool, int], tuple[bool, int], str]:
        """Returns what places are compared by: captures without times come first."""
        first, last = ((ns is not None, ns or 0) for ns in self[:2])
        return first, last, self.capture_id


def find_new(indexed: Sequence[Row], known: Collection[str], again: Collection[str]) -> list[Row]:
    """Returns the indexed files whose content is not known, or in one of the files to read `again`, which they say.

    Of files with the same content, it is one to read again if there is one, else the first by name.
    """
    by_name = sorted(indexed, key=itemgetter("uri"), reverse=True)
    by_content = {row["capture_id"]: row for row in sorted(by_name, key=lambda row: row["uri"] in again)}
    repeated = {row["capture_id"] for row in indexed if row["uri"] in again and row["capture_id"] in known}
    return [row | {"again": one in repeated} for one, row in by_content.items() if one in repeated or one not in known]


def find_unchanged(indexed: Iterable[Row], known: Iterable[Row]) -> list[Row]:
    """Returns the indexed files whose content is still that of the row (uri, capture_id) in `known`."""
    pairs = {(row["uri"], row["capture_id"]) for row in known}
    return [row for row in indexed if (row["uri"], row["capture_id"]) in pairs]


def rank(indexed: Iterable[Row]) -> list[Row]:
    """Numbers captures from 1 by time, in the column `capture`. Their segments are taken in this order."""
    ordered = sorted(indexed, key=lambda row: Place.of(row).key)
    return [row | {"capture": number} for number, row in enumerate(ordered, 1)]


def split(captures: Iterable[Row]) -> Iterator[Row]:
    """Yields one row of `schemas.staging.SPLIT` per byte range of the captures."""
    for row in captures:
        ends = [json.loads(cursor)["offset"] for cursor in row["cursors"][1:]]
        for cursor, stop in zip_longest(row["cursors"], ends):
            names = ("capture", "capture_id", "uri", "compression", "by_time")
            steps = row["clock_steps"] if row["by_time"] else None
            yield {name: row[name] for name in names} | {"cursor": cursor, "stop": stop, "clock_steps": steps}


def capture_rows(captures: Sequence[Row], counts: Iterable[Row], pings: Iterable[Row], read: Row) -> list[Row]:
    """Returns rows of `schemas.staging.CAPTURE`, given counts (capture, what, records) of their splits.

    `pings` are rows of `sum_up_pings`; `read` says when and how they were read. Beside these columns, `wrong_sums` is
    how many segments have a wrong checksum where these are too many for damage.
    """
    sums: dict[int, Counter[str]] = defaultdict(Counter)
    for row in counts:
        sums[row["capture"]][row["what"]] += row["records"]
    pinged: dict[int, list[Row]] = defaultdict(list)
    for row in pings:
        named = {side: unpack_address(row[side]) for side in ("source", "destination")}
        pinged[row["capture"]].append({name: row[name] for name in PINGS.value_type.names} | named)
    segments = {capture: counts[Counted.SEGMENT] for capture, counts in sums.items()}
    wrong_sums = {
        capture: sums[capture].pop(Counted.DAMAGED, 0)
        for capture, many in segments.items()
        if sums[capture][Counted.DAMAGED] * _RARELY > many
    }
    return [
        row
        | {f"{what.value}_count": sums[row["capture"]].pop(what, 0) for what in Counted}
        | {"wrong_sums": wrong_sums.get(row["capture"], 0)}
        | {"tunnels": _listed({one: sums[row["capture"]].pop(one, 0) for one in Tunnel})}
        | {"not_judged": _listed(_not_judged(sums[row["capture"]], has_segments=bool(segments.get(row["capture"]))))}
        | {"pings": sorted(pinged[row["capture"]], key=itemgetter("source", "destination")) or None}
        | read
        for row in captures
    ]


def _listed(counts: Mapping[str, int]) -> list[Row] | None:
    """Returns counts that are not 0 as rows (what, records); None for none."""
    return [{"what": str(what), "records": n} for what, n in sorted(counts.items()) if n] or None


def _not_judged(counts: Counter[str], *, has_segments: bool) -> Mapping[str, int]:
    """Returns the largest counts; of the TCP ports those of a capture in which nothing was found on those of MSMQ."""
    of_ports = {what: n for what, n in counts.items() if what.startswith((TCP_PORT, MSMQ_ON_PORT))}
    found = _shortened(counts - Counter(of_ports))
    if has_segments:
        return found
    for name in (TCP_PORT, MSMQ_ON_PORT):
        found |= Counter({what: n for what, n in of_ports.items() if what.startswith(name)}).most_common(_PORTS)
    return found


def _shortened(counts: Counter[str]) -> dict[str, int]:
    """Returns the largest counts, and the sum of the others: damaged frames may be of any kind."""
    first = dict(counts.most_common(_KINDS))
    return first | {"others": counts.total() - sum(first.values())}


def unreadable_rows(captures: Iterable[Row]) -> list[Row]:
    """Returns a row of QUARANTINE for each file that is no readable capture."""
    return [
        {name: row[name] for name in ("reason", "detail", "capture_id", "raw")}
        | {"stage": Stage.CAPTURE.value, "stream_offset": 0, "length": row["size_bytes"]}
        for row in captures
        if row["status"] == CaptureStatus.UNREADABLE
    ]
