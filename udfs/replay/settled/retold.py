"""Finds the rows of `message_history` that stay of the last replay, but for the incident that they name.

Incidents are told of all sequences each time, and a later one may make an earlier one part of another incident.
"""

from typing import Any

import polars as pl

from schemas.history import MESSAGE_HISTORY
from schemas.incidents import INCIDENT_OF
from schemas.replay import SEQUENCES
from udfs.frames.columns import SEQUENCE
from udfs.frames.engine import Engine
from udfs.replay.settled.flow import LastReplay


def retell(
    engine: Engine[Any], last: LastReplay, judged_again: pl.DataFrame, concerned: Any
) -> tuple[Any, pl.DataFrame]:
    """Returns rows of MESSAGE_HISTORY with another incident than the last replay found, and their sequences.

    Sequences that are `judged_again` are not among these. `concerned` are rows of INCIDENT_OF, as it is now.
    """
    stays = engine.join(last.read(SEQUENCES, *INCIDENT_OF.names), judged_again, SEQUENCE, "anti")
    now = engine.join(engine.select(stays, *SEQUENCE), concerned, SEQUENCE, "left")
    changed = engine.keep(engine.join(now, stays, INCIDENT_OF.names, "anti"))
    if not engine.count(changed):
        return engine.table([], MESSAGE_HISTORY.arrow), changed.select(SEQUENCE)
    return engine.keep(engine.join(last.read(MESSAGE_HISTORY), changed, SEQUENCE)), changed.select(SEQUENCE)
