"""Unites what was captured twice and undoes the steps back of captures' clocks, before the replay.

One query finds whether there is anything to do; in most warehouses there is not.
"""

from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.app.logs import progress
from jobs.transforms.facts.captures import captured_twice, clock_steps
from jobs.transforms.facts.connections import began_with_another_version, cannot_connect
from jobs.transforms.facts.kinds import Facts
from jobs.transforms.facts.stalls import window_stalled
from jobs.transforms.replay.clocks import find_steps, with_steps_undone
from jobs.transforms.replay.conversations import Conversations, measure_skews, place_copies, unread_by_all
from jobs.transforms.replay.copies import (
    choose_connections,
    compared_ways,
    identify_packets,
    known_connections,
    same_beginning,
    same_packets,
    stream_copies,
    suspect_copies,
)
from jobs.warehouse.checkpoint import Materialize, materialize
from jobs.warehouse.store import Warehouse
from schemas.ingest import CAPTURES, QUARANTINE, STREAMS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES, SESSION_ACKS
from schemas.pings import PINGS
from udfs.replay.findings.captures import CannotConnect, CapturedTwice, ClockStepped
from udfs.replay.findings.receivers import WindowStalled


def unite(tables: Conversations, captures: DataFrame, *, materialize: Materialize = materialize) -> Conversations:
    """Returns the tables with every conversation once, by clocks that never step back."""
    every = tables.streams
    if "attempt" in every.columns:
        tables = tables._replace(streams=every.where("attempt is null").drop("attempt"))
    connections = known_connections(tables.streams, tables.handshakes)
    suspected = suspect_copies(connections).crossJoin(every.agg(_any("copy_of", every), _any("attempt", every)))
    other_version = F.coalesce(F.max(began_with_another_version(tables.quarantine)), F.lit(False))
    suspected = suspected.crossJoin(tables.quarantine.agg(other_version.alias("other_version")))
    suspected = suspected.crossJoin(captures.agg(_any("clock_steps", captures)))
    (found,) = (row.asDict() for row in suspected.collect())
    tables = tables._replace(streams=tables.streams.drop("copy_of"), had_copies=found["copy_of"])
    tables = tables._replace(failing=found["attempt"] or found["failing"] or found["other_version"])
    if found["clock_steps"]:
        tables = tables.without_steps(materialize(find_steps(captures)))
    if not found["same_beginning"] and not found["vague"]:
        return tables
    suspicions = {"alike": found["same_beginning"], "vague": found["vague"]}
    copies = _find_copies(tables, materialize(connections), materialize, **suspicions)
    if copies is None:
        return tables
    progress(f"replay: {copies.count()} streams were captured twice")
    ranges = (copies, tables.streams, tables.stream_gaps, tables.quarantine)
    placed = materialize(place_copies(*ranges, tables.messages, tables.acks))
    skews = materialize(measure_skews(copies, tables.messages, tables.acks))
    united = tables.without_copies(copies, placed, materialize(unread_by_all(*ranges)))
    return united if skews.isEmpty() else united._replace(skews=skews)


def name_copies(warehouse: Warehouse, tables: Conversations) -> None:
    """Writes `copy_of` of STREAMS, where it is not as `unite` found it."""
    changed = tables.renamed_copies(warehouse.read(STREAMS))
    if changed is not None and not (changed := warehouse.materialize(changed)).isEmpty():
        warehouse.create(STREAMS)
        warehouse.merge(STREAMS, changed, update=True)


def _any(column: str, rows: DataFrame) -> Column:
    """Aggregates to whether any row has a value; tables of older releases lack the column."""
    has_value = F.max(F.col(column).isNotNull()) if column in rows.columns else F.lit(False)
    return F.coalesce(has_value, F.lit(False)).alias(column)


def facts_of_captures(tables: Conversations, ends: DataFrame, warehouse: Warehouse) -> Facts:
    """Returns the facts about captures, and about who could not connect or stopped taking packets."""
    read, captures = warehouse.read, warehouse.read(CAPTURES)
    facts: dict[type[Any], DataFrame] = {} if tables.copies is None else {CapturedTwice: captured_twice(ends)}
    if tables.steps is not None:
        facts[ClockStepped] = clock_steps(captures, read(MESSAGES))
    pings = None if warehouse.is_new(PINGS) else read(PINGS)
    if tables.failing or pings is not None:
        facts[CannotConnect] = cannot_connect(read(STREAMS), read(HANDSHAKES), read(QUARANTINE), captures, pings)
    messages, acks, session_acks = (
        rows if tables.steps is None else with_steps_undone(rows, tables.steps)
        for rows in map(read, (MESSAGES, ACKS, SESSION_ACKS))
    )
    facts[WindowStalled] = window_stalled(read(STREAMS), ends, messages, acks, session_acks, read(HANDSHAKES))
    return facts


def _find_copies(
    tables: Conversations, connections: DataFrame, materialize: Materialize, *, alike: bool, vague: bool
) -> DataFrame | None:
    """Returns the streams that are copies, and of which; None without any. `connections` are materialized.

    `alike`: connections begin alike; `vague`: the beginning of one is not known, so that packets are compared.
    """
    parts = [same_beginning(connections)] if alike else []
    if vague:
        packets = identify_packets(tables.messages, tables.acks)
        ways = materialize(compared_ways(connections, packets))
        parts += [] if ways.isEmpty() else [same_packets(ways, packets)]
    if not parts:
        return None
    pairs = materialize(reduce(DataFrame.unionByName, parts))
    if pairs.isEmpty():
        return None
    return materialize(stream_copies(materialize(choose_connections(pairs, connections)), connections))
