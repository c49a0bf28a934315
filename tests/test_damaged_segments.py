"""Segments with a wrong TCP checksum, where few are: their bytes are kept, and make no other message of a resend."""

import shutil
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from histories import History, differences
from pipeline import WHOLE, ingest_more
from test_carry import same, written
from test_offsets import records_of
from warehouses import derived
from wiretap import ACK, CLIENT, SERVER, Sent, ethernet, handshake, ipv4, msmq, pcap, records, tcp

from jobs.engines.in_process import InProcess
from jobs.simulator import simulate
from schemas.ingest import CAPTURES, PACKETS
from schemas.messages import MESSAGES
from udfs.frames.derivation import Frames
from udfs.frames.tables import schema_of
from udfs.replay.order.damaged import mend

BEGAN = datetime(2026, 3, 2, 8, tzinfo=UTC)

# --- a night ----------------------------------------------------------------------------------------------------------


class Night(NamedTuple):
    """Simulated captures, and the tables of them."""

    captures: list[Path]
    tables: Frames


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    folder = tmp_path_factory.mktemp("night")
    simulate(str(folder), 7301, 300, situations=True)
    return Night(sorted(folder.glob("*.pcap")), derived(folder / "*.pcap"))


def damage_a_resend(night: Night, folder: Path) -> str:
    """Copies a night, and turns a bit in the label of a message that was accepted and sent again; returns its ID."""
    tables = night.tables
    verdicts = tables["verdicts"].filter(pl.col("label").str.len_chars() > 20)
    slot = ("scope_key", "tx_sequence_id", "tx_sequence_number")
    again = verdicts.filter(pl.len().over(slot) > 1, pl.col("content_hash").n_unique().over(slot) == 1)
    first = again.filter("accepted").sort("captured_ns", "first_frame").row(0, named=True)
    for capture in night.captures:
        shutil.copy(capture, folder)
    of_first = pl.col("capture_id") == first["capture_id"]
    capture = folder / Path(tables["captures"].row(by_predicate=of_first, named=True)["uri"]).name
    data = bytearray(capture.read_bytes())
    begins = len(data) - len(b"".join(records_of(bytes(data))[first["first_frame"] - 1 :]))
    data[data.index(first["label"].encode("utf-16-le"), begins)] ^= 1
    capture.write_bytes(data)
    return str(first["message_id"])


def told(tables: Frames) -> list[Any]:
    """Outcomes and causes, without what the bytes of a label say."""
    outcomes = tables["outcomes"].select("message_id", "tx_sequence_number", "outcome", "arrivals").rows()
    return [sorted(outcomes, key=str), tables["incidents"]["cause"].sort().to_list()]


