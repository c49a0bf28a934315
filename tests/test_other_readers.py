"""The table in docs/other-readers.md, measured: what this project and others make of the same captures."""

import gzip
import random
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import wiretap
from oracle import Key, summed
from pipeline import WHOLE, ingest
from readers import READERS, tshark_dissected, version
from tiers import merge_needs
from wiretap import ACK, CLIENT, PSH, SERVER, Record, Sent, goodbye, handshake, msmq, pcap, pcap_record

PAGE = Path(__file__).parents[1] / "docs" / "other-readers.md"
KEY: Key = (CLIENT, 50_000, SERVER, 1801)
ISN, STEP = 1000, 200
OURS = "msmq-replay"


class Case(NamedTuple):
    """A capture; what the client sent on each connection; where what it sent is not captured."""

    data: bytes
    texts: list[bytes]
    missing: list[tuple[int, int]]
    second: bytes | None = None
    """The stream as it would be if later copies of bytes won."""
    ends: int | None = None
    """Bytes in records that are whole, when the file ends before the stream does."""


def packets(seed: int) -> bytes:
    rng = random.Random(seed)
    return b"".join(msmq(size := rng.randrange(100, 500), rng.randbytes(size - 16)) for _ in range(12))


TEXT = packets(1)
CUTS = range(0, len(TEXT), STEP)


def segment(number: int, text: bytes = TEXT, isn: int = ISN) -> Sent:
    """So many bytes of the stream, from the client."""
    at = number * STEP
    return Sent(False, isn + 1 + at, 5001, ACK | PSH, text[at : at + STEP])


def answer(number: int, size: int, isn: int = ISN) -> Sent:
    """The server's acknowledgment of everything before that segment."""
    return Sent(True, 5001, isn + 1 + min(number * STEP, size), ACK)


def talk(order: Iterable[int], *, isn: int = ISN, text: bytes = TEXT) -> list[Sent]:
    """A connection whose segments are captured in this order, each answered as a receiver would."""
    sent = handshake(isn, 5000)
    there: set[int] = set()
    for number in order:
        there.add(number)
        expected = next(i for i in range(len(text)) if i not in there)
        sent += [segment(number, text, isn), answer(expected, len(text), isn)]
    return [*sent, *goodbye(isn + 1 + len(text), 5001)]


def frames(sent: Iterable[Sent]) -> list[bytes]:
    return [summed(s.frame()) for s in sent]


def captured(sent: Iterable[Sent]) -> bytes:
    return pcap(wiretap.records(frames(sent)))


ALL = list(range(len(CUTS)))
CLEAN = talk(ALL)


def without(*numbers: int) -> list[Sent]:
    """The connection, with some segments that the capture did not see."""
    lost = {segment(number) for number in numbers}
    return [s for s in CLEAN if s not in lost]


def overlapping() -> Case:
    """A segment again with other bytes, before anything acknowledged the first."""
    other = segment(4)._replace(payload=bytes(byte ^ 1 for byte in segment(4).payload))
    place = CLEAN.index(segment(4))
    second = TEXT[: 4 * STEP] + other.payload + TEXT[5 * STEP :]
    return Case(captured([*CLEAN[: place + 1], other, *CLEAN[place + 1 :]]), [TEXT], [], second)


def snapped() -> Case:
    most = 54 + 150
    data = pcap([Record(f[:most], original=len(f)) for f in frames(CLEAN)], snap=most)
    return Case(data, [TEXT], [(at + 150, min(STEP, len(TEXT) - at) - 150) for at in CUTS if len(TEXT) - at > 150])


def cut() -> Case:
    """The file ends inside the record of segment 5, so that nothing behind it was captured."""
    whole = [pcap_record(r) for r in wiretap.records(frames(CLEAN))]
    place = CLEAN.index(segment(5))
    data = wiretap.pcap_header() + b"".join(whole[:place]) + whole[place][:100]
    return Case(data, [TEXT], [], ends=5 * STEP)


