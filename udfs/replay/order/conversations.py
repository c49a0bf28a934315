"""Shows each conversation once, although captures at both ends hold it twice, by clocks that do not step back.

In most nights one look at few rows finds that there is nothing to do.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple

from schemas.table import BOOL, LONG, STRING, row
from udfs.frames.columns import CAPTURES_OF_PAIR, PLACE
from udfs.frames.derivation import Work
from udfs.frames.engine import Engine, T
from udfs.replay.content import CONTENT
from udfs.replay.order.apart import find_clocks, undecided
from udfs.replay.order.clocks import (
    disputed_in_scopes,
    in_their_places,
    sides_of_skews,
    skews_of,
    streams_in_time,
    times_of_streams,
    with_steps_undone,
)
from udfs.replay.order.copies import (
    IDENTITY,
    alike,
    ends_in_part,
    ends_of_streams,
    likely_streams,
    not_too_many,
    number_packets,
    same_packets,
)
from udfs.replay.order.coverage import unread_ranges
from udfs.replay.order.damaged import restored
from udfs.replay.order.forwarded import count_denied, places_in_others, without_forwarded
from udfs.replay.order.offsets import (
    OF_HANDSHAKE,
    find_answers,
    find_neighbours,
    find_offsets,
    find_shared_streams,
)
from udfs.replay.order.scopes import FLOW_KEY, NUMBERS, with_scopes
from udfs.replay.order.sources import Sources
from udfs.replay.order.united import (
    choose_streams,
    on_counting_streams,
    rename_copies,
    suspect,
    unite_streams,
    with_copies,
)

_COPY = row(stream_id=STRING, copy_of=STRING)
_PLACED = row(stream_id=STRING, stream_offset=LONG, own_stream=STRING, own_offset=LONG, late_ns=LONG)
_DISPUTED = row(stream_id=STRING, stream_offset=LONG)
_UNDECIDED = row(stream_id=STRING, stream_offset=LONG, contested=BOOL)
_PAIR = row(**dict.fromkeys(CAPTURES_OF_PAIR, STRING))


class Copies(NamedTuple, Generic[T]):
    """Holds what is known of streams that were captured twice."""

    copies: T
    """Rows of `copies.stream_copies`."""
    copied: T
    """What ENDS tells of copies."""
    placed: T
    """The packets that only copies have, as `united.unite_streams` places them."""
    skews: T
    """Rows of `clocks.skews_of`."""


@dataclass(frozen=True, slots=True)
class Conversations(Generic[T]):
    """Holds the tables with each conversation once; a row that only a copy has stands where its stream lacks it."""

    engine: Engine[T]
    sources: Sources[T]
    """The tables as they were read."""
    messages: T
    acks: T
    handshakes: T
    streams: T
    """Rows of STREAMS that carried bytes."""
    unread: T
    """Rows of `coverage.unread_ranges`."""
    steps: T
    """Rows of `clocks.find_steps` and of `offsets.find_offsets`. The times are by clocks without these."""
    has_steps: bool
    clocks_differ: bool
    """Captures that were made at the same time have clocks that differ."""
    had_copies: bool
    """STREAMS names copies, maybe of an earlier replay."""
    found: Copies[T] | None = None
    """None without copies."""
    clocks: T | None = None
    """Rows of `apart.find_clocks`; None where something compares the clocks of all captures."""

    @property
    def is_as_recorded(self) -> bool:
        """Returns whether keys and times are those of the tables."""
        return self.found is None and not self.has_steps

    @property
    def copies(self) -> T:
        """Returns `stream_id` of each copy, and the stream that counts, `copy_of`."""
        if self.found is None:
            return self.engine.table([], _COPY)
        return self.engine.select(self.found.copies, *_COPY.names)

    @property
    def only_in_copies(self) -> T:
        """Returns the packets that only copies have, as `united.unite_streams` places them."""
        return self.engine.table([], _PLACED) if self.found is None else self.found.placed

    def with_ends_of_copies(self, ends: T) -> T:
        """Returns ENDS, those of copies among them."""
        return ends if self.found is None else self.engine.derive(with_copies, ends=ends, copied=self.found.copied)

    def without_copies(self, rows: T) -> T:
        """Returns the rows of MESSAGES or ACKS that count, as they are in the table."""
        if self.found is None:
            return rows
        only = self.engine.select(self.found.placed, stream_id="own_stream", stream_offset="own_offset")
        others = self.engine.join(rows, self.found.copies, ["stream_id"], "anti")
        return self.engine.union(others, self.engine.join(rows, only, PLACE, "semi"))

    def on_counting_streams(self, rows: T) -> T:
        """Returns the rows as if all were on streams that count."""
        if self.found is None:
            return rows
        return self.engine.derive(on_counting_streams, rows=rows, copies=self.copies)

    def in_time(self, rows: T) -> T:
        """Returns rows of a table with times by one clock, which does not step back."""
        if not self.has_steps:
            return rows
        engine = self.engine
        others, concerned = (engine.join(rows, self.steps, ["capture_id"], how) for how in ("anti", "semi"))
        return engine.union(others, engine.derive(with_steps_undone, rows=concerned, steps=self.steps))

    def disputed(self, messages: T, flows: T) -> T:
        """Returns the PLACE of messages that may have come before or after another one of their scope."""
        engine = self.engine
        if self.found is None:
            return engine.table([], _DISPUTED)
        own = engine.join(messages, self.only_in_copies, PLACE, "anti")
        shown = engine.distinct(engine.select(own, "stream_id", "capture_id"))
        sides = engine.expect_few(engine.derive(sides_of_skews, shown=shown, skews=self.found.skews))
        near = engine.join(engine.select(messages, *FLOW_KEY, "stream_offset", "captured_ns"), sides, ["stream_id"])
        return engine.derive(disputed_in_scopes, messages=engine.derive(with_scopes, messages=near, flows=flows))

    def undecided(self, flows: T) -> T:
        """Returns rows of `apart.undecided`."""
        engine = self.engine
        if self.clocks is None:
            return engine.table([], _UNDECIDED)
        columns = dict.fromkeys((*FLOW_KEY, *NUMBERS, "stream_offset", "captured_ns", "capture_id", *CONTENT))
        messages = engine.select(engine.where(self.messages, "transactional"), *columns)
        timed = engine.join(messages, self.clocks, ["capture_id"])
        return engine.keep(engine.derive(undecided, messages=engine.derive(with_scopes, messages=timed, flows=flows)))

    def renamed_copies(self, streams: T) -> T | None:
        """Returns the rows of STREAMS of which `copy_of` is not what it should be; None where none can be."""
        if self.found is None and not self.had_copies:
            return None
        return self.engine.derive(rename_copies, streams=streams, copies=self.copies)


def unite(engine: Engine[T], sources: Sources[T]) -> Conversations[T]:
    """Unites what was captured twice, by clocks that never step back."""
    looked = engine.derive_tables(
        suspect, streams=sources.streams, handshakes=sources.handshakes, captures=sources.captures
    )
    unread = engine.derive(unread_ranges, stream_gaps=sources.stream_gaps, quarantine=sources.quarantine)
    steps, apart, clocks_differ, shown = looked["steps"], looked["apart"], False, None
    if engine.count(looked["spans"]) or engine.count(apart):
        shown = engine.expect_few(engine.distinct(engine.select(sources.packets, "stream_id", "capture_id")))
        offsets = engine.expect_few(_find_offsets(engine, sources, looked["spans"], shown))
        steps, clocks_differ = engine.union(steps, offsets), engine.count(offsets) > 0
    has_steps, had_copies = (engine.count(rows) > 0 for rows in (steps, looked["named"]))
    united = Conversations(
        engine=engine,
        sources=sources,
        messages=restored(engine, sources),
        acks=sources.acks,
        handshakes=sources.handshakes,
        streams=looked["streams"],
        unread=unread,
        steps=steps,
        clocks_differ=clocks_differ,
        has_steps=has_steps,
        had_copies=had_copies,
    )
    if has_steps:
        messages, acks = (united.in_time(rows) for rows in (united.messages, united.acks))
        united = replace(united, messages=messages, acks=acks, streams=_streams_in_time(united))
    pairs = looked["alike"]
    if engine.count(looked["vague"]):
        pairs = _with_same_packets(united, looked["connections"], looked["vague"], pairs)
    differences = engine.table([], _PAIR)
    if engine.count(pairs):
        packets = (united.messages, united.acks, united.handshakes)
        of_packets = engine.distinct(
            engine.union(*(engine.select(rows, "stream_id", "capture_id") for rows in packets))
        )
        chosen = engine.derive_tables(choose_streams, pairs=pairs, connections=looked["connections"], shown=of_packets)
        united, differences = _without_copies(united, chosen["copies"], chosen["groups"])
    return united if shown is None else _with_clocks(united, apart, differences, shown)


def _with_clocks(united: Conversations[T], apart: T, differences: T, shown: T) -> Conversations[T]:
    """Returns the conversations with the clocks of captures, where nothing compares two; `shown` are their streams."""
    engine, sources = united.engine, united.sources
    if not engine.count(apart):
        return united
    pairs = engine.expect_few(engine.distinct(engine.select(differences, *CAPTURES_OF_PAIR)))
    clocks = engine.derive(find_clocks, apart=apart, shown=shown, streams=sources.streams, differences=pairs)
    return replace(united, clocks=clocks) if engine.count(clocks) else united


def _find_offsets(engine: Engine[T], sources: Sources[T], spans: T, shown: T) -> T:
    """Returns rows of `offsets.find_offsets`; `shown` are the streams in each capture."""
    shared = engine.expect_few(engine.derive(find_shared_streams, spans=spans, shown=shown))
    sides = engine.select(sources.streams, "stream_id", "connection_id", "from_initiator")
    greeted = engine.join(engine.select(sources.handshakes, *OF_HANDSHAKE), sides, ["stream_id"])
    packets = engine.join(sources.packets, shared, ["stream_id"], "semi")
    neighbours = (
        engine.derive(find_answers, handshakes=greeted),
        engine.derive(find_neighbours, packets=packets),
    )
    return engine.derive(find_offsets, spans=spans, neighbours=engine.union(*neighbours))


def _streams_in_time(united: Conversations[T]) -> T:
    """Returns the streams with times by clocks that do not step back."""
    engine, streams, of = united.engine, united.streams, united.sources
    packets = {"messages": of.messages, "acks": of.acks, "handshakes": of.handshakes}
    in_stepped = (engine.join(rows, united.steps, ["capture_id"], "semi") for rows in packets.values())
    stepped = engine.distinct(engine.union(*(engine.select(rows, "stream_id") for rows in in_stepped)))
    connections = engine.select(engine.join(streams, stepped, ["stream_id"], "semi"), "connection_id")
    concerned = engine.expect_few(engine.join(streams, connections, ["connection_id"], "semi"))
    of_concerned = {name: engine.join(rows, concerned, ["stream_id"], "semi") for name, rows in packets.items()}
    times = engine.derive(times_of_streams, steps=united.steps, **of_concerned)
    return engine.derive(streams_in_time, streams=streams, times=times)


def _with_same_packets(united: Conversations[T], connections: T, vague: T, pairs: T) -> T:
    """Returns the pairs of connections and those that the packets show, of which the beginning of one is not known."""
    engine = united.engine
    ends = engine.derive(ends_of_streams, packets=_numbered(united, ends_in_part, vague, "stream_id"))
    probes = engine.expect_few(engine.distinct(engine.select(ends, "message_id", "packet")))
    like_ends = _numbered(united, number_packets, probes, "message_id")
    probed = engine.derive(not_too_many, packets=engine.join(like_ends, probes, ["packet"], "semi"))
    held = engine.derive(alike, packets=probed, vague=vague)
    likely = engine.expect_few(engine.derive(likely_streams, alike=held, connections=connections))
    if not engine.count(likely):
        return pairs
    packets = _numbered(united, number_packets, likely, "stream_id")
    compared = engine.keep(engine.derive(not_too_many, packets=packets))
    same = engine.derive(alike, packets=compared, vague=vague)
    counted = engine.sum_up(compared, ["stream_id"])
    found = engine.derive(same_packets, alike=same, counted=counted, connections=connections)
    return engine.union(pairs, _without_forwarded(united, connections, engine.expect_few(found), compared))


def _without_forwarded(united: Conversations[T], connections: T, pairs: T, compared: T) -> T:
    """Returns the pairs of connections that are copies; `compared` are all packets of these and of others."""
    engine, packets = united.engine, (united.messages, united.acks)
    some = engine.select(compared, "stream_id")
    theirs = (
        engine.join(engine.select(rows, "stream_id", "capture_id"), some, ["stream_id"], "semi") for rows in packets
    )
    sides = engine.derive(
        places_in_others,
        pairs=pairs,
        connections=connections,
        streams=united.streams,
        shown=engine.distinct(engine.union(*theirs)),
        captures=united.sources.captures,
    )
    placed = engine.join(compared, engine.expect_few(sides), ["stream_id"])
    others = engine.select(compared, "stream_offset", "packet", other="stream_id")
    unread = engine.select(united.unread, "stream_offset", "length", other="stream_id")
    denied = engine.derive(count_denied, placed=placed, packets=others, unread=unread)
    return engine.derive(without_forwarded, pairs=pairs, denied=denied)


def _numbered(united: Conversations[T], number: Work, some: T, on: str) -> T:
    """Returns the packets with these values in a column, which is not null, as `number_packets` numbers them."""
    engine, packets = united.engine, {"messages": united.messages, "acks": united.acks}
    chosen = {
        kind: engine.join(engine.select(packets[kind], *PLACE, "captured_ns", *columns), some, [on], "semi")
        for kind, columns in IDENTITY.items()
    }
    return engine.union(*(engine.derive(partial(number, kind=kind), packets=rows) for kind, rows in chosen.items()))


def _without_copies(united: Conversations[T], copies: T, groups: T) -> tuple[Conversations[T], T]:
    """Returns the tables with each conversation once, and the differences between captures that both hold some.

    `groups` name the stream that counts of each one involved.
    """
    engine = united.engine
    copies, groups = engine.expect_few(copies), engine.expect_few(groups)
    ranges = {name: getattr(united, name) for name in ("streams", "unread", "handshakes")}
    packets = {name: getattr(united, name) for name in ("messages", "acks")}
    involved = {"copies": copies} | ranges | packets
    involved = {name: engine.join(rows, groups, ["stream_id"]) for name, rows in involved.items()}
    made = engine.derive_tables(unite_streams, **involved)
    placed, skews = engine.expect_few(made["placed"]), engine.derive(skews_of, differences=made["differences"])
    own = {"stream_id": "own_stream", "stream_offset": "own_offset"}
    there = engine.select(placed, "late_ns", **own, at_stream="stream_id", at_offset="stream_offset")
    tables: dict[str, Any] = {
        name: engine.union(engine.join(rows, groups, ["stream_id"], "anti"), made[name])
        for name, rows in ranges.items()
    } | {
        name: engine.union(
            engine.join(rows, copies, ["stream_id"], "anti"),
            engine.derive(in_their_places, rows=engine.join(rows, there, PLACE)),
        )
        for name, rows in packets.items()
    }
    tables["unread"] = engine.expect_few(tables["unread"])
    return replace(united, **tables, found=Copies(copies, made["copied"], placed, skews)), made["differences"]
