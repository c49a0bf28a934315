"""Conversations captured twice, clocks that step back or differ: against literals and a second computation."""

from collections import defaultdict
from random import Random
from typing import Any

import plain_copies
import plain_outcomes
import polars as pl
import pytest
import replayer
from plain_finding import Rows
from plain_message_findings import message_findings
from replay_tables import NULL, T0, Replayed, Tables, fates, finding_of, plain, replay, with_keys
from test_outcomes import outcomes_of, said_of
from tiers import merge_needs, seeds

from jobs.engines.in_process import InProcess
from schemas.replay import ENDS, FindingKind
from udfs.frames.tables import schema_of
from udfs.replay.order import copies
from udfs.replay.order.conversations import Conversations, unite
from udfs.replay.order.united import with_copies

Row = dict[str, Any]
SECOND = 1_000_000_000


class Scene(Tables):
    """Tables that are united."""

    def begun(self, name: str, host: str, begun: tuple[int | None, int | None] = (7, 8), **columns: Any) -> None:
        """Adds a connection from a host to 10.0.0.9; `begun` are its initial sequence numbers."""
        self.connection(name, host, "10.0.0.9", **{"closed": False} | columns)
        for row, seq in zip(self.rows["streams"][-2:], begun, strict=True):
            row |= {"initial_seq": seq, "mid_stream": seq is None}

    def established(self, name: str, client: str, booted_ms: int, server: str = NULL, **columns: Any) -> None:
        """Adds an EstablishConnection and its response."""
        self.handshake(name, client, server)
        for row in self.rows["handshakes"][-2:]:
            row.update({"time_stamp_ms": booted_ms, "capture_id": None, "last_frame": 1}, **columns)

    def sent(self, stream: str, offset: int, ns: int, number: int, capture: str, **columns: Any) -> None:
        """Adds a message with a number."""
        self.message((stream, offset), ns, (1 << 63, number, number - 1), capture_id=capture, **columns)

    def acked(self, stream: str, offset: int, ns: int, number: int, capture: str, **columns: Any) -> None:
        """Adds an OrderAck of a number."""
        place = {"stream_offset": offset, "capture_id": capture, "last_frame": 1, "acknowledged_message_id": None}
        self.ack(stream, ns, (1 << 63, number), **place | columns)

    def unite(self) -> Conversations[pl.DataFrame]:
        """Returns the united tables."""
        return unite(InProcess(), self.sources())


def copies_of(united: Conversations[pl.DataFrame]) -> list[tuple[Any, ...]] | None:
    """Returns which stream is a copy of which, and how far it is ahead; None without any."""
    return None if united.found is None else rows(united.found.copies, "stream_id", "copy_of", "ahead")


def renamed(united: Conversations[pl.DataFrame], streams: pl.DataFrame) -> list[tuple[Any, ...]] | None:
    """Returns the rows of STREAMS that are to be changed."""
    found = united.renamed_copies(streams)
    return None if found is None else rows(found, "stream_id", "copy_of")


def rows(found: pl.DataFrame | None, *columns: str) -> list[tuple[Any, ...]]:
    assert found is not None
    return sorted(found.select(columns or found.columns).rows(), key=repr)


def test_copies_are_named_and_earlier_names_are_taken_back() -> None:
    scene, alone = Scene(), Scene()
    for end, host in (("far", "10.0.0.1"), ("near", "192.168.0.1")):
        scene.begun(end, host, missing_bytes=int(end == "near"))
        scene.established(end, "client", 5)
    streams = scene.sources().streams
    assert renamed(scene.unite(), streams) == [("near<", "far<"), ("near>", "far>")]
    for row in scene.rows["streams"]:
        row["copy_of"] = "far>" if row["stream_id"] == "near>" else "old"
    named = scene.sources().streams
    assert renamed(scene.unite(), named) == [("far<", None), ("far>", None), ("near<", "far<")]
    assert renamed(alone.unite(), streams) is None
    alone.begun("one", "10.0.0.1", copy_of="other>")
    assert renamed(alone.unite(), named) == [(f"{end}{way}", None) for end in ("far", "near") for way in "<>"]


