"""Conversations captured twice, clocks that step back or differ: against literals and a second computation."""

from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import plain_clock
import plain_copies
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from jobs.engine.in_process import InProcess
from jobs.replaying import conversations
from jobs.replaying.conversations import Conversations, Copies, unite
from jobs.replaying.sources import Sources
from schemas.ingest import CAPTURES, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES, SESSION_ACKS
from schemas.pings import PINGS
from schemas.replay import ENDS, STATES, VERDICTS
from schemas.table import Table
from udfs.derive.conversations import clocks, copies, packets, places, united
from udfs.derive.frames import to_arrow, to_frame

Row = dict[str, Any]
SECOND = 1_000_000_000
T0 = 1_700_000_000 * SECOND
TABLES = {
    "messages": MESSAGES,
    "streams": STREAMS,
    "stream_gaps": STREAM_GAPS,
    "quarantine": QUARANTINE,
    "acks": ACKS,
    "handshakes": HANDSHAKES,
}
OTHERS = {
    "packets": PACKETS,
    "session_acks": SESSION_ACKS,
    "pings": PINGS,
    "states_before": STATES,
    "ends_before": ENDS,
}
NARROW = {
    "stream_id": pl.String,
    "stream_offset": pl.Int64,
    "captured_ns": pl.Int64,
    "capture_id": pl.String,
    "last_frame": pl.Int64,
}


def frame(table: Table, rows: list[Row]) -> pl.DataFrame:
    """Returns rows with all columns of a table."""
    types = to_frame(table.arrow.empty_table()).schema
    stamps = {name: kind for name, kind in types.items() if kind == pl.Datetime}
    written = pl.DataFrame(rows, {**types, **dict.fromkeys(stamps, pl.Int64)})
    return written.with_columns(pl.col(name).cast(kind) for name, kind in stamps.items())


class Given(NamedTuple):
    """The tables that are united."""

    messages: pl.DataFrame
    streams: pl.DataFrame
    stream_gaps: pl.DataFrame
    quarantine: pl.DataFrame
    acks: pl.DataFrame
    handshakes: pl.DataFrame


