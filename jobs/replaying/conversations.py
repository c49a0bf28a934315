"""Shows each conversation once, although captures at both ends hold it twice, by clocks that do not step back.

In most nights one look at few rows finds that there is nothing to do.
"""

from dataclasses import dataclass, replace
from typing import Generic, NamedTuple

from jobs.engine.engine import Engine, T
from jobs.replaying.sources import Sources
from schemas.table import LONG, STRING, row
from udfs.derive.columns import PLACE
from udfs.derive.conversations.clocks import (
    disputed_in_scopes,
    sides_of_skews,
    streams_in_time,
    undo_steps,
    with_recorded_times,
    with_steps_undone,
)
from udfs.derive.conversations.packets import (
    holders,
    number_packets,
    same_packets,
    ways_to_compare,
)
from udfs.derive.conversations.places import skews_of
from udfs.derive.conversations.united import (
    choose_streams,
    in_their_places,
    rename_copies,
    suspect,
    unite_streams,
    with_copies,
    with_own_keys,
)
from udfs.derive.replay.scopes import FLOW_KEY, with_scopes

_COPY = row(stream_id=STRING, copy_of=STRING)
_DISPUTED = row(source_queue_manager=STRING, stream_id=STRING, stream_offset=LONG)


class Copies(NamedTuple, Generic[T]):
    """Holds what is known of streams that were captured twice."""

    copies: T
    """Rows of `copies.stream_copies`."""
    copied: T
    """What ENDS tells of copies."""
    placed: T
    """Rows of `places.place_copies`."""
    skews: T
    """Rows of `places.skews_of`."""


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

    @property
    def is_plain(self) -> bool:
        """Returns whether keys and times are those of the tables."""
        return self.found is None and self.steps is None

    def restore(self, verdicts: T) -> T:
        """Returns VERDICTS with the keys of their messages and the times that were recorded."""
        if self.found is not None:
            others = self.engine.join(verdicts, self.found.placed, PLACE, "anti")
            moved = self.engine.join(verdicts, self.found.placed, PLACE)
            verdicts = self.engine.union(others, self.engine.one(with_own_keys, verdicts=moved))
        if self.steps is not None:
            verdicts = self.engine.one(with_recorded_times, verdicts=verdicts, steps=self.steps)
        return verdicts

    def every_end(self, ends: T) -> T:
        """Returns ENDS, those of copies among them."""
        return ends if self.found is None else self.engine.one(with_copies, ends=ends, copied=self.found.copied)

    def counted(self, rows: T) -> T:
        """Returns the rows of MESSAGES or ACKS that count, as they are in the table."""
        if self.found is None:
            return rows
        only = self.engine.select(self.found.placed, stream_id="own_stream", stream_offset="own_offset")
        others = self.engine.join(rows, self.found.copies, ["stream_id"], "anti")
        return self.engine.union(others, self.engine.join(rows, only, PLACE, "semi"))

    def in_time(self, rows: T) -> T:
        """Returns rows of a table with `captured_ns` by clocks that do not step back."""
        return rows if self.steps is None else self.engine.one(with_steps_undone, rows=rows, steps=self.steps)

    def disputed(self, messages: T, flows: T) -> T:
        """Returns the keys and senders of messages that may have come before or after another one of their scope."""
        engine = self.engine
        if self.found is None:
            return engine.table([], _DISPUTED)
        own = engine.join(messages, self.found.placed, PLACE, "anti")
        shown = engine.distinct(engine.select(own, "stream_id", "capture_id"))
        sides = engine.expect_few(engine.one(sides_of_skews, shown=shown, skews=self.found.skews))
        near = engine.join(engine.select(messages, *FLOW_KEY, "stream_offset", "captured_ns"), sides, ["stream_id"])
        return engine.one(disputed_in_scopes, messages=engine.one(with_scopes, messages=near, flows=flows))

    def renamed_copies(self, streams: T) -> T | None:
        """Returns the rows of STREAMS of which `copy_of` is not what it should be; None where none can be."""
        if self.found is None and not self.had_copies:
            return None
        copies = self.engine.table([], _COPY) if self.found is None else self.found.copies
        return self.engine.one(rename_copies, streams=streams, copies=copies)


