"""Damaged captures, made at random from a seed: what ingest must find, by an oracle that shares nothing with it.

Where records are lost, doubled, swapped, cut or have wrong bits in their payload, every packet, gap and offset is
predicted from the records and the contract's Framing section. Where headers of frames or records are damaged, no byte
is lost without a row.
"""

import gzip
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pytest
import wiretap
from oracle import PORT, WRAP, Key, heard, sides, summed
from pipeline import WHOLE, Ingested, balance, ingest
from tiers import merge_needs
from wiretap import Sent, conversation, msmq

from udfs.ingest import preframe

SEEDS, CHUNK = 2_000, 50
EXACT = {"segments": 3, "payload": 3, "decoys": 3, "snaplen": 1}
"""Kinds of damage and how often: records deleted, doubled and swapped; the same, and wrong bits in payloads; the same,
and bodies that look like packets; records cut."""
BALANCED = {"beginning": 1, "headers": 3, "records": 3, "anywhere": 2}
"""The beginning cut off behind the file header; wrong bits in the headers of frames, or of records; any damage."""

# --- what is sent and captured ----------------------------------------------------------------------------------------


class Flow(NamedTuple):
    """A connection; each side's packets in the order it sent them."""

    client: tuple[str, int]
    server: tuple[str, int]
    packets: tuple[list[bytes], list[bytes]]
    sent: list[Sent]


class Taken(NamedTuple):
    """A record of the capture. `payload`: where that of TCP begins; 0 in traffic that is none of MSMQ's."""

    frame: bytes
    payload: int
    length: int


@dataclass
class Capture:
    """A damaged capture and what is demanded of whoever reads it."""

    kind: str
    files: list[bytes]
    readable: list[Taken]
    """For exact kinds: the records that are read, in file order."""
    sent: int
    """How many packets were sent."""
    prefer_valid: bool = False
    """Whether a segment with a right checksum wins over one with a wrong checksum."""


def packet(rng: random.Random, largest: int, *, decoys: bool) -> bytes:
    """An MSMQ packet; one in six with a SessionHeader behind it; with decoys, bodies hold something like packets."""
    size = rng.choice([16, 17, 40, rng.randrange(16, largest)])
    body = rng.randbytes(size - 16)
    if decoys:
        for _ in range(rng.choice([0, 1, 1, 3, 8])):
            body = with_decoys(rng, body)
        if rng.random() < 1 / 6:  # a SessionHeader that PacketSize counts, or that is not there
            return msmq(size, body, flags=3 | 0x10)
    if rng.random() < 1 / 6:
        return msmq(size, body, flags=3 | 0x10) + rng.randbytes(16)
    return msmq(size, body)


def with_decoys(rng: random.Random, body: bytes) -> bytes:
    """The body with one to three headers in it, each where the one before says that its packet ends."""
    sizes = [rng.choice([16, 17, 30, 60, len(body), 5000, 0]) for _ in range(rng.choice([1, 1, 2, 3]))]
    at = rng.randrange(len(body) + 1)
    for size in sizes:
        fake = wiretap.base_header(size, flags=rng.choice([3, 3, 3 | 0x10]))
        if at + len(fake) > len(body):
            break
        body = body[:at] + fake + body[at + len(fake) :]
        at += size
    return body


