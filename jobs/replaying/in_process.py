"""Replays over frames in this process."""

import polars as pl
import pyarrow as pa

from jobs.engine.in_process import InProcess
from jobs.replaying.judging import Accept
from schemas.judging import CHAIN
from schemas.replay import Reading
from udfs.replay.acceptance import STATE, fold_scopes
from udfs.replay.verdicts import LITERAL

_WITH_STATE = pa.schema([*CHAIN, *((name, pa.int64()) for name in STATE)])


def accept_by_fold(engine: InProcess, reading: Reading) -> Accept[pl.DataFrame]:
    """Returns what adds the receiver's state before each chain, by a fold over all chains of a scope."""

    def accept(chains: pl.DataFrame) -> pl.DataFrame:
        states = engine.run(chains, fold_scopes, _WITH_STATE, ("scope_no",), ("replay_order",))
        return with_literal_state(states) if reading is Reading.LITERAL else states

    return accept


def with_literal_state(states: pl.DataFrame) -> pl.DataFrame:
    """Adds the state before each row under the literal reading, where every message sets it, accepted or not."""
    named = zip(LITERAL, ("sequence", "number", "missing"), strict=True)
    before = {name: pl.col(of).shift(1).over("scope_no") for name, of in named}
    return states.sort("scope_no", "replay_order").with_columns(**before)