def vague(name: str, host: str, numbers: range, scene: Scene, **columns: Any) -> None:
    """Adds a connection captured in mid-stream, with messages of 100 bytes."""
    scene.begun(name, host, begun=(None, None), **columns)
    for at, number in enumerate(numbers):
        scene.sent(f"{name}>", 100 * at, T0 + number * SECOND, number, name)


def test_the_clock_of_the_stream_that_counts_tells_when_its_copies_were() -> None:
    """A clock that is 40 s ahead makes no sender late; only messages and acknowledgments tell by how much it is."""
    there = [{"stream_id": one, "connection_id": "a", "last_ns": 9 * SECOND} for one in ("a>", "a<")]
    times = dict.fromkeys(("first_ns", "last_ns", "receiver_last_ns"), 50 * SECOND)
    facts = {"connection_id": "b", "mid_stream": False, "recovered_bytes": 1, "missing_bytes": 0, "address": "10.0.0.9"}
    copied = [
        {"stream_id": "b>", "copy_of": "a>", "late_ns": 40 * SECOND} | facts | times,
        {"stream_id": "b<", "copy_of": "a<", "late_ns": None} | facts | times,
        {"stream_id": "c>", "copy_of": "a>", "late_ns": None} | facts | times | {"connection_id": "c"},
    ]
    found = with_copies(pl.DataFrame(there, schema_of(ENDS.arrow)), pl.DataFrame(copied))
    assert rows(found, "stream_id", "last_ns", "receiver_last_ns") == [
        ("a<", 9 * SECOND, None),
        ("a>", 9 * SECOND, None),
        ("b<", 10 * SECOND, 10 * SECOND),
        ("b>", 10 * SECOND, 10 * SECOND),
        ("c>", 50 * SECOND, 50 * SECOND),
    ]


def test_a_copy_of_a_copy_is_one_of_the_stream_that_counts() -> None:
    scene = Scene()
    for name, missing, numbers in (("a", 300, range(1, 5)), ("b", 200, range(1, 7)), ("c", 100, range(3, 7))):
        vague(name, f"10.0.1.{missing}", numbers, scene, missing_bytes=missing)
    expected = [("a<", "c<", None), ("a>", "c>", 200), ("b<", "c<", None), ("b>", "c>", 200)]
    assert copies_of(scene.unite()) == expected


@pytest.mark.parametrize(("known", "late"), [("a", "b"), ("b", "a")])
def test_handshakes_tell_the_difference_of_a_direction_without_packets(known: str, late: str) -> None:
    scene = Scene()
    for name, host, begun in ((known, "10.0.0.1", (7, 8)), (late, "192.168.0.1", (None, None))):
        scene.begun(name, host, begun=begun)
        scene.established(name, "client", 5)
        scene.sent(f"{name}>", 100, T0, 1, name)
    assert copies_of(scene.unite()) == [(f"{late}<", f"{known}<", 0), (f"{late}>", f"{known}>", 0)]


def renumbered(
    *, port: str = "", host: str = "10.0.0.1", late_s: float = 0, acked: bool = True, text: str = ""
) -> Scene:
    """Returns a connection, and another one that begins with the same handshake, by other sequence numbers."""
    scene = Scene()
    ends = (("10.0.0.1", "in:1#0", (7, 8), 0.0, ""), (host, f"in:1{port}#1", (70, 80), late_s, text))
    for address, name, begun, after_s, label in ends:
        scene.begun(name, address, begun=begun)
        scene.established(name, "client", 5, captured_ns=T0 + round(after_s * SECOND))
        for number in (1, 2, 3):
            ns = T0 + round((after_s + number) * SECOND)
            scene.sent(f"{name}>", 100 * number, ns, number, name, message_id=f"source\\{number}{label}")
        if acked:
            scene.acked(f"{name}<", 100, T0 + round((after_s + 4) * SECOND), 3, name, message_id="receiver\\9")
    return scene