def flow(rng: random.Random, number: int, *, decoys: bool) -> Flow:
    """A connection with up to thirty packets; the capture may begin after its SYN or end before its FIN."""
    largest = rng.choice([60, 300, 300, 1500])
    count = rng.randrange(3, 31)
    back = rng.choice([0, 1, count // 2])
    packets = tuple([packet(rng, largest, decoys=decoys) for _ in range(n)] for n in (count - back, back))
    hosts = ("fd00::1", "fd00::2") if rng.random() < 1 / 6 else ("10.0.0.1", "10.0.0.2")
    isns = [rng.choice([rng.randrange(WRAP), WRAP - rng.randrange(1, 3000)]) for _ in range(2)]
    sent = conversation(
        rng,
        b"".join(packets[0]),
        b"".join(packets[1]),
        client_isn=isns[0],
        server_isn=isns[1],
        largest=rng.choice([30, 200, 1460, 1460]),
        opened=rng.random() < 0.7,
        closed=rng.random() < 0.7,
    )
    # Client ports three bits apart or more: one wrong bit does not lead from one connection to another.
    client = (hosts[0], 40_000 ^ 0x7777 * (number & 1) ^ 0x0F0F * (number >> 1))
    return Flow(client, (hosts[1], PORT), (packets[0], packets[1]), sent)


def interleaved(rng: random.Random, flows: Sequence[Flow], *, sums: bool) -> list[Taken]:
    """The records of a capture without damage: the flows' segments mixed, now and then something else between them."""
    ways = [[s.frame(client=f.client, server=f.server) for s in f.sent] for f in flows]
    out = []
    while ways := [way for way in ways if way]:
        frame = rng.choice(ways).pop(0)
        frame = summed(frame) if sums else frame
        out.append(Taken(frame, 54 if frame[14] >> 4 == 4 else 74, len(frame)))
        if rng.random() < 0.05:
            out.append(Taken(wiretap.ethernet(bytes(28), kind=0x0806), 0, 42))
    return out


# --- damage to records ------------------------------------------------------------------------------------------------


def shuffled(rng: random.Random, taken: list[Taken]) -> list[Taken]:
    """Records deleted, doubled and moved a few places."""
    lose, double = rng.choice([0, 0.03, 0.2]), rng.choice([0, 0.05, 0.3])
    kept = [t for t in taken if rng.random() >= lose]
    kept = [copy for t in kept for copy in [t] * (2 if rng.random() < double else 1)]
    distance = rng.choice([0, 0, 2, 10])
    order = sorted(range(len(kept)), key=lambda i: i + rng.random() * distance)
    return [kept[i] for i in order]


def snapped(rng: random.Random, taken: list[Taken]) -> list[Taken]:
    """Every record cut behind so many bytes."""
    most = rng.choice([90, 200, 800])
    return [t._replace(frame=t.frame[:most]) for t in taken]


def flipped(rng: random.Random, frame: bytes, low: int, high: int) -> bytes:
    """One to three bits wrong between two places."""
    out = bytearray(frame)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        out[rng.randrange(low, high)] ^= 1 << rng.randrange(8)
    return bytes(out)


def with_wrong_bits(rng: random.Random, taken: list[Taken], *, headers: bool) -> list[Taken]:
    """Wrong bits in the headers or in the payload of some frames."""
    share = rng.choice([0.02, 0.05, 0.2])
    out = []
    for t in taken:
        hit = t.payload and rng.random() < share
        if hit and headers:
            out.append(t._replace(frame=flipped(rng, t.frame, 0, t.payload)))
        elif hit and len(t.frame) > t.payload:
            out.append(t._replace(frame=flipped(rng, t.frame, t.payload, len(t.frame))))
        else:
            out.append(t)
    return out


# --- files ------------------------------------------------------------------------------------------------------------


class Style(NamedTuple):
    """How a capture file is written."""

    ng: bool
    order: str
    ns: bool
    modified: bool

    @classmethod
    def any(cls, rng: random.Random) -> "Style":
        """Pcap or pcapng, either byte order."""
        ng, order, modified = rng.random() < 0.4, rng.choice("<<>"), rng.random() < 0.1
        return cls(ng, order, rng.random() < 0.4 and not modified, modified)

    def head(self) -> bytes:
        """What stands before the first record; in pcapng two interfaces with different units of time."""
        if not self.ng:
            return wiretap.pcap_header(order=self.order, ns=self.ns, modified=self.modified)
        faster = wiretap.interface(order=self.order, resolution=9)
        return wiretap.section(order=self.order) + wiretap.interface(order=self.order) + faster

    def parts(self, rng: random.Random, taken: Sequence[Taken]) -> list[bytes]:
        """The records, each as it stands in the file."""
        start = wiretap.NEW_YEAR * wiretap.BILLION
        stamps = [start + i * 1_000_000 + rng.randrange(1000) for i in range(len(taken))]
        if not self.ng:
            return [
                wiretap.pcap_record(
                    wiretap.Record(t.frame, stamp, t.length), order=self.order, ns=self.ns, modified=self.modified
                )
                for t, stamp in zip(taken, stamps, strict=True)
            ]
        return [self._block(rng, t, stamp) for t, stamp in zip(taken, stamps, strict=True)]

    def _block(self, rng: random.Random, t: Taken, stamp: int) -> bytes:
        if rng.random() < 0.05 and len(t.frame) == t.length:
            return wiretap.simple(t.frame, order=self.order)
        number = rng.randrange(2)
        stamp = stamp if number else stamp // 1000
        return wiretap.enhanced(t.frame, stamp, number=number, original=t.length, order=self.order)


def damaged_file(rng: random.Random, kind: str, taken: list[Taken], style: Style) -> bytes:
    """A capture with damage to what is no frame."""
    head, parts = style.head(), style.parts(rng, taken)
    if kind == "beginning":
        first = rng.randrange(len(parts))
        return head + parts[first][rng.randrange(1, len(parts[first])) :] + b"".join(parts[first + 1 :])
    if kind == "records":
        share = rng.choice([0.02, 0.05, 0.15])
        return head + b"".join(flipped(rng, p, 0, 28 if style.ng else 16) if rng.random() < share else p for p in parts)
    data = head + b"".join(parts)
    if rng.random() < 0.2:
        data = gzip.compress(data, mtime=0)
    times = rng.choice([1, 3, 20, len(data) // 300])
    return wiretap.damaged(rng, data, times=times, kinds=6, longest=100)


def captured(seed: int) -> Capture:
    """The capture of this seed."""
    rng = random.Random(seed)
    kinds = EXACT | BALANCED
    (kind,) = rng.choices(list(kinds), list(kinds.values()))
    decoys = kind == "decoys"
    flows = [flow(rng, number, decoys=decoys) for number in range(rng.choice([1, 1, 2, 3]))]
    sums = rng.random() < 0.5
    taken = interleaved(rng, flows, sums=sums)
    if kind in ("segments", "payload", "decoys", "snaplen") or rng.random() < 0.3:
        taken = shuffled(rng, taken)
    if kind == "snaplen":
        taken = snapped(rng, taken)
    if kind in ("payload", "headers") or (decoys and rng.random() < 0.3):
        taken = with_wrong_bits(rng, taken, headers=kind == "headers")
    taken = taken or interleaved(rng, flows, sums=sums)
    sent = sum(len(packets) for f in flows for packets in f.packets)
    capture = Capture(kind, [], taken, sent, prefer_valid=sums and kind in ("payload", "decoys"))
    style = Style.any(rng)
    if kind in ("beginning", "records", "anywhere"):
        capture.files = [damaged_file(rng, kind, taken, style)]
    else:
        middle = rng.randrange(len(taken)) if rng.random() < 0.15 else len(taken)
        # Two captures, one after the other: the second begins where the first ends.
        parts = style.parts(rng, taken)
        halves = [p for p in (parts[:middle], parts[middle:]) if p]
        capture.files = [style.head() + b"".join(half) for half in halves]
        if rng.random() < 0.2:
            capture.files = [gzip.compress(data, mtime=0) for data in capture.files]
    return capture


# --- the properties ---------------------------------------------------------------------------------------------------


def judge(capture: Capture, found: Ingested) -> int:
    """Hold what was found against what must be found; returns how many packets must be."""
    got: dict[Key, list[tuple[int, bytes]]] = defaultdict(list)
    gaps: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    keys = {}
    for row in found.streams:
        keys[row["stream_id"]] = key = (row["src_ip"], row["src_port"], row["dst_ip"], row["dst_port"])
        assert row["instance"] == 0, f"{key} was taken for more than one connection"
    for row in found.packets:
        got[keys[row["stream_id"]]].append((row["stream_offset"], row["raw"]))
    for row in found.gaps:
        gaps[keys[row["stream_id"]]].append((row["stream_offset"], row["length"]))
    segments = [s for t in capture.readable if (s := heard(t.frame))]
    way = sides(segments, prefer_valid=capture.prefer_valid)
    for key in {*got, *way}:  # of a direction without a SYN or a byte of data the contract says nothing
        expected = (way[key].packets, way[key].gaps) if key in way else ([], [])
        assert (sorted(got[key]), sorted(gaps[key])) == expected, key
    return sum(len(side.packets) for side in way.values())


def check(seed: int, folder: Path) -> tuple[int, int]:
    """Read the capture of this seed, for some also in small splits and batches; packets sent and demanded."""
    capture = captured(seed)
    paths = []
    for index, data in enumerate(capture.files):
        paths.append(folder / f"{index}.cap")
        paths[-1].write_bytes(data)
    found = ingest(paths, WHOLE)
    balance(found)
    if seed % 4 == 0:
        small = replace(WHOLE, split_bytes=1500, batch_bytes=3000)
        with pytest.MonkeyPatch.context() as patch:
            if seed % 8:  # what is framed within a split may be little
                patch.setattr(preframe, "RUN_BYTES", 60)
                patch.setattr(preframe, "TAIL_BYTES", 30)
            split = ingest(paths, small, batch=1 + seed // 4 % 9)
        assert split.found == found.found, "splits and batches change the result"
    return (capture.sent, judge(capture, found)) if capture.kind in EXACT else (0, 0)


FEW = range(CHUNK // 2)
CHUNKS = [range(first, first + CHUNK) for first in range(0, SEEDS, CHUNK)]


@pytest.mark.parametrize("seeds", merge_needs([FEW], [FEW, *CHUNKS]), ids=lambda seeds: f"{seeds[0]} to {seeds[-1]}")
def test_undamaged_packets_are_found_and_everything_else_is_accounted_for(seeds: range, tmp_path: Path) -> None:
    failures, sent, demanded = [], 0, 0
    for seed in seeds:
        try:
            counts = check(seed, tmp_path)
        except Exception as error:  # noqa: BLE001 - any at all is a finding
            failures.append(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}")
        else:
            sent, demanded = sent + counts[0], demanded + counts[1]
    assert failures == []
    assert demanded > 0.65 * sent, "the oracle demands too little to be worth asking"
