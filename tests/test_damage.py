"""Damaged captures, made at random from a seed: what ingest must find, by an oracle that shares nothing with it.

What can be said exactly is said exactly. Where records are lost, doubled, swapped, cut or have wrong bits in their
payload, every packet, gap and offset is predicted from the records and the contract's Framing section. Where headers
of frames or records are damaged, the prediction is a lower bound: what must be found, whatever is made of the damage.

By hand, many more: `python tests/test_damage.py 200000 --processes 2`.
"""

import argparse
import gzip
import multiprocessing
import random
import struct
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import pytest
import wiretap
from oracle import PORT, WRAP, Key, Side, away, back, heard, sides, summed
from pipeline import WHOLE, Ingested, balance, ingest
from tiers import merge_needs
from wiretap import FIN, SYN, Sent, conversation, msmq

CHUNKS, CHUNK = 20, 100
LARGEST_RECORD = 1 << 20
FAR = 1 << 26
KINDS = {  # of damage, and how often
    "segments": 3,  # records deleted, doubled, swapped
    "payload": 3,  # the same, and wrong bits in payloads
    "decoys": 3,  # the same, and bodies that look like packets
    "snaplen": 1,
    "cut": 2,
    "beginning": 1,  # cut off behind the file header
    "headers": 3,  # wrong bits in Ethernet, IP and TCP headers
    "records": 3,  # wrong bits in the headers of pcap records and pcapng blocks
    "anywhere": 2,
}

# --- what is sent and captured ----------------------------------------------------------------------------------------


class Flow(NamedTuple):
    """A connection; each side's packets in the order it sent them."""

    client: tuple[str, int]
    server: tuple[str, int]
    packets: tuple[list[bytes], list[bytes]]
    sent: list[Sent]


class Taken(NamedTuple):
    """A record of the capture. `whole`: the frame as it was sent; None for traffic that is none of MSMQ's."""

    frame: bytes
    whole: bytes | None
    length: int


@dataclass
class Capture:
    """A damaged capture and what is demanded of whoever reads it."""

    kind: str
    files: list[bytes]
    readable: list[Taken]
    """The records that are certainly read, in file order."""
    exact: bool
    """Whether exactly these records are read, and every one of their fields is as the oracle takes it."""
    summed: bool = False
    """Whether TCP checksums are right where nothing was damaged, so that a reader may prefer the right copy."""
    true_bytes: bool = True
    """Whether no byte was changed and no body looks like a packet: then all that was captured whole must be found."""
    unreadable: bool = False
    balance_only: bool = False
    flows: list[Flow] = field(default_factory=list)


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
        out.append(Taken(frame, frame, len(frame)))
        if rng.random() < 0.05:
            other = wiretap.ethernet(bytes(28), kind=0x0806)
            out.append(Taken(other, None, len(other)))
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
        payload = 0 if t.whole is None else 54 if t.whole[14] >> 4 == 4 else 74
        hit = payload and rng.random() < share
        if hit and headers:
            out.append(t._replace(frame=flipped(rng, t.frame, 0, payload)))
        elif hit and len(t.frame) > payload:
            out.append(t._replace(frame=flipped(rng, t.frame, payload, len(t.frame))))
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


def cut(rng: random.Random, capture: Capture, style: Style) -> None:
    """The file ends somewhere; packed files too."""
    parts = style.parts(rng, capture.readable)
    head = style.head()
    data = head + b"".join(parts)
    if rng.random() < 0.3:
        packed = gzip.compress(data, mtime=0)
        packed = packed[: rng.randrange(len(packed))]
        capture.files = [packed]
        left = len(zlib.decompressobj(wbits=31).decompress(packed)) if len(packed) > 3 else 0
    else:
        left = rng.randrange(len(data))
        capture.files = [data[:left]]
    capture.unreadable = left < (28 if style.ng else 24)
    capture.readable = list(whole_before(left, len(head), parts, capture.readable))