def unite(engine: Engine[T], sources: Sources[T]) -> Conversations[T]:
    """Unites what was captured twice, by clocks that never step back."""
    looked = engine.derive(suspect, streams=sources.streams, handshakes=sources.handshakes, captures=sources.captures)
    united = Conversations(
        engine,
        sources.messages,
        looked["streams"],
        sources.stream_gaps,
        sources.quarantine,
        sources.acks,
        sources.handshakes,
        had_copies=engine.count(looked["named"]) > 0,
    )
    if engine.count(looked["steps"]):
        united = _without_steps(united, looked["steps"])
    pairs = looked["alike"]
    if engine.count(looked["vague"]):
        pairs = _with_same_packets(united, looked["connections"], looked["vague"], pairs)
    if not engine.count(pairs):
        return united
    chosen = engine.derive(choose_streams, pairs=pairs, connections=looked["connections"])
    return _without_copies(united, chosen["copies"], chosen["groups"])


def _without_steps(conversations: Conversations[T], steps: T) -> Conversations[T]:
    """Returns the tables with the steps back of the captures' clocks undone."""
    engine = conversations.engine
    undone = engine.derive(
        undo_steps,
        messages=conversations.messages,
        acks=conversations.acks,
        handshakes=conversations.handshakes,
        steps=steps,
    )
    streams = engine.one(streams_in_time, streams=conversations.streams, times=undone["times"])
    return replace(conversations, messages=undone["messages"], acks=undone["acks"], streams=streams, steps=steps)


def _with_same_packets(conversations: Conversations[T], connections: T, vague: T, pairs: T) -> T:
    """Returns the pairs of connections and those that the packets show, of which the beginning of one is not known."""
    engine = conversations.engine
    numbered = engine.derive(number_packets, messages=conversations.messages, acks=conversations.acks, vague=vague)
    packets, asked = numbered["packets"], engine.expect_few(numbered["asked"])
    holding = engine.one(holders, packets=engine.join(packets, asked, ["packet"], "semi"))
    found = engine.derive(ways_to_compare, connections=connections, asked=asked, holding=holding)
    if not engine.count(found["ways"]):
        return pairs
    compared = engine.join(packets, engine.expect_few(found["compared"]), ["stream_id"])
    return engine.union(pairs, engine.one(same_packets, ways=found["ways"], packets=compared))


def _without_copies(conversations: Conversations[T], copies: T, groups: T) -> Conversations[T]:
    """Returns the tables with each conversation once; `groups` name the stream that counts of each one involved."""
    engine = conversations.engine
    copies, groups = engine.expect_few(copies), engine.expect_few(groups)
    ranges = {name: getattr(conversations, name) for name in ("streams", "stream_gaps", "quarantine", "handshakes")}
    packets = {name: getattr(conversations, name) for name in ("messages", "acks")}
    involved = {"copies": copies} | ranges | packets
    involved = {name: engine.join(rows, groups, ["stream_id"]) for name, rows in involved.items()}
    united = engine.derive(unite_streams, **involved)
    ranges = {
        name: engine.union(engine.join(rows, groups, ["stream_id"], "anti"), united[name])
        for name, rows in ranges.items()
    }
    placed, skews = engine.expect_few(united["placed"]), engine.one(skews_of, differences=united["differences"])
    own = {"stream_id": "own_stream", "stream_offset": "own_offset"}
    there = engine.select(placed, "late_ns", **own, at_stream="stream_id", at_offset="stream_offset")
    packets = {
        name: engine.union(
            engine.join(rows, copies, ["stream_id"], "anti"),
            engine.one(in_their_places, rows=engine.join(rows, there, PLACE)),
        )
        for name, rows in packets.items()
    }
    found = Copies(copies, united["copied"], placed, skews)
    return replace(conversations, found=found, **ranges, **packets)