class United:
    """The tables with each conversation once, and what is known of copies, as frames."""

    def __init__(self, once: Conversations[pa.Table]) -> None:
        self.once = once
        self.messages, self.streams = to_frame(once.messages), to_frame(once.streams)
        self.stream_gaps, self.quarantine = to_frame(once.stream_gaps), to_frame(once.quarantine)
        self.acks, self.handshakes = to_frame(once.acks), to_frame(once.handshakes)
        self.steps = None if once.steps is None else to_frame(once.steps)
        found = once.found
        self.copies = None if found is None else to_frame(found.copies).select("stream_id", "copy_of", "ahead")
        self.placed = None if found is None else to_frame(found.placed)
        self.skews = None if found is None or found.skews is None else to_frame(found.skews)

    def restore(self, verdicts: pl.DataFrame) -> pl.DataFrame:
        """Returns VERDICTS as they are written."""
        return through(self.once.restore, verdicts)

    def every_end(self, ends: pl.DataFrame) -> pl.DataFrame:
        """Returns ENDS with those of copies."""
        return through(self.once.every_end, ends)

    def counted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns the rows that count."""
        return through(self.once.counted, rows)


def through(work: Callable[..., pa.Table], *frames: pl.DataFrame) -> pl.DataFrame:
    """Returns what some work over Arrow tables makes of frames."""
    return to_frame(work(*map(to_arrow, frames)))


def renamed(united: United, streams: pl.DataFrame) -> pl.DataFrame | None:
    """Returns the rows of STREAMS that are to be changed."""
    found = united.once.renamed_copies(to_arrow(streams))
    return None if found is None else to_frame(found)


class Scene:
    """Rows of the tables that are united, as dictionaries; times are in us."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {name: [] for name in TABLES}

    def connection(
        self, name: str, host: str, *, begun: tuple[int | None, int | None] = (7, 8), **columns: Any
    ) -> None:
        """Adds a connection from a host to 10.0.0.9, both streams; `begun` are their initial sequence numbers."""
        for end, src, dst, seq in ((">", host, "10.0.0.9", begun[0]), ("<", "10.0.0.9", host, begun[1])):
            row = {"stream_id": name + end, "connection_id": name, "src_ip": src, "dst_ip": dst, "initial_seq": seq}
            row |= {"from_initiator": end == ">", "mid_stream": seq is None, "closed": False}
            row |= {"recovered_bytes": 1000, "missing_bytes": 0, "copy_of": None, "attempt": None, "acked_bytes": None}
            row |= {"first_captured_at": T0 // 1000, "last_captured_at": T0 // 1000}
            self.rows["streams"].append(row | columns)

    def established(self, name: str, client: str, booted_ms: int, **columns: Any) -> None:
        """Adds an EstablishConnection and its response."""
        for end in "><":
            row = {"stream_id": name + end, "stream_offset": 0, "captured_ns": T0, "client_guid": client}
            row |= {"handshake_type": "establish_connection", "time_stamp_ms": booted_ms, "capture_id": None}
            self.rows["handshakes"].append(row | {"last_frame": 1} | columns)

    def message(self, stream: str, offset: int, ns: int, number: int, capture: str, **columns: Any) -> None:
        """Adds a message with a number."""
        row = {"stream_id": stream, "stream_offset": offset, "captured_ns": ns, "capture_id": capture, "last_frame": 1}
        row |= {"message_id": f"source\\{number}", "tx_sequence_id": 1 << 63, "tx_sequence_number": number}
        row |= {"previous_tx_sequence_number": number - 1, "source_queue_manager": "source", "transactional": True}
        self.rows["messages"].append(row | columns)

    def ack(self, stream: str, offset: int, ns: int, number: int, capture: str, **columns: Any) -> None:
        """Adds an OrderAck of a number."""
        row = {"stream_id": stream, "stream_offset": offset, "captured_ns": ns, "capture_id": capture, "last_frame": 1}
        row |= {"ack_type": "order_ack", "source_queue_manager": "receiver", "tx_sequence_id": 1 << 63}
        self.rows["acks"].append(row | {"tx_sequence_number": number, "acknowledged_message_id": None} | columns)

    def unread(self, stream: str, offset: int, length: int, stage: str | None = None) -> None:
        """Adds a range of bytes that is missing, or in quarantine from a stage."""
        row = {"stream_id": stream, "stream_offset": offset, "length": length}
        self.rows["quarantine" if stage else "stream_gaps"].append(row | ({"stage": stage} if stage else {}))

    @property
    def tables(self) -> Given:
        """The rows as frames."""
        messages, streams, gaps, quarantine, acks, handshakes = (
            frame(TABLES[name], self.rows[name]) for name in TABLES
        )
        return Given(messages, streams, gaps, quarantine, acks, handshakes)

    def unite(self, **steps: list[tuple[int, int]]) -> United:
        """Returns the united tables; `steps` are record and step of captures' clocks."""
        given = {name: to_arrow(rows) for name, rows in self.tables._asdict().items()}
        given |= {name: table.arrow.empty_table() for name, table in OTHERS.items()}
        return United(unite(InProcess(), Sources(**given, captures=to_arrow(captures(**steps)))))


def captures(**steps: list[tuple[int, int]]) -> pl.DataFrame:
    """Returns CAPTURES with these steps of their clocks."""
    rows = [
        {"capture_id": name, "clock_steps": [{"frame": frame, "step_ns": step_ns} for frame, step_ns in found] or None}
        for name, found in steps.items()
    ]
    return frame(CAPTURES, rows)


def both_ends() -> Scene:
    """One conversation of five messages, of which each end lacks some; the near end's clock is 7 s ahead."""
    scene = Scene()
    for end, host, late, lacking in (("far", "10.0.0.1", 0, (3,)), ("near", "192.168.0.1", 7, (2, 4))):
        missing = 100 * len(lacking)
        begun_at = T0 // 1000 + late * 1_000_000
        size = {"missing_bytes": missing, "recovered_bytes": 500 - missing}
        scene.connection(end, host, begun=(7, 8), first_captured_at=begun_at, **size)
        scene.established(end, "client", 5)
        for at in range(5):
            if at in lacking:
                scene.unread(f"{end}>", 100 * at, 100)
            else:
                scene.message(f"{end}>", 100 * at, T0 + (at + late) * SECOND, at + 1, end)
    return scene


def rows(found: pl.DataFrame | None, *columns: str) -> list[tuple[Any, ...]]:
    """Returns the rows of a frame in order, of some of its columns."""
    assert found is not None
    return sorted(found.select(columns or found.columns).rows(), key=repr)


def test_one_end_fills_what_the_other_lacks() -> None:
    once = both_ends().unite()
    assert rows(once.copies) == [("near<", "far<", 0), ("near>", "far>", 0)]
    assert rows(once.placed) == [("far>", 300, "near>", 300, 7 * SECOND)]
    assert rows(once.messages, "stream_id", "stream_offset", "captured_ns") == [
        ("far>", 100 * at, T0 + at * SECOND) for at in range(5)
    ]
    assert once.messages.columns == MESSAGES.names
    assert once.stream_gaps.is_empty()
    assert rows(once.streams, "stream_id", "recovered_bytes", "missing_bytes") == [("far<", 500, 0), ("far>", 500, 0)]
    assert rows(once.skews) == [("far", "near", 7 * SECOND)]
    assert rows(once.handshakes, "stream_id") == [("far<",), ("far<",), ("far>",), ("far>",)]


def test_verdicts_lead_back_to_the_rows_of_both_ends() -> None:
    scene = both_ends()
    once = scene.unite()
    given = [{"acknowledged_at": row["captured_ns"] // 1000} for row in once.messages.rows(named=True)]
    judged = frame(VERDICTS, given).with_columns(once.messages.select(*NARROW))
    restored = once.restore(judged)
    assert restored.columns == judged.columns
    assert rows(restored, "stream_id", "stream_offset", "captured_ns") == [
        ("far>", 0, T0),
        ("far>", 100, T0 + SECOND),
        ("far>", 200, T0 + 2 * SECOND),
        ("far>", 400, T0 + 4 * SECOND),
        ("near>", 300, T0 + 10 * SECOND),
    ]
    assert (restored["acknowledged_at"].dt.timestamp("us") * 1000 == restored["captured_ns"]).all()
    counted = once.counted(scene.tables.messages)
    assert rows(counted, "stream_id", "stream_offset") == rows(restored, "stream_id", "stream_offset")


def test_ends_of_copies_are_those_of_the_streams_that_count() -> None:
    once = both_ends().unite()
    columns = ["stream_id", "connection_id", "copy_of", "address", "session_id", "first_ns", "missing_bytes"]
    peers = frame(
        ENDS,
        [
            {"stream_id": "far>", "connection_id": "far", "session_id": "a->b", "first_ns": T0},
            {"stream_id": "alone>", "connection_id": "alone", "session_id": "c->d", "first_ns": T0},
        ],
    ).select(columns)
    assert rows(once.every_end(peers).filter(pl.col("copy_of").is_not_null())) == [
        ("near>", "near", "far>", "192.168.0.1", "a->b", T0 + 7 * SECOND, 200)
    ]
    assert once.every_end(peers).height == 3


def test_copies_are_named_and_earlier_names_are_taken_back() -> None:
    scene = both_ends()
    streams = scene.tables.streams
    assert rows(renamed(scene.unite(), streams), "stream_id", "copy_of") == [("near<", "far<"), ("near>", "far>")]
    named = streams.with_columns(copy_of=pl.when(stream_id="near>").then(pl.lit("far>")).otherwise(pl.lit("old")))
    assert rows(renamed(scene.unite(), named), "stream_id", "copy_of") == [
        ("far<", None),
        ("far>", None),
        ("near<", "far<"),
    ]
    assert renamed(Scene().unite(), streams) is None
    alone = Scene()
    alone.connection("one", "10.0.0.1", copy_of="other>")
    forgotten = renamed(alone.unite(), named)
    assert rows(forgotten, "copy_of") == [(None,)] * 4
    assert forgotten is not None
    assert forgotten.columns == STREAMS.names


def test_nothing_is_suspected_of_one_capture() -> None:
    scene = Scene()
    scene.connection("one", "10.0.0.1")
    scene.established("one", "client", 5)
    scene.message("one>", 0, T0, 1, "c")
    scene.unread("one>", 500, 10)
    once = scene.unite(c=[])
    assert (once.copies, once.steps, once.once.had_copies) == (None, None, False)
    for name in ("messages", "stream_gaps", "quarantine", "acks", "handshakes"):
        assert_frame_equal(getattr(once, name), getattr(scene.tables, name))
    alone, table = once.once, once.once.messages
    assert alone.every_end(table) is table
    assert alone.counted(table) is table
    assert alone.in_time(table) is table
    assert alone.restore(table) is table


@pytest.mark.parametrize(("columns", "had_copies"), [({}, False), ({"copy_of": "other>"}, True)])
def test_one_look_says_what_there_is_to_do(columns: Row, had_copies: bool) -> None:
    scene = Scene()
    scene.connection("one", "10.0.0.1", **columns)
    tables = scene.tables
    found = united.suspect(tables.streams, tables.handshakes, captures(c=[(5, -SECOND)]))["suspicions"]
    assert set(found["suspicion"]) == {"clock_steps"} | ({"had_copies"} if had_copies else set())


def test_no_rows_give_no_rows() -> None:
    engine, tables = InProcess(), {name: to_arrow(rows) for name, rows in Scene().tables._asdict().items()}
    packets = {name: tables[name] for name in ("messages", "acks")}
    given = {"streams": tables["streams"], "handshakes": tables["handshakes"], "captures": to_arrow(captures())}
    looked = engine.derive(conversations.SUSPECT, **given)
    assert not looked["suspicions"].num_rows
    numbered = engine.derive(conversations.NUMBERED, vague=looked["vague"], **packets)
    holding = engine.one(conversations.HOLDERS, packets=numbered["packets"])
    asked = {"asked": numbered["asked"], "holding": holding}
    found = engine.derive(conversations.WAYS, connections=looked["connections"], **asked)
    compared = engine.join(numbered["packets"], found["compared"], ["stream_id"])
    pairs = engine.one(conversations.SAME_PACKETS, ways=found["ways"], packets=compared)
    assert pairs.schema == looked["alike"].schema
    chosen = engine.derive(conversations.CHOOSE, pairs=pairs, connections=looked["connections"])
    tables |= {"copies": chosen["copies"], "streams": looked["streams"]}
    of_groups = {name: engine.join(rows, chosen["groups"], ["stream_id"]) for name, rows in tables.items()}
    made = engine.derive(conversations.UNITE, **of_groups)
    skews = engine.one(conversations.SKEWS, differences=made["differences"])
    assert not any(rows.num_rows for rows in (pairs, skews, *chosen.values(), *made.values()))
    for name in ("streams", "handshakes"):
        assert made[name].schema == tables[name].schema
    sides = engine.one(conversations.SIDES, shown=tables["messages"].select(["stream_id", "capture_id"]), skews=skews)
    assert not sides.num_rows
    places = clocks.places_in_time(to_frame(tables["messages"]), to_frame(looked["steps"]))
    assert clocks.streams_in_time(to_frame(looked["streams"]), places).is_empty()


def test_packets_are_equal_in_what_identifies_them() -> None:
    scene = Scene()
    for stream in ("a>", "b>"):
        scene.message(stream, 0, T0, 1, "c", message_id=None)
        scene.message(stream, 100, T0, 1, "c", message_id=None, tx_sequence_id=None)
        scene.ack(stream, 200, T0, 1, stream)
    scene.ack("b>", 300, T0, 1, "c", acknowledged_message_id="source\\1")
    tables = scene.tables
    found = packets.identify_packets(tables.messages, tables.acks)
    alike = found.group_by("packet").agg(pl.struct("stream_id", "stream_offset"))
    groups = sorted(sorted((row["stream_id"], row["stream_offset"]) for row in of) for _, of in alike.rows())
    assert groups == [[("a>", at), ("b>", at)] for at in (0, 100, 200)] + [[("b>", 300)]]
    parts = [packets.identify_packets(tables.messages[at : at + 1], tables.acks.clear()) for at in range(4)]
    assert_frame_equal(pl.concat(parts), found[:4])


def vague(name: str, host: str, numbers: range, scene: Scene, **columns: Any) -> None:
    """Adds a connection captured in mid-stream, with messages of 100 bytes."""
    scene.connection(name, host, begun=(None, None), **columns)
    for at, number in enumerate(numbers):
        scene.message(f"{name}>", 100 * at, T0 + number * SECOND, number, name)


@pytest.mark.parametrize(("common", "copied"), [(6, True), (5, False)])
def test_more_than_half_of_the_packets_make_a_copy(common: int, copied: bool) -> None:
    scene = Scene()
    vague("near", "192.168.0.1", range(1, 11), scene, recovered_bytes=900)
    vague("far", "10.0.0.1", range(11 - common, 21 - common), scene)
    once = scene.unite()
    assert (once.copies is not None) is copied
    if copied:
        assert rows(once.copies) == [("near<", "far<", None), ("near>", "far>", 400)]


def test_resends_between_the_same_addresses_are_no_copies() -> None:
    scene = Scene()
    vague("first", "10.0.0.1", range(1, 11), scene)
    vague("second", "10.0.0.1", range(1, 11), scene)
    vague("elsewhere", "10.0.0.2", range(50, 60), scene)
    assert scene.unite().copies is None


def test_one_packet_suffices_where_the_sequence_numbers_are_known() -> None:
    scene = Scene()
    for name, host, numbers in (("near", "192.168.0.1", (1, 2, 3)), ("far", "10.0.0.1", (3, 4, 5, 6))):
        scene.connection(name, host, recovered_bytes=100 * len(numbers))
        for number in numbers:
            scene.message(f"{name}>", 100 * number, T0, number, name)
    once = scene.unite()
    assert rows(once.copies) == [("near<", "far<", 0), ("near>", "far>", 0)]


def test_a_copy_of_a_copy_is_one_of_the_stream_that_counts() -> None:
    ends = {"a": 300, "b": 200, "c": 100}
    scene = Scene()
    for name, missing in ends.items():
        scene.connection(name, f"10.0.1.{missing}", missing_bytes=missing)
    connections = copies.known_connections(scene.tables.streams, scene.tables.handshakes)
    schema = dict.fromkeys(copies.PAIR, pl.String) | dict.fromkeys(copies.AHEAD, pl.Int64)
    pairs = pl.DataFrame([("a", "b", 10, None), ("c", "b", 5, 3)], schema, orient="row")
    chosen = copies.choose_connections(pairs, connections)
    assert rows(chosen) == [("a", "c", 5, None), ("b", "c", -5, -3)]
    assert rows(copies.stream_copies(chosen, connections)) == [
        ("a<", "c<", None),
        ("a>", "c>", 5),
        ("b<", "c<", -3),
        ("b>", "c>", -5),
    ]


def test_most_connections_of_a_crowd_are_compared_with_none() -> None:
    crowd = copies.MOST_ALIKE + 1
    alike, one_packet, one_stream = Scene(), Scene(), Scene()
    for at in range(crowd):
        alike.connection(f"alike {at}", f"10.0.{at}.1")
        alike.established(f"alike {at}", "client", 5)
        vague(f"one packet {at}", f"10.0.{at}.1", range(1, 2), one_packet)
    for name, host in (("near", "192.168.0.1"), ("far", "10.0.0.1")):
        one_stream.connection(name, host, begun=(None, None))
        for at in range(crowd):
            one_stream.message(f"{name}>", 100 * at, T0, 1, name)
    assert alike.unite().copies is None
    assert one_packet.unite().copies is None
    alike.rows["streams"], one_packet.rows["streams"] = alike.rows["streams"][2:], one_packet.rows["streams"][2:]
    one_packet.rows["messages"] = one_packet.rows["messages"][1:]
    assert rows(alike.unite().copies, "ahead") == [(0,)] * 2 * (crowd - 2)
    assert one_packet.unite().copies is not None
    (forth,) = one_stream.unite().copies.filter(stream_id="near>").rows()  # type: ignore[union-attr]
    assert forth == ("near>", "far>", 0)


def test_what_no_capture_holds_stays_unread() -> None:
    scene = both_ends()
    scene.unread("far>", 150, 20, "decode")  # the near end read it
    scene.unread("far>", 220, 30, "framing")  # the near end lacks 200 to 300
    scene.unread("far>", 450, 5, "tcp")
    scene.rows["stream_gaps"] = [row for row in scene.rows["stream_gaps"] if row["stream_id"] != "far>"]
    scene.unread("far>", 290, 50)
    scene.unread("other>", 0, 5)
    once = scene.unite()
    assert rows(once.stream_gaps) == [("far>", 290, 10), ("other>", 0, 5)]
    assert rows(once.quarantine, "stage", "stream_id", "stream_offset", "length") == [("framing", "far>", 220, 30)]


def random_night(seed: int) -> Scene:
    """Returns connections that were captured at one or at both ends, in part, of which some resend."""
    rng = Random(seed)
    scene = Scene()
    for connection in range(rng.randrange(1, 6)):
        sent = [rng.randrange(1 + connection * 20, 9 + connection * 20) for _ in range(rng.randrange(1, 9))]
        known, numbers = rng.random() < 0.7, (rng.randrange(99), rng.randrange(99))
        for end, host in rng.sample([("far", "10.0.0.1"), ("near", "192.168.0.1")], rng.choice([1, 2, 2, 2])):
            name = f"{end} {connection}"
            at = rng.randrange(3) if rng.random() < 0.4 else 0
            begun = tuple(n if known and not at and rng.random() < 0.9 else None for n in numbers)
            of_end(scene, rng, name, host, (begun[0], begun[1]), sent[at:])
            if rng.random() < 0.7 and known:
                scene.established(name, "client", numbers[0], capture_id=end)
    return scene


def of_end(
    scene: Scene, rng: Random, name: str, host: str, begun: tuple[int | None, int | None], sent: list[int]
) -> None:
    """Adds what one end shows of a connection with these messages, each of which may be missing or in quarantine."""
    lost = 0
    end = name.partition(" ")[0]
    for at, number in enumerate(sent):
        stream, ns, frame = f"{name}>", T0 + (at * 9 + 7 * (end == "near")) * SECOND + rng.randrange(999), 2 + 4 * at
        read = rng.choice(["read"] * 4 + ["gap", "framing", "decode"])
        if read == "gap":
            lost += 100
            scene.unread(stream, 100 * at, 100)
        elif read == "read":
            scene.message(stream, 100 * at, ns, number, end, last_frame=frame)
            scene.ack(f"{name}<", 100 * at, ns + SECOND, number, end, last_frame=frame + 1)
        else:
            scene.unread(stream, 100 * at + 10, rng.randrange(1, 90), read)
    size = 100 * len(sent)
    scene.connection(name, host, begun=begun, recovered_bytes=size, first_captured_at=T0 // 1000 + rng.randrange(10**7))
    scene.rows["streams"][-2] |= {"recovered_bytes": size - lost, "missing_bytes": lost}


KEPT = {
    "messages": ("stream_id", "stream_offset", "captured_ns", "message_id", "capture_id"),
    "acks": ("stream_id", "stream_offset", "captured_ns", "tx_sequence_number", "capture_id"),
    "handshakes": ("stream_id", "time_stamp_ms"),
    "stream_gaps": ("stream_id", "stream_offset", "length"),
    "streams": ("stream_id", "mid_stream", "first_captured_at", "last_captured_at"),
}


@pytest.mark.parametrize("seed", range(24))
def test_a_second_computation_unites_the_same(seed: int) -> None:
    scene = random_night(seed)
    steps = {"near": [(7, -5 * SECOND), (15, -30 * SECOND)], "far": []} if seed % 3 == 0 else {}
    once = scene.unite(**steps)
    by_capture = {name: [{"frame": at, "step_ns": ns} for at, ns in found] for name, found in steps.items()}
    timed = plain_clock.in_order(scene.rows, defaultdict(list, by_capture))
    expected, own = plain_copies.once(timed)
    of = {stream: tuple(copy) for stream, copy in plain_copies.copies(timed).items()}
    assert ({} if once.copies is None else {stream: tuple(of) for stream, *of in once.copies.rows()}) == of
    stamps = pl.col(pl.Datetime).dt.timestamp("us")
    for name, columns in KEPT.items():
        found = rows(getattr(once, name).with_columns(stamps), *columns)
        assert found == sorted((tuple(row[column] for column in columns) for row in expected[name]), key=repr), name
    of_messages = scene.tables.messages.select(own_stream="stream_id", own_offset="stream_offset")
    placed = [] if once.placed is None else once.placed.join(of_messages, on=["own_stream", "own_offset"]).rows()
    assert {(stream, at): (of, offset) for stream, at, of, offset, _ in placed} == own
    skews = {} if once.skews is None else {frozenset({one, other}): ns for one, other, ns in once.skews.rows()}
    assert skews == {pair: ns for pair, ns in plain_copies.skews(timed).items() if ns}
    unread = plain_copies.unread_ranges({name: getattr(once, name).rows(named=True) for name in TABLES})
    for stream, ranges in plain_copies.unread_ranges(expected).items():
        assert {at for part in unread[stream] for at in part} == {at for part in ranges for at in part}


def test_groups_are_derived_together_as_they_are_alone() -> None:
    nights = [random_night(seed) for seed in range(12)]
    every: dict[str, list[Row]] = {name: [] for name in TABLES}
    alone: dict[str, list[pl.DataFrame]] = {"placed": [], "unread": [], "differences": []}
    all_copies = []
    for night, scene in enumerate(nights):
        for name, found in scene.rows.items():
            for row in found:
                row |= {column: f"{night} {row[column]}" for column in ("stream_id", "connection_id") if column in row}
            every[name] += found
        of = scene.unite().copies
        if of is not None:
            all_copies.append(of)
            for name, made in derived(scene, of).items():
                alone[name].append(made)
    together = Scene()
    together.rows = every
    for name, made in derived(together, pl.concat(all_copies)).items():
        assert not made.is_empty()
        assert_frame_equal(made, pl.concat(alone[name]), check_row_order=False)


def derived(scene: Scene, of: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Returns what is derived of streams with their copies."""
    tables = scene.tables
    ranges = (of, tables.streams, tables.stream_gaps, tables.quarantine)
    return {
        "placed": places.place_copies(*ranges, tables.messages, tables.acks),
        "unread": places.unread_by_all(*ranges),
        "differences": places.clock_differences(of, tables.messages, tables.acks),
    }


def test_the_middle_of_two_differences_is_cut_toward_zero() -> None:
    schema = {"stream_id": pl.String, "capture_id": pl.String, "counted_capture": pl.String, "ahead_ns": pl.Int64}
    found = [("s", "b", "a", -3), ("s", "b", "a", -4), ("s", "a", "b", 9), ("s", "a", "a", 5), ("s", None, "a", 5)]
    found += [("s", "a", "c", 1), ("s", "a", "c", -1)]
    assert rows(places.skews_of(pl.DataFrame(found, schema, orient="row"))) == [("a", "b", 4)]
    assert rows(places.skews_of(pl.DataFrame(found[:2], schema, orient="row"))) == [("a", "b", 3)]


STEPPED = [(12, -300 * SECOND), (20, -SECOND)]


def test_steps_add_up() -> None:
    last = (1 << 63) - 1
    assert rows(clocks.find_steps(captures(c=STEPPED, d=[], e=[(7, -5)]))) == [
        ("c", 12, 20, 300 * SECOND),
        ("c", 20, last, 301 * SECOND),
        ("e", 7, last, 5),
    ]


def test_times_are_by_a_clock_without_steps_and_back() -> None:
    steps = clocks.find_steps(captures(c=STEPPED, d=[(1, -7)]))
    given = [("c", 11), ("c", 12), ("c", 19), ("c", 20), ("d", 1), ("e", 99), (None, 5), ("c", None)]
    found = [{"capture_id": name, "last_frame": frame, "captured_ns": T0} for name, frame in reversed(given)]
    timed = pl.DataFrame([{"stream_id": "s", "stream_offset": 0} | row for row in found], NARROW)
    undone = clocks.with_steps_undone(timed, steps)
    late = [0, 300 * SECOND, 300 * SECOND, 301 * SECOND, 7, 0, 0, 0]
    assert undone["captured_ns"].to_list() == [T0 + ns for ns in reversed(late)]
    stamp = pl.col("captured_ns") // 1000
    verdicts = undone.with_columns(acknowledged_at=stamp.cast(pl.Datetime("us", "UTC")))
    back = clocks.with_recorded_times(verdicts, steps)
    assert back.select(*NARROW).equals(timed)
    recorded = [T0 // 1000] * 8
    recorded[3] -= 1  # 7 ns before a whole microsecond is in the one before it
    assert back["acknowledged_at"].dt.timestamp("us").to_list() == recorded


def test_a_stream_is_when_its_packets_were_if_the_clock_steps_within_its_connection() -> None:
    scene = Scene()
    for name in ("one", "two", "before"):
        scene.connection(name, "10.0.0.1", last_captured_at=T0 // 1000 + 5_000_000)
    for name, frame, second in (("one", 11, 1), ("one", 12, -298), ("two", 13, -297), ("before", 10, 0)):
        scene.message(f"{name}>", frame, T0 + second * SECOND, frame, "c", last_frame=frame)
    once = scene.unite(c=STEPPED)
    found = {
        stream: tuple((int(at.timestamp()) * SECOND - T0) // SECOND for at in times)
        for stream, *times in once.streams.select("stream_id", "first_captured_at", "last_captured_at").rows()
    }
    assert found == {
        **dict.fromkeys(("one>", "one<"), (1, 2)),  # the clock stepped between the packets
        **dict.fromkeys(("two>", "two<"), (300, 305)),
        **dict.fromkeys(("before>", "before<"), (0, 5)),
    }
    assert rows(once.messages, "captured_ns") == [(T0 + second * SECOND,) for second in (0, 1, 2, 3)]


def test_what_parts_of_the_packets_say_of_streams_adds_up() -> None:
    scene = random_night(3)
    tables, steps = scene.tables, clocks.find_steps(captures(near=[(7, -5 * SECOND)], far=[(9, -8 * SECOND)]))
    parts = (part for table in (tables.messages, tables.acks) for part in table.partition_by("capture_id"))
    found = clocks.streams_in_time(tables.streams, pl.concat(clocks.places_in_time(part, steps) for part in parts))
    whole = pl.concat(clocks.places_in_time(table, steps) for table in (tables.messages, tables.acks))
    assert_frame_equal(found, clocks.streams_in_time(tables.streams, whole))
    assert not found.equals(tables.streams)


SKEWS = pl.DataFrame({"one_capture": ["far"], "other_capture": ["near"], "skew_ns": [7 * SECOND]})
PLACED = {"stream_id": pl.String, "stream_offset": pl.Int64, "own_stream": pl.String, "own_offset": pl.Int64}
NONE_PLACED = pl.DataFrame(schema={**PLACED, "late_ns": pl.Int64})
FLOW = {"queue_manager_address": None, "destination_queue": "queue"}


def disputed_messages(
    messages: pl.DataFrame, flows: pl.DataFrame, skews: pl.DataFrame, placed: pl.DataFrame
) -> pl.DataFrame:
    """Returns the messages in doubt, where so much is known of copies."""
    none = STREAMS.arrow.empty_table()
    known = Copies(none, none, to_arrow(placed), to_arrow(skews))
    once = Conversations(InProcess(), none, none, none, none, none, none, found=known)
    return through(once.disputed, messages, flows)


def flows(tables: Given) -> pl.DataFrame:
    """Returns the flows of the messages, whose scope is their sender."""
    key = ("stream_id", "source_queue_manager", *FLOW)
    return tables.messages.select(key).unique().with_columns(scope_key="source_queue_manager")


@pytest.mark.parametrize(
    ("capture", "second", "disputed"),
    [("near", 15, [1300, 1500]), ("near", 20, []), ("near", 13, [1300, 1300]), ("far", 15, []), ("third", 15, [])],
)
def test_messages_nearer_than_the_skew_are_in_doubt(capture: str, second: int, disputed: list[int]) -> None:
    scene = Scene()
    for name, end, at in (("a", "far", 0), ("a", "far", 13), ("a", "far", 60), ("b", capture, second)):
        scene.message(f"{name}>", 100 * at, T0 + at * SECOND, at, end, **FLOW)
    scene.message("c>", 0, T0 + 14 * SECOND, 0, capture, **FLOW | {"source_queue_manager": "another scope"})
    tables = scene.tables
    found = disputed_messages(tables.messages, flows(tables), SKEWS, NONE_PLACED)
    assert sorted(found["stream_offset"]) == disputed


def test_a_stream_of_both_captures_is_in_no_doubt_but_a_placed_message_has_its_clock() -> None:
    scene = Scene()
    for stream, at, end in (("a>", 0, "far"), ("a>", 1, "near"), ("b>", 2, "near")):
        scene.message(stream, at, T0 + at * SECOND, at, end, **FLOW)
    tables = scene.tables
    assert disputed_messages(tables.messages, flows(tables), SKEWS, NONE_PLACED).is_empty()
    placed = pl.DataFrame([("a>", 1, "copy>", 1, 0)], NONE_PLACED.schema, orient="row")
    found = disputed_messages(tables.messages, flows(tables), SKEWS, placed)
    assert rows(found) == [("source", "a>", 0), ("source", "a>", 1), ("source", "b>", 2)]


@pytest.mark.parametrize("seed", range(10))
def test_a_second_computation_finds_the_same_disputes(seed: int) -> None:
    rng = Random(seed)
    scene = Scene()
    ends = [rng.choice(["near", "far", "third"]) for _ in range(6)]
    skews = {frozenset({"far", "near"}): 7 * SECOND, frozenset({"near", "third"}): 3 * SECOND}
    for number in range(60):
        stream, ns = rng.randrange(6), T0 + rng.randrange(300) * SECOND
        end = ends[stream] if rng.random() < 0.97 else "near"
        source = {"source_queue_manager": rng.choice(["one", "two"])}
        scene.message(f"{stream}>", 100 * number, ns, number, end, **FLOW | source)
    shown_by = defaultdict(set)
    by_scope: dict[str, list[Row]] = defaultdict(list)
    for row in scene.rows["messages"]:
        shown_by[row["stream_id"]].add(row["capture_id"])
        by_scope[row["source_queue_manager"]].append(row)
    expected = set().union(*(plain_copies.disputed(of, skews, shown_by) for of in by_scope.values()))
    tables = scene.tables
    given = [(*sorted(pair), ns) for pair, ns in skews.items()]
    of_pairs = pl.DataFrame(given, SKEWS.schema, orient="row")
    found = disputed_messages(tables.messages, flows(tables), of_pairs, NONE_PLACED)
    assert set(found.select("stream_id", "stream_offset").rows()) == expected
    assert found.height == len(expected) > 0