def sections(order: str) -> Case:
    """Two pcapng files one behind the other, the second in this byte order."""
    half = len(CLEAN) // 2
    records = wiretap.records(frames(CLEAN))
    return Case(wiretap.pcapng(records[:half]) + wiretap.pcapng(records[half:], order=order), [TEXT], [])


def reused() -> Case:
    again = packets(2)[: len(TEXT)].ljust(len(TEXT), b"\1")
    return Case(captured([*CLEAN, *talk(ALL, isn=700_000, text=again)]), [TEXT, again], [])


CASES: dict[str, Callable[[], Case]] = {
    "clean": lambda: Case(captured(CLEAN), [TEXT], []),
    "two segments swapped": lambda: Case(captured(talk([0, 1, 3, 2, *ALL[4:]])), [TEXT], []),
    "lost on the way, captured behind the loss": lambda: Case(captured(talk([0, 1, 3, 4, 5, 2, *ALL[6:]])), [TEXT], []),
    "lost on the way, captured before the loss": lambda: Case(
        captured(talk([0, 1, 2, 3, 4, 5, 2, *ALL[6:]])), [TEXT], []
    ),
    "missed by the capture": lambda: Case(captured(without(4, 5)), [TEXT], [(4 * STEP, 2 * STEP)]),
    "every frame twice": lambda: Case(captured(s for s in CLEAN for _ in range(2)), [TEXT], []),
    "the same bytes again, but others": overlapping,
    "begun inside a connection": lambda: Case(captured(CLEAN[9:]), [TEXT[3 * STEP :]], []),
    "frames cut (snaplen)": snapped,
    "gzip": lambda: Case(gzip.compress(captured(CLEAN), mtime=0), [TEXT], []),
    "file cut inside a record": cut,
    "pcapng of two sections": lambda: sections("<"),
    "pcapng of two byte orders": lambda: sections(">"),
    "ports used again": reused,
}


# --- what is made of them ---------------------------------------------------------------------------------------------


def called(case: Case, streams: Sequence[bytes]) -> str:
    """The word for what a reader made of a case."""
    out = b"".join(streams)
    text = b"".join(case.texts)
    glued, zeros = bytearray(text), bytearray(text)
    for at, length in reversed(case.missing):
        del glued[at : at + length]
        zeros[at : at + length] = bytes(length)
    unmarked = re.sub(rb"\[\d+ bytes missing in capture file\]\0?", b"", out)
    if case.missing and out != unmarked and unmarked == glued:
        return "reported"
    if not case.missing and list(streams) == case.texts:
        return "all"
    words = [("nothing", b""), ("joined", text), ("glued", glued), ("zeros", zeros), ("second copy", case.second)]
    for word, meant in words:
        if out == meant:
            return word
    if text.startswith(out):
        return "stops"
    if len(out) > len(text):
        return "repeated"
    return "wrong order" if sorted(out) == sorted(text) else "other"


def ours(case: Case, capture: Path) -> str:
    """The word for what this project makes of it."""
    found = ingest([capture], WHOLE)
    ids = [row["stream_id"] for row in found.streams if row["src_ip"] == CLIENT]
    streams = []
    gaps = []
    for stream_id in ids:
        rows = [row for row in [*found.packets, *found.quarantine] if row["stream_id"] == stream_id]
        streams.append(b"".join(row["raw"] for row in sorted(rows, key=lambda row: int(row["stream_offset"]))))
        gaps += [(row["stream_offset"], row["length"]) for row in found.gaps if row["stream_id"] == stream_id]
    assert gaps == case.missing
    conflict = any(row["conflict"] for row in found.streams)
    assert conflict is (case.second is not None)
    partial = found.captures[0]["status"] == "partial"
    assert partial is (case.ends is not None)
    if case.missing:
        assert called(case, streams) == "glued"  # the bytes there are, and the gaps besides
        return "reported"
    return called(case, streams) + (", reported" if conflict or partial else "")