def test_a_resend_whose_first_arrival_is_damaged_is_no_other_message(
    night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = damage_a_resend(night, tmp_path)
    tables = derived(tmp_path / "*.pcap")
    assert tables["captures"]["damaged_count"].sum() == 1
    assert named in tables["messages"].filter("damaged")["message_id"].to_list()
    assert told(tables) == told(night.tables)
    monkeypatch.setattr("udfs.replay.order.conversations.restored", lambda _, sources: sources.messages)
    assert told(derived(tmp_path / "*.pcap")) != told(night.tables)


@pytest.mark.slow
def test_a_night_after_the_damaged_one_mends_it(night: Night, tmp_path: Path) -> None:
    damage_a_resend(night, tmp_path)
    nights, captures = History(), sorted(tmp_path.glob("*.pcap"))
    for many in (1, 2, len(captures)):
        found = nights.night(*captures[:many])
    assert list(differences(found, History().night(*captures))) == []


# --- packets ----------------------------------------------------------------------------------------------------------


def sent(seq: int, payload: bytes, *, is_damaged: bool = False) -> bytes:
    segment = tcp(payload, seq=seq, ack=5001)
    packet = bytearray(ipv4(segment, hosts=(CLIENT, SERVER), sums=True))
    packet[-1] ^= is_damaged
    return ethernet(bytes(packet))


def test_packets_with_bytes_of_a_damaged_segment_say_so_also_where_a_capture_ends_within_one(tmp_path: Path) -> None:
    data = msmq(60) * 4 + msmq(300) + msmq(60)
    cuts = [0, 60, 120, 180, 240, 300, 400, 540, 600]
    segments = [sent(1001 + low, data[low:high], is_damaged=low == 300) for low, high in pairwise(cuts)]
    opening = [one.frame() for one in handshake(1000, 5000)]
    captures = [pcap(records([*opening, *segments[:6]])), pcap(records(segments[6:]))]
    same(tmp_path, captures)
    engine = InProcess()
    ingest_more(engine, written(tmp_path, captures), WHOLE)
    packets = engine.read(PACKETS).sort("stream_offset")
    assert packets["stream_offset"].to_list() == [0, 60, 120, 180, 240, 540]
    assert packets["damaged"].to_list() == [None] * 4 + [True, None]


@pytest.mark.parametrize(("wrong", "found"), [(1, 1), (2, 2), (3, 0), (8, 0)])
def test_many_wrong_checksums_in_a_capture_are_no_damage(tmp_path: Path, wrong: int, found: int) -> None:
    """Addresses were rewritten there, or several segments made one: of ten, a fourth may be wrong."""
    data = msmq(60) * 8
    segments = [sent(1001 + at, data[at : at + 60], is_damaged=at < 60 * wrong) for at in range(0, 480, 60)]
    opening = [one.frame() for one in handshake(1000, 5000)][:2]
    engine = InProcess()
    ingest_more(engine, written(tmp_path, [pcap(records([*opening, *segments]))]), WHOLE)
    packets, captures = engine.read(PACKETS), engine.read(CAPTURES)
    assert packets.height == 8
    assert (captures["segment_count"].sum(), captures["damaged_count"].sum()) == (10, found)
    assert packets["damaged"].sum() == found


def test_a_valid_copy_of_a_damaged_segment_counts(tmp_path: Path) -> None:
    data = msmq(60) * 5
    segments = [sent(1001 + at, data[at : at + 60], is_damaged=at == 120) for at in range(0, 300, 60)]
    again = [sent(1121, data[120:180]), Sent(True, 5001, 1301, ACK).frame()]
    engine = InProcess()
    opening = [one.frame() for one in handshake(1000, 5000)]
    ingest_more(engine, written(tmp_path, [pcap(records([*opening, *segments, *again]))]), WHOLE)
    packets = engine.read(PACKETS)
    assert packets["damaged"].null_count() == packets.height == 5


# --- which message a damaged one is -----------------------------------------------------------------------------------


def arrival(at: int, *, damaged: bool | None = None, number: int = 4, **fields: Any) -> dict[str, Any]:
    one = {
        "stream_id": "10.0.0.1:50000>10.0.0.9:1801#0",
        "stream_offset": at,
        "source_queue_manager": "q",
        "destination_queue": "d",
    }
    one |= {"tx_sequence_id": 9, "tx_sequence_number": number, "message_id": "q\\4", "sent_at": BEGAN}
    return one | {"body_crc32": 1, "label": "order 4", "damaged": damaged} | fields


@pytest.mark.parametrize(
    ("others", "mended"),
    [
        ([], None),
        ([arrival(0)], 1),
        ([arrival(0), arrival(20)], 1),
        ([arrival(0, message_id="q\\5")], 1),
        ([arrival(0, sent_at=None)], 1),
        ([arrival(0, message_id="q\\5", sent_at=None)], None),  # nothing says that it is the same
        ([arrival(0, number=5)], None),
        ([arrival(0, destination_queue="e")], 1),
        ([arrival(0, destination_queue="e", sent_at=None)], None),
        ([arrival(0, stream_id="[fd00::1]:50000>[fd00::9]:1801#0")], None),  # another machine with this identity
        ([arrival(0), arrival(20, stream_id="10.0.0.2:50000>10.0.0.9:1801#0", body_crc32=2)], 1),
        ([arrival(0), arrival(20, body_crc32=2)], None),  # it may be either
        ([arrival(0, damaged=True)], None),
    ],
)
def test_a_damaged_message_has_the_content_of_the_undamaged_one_that_it_is(
    others: list[dict[str, Any]], mended: int | None
) -> None:
    rows = pl.DataFrame([arrival(10, damaged=True, body_crc32=77, label="ordeq 4"), *others], schema_of(MESSAGES.arrow))
    found = mend(rows).filter(pl.col("stream_offset") == 10)
    expected = [] if mended is None else [(mended, "order 4")]
    assert found.select("body_crc32", "label").rows() == expected
