"""Puts outcomes and findings together as incidents, with the frames that prove them."""

from udfs.frames.columns import PLACE, SEQUENCE
from udfs.frames.engine import Engine, T
from udfs.replay.incidents.events import (
    addresses_reached,
    addresses_seen,
    messages_sent,
    shared_sequences,
    tell_incidents,
)
from udfs.replay.order.conversations import Conversations
from udfs.replay.witness import find_frames, places_of, with_frames


def find_incidents(
    engine: Engine[T], unusual: T, tallies: T, undelivered: T, findings: T, sequences: T
) -> dict[str, T]:
    """Returns `incidents`, and `findings` with the one that each is part of; witnesses are keys.

    And `sequences`, rows of INCIDENT_OF. `unusual` are the verdicts in unusual slots, or more.
    """
    of_sequences = (engine.select(rows, *SEQUENCE) for rows in (undelivered, findings))
    troubled = engine.expect_few(engine.distinct(engine.union(*of_sequences)))
    sent = engine.derive(
        messages_sent,
        verdicts=engine.join(unusual, troubled, SEQUENCE, "semi"),
        tallies=engine.join(tallies, troubled, SEQUENCE, "semi"),
        outcomes=undelivered,
    )
    seen = engine.derive(addresses_seen, tallies=tallies)
    reached = engine.derive(addresses_reached, tallies=engine.join(tallies, troubled, SEQUENCE, "semi"))
    return engine.derive_tables(
        tell_incidents,
        findings=findings,
        outcomes=undelivered,
        sequences=sequences,
        sent=sent,
        seen=seen,
        reached=reached,
        shared=engine.derive(shared_sequences, tallies=tallies),
    )


def with_proof(united: Conversations[T], verdicts: T, **explained: T) -> dict[str, T]:
    """Returns the same rows, whose witnesses list packets with their frames."""
    engine, sources = united.engine, united.sources
    places = engine.derive(places_of, **explained)
    packets, judged = (engine.join(table, places, PLACE, "semi") for table in (sources.packets, verdicts))
    frames = engine.derive(find_frames, packets=packets, verdicts=judged, captures=sources.captures)
    return {name: engine.derive(with_frames, rows=rows, frames=frames) for name, rows in explained.items()}
