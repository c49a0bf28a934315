"""Replays over Arrow tables in this process."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import polars as pl
import pyarrow as pa

from jobs.engine.in_process import InProcess
from jobs.replaying.judging import Accept
from jobs.replaying.sources import Sources
from schemas.judging import CHAIN
from schemas.replay import Reading
from udfs.derive.conversations.clocks import disputed_messages, with_steps_undone
from udfs.derive.conversations.united import United, unite
from udfs.derive.frames import to_arrow, to_frame
from udfs.replay.acceptance import STATE, fold_scopes
from udfs.replay.verdicts import LITERAL

_WITH_STATE = pa.schema([*CHAIN, *((name, pa.int64()) for name in STATE)])


@dataclass(frozen=True)
class OnceInProcess:
    """Implements `Once` over Arrow tables."""

    united: United

    @classmethod
    def of(cls, sources: Sources[pa.Table]) -> Self:
        """Unites what was captured twice."""
        tables = United(
            messages=to_frame(sources.messages),
            streams=to_frame(sources.streams),
            stream_gaps=to_frame(sources.stream_gaps),
            quarantine=to_frame(sources.quarantine),
            acks=to_frame(sources.acks),
            handshakes=to_frame(sources.handshakes),
        )
        return cls(unite(tables, to_frame(sources.captures)))

    @cached_property
    def messages(self) -> pa.Table:
        return to_arrow(self.united.messages)

    @cached_property
    def streams(self) -> pa.Table:
        return to_arrow(self.united.streams)

    @cached_property
    def stream_gaps(self) -> pa.Table:
        return to_arrow(self.united.stream_gaps)

    @cached_property
    def quarantine(self) -> pa.Table:
        return to_arrow(self.united.quarantine)

    @cached_property
    def acks(self) -> pa.Table:
        return to_arrow(self.united.acks)

    @cached_property
    def handshakes(self) -> pa.Table:
        return to_arrow(self.united.handshakes)

    def restore(self, verdicts: pa.Table) -> pa.Table:
        return to_arrow(self.united.restore(to_frame(verdicts)))

    def every_end(self, ends: pa.Table) -> pa.Table:
        return to_arrow(self.united.every_end(to_frame(ends)))

    def counted(self, rows: pa.Table) -> pa.Table:
        return rows if self.united.copies is None else to_arrow(self.united.counted(to_frame(rows)))

    def in_time(self, rows: pa.Table) -> pa.Table:
        steps = self.united.steps
        return rows if steps is None else to_arrow(with_steps_undone(to_frame(rows), steps))

    def disputed(self, messages: pa.Table, flows: pa.Table) -> pa.Table:
        skews, placed = self.united.skews, self.united.placed
        if skews is None or placed is None:
            none = messages.select(["source_queue_manager", "stream_id", "stream_offset"])
            return none.slice(0, 0)
        return to_arrow(disputed_messages(to_frame(messages), to_frame(flows), skews, placed))

    def renamed_copies(self, streams: pa.Table) -> pa.Table:
        return to_arrow(self.united.renamed_copies(to_frame(streams)))


def accept_by_fold(engine: InProcess, reading: Reading) -> Accept[pa.Table]:
    """Returns what adds the receiver's state before each chain, by a fold over all chains of a scope."""

    def accept(chains: pa.Table) -> pa.Table:
        states = engine.run(chains, fold_scopes, _WITH_STATE, ("scope_no",), ("replay_order",))
        return to_arrow(with_literal_state(to_frame(states))) if reading is Reading.LITERAL else states

    return accept


def with_literal_state(states: pl.DataFrame) -> pl.DataFrame:
    """Adds the state before each row under the literal reading, where every message sets it, accepted or not."""
    named = zip(LITERAL, ("sequence", "number", "missing"), strict=True)
    before = {name: pl.col(of).shift(1).over("scope_no") for name, of in named}
    return states.sort("scope_no", "replay_order").with_columns(**before)
