"""Shows each conversation once, although captures at both ends hold it twice, by clocks that do not step back.

In most nights one look at few rows finds that there is nothing to do.
"""

from dataclasses import dataclass, replace
from typing import Generic, NamedTuple

import polars as pl

from jobs.engine.engine import Engine, T
from jobs.replaying.sources import Sources
from schemas.table import LONG, STRING, row
from udfs.derive.columns import CAPTURES_OF_PAIR, PLACE
from udfs.derive.conversations.clocks import (
    disputed_in_scopes,
    places_in_time,
    sides_of_skews,
    streams_in_time,
    with_recorded_times,
    with_steps_undone,
)
from udfs.derive.conversations.copies import X
from udfs.derive.conversations.packets import (
    IDENTITY,
    compared_streams,
    holders,
    identify_packets,
    probes,
    same_packets,
    ways_to_compare,
)
from udfs.derive.conversations.places import skews_of
from udfs.derive.conversations.united import (
    COUNTING,
    Suspicion,
    choose_streams,
    in_their_places,
    rename_copies,
    suspect,
    unite_streams,
    with_copies,
    with_own_keys,
)
from udfs.derive.frames import ALL, Derivation, Frames
from udfs.derive.replay.scopes import FLOW_KEY, with_flow

_TIMED = (*PLACE, "captured_ns", "capture_id")
_HANDSHAKE = ("stream_id", "handshake_type", "client_guid", "time_stamp_ms")
_COPY = row(stream_id=STRING, copy_of=STRING)
_DISPUTED = row(source_queue_manager=STRING, stream_id=STRING, stream_offset=LONG)


def _undo_steps(messages: pl.DataFrame, acks: pl.DataFrame, handshakes: pl.DataFrame, steps: pl.DataFrame) -> Frames:
    return {
        "messages": with_steps_undone(messages, steps),
        "acks": with_steps_undone(acks, steps),
        "places": pl.concat(places_in_time(packets, steps) for packets in (messages, acks, handshakes)),
    }


def _number(messages: pl.DataFrame, acks: pl.DataFrame, vague: pl.DataFrame) -> Frames:
    packets = identify_packets(messages, acks)
    return {"packets": packets, "asked": probes(packets.join(vague, on="stream_id", how="semi"))}


def _find_ways(connections: pl.DataFrame, asked: pl.DataFrame, holding: pl.DataFrame) -> Frames:
    ways = ways_to_compare(connections, asked, holding)
    return {"ways": ways, "compared": compared_streams(ways)}


def _move(messages: pl.DataFrame, acks: pl.DataFrame) -> Frames:
    return {"messages": in_their_places(messages), "acks": in_their_places(acks)}


SUSPECT = Derivation(suspect, {"streams": ALL, "handshakes": _HANDSHAKE, "captures": ("capture_id", "clock_steps")})
UNDO_STEPS = Derivation(
    _undo_steps,
    {"messages": ALL, "acks": ALL, "handshakes": (*_TIMED, "last_frame")},
    ("stream_id",),
    ("steps",),
)
STREAMS_IN_TIME = Derivation(streams_in_time, {"streams": ALL, "places": ALL})
IN_TIME = Derivation(with_steps_undone, {"rows": ALL}, ("stream_id",), ("steps",))
RECORDED = Derivation(with_recorded_times, {"verdicts": ALL}, ("stream_id",), ("steps",))
NUMBERED = Derivation(
    _number,
    {name: (*PLACE, *columns) for name, columns in IDENTITY.items()},
    ("stream_id",),
    ("vague",),
)
HOLDERS = Derivation(holders, {"packets": ("stream_id", "packet")}, ("packet",))
WAYS = Derivation(_find_ways, {"connections": ALL, "asked": ALL, "holding": ALL})
SAME_PACKETS = Derivation(same_packets, {"ways": ALL, "packets": ALL}, (X,))
CHOOSE = Derivation(choose_streams, {"pairs": ALL, "connections": ALL})
UNITE = Derivation(
    unite_streams,
    {
        **dict.fromkeys(("copies", "streams", "stream_gaps", "quarantine", "handshakes"), ALL),
        **dict.fromkeys(("messages", "acks"), _TIMED),
    },
    (COUNTING,),
)
SKEWS = Derivation(skews_of, {"differences": ALL}, CAPTURES_OF_PAIR)
MOVE = Derivation(_move, {"messages": ALL, "acks": ALL}, ("stream_id",))
OWN_KEYS = Derivation(with_own_keys, {"verdicts": ALL}, ("stream_id",))
WITH_COPIES = Derivation(with_copies, {"ends": ALL, "copied": ALL})
RENAMED = Derivation(rename_copies, {"streams": ALL, "copies": _COPY.names})
SIDES = Derivation(sides_of_skews, {"shown": ALL, "skews": ALL})
WITH_SCOPES = Derivation(
    lambda messages, flows: with_flow(messages, flows, "scope_key"),
    {"messages": ALL, "flows": ("scope_key", *FLOW_KEY)},
    ("stream_id",),
)
DISPUTED = Derivation(disputed_in_scopes, {"messages": ALL}, ("scope_key",))