RENUMBERED: dict[str, tuple[dict[str, Any], bool]] = {
    "no address translation": ({}, True),
    "address translation": ({"host": "192.168.0.1", "port": "2"}, True),
    "by another clock": ({"late_s": 3600.25}, True),
    "by another clock, without an acknowledgment": ({"late_s": 3600.25, "acked": False}, False),
    "at one time, without an acknowledgment": ({"late_s": 0.01, "acked": False}, True),
    "a reconnect with the same handshake": ({"port": "2"}, False),
    "the same handshake, other messages": ({"text": " other", "acked": False}, False),
    "a scanner that comes again from elsewhere": ({"host": "192.168.0.1", "late_s": 86400, "acked": False}, False),
}


@pytest.mark.parametrize("name", RENUMBERED)
def test_the_same_packets_at_one_time_are_a_copy_by_other_numbers(name: str) -> None:
    how, is_copy = RENUMBERED[name]
    scene = renumbered(**how)
    found = copies_of(scene.unite())
    assert (found is not None) is is_copy
    of = plain_copies.copies(scene.rows)
    assert {stream: (copy.of, copy.ahead) for stream, copy in of.items()} == {
        stream: (copy_of, ahead) for stream, copy_of, ahead in found or ()
    }
    if how == {}:
        assert found == [("in:1#1<", "in:1#0<", 0), ("in:1#1>", "in:1#0>", 0)]


@pytest.mark.parametrize("own", [True, False])
def test_without_a_handshake_both_directions_decide(own: bool) -> None:
    """Whoever connects again and sends all once more gets other acknowledgments, later."""
    scene = Scene()
    for name, offset, late_s in (("in:1#0", 0, 0), ("in:1#1", 50, 30)):
        scene.begun(name, "10.0.0.1", begun=(None, None))
        for number in (1, 2, 3):
            ns = T0 + (late_s + number) * SECOND
            scene.sent(f"{name}>", offset + 100 * number, ns, number, name)
        identity = "receiver\\9" if own else f"receiver\\{name}"
        scene.acked(f"{name}<", 100, T0 + (late_s + 4) * SECOND, 3, name, message_id=identity)
    expected = [("in:1#1<", "in:1#0<", 0), ("in:1#1>", "in:1#0>", 50)] if own else None
    assert copies_of(scene.unite()) == expected


def test_most_connections_of_a_crowd_are_compared_with_none() -> None:
    crowd = copies.MOST_ALIKE + 1
    alike, one_packet, one_stream = Scene(), Scene(), Scene()
    for at in range(crowd):
        alike.begun(f"alike {at}", f"10.0.{at}.1")
        alike.established(f"alike {at}", "client", 5)
        vague(f"one packet {at}", f"10.0.{at}.1", range(1, 2), one_packet)
    for name, host in (("near", "192.168.0.1"), ("far", "10.0.0.1")):
        one_stream.begun(name, host, begun=(None, None))
        for at in range(crowd):
            one_stream.sent(f"{name}>", 100 * at, T0, 1, name)
    assert copies_of(alike.unite()) is None
    assert copies_of(one_packet.unite()) is None
    alike.rows["streams"], one_packet.rows["streams"] = alike.rows["streams"][2:], one_packet.rows["streams"][2:]
    one_packet.rows["messages"] = one_packet.rows["messages"][1:]
    assert [ahead for _, _, ahead in copies_of(alike.unite()) or ()] == [0] * 2 * (crowd - 2)
    assert copies_of(one_packet.unite()) is not None
    assert ("near>", "far>", 0) in (copies_of(one_stream.unite()) or ())


# --- one night: a conversation that was captured at both ends, and legs of routers ------------------------------------

A, B, ROUTER, SOURCE = (f"00000000-0000-0000-0000-00000000000{n}" for n in range(1, 5))
LEGS: dict[str, tuple[list[str], int, int]] = {
    "10.0.1.1": ([], 0, 1),
    "10.0.1.2": ([B], 0, 0),
    "10.0.1.3": ([ROUTER], 1, 0),
    "10.0.1.4": ([B, ROUTER], 0, 1),
}
"""The queue managers that handshakes name at an address; how many messages for B pass through it, or may do so."""