def whole_before(left: int, at: int, parts: Iterable[bytes], taken: Iterable[Taken]) -> Iterator[Taken]:
    """The records that end at byte `left` of a file or before."""
    for part, t in zip(parts, taken, strict=True):
        at += len(part)
        if at > left:
            return
        yield t


def without_beginning(rng: random.Random, capture: Capture, style: Style) -> None:
    """The file header, and then the file from somewhere inside a record on."""
    parts = style.parts(rng, capture.readable)
    first = rng.randrange(len(parts))
    inside = rng.randrange(1, len(parts[first]))
    rest = parts[first][inside:]
    head = style.head()
    data = head + rest + b"".join(parts[first + 1 :])
    capture.files = [data]
    capture.readable = capture.readable[first + 1 :]
    capture.exact = False
    if not style.ng and may_be_header(data, len(head), style):
        capture.balance_only = True


def may_be_header(data: bytes, at: int, style: Style) -> bool:
    """Whether a reader could take what lies there for a pcap record, by its header or by the next (DECISIONS 24)."""
    units = wiretap.BILLION if style.ns else 1_000_000
    for _ in range(2):
        if at + 16 > len(data):
            return at == len(data)
        _, fraction, captured, _ = struct.unpack_from(style.order + "IIII", data, at)
        if captured > LARGEST_RECORD:
            return False
        if fraction < units:
            return True
        at += (24 if style.modified else 16) + captured
    return False


def with_damaged_records(rng: random.Random, capture: Capture, style: Style) -> None:
    """Wrong bits in the headers of records, or in what a pcapng block has before and behind its frame.

    A block names its length twice, so it takes nothing with it. A pcap record may take those behind it, until three
    follow one another or reach the end.
    """
    parts = style.parts(rng, capture.readable)
    share = rng.choice([0.02, 0.05, 0.15])
    bad = [rng.random() < share for _ in parts]
    size = 24 if style.modified else 16
    for i in [i for i, b in enumerate(bad) if b]:
        if not style.ng:
            parts[i] = flipped(rng, parts[i], 0, 16)
        elif rng.random() < 0.2:
            parts[i] = flipped(rng, parts[i], len(parts[i]) - 4, len(parts[i]))
        else:
            parts[i] = flipped(rng, parts[i], 0, 28 if parts[i][:4] in (b"\6\0\0\0", b"\0\0\0\6") else 12)
    head = style.head()
    capture.files = [head + b"".join(parts)]
    capture.exact = False
    if style.ng:
        capture.readable = [t for t, b in zip(capture.readable, bad, strict=True) if not b]
        return
    sure = []
    trusted = True
    at = len(head)
    for i, (part, t) in enumerate(zip(parts, capture.readable, strict=True)):
        if bad[i]:
            trusted = False
            captured = struct.unpack_from(style.order + "I", part, 8)[0]
            landing = at + size + captured
            taken_in = captured <= LARGEST_RECORD and captured != len(t.frame)
            if taken_in and may_be_header(capture.files[0], landing, style):
                break
        trusted = trusted or not any(bad[i : i + 3])
        if trusted:
            sure.append(t)
        at += len(part)
    capture.readable = sure