class Copies(NamedTuple, Generic[T]):
    """Holds what is known of streams that were captured twice."""

    copies: T
    """Rows of `copies.stream_copies`."""
    copied: T
    """What ENDS tells of copies."""
    placed: T
    """Rows of `places.place_copies`."""
    skews: T | None
    """Rows of `places.skews_of`; None where no difference was measured."""


@dataclass(frozen=True)
class Conversations(Generic[T]):
    """Holds the tables with each conversation once; a row that only a copy has stands where its stream lacks it."""

    engine: Engine[T]
    messages: T
    streams: T
    stream_gaps: T
    quarantine: T
    acks: T
    handshakes: T
    steps: T | None = None
    """Rows of `clocks.find_steps`, where the times are by clocks without these steps."""
    found: Copies[T] | None = None
    """None without copies."""
    had_copies: bool = False
    """STREAMS names copies, maybe of an earlier replay."""

    def restore(self, verdicts: T) -> T:
        """Returns VERDICTS with the keys of their messages and the times that were recorded."""
        if self.found is not None:
            others = self.engine.join(verdicts, self.found.placed, PLACE, "anti")
            moved = self.engine.join(verdicts, self.found.placed, PLACE)
            verdicts = self.engine.union(others, self.engine.one(OWN_KEYS, verdicts=moved))
        return verdicts if self.steps is None else self.engine.one(RECORDED, verdicts=verdicts, steps=self.steps)

    def every_end(self, ends: T) -> T:
        """Returns ENDS, those of copies among them."""
        return ends if self.found is None else self.engine.one(WITH_COPIES, ends=ends, copied=self.found.copied)

    def counted(self, rows: T) -> T:
        """Returns the rows of MESSAGES or ACKS that count, as they are in the table."""
        if self.found is None:
            return rows
        only = self.engine.select(self.found.placed, stream_id="own_stream", stream_offset="own_offset")
        others = self.engine.join(rows, self.found.copies, ["stream_id"], "anti")
        return self.engine.union(others, self.engine.join(rows, only, PLACE, "semi"))

    def in_time(self, rows: T) -> T:
        """Returns rows of a table with `captured_ns` by clocks that do not step back."""
        return rows if self.steps is None else self.engine.one(IN_TIME, rows=rows, steps=self.steps)

    def disputed(self, messages: T, flows: T) -> T:
        """Returns the keys and senders of messages that may have come before or after another one of their scope."""
        engine = self.engine
        if self.found is None or self.found.skews is None:
            return engine.table([], _DISPUTED)
        own = engine.join(messages, self.found.placed, PLACE, "anti")
        shown = engine.distinct(engine.select(own, stream_id="stream_id", capture_id="capture_id"))
        sides = engine.expect_few(engine.one(SIDES, shown=shown, skews=self.found.skews))
        columns = {name: name for name in (*FLOW_KEY, "stream_offset", "captured_ns")}
        near = engine.join(engine.select(messages, **columns), sides, ["stream_id"])
        return engine.one(DISPUTED, messages=engine.one(WITH_SCOPES, messages=near, flows=flows))

    def renamed_copies(self, streams: T) -> T | None:
        """Returns the rows of STREAMS of which `copy_of` is not what it should be; None where none can be."""
        if self.found is None and not self.had_copies:
            return None
        copies = self.engine.table([], _COPY) if self.found is None else self.found.copies
        return self.engine.one(RENAMED, streams=streams, copies=copies)