@pytest.fixture(scope="module")
def replayed() -> Replayed:
    """Of five messages, each end lacks some; the near end's clock is 7 s ahead.

    On a connection to each of the LEGS, without a handshake, one message names B, and one has a direct format name.
    """
    scene = Scene()
    for end, host, late, lacking in (("far", "10.0.0.1", 0, (3,)), ("near", "192.168.0.1", 7, (2, 4))):
        lost = 100 * len(lacking)
        scene.begun(end, host, recovered_bytes=500 - lost, first_captured_at=T0 // 1000 + late * 1_000_000)
        scene.rows["streams"][-2]["missing_bytes"] = lost
        scene.established(end, A, 5, B)
        for at in range(5):
            if at in lacking:
                scene.unread(f"{end}>", 100 * at, 100)
            else:
                scene.sent(f"{end}>", 100 * at, T0 + (at + late) * SECOND, at + 1, end, source_queue_manager=SOURCE)
    for address, (elsewhere, *_) in LEGS.items():
        scene.stream(f"{address}>", "10.0.1.9", address)
        for at, source, named in ((1, f"{SOURCE} {address}", B), (2, f"{A} {address}", NULL)):
            names = {"source_queue_manager": source, "queue_manager_address": named, "message_id": f"{source}\\1"}
            scene.sent(f"{address}>", at, T0 + at, 1, "c", **names)
        for number, server in enumerate(elsewhere, 1):
            scene.connection(f"{address} {number}", "10.0.1.8", address)
            scene.handshake(f"{address} {number}", "elsewhere", server)
    return replay(scene.sources())


def test_sessions_leave_out_copies_and_say_what_passes_through(replayed: Replayed) -> None:
    sessions = {row["session_id"]: row for row in replayed.sessions.to_dicts()}
    names = ("connections", "transactional_messages", "missing_bytes", "passing_through", "receiver_unknown")
    found = {session: tuple(row[name] for name in names) for session, row in sessions.items()}
    expected = {f"10.0.1.9->{address}": (1, 2, 0, *legs) for address, (_, *legs) in LEGS.items()}
    assert found == expected | {f"{A}->{B}": (1, 5, 0, 0, 0)}


def test_a_finding_names_what_was_captured_twice(replayed: Replayed) -> None:
    rows = [row for row in plain(replayed.findings) if row["kind"] == FindingKind.CAPTURED_TWICE]
    twice = {one.session_id: (one.severity, one.messages, one.witness) for one in map(finding_of, map(with_keys, rows))}
    assert twice == {
        f"{A}->{B}": ("info", 1, ("far>@0", "near>@0")),
        f"{B}->{A}": ("info", 1, ("far<@0", "near<@0")),
    }


# --- random nights, and the second computation ------------------------------------------------------------------------


def random_night(seed: int) -> Scene:
    """Returns connections that were captured at one or at both ends, in part, of which some resend.

    In each third night the clock of one capture steps back.
    """
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
    steps = [{"frame": frame, "step_ns": -s * SECOND} for frame, s in ((7, 5), (15, 30))] if seed % 3 == 0 else None
    scene.rows["captures"] = [{"capture_id": "near", "clock_steps": steps}, {"capture_id": "far"}]
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
            scene.sent(stream, 100 * at, ns, number, end, last_frame=frame)
            if number % 4:
                scene.acked(f"{name}<", 100 * at, ns + SECOND, number, end, last_frame=frame + 1)
        else:
            scene.unread(stream, 100 * at + 10, rng.randrange(1, 90), read)
    size = 100 * len(sent)
    scene.begun(name, host, begun=begun, recovered_bytes=size, first_captured_at=T0 // 1000 + rng.randrange(10**7))
    scene.rows["streams"][-2] |= {"recovered_bytes": size - lost, "missing_bytes": lost}


KEPT = {
    "messages": ("stream_id", "stream_offset", "captured_ns", "message_id", "capture_id"),
    "acks": ("stream_id", "stream_offset", "captured_ns", "tx_sequence_number", "capture_id"),
    "handshakes": ("stream_id", "time_stamp_ms"),
    "streams": ("stream_id", "mid_stream", "first_captured_at", "last_captured_at"),
}


def second_night(scene: Scene) -> tuple[Rows, tuple[Rows, dict[Any, Any]]]:
    """Returns the tables by clocks without steps; and these once, with the own keys of what only copies have."""
    steps = {row["capture_id"]: row.get("clock_steps") or [] for row in scene.rows["captures"]}
    timed = plain_copies.in_order(scene.rows, steps)
    return timed, plain_copies.once(timed)


@pytest.mark.parametrize("seed", seeds(range(12), range(400)))
def test_a_second_computation_unites_the_same(seed: int) -> None:
    scene = random_night(seed)
    united = scene.unite()
    timed, (expected, own) = second_night(scene)
    of = {stream: tuple(copy) for stream, copy in plain_copies.copies(timed).items()}
    assert {stream: tuple(of) for stream, *of in copies_of(united) or ()} == of
    stamps = pl.col(pl.Datetime).dt.timestamp("us")
    for name, columns in KEPT.items():
        found = rows(getattr(united, name).with_columns(stamps), *columns)
        assert found == sorted((tuple(row[column] for column in columns) for row in expected[name]), key=repr), name
    placed = [] if united.found is None else united.found.placed.to_dicts()
    places = {(row["own_stream"], row["own_offset"]): (row["stream_id"], row["stream_offset"]) for row in placed}
    of_messages = {(row["stream_id"], row["stream_offset"]) for row in scene.rows["messages"]}
    assert {place: key for key, place in places.items() if key in of_messages} == own
    skews = united.found.skews.to_dicts() if united.found else []
    by_pair = {frozenset({row["one_capture"], row["other_capture"]}): row["skew_ns"] for row in skews}
    assert by_pair == {pair: ns for pair, ns in plain_copies.skews(timed).items() if ns}
    missing = united.unread.filter("missing").select("stream_id", "stream_offset", "length").rows()
    assert sorted(missing) == sorted(tuple(row.values())[:3] for row in expected["stream_gaps"])
    unread = plain_copies.unread_ranges({"stream_gaps": united.unread.to_dicts(), "quarantine": []})
    for stream, ranges in plain_copies.unread_ranges(expected).items():
        assert {at for part in unread[stream] for at in part} == {at for part in ranges for at in part}


ACKNOWLEDGED = {FindingKind.UNACKNOWLEDGED, FindingKind.SLOW_ACKNOWLEDGMENT}
"""Findings that need all acknowledgments, as the tables have them."""


@pytest.mark.parametrize("seed", merge_needs([0, 3, 12], range(24)))
def test_both_replays_agree_on_what_was_captured_twice(seed: int) -> None:
    scene = random_night(seed)
    timed, (once, own) = second_night(scene)
    skew, shown_by = plain_copies.skews(timed), defaultdict(set)
    for row in once["messages"]:
        if (row["stream_id"], row["stream_offset"]) not in own:
            shown_by[row["stream_id"]].add(row["capture_id"])
    expected = replayer.verdicts(
        once, reading="conformant", scope="auto", disputed=lambda scope: plain_copies.disputed(scope, skew, shown_by)
    )
    replayed = replay(scene.sources())
    assert fates(replayed.verdicts) == {own.get(key, key): fate for key, fate in expected.items()}
    outcomes, said = (
        outcomes_of(replayed)[0],
        plain_outcomes.outcomes(replayed.verdicts.to_dicts(), said=said_of(replayed))[0],
    )
    assert {message: outcomes.get(message, "delivered") for message in said} == said
    second = set(message_findings(plain(replayed.verdicts), plain(replayed.outcomes), {}))
    found = set(map(finding_of, plain(replayed.internal_findings)))
    assert second == {one for one in found if one.kind not in ACKNOWLEDGED}
    in_doubt = {one.kind for one in found} & {FindingKind.CLOCKS_DIFFER}
    assert bool(in_doubt) is (seed in {10, 12, 13, 21})
