"""Unites what was captured twice and undoes the steps back of captures' clocks, before the replay.

One query finds whether there is anything to do; in most warehouses there is not.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.app.logs import progress
from jobs.transforms.findings.captures import captured_twice, clock_stepped
from jobs.transforms.replay.clocks import find_steps
from jobs.transforms.replay.conversations import Conversations, place_copies, unread_by_all
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
from jobs.warehouse.checkpoint import materialize


def unite(tables: Conversations, captures: DataFrame | None = None) -> Conversations:
    """Returns the tables with every conversation once, by clocks that never step back."""
    connections = known_connections(tables.streams, tables.handshakes)
    suspected = suspect_copies(connections)
    if captures is not None and "clock_steps" in captures.columns:  # not in tables of older releases
        stepped = F.coalesce(F.max(F.col("clock_steps").isNotNull()), F.lit(False))
        suspected = suspected.crossJoin(captures.agg(stepped.alias("stepped")))
    (found,) = (row.asDict() for row in suspected.collect())
    if captures is not None and found.get("stepped"):
        tables = tables.without_steps(materialize(find_steps(captures)))
    if not found["same_beginning"] and not found["vague"]:
        return tables
    copies = _find_copies(tables, materialize(connections), vague=found["vague"])
    if copies is None:
        return tables
    progress(f"replay: {copies.count()} streams were captured twice")
    ranges = (copies, tables.streams, tables.stream_gaps, tables.quarantine)
    placed = materialize(place_copies(*ranges, tables.messages, tables.acks))
    return tables.without_copies(copies, placed, materialize(unread_by_all(*ranges)))


def findings_of_captures(
    tables: Conversations, ends: DataFrame, messages: DataFrame, captures: DataFrame
) -> list[DataFrame]:
    """Returns the findings that tell how the traffic was captured; none where `unite` had nothing to do."""
    findings = [] if tables.copies is None else [captured_twice(ends)]
    return findings if tables.steps is None else [*findings, clock_stepped(captures, messages)]


def _find_copies(tables: Conversations, connections: DataFrame, *, vague: bool) -> DataFrame | None:
    """Returns the streams that are copies, and of which; None without any. `connections` are materialized."""
    pairs = same_beginning(connections)
    if vague:
        packets = identify_packets(tables.messages, tables.acks, tables.handshakes)
        ways = materialize(compared_ways(connections, packets))
        pairs = pairs.unionByName(same_packets(ways, packets)) if not ways.isEmpty() else pairs
    pairs = materialize(pairs)
    if pairs.isEmpty():
        return None
    return materialize(stream_copies(materialize(choose_connections(pairs, connections)), connections))