def unite(engine: Engine[T], sources: Sources[T]) -> Conversations[T]:
    """Unites what was captured twice, by clocks that never step back."""
    looked = engine.derive(SUSPECT, streams=sources.streams, handshakes=sources.handshakes, captures=sources.captures)
    suspicions = {row["suspicion"] for row in engine.collect(looked["suspicions"])}
    once = Conversations(
        engine,
        sources.messages,
        looked["streams"],
        sources.stream_gaps,
        sources.quarantine,
        sources.acks,
        sources.handshakes,
        had_copies=Suspicion.HAD_COPIES in suspicions,
    )
    if Suspicion.CLOCK_STEPS in suspicions:
        once = _without_steps(once, looked["steps"])
    pairs = looked["alike"] if Suspicion.ALIKE in suspicions else None
    if Suspicion.VAGUE in suspicions:
        pairs = _with_same_packets(once, looked["connections"], looked["vague"], pairs)
    if pairs is None:
        return once
    chosen = engine.derive(CHOOSE, pairs=pairs, connections=looked["connections"])
    copies = chosen["copies"]
    return _without_copies(once, copies, chosen["groups"]) if engine.count(copies) else once


def _without_steps(once: Conversations[T], steps: T) -> Conversations[T]:
    """Returns the tables with the steps back of the captures' clocks undone."""
    engine = once.engine
    undone = engine.derive(UNDO_STEPS, messages=once.messages, acks=once.acks, handshakes=once.handshakes, steps=steps)
    streams = engine.one(STREAMS_IN_TIME, streams=once.streams, places=undone["places"])
    return replace(once, messages=undone["messages"], acks=undone["acks"], streams=streams, steps=steps)


def _with_same_packets(once: Conversations[T], connections: T, vague: T, pairs: T | None) -> T | None:
    """Returns the pairs of connections and those that the packets show, of which the beginning of one is not known."""
    engine = once.engine
    numbered = engine.derive(NUMBERED, messages=once.messages, acks=once.acks, vague=vague)
    packets, asked = numbered["packets"], numbered["asked"]
    if not engine.count(asked):
        return pairs
    holding = engine.one(HOLDERS, packets=engine.join(packets, engine.expect_few(asked), ["packet"], "semi"))
    found = engine.derive(WAYS, connections=connections, asked=asked, holding=holding)
    if not engine.count(found["ways"]):
        return pairs
    compared = engine.join(packets, engine.expect_few(found["compared"]), ["stream_id"])
    same = engine.one(SAME_PACKETS, ways=found["ways"], packets=compared)
    return same if pairs is None else engine.union(pairs, same)


def _without_copies(once: Conversations[T], copies: T, groups: T) -> Conversations[T]:
    """Returns the tables with each conversation once; `groups` name the stream that counts of each one involved."""
    engine = once.engine
    copies, groups = engine.expect_few(copies), engine.expect_few(groups)
    ranges = {name: getattr(once, name) for name in ("streams", "stream_gaps", "quarantine", "handshakes")}
    packets = {name: getattr(once, name) for name in ("messages", "acks")}
    parts = {"copies": copies} | ranges | packets
    united = engine.derive(UNITE, **{name: engine.join(rows, groups, ["stream_id"]) for name, rows in parts.items()})
    ranges = {
        name: engine.union(engine.join(rows, groups, ["stream_id"], "anti"), united[name])
        for name, rows in ranges.items()
    }
    placed, skews = engine.expect_few(united["placed"]), engine.one(SKEWS, differences=united["differences"])
    there = engine.select(
        placed,
        stream_id="own_stream",
        stream_offset="own_offset",
        at_stream="stream_id",
        at_offset="stream_offset",
        late_ns="late_ns",
    )
    moved = engine.derive(MOVE, **{name: engine.join(rows, there, PLACE) for name, rows in packets.items()})
    packets = {
        name: engine.union(engine.join(rows, copies, ["stream_id"], "anti"), moved[name])
        for name, rows in packets.items()
    }
    found = Copies(copies, united["copied"], placed, skews if engine.count(skews) else None)
    return replace(once, found=found, **ranges, **packets)
