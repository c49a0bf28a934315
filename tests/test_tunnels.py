"""Captures in tunnels, behind tags and of other link layers say what the same frames plain say; the rest is counted."""

import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from night_truth import SITUATIONS
from pipeline import block_of
from tiers import merge_needs, seeds
from warehouses import derived
from wiretap import ethernet, fragments4, ipv4, pcap, records, tcp, udp

from jobs import cli
from jobs.simulator import simulate
from jobs.simulator.forms import FORMS
from schemas.ingest import CAPTURES, INTERNAL_CONNECTIONS
from schemas.tables import TABLES
from udfs.network.dissect import find_segments
from udfs.network.tunnels import TUNNEL_PORTS

SEVERAL = {"vxlan_fragments", "vxlan_and_plain", "geneve_fragments"}
"""Forms that hold a frame as several."""
PLACES = ("capture_id", "uri", "ingested_at")
FRAMES = ("frame_number", "first_frame", "last_frame", "witness")
DOUBLES = ("vxlan_and_plain",)
NIGHTS = [(form, index % len(SITUATIONS), seed) for seed in range(2) for index, form in enumerate(FORMS)]
Rows = dict[str, list[dict[str, Any]]]


def wide(value: Any, left_out: Sequence[str]) -> Any:
    """The value without the columns that name places, also within it."""
    if isinstance(value, dict):
        return {name: wide(one, left_out) for name, one in value.items() if name not in left_out}
    return [wide(one, left_out) for one in value] if isinstance(value, list) else value


def told(folder: str, form: str, left_out: Sequence[str]) -> Rows:
    """What all tables say of the captures in a folder but for what names places."""
    tables = derived(Path(folder) / "*.pcap")
    kept = {table.name: tables[table.name].to_dicts() for table in TABLES}
    for row in kept[CAPTURES.name]:
        del row["size_bytes"], row["content_bytes"], row["tunnels"]
        if form in SEVERAL:
            del row["packet_count"], row["segment_count"]
    if form in SEVERAL:
        del kept["books"]
    del kept[INTERNAL_CONNECTIONS.name]
    return {name: sorted((wide(row, left_out) for row in rows), key=repr) for name, rows in kept.items()}


@cache
def night(situation: int, seed: int, form: str, left_out: Sequence[str]) -> Rows:
    with TemporaryDirectory() as folder:
        simulate(folder, seed, 150, **{"file_bytes": 1 << 30, "form": form} | SITUATIONS[situation])
        return told(folder, form, left_out)


@pytest.mark.parametrize(("form", "situation", "seed"), merge_needs(NIGHTS[: len(FORMS)], NIGHTS))
def test_any_form_that_keeps_packets_and_times_gives_the_same_tables(form: str, situation: int, seed: int) -> None:
    left_out = (*PLACES, *FRAMES) if form in SEVERAL else PLACES
    plain, found = night(situation, seed, "plain", left_out), dict(night(situation, seed, form, left_out))
    if form in SEVERAL:
        plain = {name: rows for name, rows in plain.items() if name != "books"}
        plain["captures"] = [
            {name: value for name, value in row.items() if name in found["captures"][0]} for row in plain["captures"]
        ]
    assert [name for name, rows in plain.items() if found[name] != rows] == []
    assert plain["messages"]
