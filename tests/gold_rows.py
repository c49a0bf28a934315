"""Rows of a replay's tables, as the second computation of findings takes them."""

from typing import Any

import polars as pl
from plain_finding import Finding, Row, Rows
from plain_replay import Night
from replay_tables import TABLES as READ
from replay_tables import Replayed

from schemas.replay import FindingKind


def plain(rows: pl.DataFrame) -> list[Row]:
    """Returns rows with whole numbers for timestamps (µs since 1970)."""
    return rows.with_columns(pl.selectors.datetime().dt.timestamp("us")).to_dicts()


def replayed_rows(replayed: Replayed, night: Night | None = None) -> Rows:
    """Returns the rows of all tables of a replay; `night` is the second ingest of its captures.

    Where captures hold conversations twice, `messages`, `acks` and what is missing are those of each one once.
    """
    tables = {name: getattr(replayed.sources, name) for name in READ}
    names = ("stream_ends", "verdicts", "outcomes", "sequences", "transactions", "findings", "incidents")
    tables |= {name: replayed.tables[name] for name in names}
    rows = {name: list(map(with_keys, plain(of))) for name, of in tables.items()}
    rows["unreadable"] = rows["quarantine"]
    if night is None or all(row["copy_of"] is None for row in rows["stream_ends"]):
        return rows
    for name in ("messages", "acks"):
        keys = {(row["stream_id"], row["stream_offset"]) for row in night.tables[name]}
        own = {night.own_keys.get(key, key) for key in keys}
        rows[name] = [row for row in rows[name] if (row["stream_id"], row["stream_offset"]) in own]
    return rows | {"stream_gaps": night.tables["stream_gaps"], "unreadable": night.tables["quarantine"]}


def with_keys(row: Row) -> Row:
    """Returns a row whose witness lists keys, in place of packets."""
    packets = row.get("witness") or []
    keys = [one if isinstance(one, str) else f"{one['stream_id']}@{one['stream_offset']}" for one in packets]
    return row | {"witness": keys} if "witness" in row else row


def finding_of(row: Row) -> Finding:
    values: dict[str, Any] = {name: row[name] for name in Finding._fields}
    return Finding(**values | {"kind": FindingKind(row["kind"]), "witness": tuple(row["witness"])})