def damaged_anywhere(rng: random.Random, capture: Capture, style: Style) -> None:
    """Bytes changed, missing and too many, anywhere; packed files too."""
    data = style.head() + b"".join(style.parts(rng, capture.readable))
    if rng.random() < 0.2:
        data = gzip.compress(data, mtime=0)
    times = rng.choice([1, 3, 20, len(data) // 300])
    capture.files = [wiretap.damaged(rng, data, times=times, kinds=6, longest=100)]
    capture.balance_only = True


def captured(seed: int) -> Capture:
    """The capture of this seed."""
    rng = random.Random(seed)
    (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
    decoys = kind == "decoys"
    flows = [flow(rng, number, decoys=decoys) for number in range(rng.choice([1, 1, 2, 3]))]
    sums = rng.random() < 0.5
    taken = interleaved(rng, flows, sums=sums)
    if kind in ("segments", "payload", "decoys", "snaplen") or rng.random() < 0.3:
        taken = shuffled(rng, taken)
    if kind == "snaplen":
        taken = snapped(rng, taken)
    if kind in ("payload", "headers") or (kind == "decoys" and rng.random() < 0.3):
        taken = with_wrong_bits(rng, taken, headers=kind == "headers")
    if not taken:
        taken = interleaved(rng, flows, sums=sums)
    true_bytes = kind not in ("payload", "headers", "decoys")
    capture = Capture(kind, [], taken, exact=kind != "headers", summed=sums, true_bytes=true_bytes, flows=flows)
    style = Style.any(rng)
    match kind:
        case "cut":
            cut(rng, capture, style)
        case "beginning":
            without_beginning(rng, capture, style)
        case "records":
            with_damaged_records(rng, capture, style)
        case "anywhere":
            damaged_anywhere(rng, capture, style)
        case _:
            middle = rng.randrange(len(taken)) if rng.random() < 0.15 else len(taken)
            # Two captures, one after the other: the second begins where the first ends.
            parts = style.parts(rng, taken)
            halves = [p for p in (parts[:middle], parts[middle:]) if p]
            capture.files = [style.head() + b"".join(half) for half in halves]
            if rng.random() < 0.2:
                capture.files = [gzip.compress(data, mtime=0) for data in capture.files]
    return capture


# --- what is demanded -------------------------------------------------------------------------------------------------


def uncertain(capture: Capture) -> set[Key]:
    """Directions whose damaged headers leave open to which connection, or where in it, segments belong.

    A wrong SYN or FIN, a sequence number far off, damage before both directions are known, a foreign segment.
    """
    out: set[Key] = set()
    known: set[Key] = set()
    far: Counter[Key] = Counter()
    opened = {s.key for t in capture.readable if t.whole and (s := heard(t.whole)) and s.flags & SYN}
    syns: set[Key] = set()
    for t in capture.readable:
        true = heard(t.whole) if t.whole else None
        told = heard(t.frame)
        if told is None or true is None:
            continue
        both = {told.key, back(told.key)}
        if told == true:
            known.add(told.key)
            if told.flags & SYN:
                syns.add(told.key)
            continue
        foreign = told.key != true.key
        switched = (told.flags ^ true.flags) & (SYN | FIN)
        moved = abs(away(told.seq, true.seq))
        moved_end = moved or told.length != true.length
        misacked = abs(away(told.ack, true.ack)) or (told.flags ^ true.flags) & 0x10
        if foreign or switched or (moved_end and true.flags & (SYN | FIN)):
            out |= both
        if (moved or misacked) and (not both <= known or (told.key in opened and told.key not in syns)):
            out |= both
        far[told.key] += moved >= FAR
        far[back(told.key)] += abs(away(told.ack, true.ack)) >= FAR
    return out | {k for key, count in far.items() if count > 1 for k in (key, back(key))}


def expectation(capture: Capture) -> list[dict[Key, Side]]:
    """What must come out: last, with a segment whose checksum is right before one whose is not; first, without."""
    segments = [s for t in capture.readable if (s := heard(t.frame))]
    if capture.kind == "headers":
        origins = {s.key: s.seq for t in capture.readable if t.whole and (s := heard(t.whole))}
        segments = [s for s in segments if s.key in origins and abs(away(s.seq, origins[s.key])) < FAR]
    first = sides(segments, prefer_valid=False)
    if not capture.summed or capture.true_bytes:
        return [first]
    return [first, sides(segments, prefer_valid=True)]


def sent_packets(capture: Capture) -> dict[Key, list[bytes]]:
    """What each direction sent in truth."""
    return {
        key: packets
        for f in capture.flows
        for key, packets in zip(((*f.client, *f.server), (*f.server, *f.client)), f.packets, strict=True)
    }


def held_whole(capture: Capture) -> dict[Key, Counter[bytes]]:
    """The packets of which every byte is in a record that is read: all of them must be found when no byte is wrong."""
    out: dict[Key, Counter[bytes]] = {}
    starts = {}
    for f in capture.flows:
        for way, key in enumerate(((*f.client, *f.server), (*f.server, *f.client))):
            own = [s for s in f.sent if s.by_server is bool(way)]
            starts[key] = next(((s.seq + bool(s.flags & SYN)) for s in own), 0)
            at = 0
            ranges = []
            for data in f.packets[way]:
                ranges.append((at, at + len(data), data))
                at += len(data)
            there = bytearray(at)
            for t in capture.readable:
                s = heard(t.frame)
                if s is not None and s.key == key and s.payload:
                    low = away(s.seq, starts[key])
                    there[low : low + len(s.payload)] = b"\1" * len(s.payload)
            out[key] = Counter(data for low, high, data in ranges if 0 not in there[low:high])
    return out


# --- the properties ---------------------------------------------------------------------------------------------------


class Tally(NamedTuple):
    """Packets sent, demanded and found."""

    sent: int
    demanded: int
    found: int


NOTHING = Tally(0, 0, 0)


def judge(capture: Capture, found: Ingested) -> Tally:
    """Hold what was found against what must be found."""
    sent = sent_packets(capture)
    got: dict[Key, list[tuple[int, bytes]]] = defaultdict(list)
    gaps: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    keys = {}
    for row in found.streams:
        keys[row["stream_id"]] = key = (row["src_ip"], row["src_port"], row["dst_ip"], row["dst_port"])
        one = row["instance"] == 0 or capture.balance_only or not capture.exact
        assert one, f"{key} was taken for more than one connection"
    for row in found.packets:
        got[keys[row["stream_id"]]].append((row["stream_offset"], row["raw"]))
    for row in found.gaps:
        gaps[keys[row["stream_id"]]].append((row["stream_offset"], row["length"]))
    total, right = sum(map(len, sent.values())), sum(len(rows) for rows in got.values())
    if capture.balance_only:
        return Tally(total, 0, right)
    assert (found.captures[0]["status"] == "unreadable") is capture.unreadable
    ways = expectation(capture)
    demanded = 0
    if capture.exact:
        way = ways[-1]
        expected = {key: (side.packets, side.gaps) for key, side in way.items()}
        # Of a direction without a SYN or a byte of data the contract says nothing.
        outcome = {key: (sorted(got[key]), sorted(gaps[key])) for key in {*got, *expected}}
        if outcome != expected:
            key = next(k for k in {*outcome, *expected} if outcome.get(k) != expected.get(k))
            pytest.fail(f"{key}: {_brief(outcome.get(key))} where {_brief(expected.get(key))} is expected")
        demanded = sum(len(side.packets) for side in way.values())
    must: dict[Key, Counter[bytes]]
    if capture.true_bytes:
        must = held_whole(capture)
    else:
        must = {}
        open_ends = uncertain(capture) if capture.kind == "headers" else set()
        for key, packets in sent.items():
            if key in open_ends:
                continue
            must[key] = Counter(packets)
            for way in ways:
                must[key] &= Counter(data for _, data in way[key].packets) if key in way else Counter()
    for key, counted in must.items():
        missing = counted - Counter(data for _, data in got[key])
        assert not missing, f"{key}: {missing.total()} of {counted.total()} packets not found"
    return Tally(total, max(demanded, sum(counted.total() for counted in must.values())), right)


def _brief(side: tuple[list[tuple[int, bytes]], list[tuple[int, int]]] | None) -> str:
    return "nothing" if side is None else f"packets {[(at, len(p)) for at, p in side[0]]}, gaps {side[1]}"


def check(seed: int, folder: Path) -> tuple[str, Tally]:
    """Read the capture of this seed and hold it to every property; for some, also in small splits and batches."""
    capture = captured(seed)
    paths = []
    for index, data in enumerate(capture.files):
        paths.append(folder / f"{index}.cap")
        paths[-1].write_bytes(data)
    found = ingest(paths, WHOLE)
    balance(found)
    if seed % 4 == 0:
        small = replace(WHOLE, split_bytes=1500, batch_bytes=3000)
        split = ingest(paths, small, batch=1 + seed // 4 % 9)
        assert split._replace(captures=found.captures, framed_runs=found.framed_runs) == found, (
            "splits and batches change the result"
        )
    return capture.kind, judge(capture, found)


def trouble(seeds: Iterable[int]) -> tuple[list[str], dict[str, Tally]]:
    """What does not hold, with its seed; and by kind of damage what was sent, demanded and found."""
    failures = []
    tallies: dict[str, Tally] = defaultdict(lambda: NOTHING)
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            try:
                kind, tally = check(seed, Path(folder))
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any at all is a finding
                failures.append(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}")
            else:
                tallies[kind] = Tally(*map(sum, zip(tallies[kind], tally, strict=True)))
    return failures, dict(tallies)


@pytest.mark.parametrize("chunk", merge_needs([0], range(CHUNKS)))
def test_undamaged_packets_are_found_and_everything_else_is_accounted_for(chunk: int) -> None:
    failures, tallies = trouble(range(chunk * CHUNK, (chunk + 1) * CHUNK))
    assert failures == []
    for kinds, share in ((("segments", "payload", "decoys"), 0.7), (("headers", "records"), 0.6)):
        sent, demanded, _ = map(sum, zip(*(tallies.get(kind, NOTHING) for kind in kinds), strict=True))
        assert demanded > share * sent, "the oracle demands too little to be worth asking"


@pytest.mark.parametrize("low", merge_needs(range(0, 54, 18), range(0, 54, 9)))
def test_one_wrong_bit_in_a_frame_takes_no_more_than_the_packets_around_it(low: int, tmp_path: Path) -> None:
    """Every bit of the Ethernet, IP and TCP headers of a segment; its own packet and a neighbour may be lost."""
    texts = [[packet(random.Random(seed), 200, decoys=False) for seed in range(first, first + 30)] for first in (0, 99)]
    sent = conversation(random.Random(1), *map(b"".join, texts), largest=200, closed=False)
    frames = [summed(s.frame()) for s in sent]
    place = [i for i, s in enumerate(sent) if s.payload and not s.by_server][5]
    path = tmp_path / "x.pcap"
    lost = {}
    for bit in range(8 * low, 8 * (low + 9)):
        if bit == 8 * 47 + 7:  # FIN: what follows one is no part of the stream (AFTER_FIN)
            continue
        wrong = bytearray(frames[place])
        wrong[bit // 8] ^= 0x80 >> bit % 8
        path.write_bytes(wiretap.pcap(wiretap.records([*frames[:place], bytes(wrong), *frames[place + 1 :]])))
        found = ingest([path], WHOLE)
        balance(found)
        for packets, source in zip(texts, (wiretap.CLIENT, wiretap.SERVER), strict=True):
            missing = (Counter(packets) - Counter(found.framed(source))).total()
            if missing > 2:
                lost[bit // 8, bit % 8, source] = missing
    assert lost == {}


def main() -> None:
    """Check as many captures as are asked for and print what does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captures", type=int)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    last = asked.first + asked.captures
    chunks = [range(low, min(low + 500, last)) for low in range(asked.first, last, 500)]
    begun = time.monotonic()
    count = failed = 0
    tallies: dict[str, Tally] = defaultdict(lambda: NOTHING)
    with multiprocessing.Pool(asked.processes) as pool:
        for chunk, (failures, by_kind) in zip(chunks, pool.imap(trouble, chunks), strict=True):
            count += len(chunk)
            failed += len(failures)
            for kind, tally in by_kind.items():
                tallies[kind] = Tally(*map(sum, zip(tallies[kind], tally, strict=True)))
            print(*failures, sep="\n", end="\n" * bool(failures), flush=True)  # noqa: T201
    seconds = time.monotonic() - begun
    for kind, tally in sorted(tallies.items()):
        print(f"{kind}: {tally.sent} packets sent, {tally.demanded} demanded, {tally.found} found")  # noqa: T201
    print(f"{count} captures, {failed} failures, {count / seconds:.0f} a second")  # noqa: T201
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