def dns(number: int, rng: random.Random) -> bytes:
    """A DNS message over TCP: its length, a header with its number, one record of any bytes [RFC 1035 4.1, 4.2.2]."""
    content = rng.randbytes(rng.randrange(100, 400))
    message = struct.pack(">HHHHHH", number, 0x8400, 0, 1, 0, 0) + struct.pack(">BHHIH", 0, 10, 1, 0, len(content))
    return struct.pack(">H", len(message + content)) + message + content


MESSAGES = [dns(number, random.Random(number)) for number in range(12)]
ORDERS: dict[str, tuple[list[int], set[int]]] = {  # how the first segments are captured, and which are missed
    "clean": ([], set()),
    "two segments swapped": ([0, 1, 3, 2], set()),
    "lost on the way, captured behind the loss": ([0, 1, 3, 4, 5, 2], set()),
    "lost on the way, captured before the loss": ([0, 1, 2, 3, 4, 5, 2], set()),
    "missed by the capture": ([], {4, 5}),
    "every fifth missed by the capture": ([], {4, 9, 14}),
}


def dissected(case: str, folder: Path, *, out_of_order: bool) -> str:
    """How many messages tshark's dissectors find in a case, of how many that were captured whole."""
    text = b"".join(MESSAGES)
    order, missed = ORDERS[case]
    every = range(-(-len(text) // STEP))
    sent = talk([*order, *(n for n in every if n not in order)], text=text)
    missing = {segment(number, text) for number in missed}
    path = folder / "dns.pcap"
    path.write_bytes(captured(s for s in sent if s not in missing))
    whole = at = 0
    for message in MESSAGES:
        whole += not missed & {*range(at // STEP, (at + len(message) - 1) // STEP + 1)}
        at += len(message)
    return f"{tshark_dissected(path, out_of_order=out_of_order)} of {whole}"


@cache
def table(first: str = "case") -> dict[str, dict[str, str]]:
    """A table of the page, by row and column; `first` is the head of its first column."""
    lines = PAGE.read_text().split(f"| {first} |", 1)[1].split("\n\n", 1)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(rows[0], row[1:], strict=True)) for row in rows[2:]}


def test_the_page_has_every_case_and_every_reader() -> None:
    assert list(table()) == list(CASES)
    assert all(list(row) == [OURS, *READERS] for row in table().values())


@pytest.mark.parametrize("case", CASES)
def test_this_project_does_what_the_page_says(case: str, tmp_path: Path) -> None:
    made = CASES[case]()
    path = tmp_path / "x.pcap"
    path.write_bytes(made.data)
    assert ours(made, path) == table()[case][OURS]


def needs(tool: str) -> None:
    """Skip where the tool is not there, or not as the page knows it."""
    there = version(tool)
    if there is None:
        pytest.skip(f"needs {tool}")
    if f"{tool} {there}" not in PAGE.read_text():
        pytest.skip(f"the page speaks of another {tool} than {there}")


@pytest.mark.parametrize("reader", merge_needs([name for name in READERS if "tshark" not in name], READERS))
def test_other_readers_do_what_the_page_says(reader: str, tmp_path: Path) -> None:
    tool, read = READERS[reader]
    if tool is not None:
        needs(tool)
    measured = {}
    for number, (name, make) in enumerate(CASES.items()):
        case = make()
        path = tmp_path / f"{number}.pcap{'.gz' * (name == 'gzip')}"
        path.write_bytes(case.data)
        measured[name] = called(case, read(path).get(KEY, []))
    assert measured == {name: row[reader] for name, row in table().items()}


@pytest.mark.slow
def test_dissectors_find_as_many_messages_as_the_page_says(tmp_path: Path) -> None:
    needs("tshark")
    ways = {"tshark": False, "tshark, out of order": True}
    measured = {
        case: {name: dissected(case, tmp_path, out_of_order=way) for name, way in ways.items()} for case in ORDERS
    }
    assert measured == table("messages dissected")
